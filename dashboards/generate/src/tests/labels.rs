//! Derives the labels of a query's result from the catalogue. An unknown label is an error.

use std::collections::BTreeSet;

use lock_metrics::{MetricKind, catalog};

use crate::tests::promql::{Expr, Matching, Side, parse};
use crate::tests::rules::{Rule, rules};

pub(crate) type Labels = BTreeSet<String>;

/// The properties of a series.
pub(crate) struct Series {
    /// The metric that the series belongs to.
    pub(crate) metric: String,
    pub(crate) labels: Labels,
    /// Whether the series only grows.
    pub(crate) is_total: bool,
    pub(crate) buckets: &'static [f64],
}

/// Looks up a series: in the catalogue, among coming metrics, among recorded ones.
pub(crate) fn series(name: &str) -> Result<Series, String> {
    let scraped = |labels: &[&str]| {
        labels.iter().chain(&["cluster", "namespace", "job", "instance"]).map(|label| (*label).to_owned()).collect()
    };
    let found = |metric: &str, labels: Labels, is_total, buckets| Series {
        metric: metric.to_owned(),
        labels,
        is_total,
        buckets,
    };
    for metric in catalog() {
        let labels: Labels = scraped(metric.labels());
        match metric.kind() {
            MetricKind::Histogram(buckets) => match name.strip_prefix(metric.name()) {
                Some("_bucket") => {
                    let labels = labels.into_iter().chain(["le".to_owned()]).collect();
                    return Ok(found(metric.name(), labels, true, buckets));
                }
                Some("_sum" | "_count") => return Ok(found(metric.name(), labels, true, &[])),
                // The name of a histogram after a server has converted it to a native one.
                Some("") => return Ok(found(metric.name(), labels, false, &[])),
                _ => {}
            },
            kind if metric.name() == name => return Ok(found(name, labels, kind == MetricKind::Counter, &[])),
            _ => {}
        }
    }
    // Series that Prometheus adds for every alert.
    if ["ALERTS", "ALERTS_FOR_STATE"].contains(&name) {
        let labels = ["alertname", "alertstate", "severity", "store", "lock", "backend"];
        return Ok(found(name, scraped(&labels), false, &[]));
    }
    // Series that Prometheus adds for every target, and series of redis_exporter.
    const OTHERS: [&str; 6] = [
        "up",
        "scrape_duration_seconds",
        "redis_memory_used_bytes",
        "redis_memory_max_bytes",
        "redis_connected_clients",
        "redis_config_maxclients",
    ];
    if OTHERS.contains(&name) {
        return Ok(found(name, scraped(&[]), false, &[]));
    }
    for rule in rules() {
        if let Rule::Record { name: recorded, expr } = rule
            && recorded == name
        {
            return Ok(found(name, of(&parse(expr)?)?, false, &[]));
        }
    }
    Err(format!("{name} is not in the catalogue"))
}

/// Returns the labels of the result of a query.
pub(crate) fn of(expr: &Expr) -> Result<Labels, String> {
    match expr {
        Expr::Number | Expr::Text(_) => Ok(Labels::new()),
        Expr::Subquery(inner) => of(inner),
        Expr::Selector { name, matchers, .. } => {
            let labels = series(name)?.labels;
            require(matchers.iter().map(|(label, _)| label), &labels, name)?;
            Ok(labels)
        }
        Expr::Call { function, arguments } => {
            let mut labels = Labels::new();
            for argument in arguments {
                labels.extend(of(argument)?);
            }
            if function == "histogram_quantile" && !labels.remove("le") {
                return Err("a quantile of something without le".to_owned());
            }
            if let ("label_replace", Some(Expr::Text(made))) = (function.as_str(), arguments.get(1)) {
                labels.insert(made.clone());
            }
            Ok(labels)
        }
        Expr::Aggregate { picks, by, of: inner, .. } => {
            let labels = of(inner)?;
            require(by, &labels, "an aggregation")?;
            Ok(if *picks { labels } else { by.iter().cloned().collect() })
        }
        Expr::Binary { operator, left, right, matching, group } => {
            let (left_is_number, right_is_number) = (is_number(left), is_number(right));
            let (left, right) = (of(left)?, of(right)?);
            match matching {
                Matching::On(on) => {
                    require(on, &left, operator)?;
                    require(on, &right, operator)?;
                }
                Matching::Ignoring(ignored) => {
                    let rest = |labels: &Labels| {
                        labels.iter().filter(|label| !ignored.contains(label)).cloned().collect::<Labels>()
                    };
                    if rest(&left) != rest(&right) {
                        return Err(format!("{operator} matches {left:?} with {right:?}, ignoring {ignored:?}"));
                    }
                }
                Matching::All if left_is_number || right_is_number || left == right || operator == "or" => {}
                Matching::All => return Err(format!("{operator} matches {left:?} with {right:?}")),
            }
            let is_set = ["and", "or", "unless"].contains(&operator.as_str());
            Ok(match (group, matching) {
                (Some(Side::Right), _) => right,
                _ if left_is_number => right,
                // A one-to-one match keeps only the matched labels.
                (None, Matching::On(on)) if !is_set => on.iter().cloned().collect(),
                (None, Matching::Ignoring(ignored)) if !is_set => {
                    left.into_iter().filter(|label| !ignored.contains(label)).collect()
                }
                _ => left,
            })
        }
    }
}

/// Whether the expression has one value and no labels.
fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Number => true,
        Expr::Call { function, .. } => function == "time",
        Expr::Binary { left, right, .. } => is_number(left) && is_number(right),
        _ => false,
    }
}

fn require<'a>(wanted: impl IntoIterator<Item = &'a String>, there: &Labels, by: &str) -> Result<(), String> {
    match wanted.into_iter().find(|label| !there.contains(*label)) {
        Some(label) => Err(format!("{by} uses the label {label}, and there are only {there:?}")),
        None => Ok(()),
    }
}

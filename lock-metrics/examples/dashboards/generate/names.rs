//! The names of series. One that is not in the catalogue does not get into a query.

use lock_metrics::{MetricKind, catalog};

/// Metrics that are on a dashboard before they are in the catalogue: name and labels. None at the moment.
pub(crate) const COMING: &[(&str, &[&str])] = &[];

/// What every selector of a dashboard carries.
const SELECTED: &str = r#"job=~"$job", instance=~"$instance""#;

/// Returns the full name of a series: `held` gives `distributed_lock_held`. Histograms are named with
/// `_bucket`, `_sum` or `_count`.
pub(crate) fn series(short: &str) -> String {
    let name = format!("distributed_lock_{short}");
    let is_histogram = |metric: &lock_metrics::Metric| matches!(metric.kind(), MetricKind::Histogram(_));
    let known = catalog().any(|metric| metric.name() == name && !is_histogram(metric))
        || COMING.iter().any(|(coming, _)| *coming == name)
        || ["_bucket", "_sum", "_count"].iter().any(|suffix| {
            let base = name.strip_suffix(suffix);
            base.is_some_and(|base| catalog().any(|metric| metric.name() == base && is_histogram(metric)))
        });
    assert!(known, "{name} is not in the catalogue");
    name
}

/// Selects a series on a dashboard.
pub(crate) fn on(short: &str) -> String {
    format!("{}{{{SELECTED}}}", series(short))
}

/// Selects a series on a dashboard, with more matchers.
pub(crate) fn on_with(short: &str, matchers: &str) -> String {
    format!("{}{{{SELECTED}, {matchers}}}", series(short))
}

/// Fills `{name}` placeholders of a query in rules.
pub(crate) fn plain(template: &str) -> String {
    fill(template, &|short, matchers| match matchers {
        "" => series(short),
        matchers => format!("{}{{{matchers}}}", series(short)),
    })
}

/// Fills placeholders of a query on a dashboard.
pub(crate) fn selected(template: &str) -> String {
    fill(template, &|short, matchers| match matchers {
        "" => on(short),
        matchers => on_with(short, matchers),
    })
}

/// Replaces every `@name` and `@name{matchers}`. A marker of our own, because a query is full of
/// the braces and dollars that other templates use.
fn fill(template: &str, replace: &dyn Fn(&str, &str) -> String) -> String {
    let mut parts = template.split('@');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let (matchers, rest) = match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((matchers, rest)) => (matchers, rest),
            None => ("", rest),
        };
        filled.push_str(&replace(name, matchers));
        filled.push_str(rest);
    }
    filled
}

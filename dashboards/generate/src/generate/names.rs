//! The names of series. A name that is not in the catalogue cannot be used in a query.

use lock_metrics::{MetricKind, catalog};

/// Metrics that dashboards use before they are in the catalogue: name and labels. None at the moment.
pub(crate) const COMING: &[(&str, &[&str])] = &[];

/// The matchers of every selector on a dashboard.
const SELECTED: &str = r#"cluster=~"$cluster", namespace=~"$namespace", job=~"$job", instance=~"$instance""#;

/// The matchers of a selector for the whole fleet.
const EVERYWHERE: &str = r#"cluster=~"$cluster""#;
/// Marks a selector for the whole fleet, in place of its first matcher.
const FLEET: &str = "FLEET";

/// The labels that tell services apart, wherever they run: missing labels are empty.
pub(crate) const SERVICE: &str = "cluster, namespace, job";
/// The labels that tell processes apart.
pub(crate) const PROCESS: &str = "cluster, namespace, job, instance";

/// Returns the age of a timestamp by the clock of the process that exports it, where it is set.
pub(crate) fn age(short: &str) -> String {
    age_of(short, "")
}

/// Returns the same age over all services, whichever are selected.
pub(crate) fn age_in_fleet(short: &str) -> String {
    age_of(short, "{FLEET}")
}

fn age_of(short: &str, marker: &str) -> String {
    let name = format!("distributed_lock_{short}");
    let labels = catalog().find(|metric| metric.name() == name).map(|metric| metric.labels().join(", "));
    let matching = labels
        .filter(|labels| !labels.is_empty())
        .map_or_else(String::new, |labels| format!("ignoring ({labels}) group_right () "));
    format!("(@now_timestamp_seconds{marker} - {matching}(@{short}{marker} > 0))")
}

/// Returns the growth of each series of a total within some minutes, where it grew. It includes a process that is younger
/// than its first scrape, whose total was never seen at 0.
pub(crate) fn growth(total: &str, minutes: u32) -> String {
    let seconds = minutes * 60;
    format!(
        "(increase(@{total}[{minutes}m]) > 0 or (@{total} > 0 and on ({PROCESS}) \
         (@now_timestamp_seconds - @start_timestamp_seconds < {seconds})))"
    )
}

/// A histogram under its bare name, which exists only if a server converted it to a native one.
pub(crate) const CONVERTED: &str = "wait_seconds";

/// Returns the full name of a series: `held` gives `distributed_lock_held`. Histograms are named with
/// `_bucket`, `_sum` or `_count`.
pub(crate) fn series(short: &str) -> String {
    let name = format!("distributed_lock_{short}");
    let is_histogram = |metric: &lock_metrics::Metric| matches!(metric.kind(), MetricKind::Histogram(_));
    let known = catalog().any(|metric| metric.name() == name && (!is_histogram(metric) || short == CONVERTED))
        || COMING.iter().any(|(coming, _)| *coming == name)
        || ["_bucket", "_sum", "_count"].iter().any(|suffix| {
            let base = name.strip_suffix(suffix);
            base.is_some_and(|base| catalog().any(|metric| metric.name() == base && is_histogram(metric)))
        });
    assert!(known, "{name} is not in the catalogue");
    name
}

/// Returns the histograms that an expression reads: a process may leave them out.
pub(crate) fn histograms(expr: &str) -> Vec<&'static str> {
    let histograms = catalog().filter(|metric| !metric.buckets().is_empty()).map(lock_metrics::Metric::name);
    let is_read =
        |name: &&str| ["_bucket", "_sum", "_count"].iter().any(|suffix| expr.contains(&format!("{name}{suffix}")));
    histograms.filter(is_read).collect()
}

/// Selects a series on a dashboard.
pub(crate) fn on(short: &str) -> String {
    format!("{}{{{SELECTED}}}", series(short))
}

/// Selects a series on a dashboard, with more matchers.
fn on_with(short: &str, matchers: &str) -> String {
    format!("{}{{{SELECTED}, {matchers}}}", series(short))
}

/// Selects series of all services, whichever are selected: what the inspector found, since it runs in any
/// of them, and what is compared with that.
fn of_the_fleet(short: &str, matchers: &str) -> Option<String> {
    let more = matchers.strip_prefix(FLEET).map(|more| more.trim_start_matches([',', ' ']));
    let more = more.or_else(|| short.starts_with("inspector_").then_some(matchers))?;
    let separator = if more.is_empty() { "" } else { ", " };
    Some(format!("{}{{{EVERYWHERE}{separator}{more}}}", series(short)))
}

/// Fills `{name}` placeholders of a query in rules.
pub(crate) fn plain(template: &str) -> String {
    fill(template, &|short, matchers| match matchers {
        "" | FLEET => series(short),
        matchers => format!("{}{{{matchers}}}", series(short)),
    })
}

/// Fills placeholders of a query on a dashboard.
pub(crate) fn selected(template: &str) -> String {
    fill(template, &|short, matchers| {
        of_the_fleet(short, matchers).unwrap_or_else(|| match matchers {
            "" => on(short),
            matchers => on_with(short, matchers),
        })
    })
}

/// Replaces every `@name` and `@name{matchers}`. The marker is our own, because queries are full of
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

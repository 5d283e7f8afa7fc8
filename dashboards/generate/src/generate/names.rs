//! The names of series. A name that is not in the catalogue cannot be used in a query.

use lock_metrics::{MetricKind, catalog};

/// The matchers of every selector on a dashboard.
const SELECTED: &str =
    r#"<<clusterLabel>>=~"$cluster", <<namespaceLabel>>=~"$namespace", job=~"$job", instance=~"$instance""#;

/// The matcher of a selector for the whole fleet.
const EVERYWHERE: &str = r#"<<clusterLabel>>=~"$cluster""#;
/// Marks a selector for the whole fleet, in place of its first matcher.
pub(super) const FLEET: &str = "FLEET";

/// The labels that tell processes apart, in any cluster or namespace. A missing label is empty.
pub(crate) const PROCESS: &str = "<<clusterLabel>>, <<namespaceLabel>>, job, instance";
/// The labels that tell stores apart.
pub(crate) const STORE: &str = "<<storeLabels>>";
/// The present time by the clock of each store: the median over its processes.
pub(crate) fn store_now() -> String {
    format!("quantile by ({STORE}) (0.5, @store_now_timestamp_seconds)")
}

/// Returns the age of a timestamp, by the clock of the process that exports it. A timestamp of 0 is left out.
pub(crate) fn age(short: &str) -> String {
    age_of(short, "")
}

/// Returns the same age over all services, whichever are selected.
pub(crate) fn age_in_fleet(short: &str) -> String {
    age_of(short, "{FLEET}")
}

fn age_of(short: &str, marker: &str) -> String {
    let name = format!("distributed_lock_{short}");
    let labels = labels_of(&name).map(|labels| labels.join(", "));
    let matching = labels
        .filter(|labels| !labels.is_empty())
        .map_or_else(String::new, |labels| format!("ignoring ({labels}) group_right () "));
    format!("(@now_timestamp_seconds{marker} - {matching}(@{short}{marker} > 0))")
}

fn labels_of(name: &str) -> Option<Vec<&'static str>> {
    catalog().find(|metric| metric.name() == name).map(|metric| metric.labels().to_vec())
}

/// Returns the growth of each series of a total within some minutes, where it grew. This includes a process that is
/// younger than its first scrape, whose total was never seen at 0. It also includes growth while samples were missing
/// for longer than that.
pub(crate) fn growth(total: &str, minutes: u32) -> String {
    let seconds = minutes * 60;
    format!(
        "(increase(@{total}[{minutes}m]) > 0 or (@{total} > 0 and on ({PROCESS}) \
         (@now_timestamp_seconds - @start_timestamp_seconds < {seconds})) \
         or (@{total} - last_over_time(@{total}[1d] offset {minutes}m) > 0 unless @{total} offset {minutes}m))"
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
        || ["_bucket", "_sum", "_count"].iter().any(|suffix| {
            let base = name.strip_suffix(suffix);
            base.is_some_and(|base| catalog().any(|metric| metric.name() == base && is_histogram(metric)))
        });
    assert!(known, "{name} is not in the catalogue");
    name
}

/// Returns the histograms that an expression reads. A process may leave them out.
pub(crate) fn histograms(expr: &str) -> Vec<&'static str> {
    let histograms = catalog().filter(|metric| !metric.buckets().is_empty()).map(lock_metrics::Metric::name);
    let is_read =
        |name: &&str| ["_bucket", "_sum", "_count"].iter().any(|suffix| expr.contains(&format!("{name}{suffix}")));
    histograms.filter(is_read).collect()
}

/// Selects a series on a dashboard, with more matchers. The inspector runs in any service, so its series are selected in the
/// whole fleet, and so are series that are compared with them.
fn on(short: &str, matchers: &str) -> String {
    let name = series(short);
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    let labels = labels_of(&name).or_else(|| base.and_then(labels_of)).unwrap_or_default();
    let of_fleet = matchers.strip_prefix(FLEET).map(|more| more.trim_start_matches([',', ' ']));
    let is_of_fleet = of_fleet.is_some() || short.starts_with("inspector_");
    let mut all = if is_of_fleet { EVERYWHERE } else { SELECTED }.to_owned();
    let more = of_fleet.unwrap_or(matchers);
    for label in ["store", "lock"] {
        if labels.contains(&label) && !more.contains(&format!("{label}=\"")) {
            all.push_str(&format!(", {label}=~\"${label}\""));
        }
    }
    let separator = if more.is_empty() { "" } else { ", " };
    format!("{name}{{{all}{separator}{more}}}")
}

/// Fills placeholders of a query on a dashboard.
pub(crate) fn selected(template: &str) -> String {
    // The series that Prometheus adds for every target.
    fill(template, &on).replace("<<up>>", &format!("up{{{SELECTED}}}"))
}

/// Replaces every `@name` and `@name{matchers}`. Queries are full of the braces and dollars of other templates, so this
/// marker is different.
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

//! The names of series. A name that is not in the catalogue cannot be used in a query.

use lock_metrics::{MetricKind, catalog};

/// Metrics that dashboards use before they are in the catalogue: name and labels. None at the moment.
pub(crate) const COMING: &[(&str, &[&str])] = &[];

/// The matchers of every selector on a dashboard.
const SELECTED: &str =
    r#"<<clusterLabel>>=~"$cluster", <<namespaceLabel>>=~"$namespace", job=~"$job", instance=~"$instance""#;

/// The matchers of a selector for the whole fleet.
const EVERYWHERE: &str = r#"<<clusterLabel>>=~"$cluster", store=~"$store""#;
/// Marks a selector for the whole fleet, in place of its first matcher.
const FLEET: &str = "FLEET";

/// The same for a series that belongs to a process and not to a store.
const PROCESSES: &str = "PROCESSES";

/// The labels that tell services apart, in any cluster or namespace. A missing label is empty.
pub(crate) const SERVICE: &str = "<<clusterLabel>>, <<namespaceLabel>>, job";
/// The labels that tell processes apart.
pub(crate) const PROCESS: &str = "<<clusterLabel>>, <<namespaceLabel>>, job, instance";
/// The same if two jobs or two servers may scrape one process.
const ONCE: &str = "<<clusterLabel>>, <<namespaceLabel>>, instance";
/// The labels that tell stores apart.
pub(crate) const STORE: &str = "<<storeLabels>>";
/// The labels that tell locks apart. The labels of the scraper do not count, so all clients of a lock share them.
pub(crate) const LOCK: &str = "<<storeLabels>>, lock";
/// The labels that tell call sites of a lock apart, in any process.
pub(crate) const SITE: &str = "<<storeLabels>>, lock, site";

/// Sums a gauge over all processes. A process that is scraped twice counts once. `own` are labels of the gauge in
/// addition to the lock's.
pub(crate) fn once(series: &str, own: &str) -> String {
    format!("sum by ({LOCK}) (max by ({ONCE}, store, lock{own}) ({series}))")
}

/// A condition on a gauge that at least two scrapes have shown, whatever the interval. It is judged for each series.
pub(crate) fn twice(gauge: &str, condition: &str) -> String {
    format!("changes((timestamp({gauge}) and {condition})[<<twoLooks>>:5s]) > 0")
}

/// The value of a series, or the previous one if only the last scrape failed. After more failed scrapes, or for a
/// process that is gone, it is dropped: the value may have changed since.
pub(crate) fn remembered(series: &str) -> String {
    let failed = "count_over_time(<<up>>[<<twoLooks>>]) - sum_over_time(<<up>>[<<twoLooks>>])";
    format!(
        "({series} or (last_over_time({series}[<<twoLooks>>]) and on ({PROCESS}) {} \
         and on ({PROCESS}) (min by ({PROCESS}) ({failed}) <= 1)))",
        down()
    )
}

/// The processes whose last scrapes failed.
pub(crate) fn down() -> String {
    format!("(max by ({PROCESS}) (<<up>>) == 0)")
}

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
    // The time of a process is of no store.
    let of_process = if marker.is_empty() { "" } else { "{PROCESSES}" };
    format!("(@now_timestamp_seconds{of_process} - {matching}(@{short}{marker} > 0))")
}

fn labels_of(name: &str) -> Option<Vec<&'static str>> {
    let coming = COMING.iter().find(|(coming, _)| *coming == name).map(|(_, labels)| labels.to_vec());
    coming.or_else(|| catalog().find(|metric| metric.name() == name).map(|metric| metric.labels().to_vec()))
}

/// How long a process has been running, by its own clock.
pub(crate) fn age_of_process() -> String {
    "@now_timestamp_seconds - @start_timestamp_seconds".to_owned()
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
        || COMING.iter().any(|(coming, _)| *coming == name)
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

/// Selects a series on a dashboard, with more matchers.
fn on(short: &str, matchers: &str) -> String {
    let name = series(short);
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    let labels = labels_of(&name).or_else(|| base.and_then(labels_of)).unwrap_or_default();
    let store = if labels.contains(&"store") { ", store=~\"$store\"" } else { "" };
    let separator = if matchers.is_empty() { "" } else { ", " };
    format!("{name}{{{SELECTED}{store}{separator}{matchers}}}")
}

/// Selects series of all services, whichever are selected. The inspector runs in any of them, so its series are
/// selected this way, and so are series that are compared with them.
fn of_the_fleet(short: &str, matchers: &str) -> Option<String> {
    if matchers == PROCESSES {
        return Some(format!("{}{{<<clusterLabel>>=~\"$cluster\"}}", series(short)));
    }
    let more = matchers.strip_prefix(FLEET).map(|more| more.trim_start_matches([',', ' ']));
    let more = more.or_else(|| short.starts_with("inspector_").then_some(matchers))?;
    let separator = if more.is_empty() { "" } else { ", " };
    Some(format!("{}{{{EVERYWHERE}{separator}{more}}}", series(short)))
}

/// Fills `{name}` placeholders of a query in rules.
pub(crate) fn plain(template: &str) -> String {
    let filled = fill(template, &|short, matchers| match matchers {
        "" | FLEET | PROCESSES => format!("{}<<selected>>", series(short)),
        matchers => format!("{}{{{matchers}<<also>>}}", series(short)),
    });
    // The series that Prometheus adds for every target.
    filled.replace("<<up>>", "up<<selected>>").replace("<<scrape>>", "scrape_duration_seconds<<selected>>")
}

/// Fills placeholders of a query on a dashboard.
pub(crate) fn selected(template: &str) -> String {
    fill(template, &|short, matchers| of_the_fleet(short, matchers).unwrap_or_else(|| on(short, matchers)))
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

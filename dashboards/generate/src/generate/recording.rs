//! Recording rules: the share of slow waits over the windows of the burn alerts, and values that are remembered for two weeks.

use super::names::{LOCK, SERVICE, STORE, plain};
use super::rule::{Group, Rule};

/// Waits up to 250 ms are fine. The bound is not an integer, because Prometheus 3 rewrites
/// integers.
const FAST: &str = "0.25";

/// The windows, each with the interval of its evaluation.
const WINDOWS: [(&str, &[&str]); 2] = [("30s", &["5m", "30m", "1h", "2h"]), ("5m", &["6h", "1d", "3d"])];

/// Values that alerts search in the last two weeks, after the processes that reported them are gone.
pub(crate) const LAST_SUCCESS: &str = "store_lock:distributed_lock_last_success_timestamp_seconds:max";
pub(crate) const JOB_PERIOD: &str = "job_store_lock:distributed_lock_job_period_seconds:max";
pub(crate) const INSPECTORS: &str = "store:distributed_lock_inspectors:count";

fn remembered() -> Group {
    let record = |name: &str, template: &str| Rule::Record { name: name.to_owned(), expr: plain(template) };
    let rules = vec![
        record(LAST_SUCCESS, &format!("max by ({LOCK}) (@last_success_timestamp_seconds > 0)")),
        record(JOB_PERIOD, &format!("max by ({SERVICE}, store, lock) (@job_period_seconds)")),
        record(INSPECTORS, &format!("count by ({STORE}) (@inspector_last_success_timestamp_seconds)")),
    ];
    Group { name: "distributed_lock_remembered", interval: Some("5m"), rules }
}

pub(crate) fn groups() -> Vec<Group> {
    let names = ["distributed_lock_recorded", "distributed_lock_recorded_slowly"];
    let group = |(name, (interval, windows)): (&'static str, (&'static str, &[&str]))| {
        let rules = windows.iter().flat_map(|window| rules(window)).collect();
        Group { name, interval: Some(interval), rules }
    };
    names.into_iter().zip(WINDOWS).map(group).chain([remembered()]).collect()
}

/// Failed acquires count as slow: they are in the total count, but not in a bucket of acquired ones.
fn rules(window: &str) -> Vec<Rule> {
    let slow = plain(&format!(
        "1 - sum by ({SERVICE}, store, lock) (rate(@wait_seconds_bucket{{outcome=\"acquired\", le=\"{FAST}\"}}[{window}])) \
         / (sum by ({SERVICE}, store, lock) (rate(@wait_seconds_count[{window}])) > 0)"
    ));
    let acquires = plain(&format!("sum by ({SERVICE}, store, lock) (rate(@wait_seconds_count[{window}]))"));
    let mut rules = vec![Rule::Record { name: slow_share(window), expr: slow }];
    if window == "5m" {
        rules.push(Rule::Record { name: answered(window), expr: acquires });
    }
    rules
}

/// Returns the name of the share of waits that were slow.
pub(crate) fn slow_share(window: &str) -> String {
    format!("job_lock:distributed_lock_slow_waits:ratio_rate{window}")
}

/// Returns the name of the rate of ended waits.
pub(crate) fn answered(window: &str) -> String {
    format!("job_lock:distributed_lock_waits:rate{window}")
}

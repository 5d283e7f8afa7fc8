//! The catalogue, the rendered metrics, and the documents agree, in every direction.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use lock_core::{
    FencingToken, LockError, LockEventKind, LockManager, LockObserver, LossReason, MemberHealth, MemberState, Mode,
    Notice, Purpose, QuorumHealth,
};
use lock_metrics::{FleetInspector, Metric, MetricKind, MetricUnit, builder, catalog};
use lock_testing::{RedisServer, limit};

use crate::support::{Acquire, Scrape, holder};

/// Feeds every kind of event.
fn synthetic_run(observer: &impl LockObserver) {
    let (second, node) = (Duration::from_secs(1), "redis:6379");
    let label = "lock:user:<id>".into();
    let error = LockError::unavailable("no");
    let one = Acquire::new(observer, 1, "lock:user:<id>", "lock:user:1");
    one.take();
    one.renew(second, second);
    one.send(LockEventKind::Lost { held: second, reason: LossReason::Expired });
    let two = Acquire::new(observer, 2, "lock:user:<id>", "lock:user:1");
    two.send(LockEventKind::WaitStarted);
    two.send(LockEventKind::TimedOut { waited: second, holder: Some(&holder("shop::report")) });
    let permit = Acquire::new(observer, 3, "uploads", "uploads").in_mode(Mode::permits(1, 4).unwrap());
    permit.take();
    let job = Purpose::Job { every: Some(second) };
    for (attempt, purpose) in (4..).zip([Purpose::Stripe { of: 4 }, Purpose::Leadership, job]) {
        let mut acquire = Acquire::new(observer, attempt, "used", "used");
        acquire.purpose = purpose;
        acquire.take();
    }
    let waits = Acquire::new(observer, 9, "lock:user:<id>", "lock:user:1");
    waits.send(LockEventKind::WaitStarted);
    let mut seen = holder("shop::report");
    seen.since = Some(std::time::UNIX_EPOCH + second);
    waits.send(LockEventKind::Contended { holder: Some(&seen) });
    observer.on_notice(&Notice::Nested { held: &label, wanted: &label });
    let (token, newest) = (FencingToken::new(1), FencingToken::new(2));
    observer.on_notice(&Notice::Command { op: "acquire", node, elapsed: second, error: Some(&error) });
    observer.on_notice(&Notice::Connection { node, up: true });
    observer.on_notice(&Notice::EvictionPolicy { node, policy: "allkeys-lru" });
    observer.on_notice(&Notice::Failover { node });
    observer.on_notice(&Notice::Moved { node });
    observer.on_notice(&Notice::Replication { node, replicas: 1, min_replicas: 0 });
    observer.on_notice(&Notice::FailoverExposure { node, exposed: true });
    observer.on_notice(&Notice::Server { node, id: "0123456789", version: "redis 8.0.2", kind: "server" });
    observer.on_notice(&Notice::Store { store: "memory", node });
    observer.on_notice(&Notice::Confirmation { node, replicas: true, elapsed: second, enough: false });
    observer.on_notice(&Notice::SlotsOpen { node, slots: 1 });
    let health = QuorumHealth::new(vec![MemberHealth::new(node, MemberState::Counted)], 1);
    observer.on_notice(&Notice::Quorum { node: "a,b,c", health: &health });
    observer.on_notice(&Notice::UnlockedRun { label: &label, store: "memory" });
    observer.on_notice(&Notice::FencingRejected { token, newest });
    observer.on_notice(&Notice::FencingRegressed { label: &label, store: "memory", token, newest });
}

#[tokio::test]
#[limit]
async fn what_is_rendered_is_the_catalogue() {
    let metrics = builder().build().unwrap();
    synthetic_run(&metrics.observer());
    let server = RedisServer::start();
    server.command(&["SET", "{cron:report}@job", "3600000|1|1|1|10000|web-1|7|shop::report|report"]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let _held = locks.lock("held").await.unwrap();
    server.command(&["ZADD", "{held}@queue", "1", "00000000000000000000000000000001"]);
    FleetInspector::new(&server.url()).unwrap().inspect_once(&metrics).await.unwrap();
    let scrape = Scrape::read(&metrics.render());
    // Redis has no transactions, so nothing pins its locks.
    let of_postgres = |metric: &&Metric| metric.name().contains("_oldest_pin_");
    let of_redis = || catalog().filter(|metric| !of_postgres(metric));
    assert!(catalog().filter(of_postgres).all(|metric| metric.help().contains("absent")), "the help says so");
    let listed: HashSet<&str> = of_redis().map(Metric::name).collect();
    assert_eq!(scrape.names(), listed);
    for metric in of_redis() {
        let name = metric.name();
        let (kind, suffixes): (_, &[&str]) = match metric.kind() {
            MetricKind::Counter => ("counter", &[""]),
            MetricKind::Gauge => ("gauge", &[""]),
            _ => ("histogram", &["_bucket", "_sum", "_count"]),
        };
        assert_eq!(scrape.types[name], kind, "{name}");
        assert_eq!(scrape.helps[name], metric.help(), "{name}");
        for suffix in suffixes {
            let mut expected: HashSet<&str> = metric.labels().iter().copied().collect();
            expected.extend((*suffix == "_bucket").then_some("le"));
            let series = format!("{name}{suffix}");
            let mut found = 0;
            for (_, labels) in scrape.series.keys().filter(|(name, _)| *name == series) {
                assert_eq!(labels.keys().map(String::as_str).collect::<HashSet<_>>(), expected, "{series}");
                found += 1;
            }
            assert!(found > 0, "{series}");
        }
    }
}

#[test]
#[limit]
fn names_follow_the_conventions() {
    for metric in catalog() {
        let name = metric.name();
        let rest = name.strip_prefix("distributed_lock_").unwrap();
        assert!(rest.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert_eq!(metric.kind() == MetricKind::Counter, name.ends_with("_total"), "{name}");
        let base = name.trim_end_matches("_total");
        assert_eq!(metric.unit() == MetricUnit::Seconds, base.ends_with("_seconds"), "{name}");
        assert_eq!(metric.unit() == MetricUnit::Ratio, name.ends_with("_ratio"), "{name}");
        assert!(metric.help().ends_with('.') && !metric.help().contains('\n'), "{name}");
        assert!(metric.buckets().windows(2).all(|pair| pair[0] < pair[1]), "{name}");
        // What scrapers and Kubernetes add would rename a label of ours to `exported_…`.
        let added = ["cluster", "container", "endpoint", "instance", "job", "namespace", "node", "pod", "service"];
        for reserved in added.into_iter().chain(["le", "quantile"]) {
            assert!(!metric.labels().contains(&reserved), "{name} has the label {reserved}");
        }
    }
}

#[test]
#[limit]
fn the_page_lists_the_catalogue() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboards/README.md");
    let page = fs::read_to_string(page).unwrap();
    let written: Vec<&str> = page.lines().filter(|line| line.starts_with("| `distributed_lock_")).collect();
    let expected: Vec<String> = catalog().map(row).collect();
    assert_eq!(written, expected, "the table should be:\n{}\n", expected.join("\n"));
    let mentioned = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let listed: HashSet<&str> = catalog().map(Metric::name).collect();
    for name in mentioned.filter(|word| word.len() > 17 && word.starts_with("distributed_lock_")) {
        assert!(listed.contains(name), "{name} is not in the catalogue");
    }
}

fn row(metric: &Metric) -> String {
    let kind = match metric.kind() {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        _ => "histogram",
    };
    let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
    let labels = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
    format!("| `{}` | {kind} | {} | {} |", metric.name(), labels, metric.help())
}

//! Runs the program in which locks go wrong, against a real Redis. Without `redis-server` this fails; it never
//! skips.

use lock_core::testing::{RedisServer, Reply, limit};

use crate::program::{eventually, http, run, start};

const STUCK: &str = env!("CARGO_BIN_EXE_stuck");

#[test]
#[limit]
fn every_kind_of_trouble_is_in_the_metrics_and_nothing_is_left_behind() {
    let redis = RedisServer::start();
    let url = redis.url();
    let flags =
        ["--port=0", "--stuck-after=1s", "--stuck-for=10m", "--lose-every=2s", "--inspect-every=1s", "--run-for=10m"];
    let mut program = start(STUCK, &flags, &[("LOCK_URL", &url)]);
    let server = program.wait_for_line("serving ").replace("/metrics", "");
    let wanted = [
        (r#"waiters{lock="demo:stuck:books:<run>",mode="write"}"#, 2.0),
        (r#"stuck_after_seconds{lock="demo:stuck:books:<run>"}"#, 1.0),
        (r#"lost_total{lock="demo:lost:import:<run>",reason="stolen"}"#, 1.0),
        (r#"waiters{lock="demo:orphaned:export:<run>",mode="write"}"#, 1.0),
        (r#"acquisitions_total{lock="demo:orphaned:export:<run>",outcome="timeout",mode="write"}"#, 1.0),
        (r#"acquisitions_total{lock="demo:contended:stock:<run>"}"#, 20.0),
        (r#"inspector_held{lock="demo:orphaned:export:<run>"}"#, 1.0),
        (r#"inspector_keys_without_ttl{lock="demo:eternal:migration:<run>"}"#, 1.0),
        (r#"deadlocks_total{role="victim"}"#, 1.0),
        (r"order_inversions_total", 1.0),
        (r#"order_edge{held="demo:nested:order:<run>",wanted="demo:nested:invoice:<run>"}"#, 1.0),
        (r#"permits_limit{lock="demo:permits:mail:<run>"}"#, 3.0),
        (r#"stripes{lock="demo:striped:cart:<run>"}"#, 16.0),
        (r#"leader{lock="demo:leader:schedule:<run>"}"#, 1.0),
        (r#"last_success_timestamp_seconds{lock="demo:job:report:<run>"}"#, 1.0),
    ];
    let mut seen = vec![false; wanted.len()];
    eventually("every kind of trouble, and what works", || {
        let (_, metrics) = http(&server, "GET", "/metrics");
        for (seen, (series, least)) in seen.iter_mut().zip(wanted) {
            // With any other labels, such as the store.
            let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
            let name = format!("distributed_lock_{name}");
            let is_it = |line: &&str| line.starts_with(&name) && labels.split(',').all(|label| line.contains(label));
            let values = metrics.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next());
            *seen |= values.map(|value| value.parse::<f64>().unwrap()).any(|value| value >= least);
        }
        (!seen.contains(&false)).then_some(())
    });
    let keys = || redis.command(&["KEYS", "demo:*"]);
    assert!(format!("{:?}", keys()).contains("demo:orphaned:export:"), "{:?}", keys());
    program.interrupt();
    let ended = program.end();
    ended.assert_success();
    assert!(ended.stdout.contains("every lock given back: true"), "{ended:#?}");
    assert!(!format!("{:?}", keys()).contains("demo:"), "{:?}", keys());
    assert_eq!(
        redis.command(&["EXISTS", "distributed-lock:inspector"]),
        Reply::Int(0),
        "the next run inspects at once"
    );
}

#[test]
#[limit]
fn a_redis_that_is_not_there_is_named_without_its_password() {
    let ended = run(STUCK, &["--port=0"], &[("LOCK_URL", "redis://:open-sesame@127.0.0.1:1")]);
    ended.assert_failure(1, "start a Redis with `redis-server`, or set LOCK_URL");
    assert!(!ended.stderr.contains("sesame"), "{ended:#?}");
}

#[test]
#[limit]
fn a_duration_without_a_unit_is_refused() {
    run(STUCK, &["--stuck-for=40"], &[]).assert_failure(2, "a unit is missing");
}

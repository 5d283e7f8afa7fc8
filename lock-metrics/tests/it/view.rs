//! The live view as an application serves it: its contents, their order, and that all of it stays
//! text.

use std::time::Duration;

use lock_core::testing::limit;
use lock_core::{GrantPath, LockEventKind, LockManager};
use lock_metrics::{LIVE_VIEW_CSP, MetricsHandle, builder};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::{Acquire, eventually, holder};

fn json(metrics: &MetricsHandle) -> Value {
    serde_json::from_str(&metrics.locks_json()).unwrap()
}

/// The keys and states of the JSON, in its order.
fn order(json: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    json["locks"].as_array().unwrap().iter().map(|row| (text(&row["key"]), text(&row["state"]))).collect()
}

/// The values of an attribute in the page, in its order.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    page.split(&format!(" {name}=\"")).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
#[limit]
fn what_hurts_most_comes_first() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    // The inspector's own lock is not shown.
    Acquire::new(&observer, 1, "distributed-lock:inspector", "distributed-lock:inspector").take();
    Acquire::new(&observer, 2, "job", "job:old").take();
    let mut stuck = Acquire::new(&observer, 3, "job", "job:stuck");
    stuck.stuck_after = Duration::ZERO;
    stuck.take();
    Acquire::new(&observer, 4, "job", "job:busy").take();
    for attempt in 5..8 {
        let key = if attempt == 7 { "job:queue" } else { "job:busy" };
        let waits = Acquire::new(&observer, attempt, "job", key);
        waits.send(LockEventKind::WaitStarted);
        waits.send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
    }
    // Clock ticks are a few milliseconds long.
    #[expect(clippy::disallowed_methods, reason = "no runtime is blocked")]
    std::thread::sleep(Duration::from_millis(20));
    Acquire::new(&observer, 8, "job", "job:new").take();

    let expected = [
        ("job:stuck", "stuck"),
        ("job:busy", "held"),
        ("job:busy", "waiting"),
        ("job:busy", "waiting"),
        ("job:queue", "waiting"),
        ("job:old", "held"),
        ("job:new", "held"),
    ];
    let found = order(&json(&metrics));
    let found: Vec<(&str, &str)> = found.iter().map(|(key, state)| (key.as_str(), state.as_str())).collect();
    assert_eq!(found, expected);
    let page = metrics.locks_html();
    let shown: Vec<_> = attributes(&page, "data-key").into_iter().zip(attributes(&page, "data-state")).collect();
    assert_eq!(shown, expected);
    assert!(page.contains("<title>(1 stuck) Locks</title>") && page.contains(">3 waiting<"), "{page}");
}

#[test]
#[limit]
fn a_hold_is_stuck_at_the_age_that_it_said() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let mut hold = Acquire::new(&observer, 1, "job", "job:long");
    hold.stuck_after = Duration::from_secs(4000);
    hold.take();
    let json = json(&metrics);
    // The view shows the time from the grant to the moment from which it counts.
    assert_eq!(json["locks"][0]["stuck_after_seconds"], 4000.0, "{json}");
    assert_eq!(json["locks"][0]["state"], "held");
}

#[test]
#[limit]
fn who_stands_behind_a_waiter_of_this_process_waits_for_the_same_holder() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let [first, second, other] = [(1, "job:1"), (2, "job:1"), (3, "job:2")].map(|(attempt, key)| {
        let waits = Acquire::new(&observer, attempt, "job", key);
        waits.send(LockEventKind::WaitStarted);
        waits
    });
    first.send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
    let seen = json(&metrics);
    let sites: Vec<_> = seen["locks"].as_array().unwrap().iter().map(|row| row["waits_for"]["site"].as_str()).collect();
    assert_eq!(sites, [Some("shop::report"), Some("shop::report"), None], "{seen}");
    drop((second, other));
}

#[test]
#[limit]
fn a_row_says_everything_an_operator_asks() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let hold = Acquire::new(&observer, 1, "lock:user:<id>", "lock:user:1");
    hold.take();
    let wait = Acquire::new(&observer, 2, "lock:user:<id>", "lock:user:1");
    wait.send(LockEventKind::WaitStarted);
    wait.send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
    let json = json(&metrics);
    let (held, waiting) = (&json["locks"][0], &json["locks"][1]);
    assert_eq!((&held["lock"], &held["site"]), (&Value::from("lock:user:<id>"), &Value::from("shop::charge")));
    assert_eq!((&held["token"], &held["waiters"]), (&Value::from("7"), &Value::from(1)));
    assert_eq!(held["owner"].as_str().unwrap().len(), 4, "an identity proves ownership, so it is cut");
    assert!(held["lease_left_seconds"].as_f64().unwrap() > 0.0 && held["age_seconds"].as_f64().unwrap() < 60.0);
    assert!(held["since_unix_seconds"].as_f64().unwrap() > 1e9);
    let seen = &waiting["waits_for"];
    assert_eq!((&seen["site"], &seen["host"], &seen["pid"]), (&"shop::report".into(), &"host-1".into(), &42.into()));
    assert_eq!((seen["token"].as_str(), seen["owner"].as_str().unwrap().len()), (Some("3"), 4));
    assert_eq!(json["totals"], serde_json::json!({ "stuck": 0, "held": 1, "waiting": 1, "candidates": 0 }));
    assert_eq!(json["process"]["pid"], std::process::id());
    let page = metrics.locks_html();
    for part in
        ["lock:user:&lt;id&gt;", "shop::<wbr>charge", "shop::<wbr>report", "pid 42 on host-1", "1 held", "1 waiting"]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
#[limit]
fn who_blocked_whom_is_kept_when_the_wait_is_over_and_bounded() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    assert!(!metrics.locks_html().contains("id=\"contention\""), "nobody has waited");
    let wait = |attempt, key: &str, millis| {
        let waits = Acquire::new(&observer, attempt, "job", key);
        waits.send(LockEventKind::WaitStarted);
        waits.send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
        waits.acquired(GrantPath::Granted, Duration::from_millis(millis), Some(&holder("shop::report")));
        waits.release(Duration::from_secs(1));
    };
    wait(1, "job:short", 1);
    wait(2, "job:1", 100);
    wait(3, "job:2", 200);
    wait(4, "job:1", 300);
    let gave_up = Acquire::new(&observer, 5, "job", "job:<3>");
    gave_up.send(LockEventKind::WaitStarted);
    gave_up.send(LockEventKind::TimedOut { waited: Duration::from_secs(5), holder: Some(&holder("shop::report")) });
    let seen = json(&metrics);
    let kept = seen["contention"].as_array().unwrap();
    let brief: Vec<_> = kept
        .iter()
        .map(|one| (one["key"].as_str().unwrap(), one["waits"].as_u64().unwrap(), one["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(brief, [("job:<3>", 1, "timeout"), ("job:1", 2, "acquired"), ("job:2", 1, "acquired")]);
    assert_eq!((&kept[1]["waited_seconds"], &kept[1]["longest_seconds"]), (&0.4.into(), &0.3.into()));
    assert_eq!((&kept[1]["site"], &kept[1]["holder"]["site"]), (&"shop::charge".into(), &"shop::report".into()));
    assert_eq!((&kept[1]["holder"]["host"], &kept[1]["holder"]["pid"]), (&"host-1".into(), &42.into()));
    let page = metrics.locks_html();
    for part in ["job:&lt;3&gt;", "waited for shop::<wbr>report (pid 42 on host-1)", "2 times, 400 ms together"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    for number in 0..1000 {
        wait(10 + number, &format!("job:many-{number}"), 50);
    }
    let kept = json(&metrics)["contention"].as_array().unwrap().len();
    assert_eq!(kept, 128);
}

#[tokio::test]
#[limit]
async fn the_page_says_that_it_knows_only_its_process_and_shows_the_fleet_where_it_is_inspected() {
    let server = lock_core::testing::RedisServer::start();
    let metrics = builder().build().unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    locks.observe(metrics.observer());
    let _guard = locks.lock("k").await.unwrap();
    for owner in 1..6 {
        server.command(&["ZADD", "{k}@queue", "1", &format!("{owner:032x}")]);
    }
    let seen = json(&metrics);
    assert_eq!((&seen["scope"], &seen["locks"][0]["waiters"]), (&"process".into(), &0.into()));
    assert_eq!(seen["locks"][0]["fleet_waiters"], Value::Null, "unknown, not 0");
    assert!(metrics.locks_html().contains("Only what this process holds"));
    let inspector = lock_metrics::FleetInspector::new(&server.url()).unwrap();
    inspector.inspect_once(&metrics).await.unwrap();
    assert_eq!(json(&metrics)["locks"][0]["fleet_waiters"], 5);
    assert!(metrics.locks_html().contains("5 processes in the queue of the fleet"));
    // A queue that cannot be read is unknown, also where the fleet is inspected.
    server.command(&["SET", "{k}@queue", "garbage"]);
    inspector.inspect_once(&metrics).await.unwrap();
    assert_eq!(json(&metrics)["locks"][0]["fleet_waiters"], Value::Null);
}

#[test]
#[limit]
fn a_hold_of_several_permits_shows_how_many() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    Acquire::new(&observer, 1, "uploads", "uploads").in_mode(lock_core::Mode::permits(3, 4).unwrap()).take();
    Acquire::new(&observer, 2, "job", "job").take();
    let seen = json(&metrics);
    let rows = seen["locks"].as_array().unwrap();
    let permits = |key| rows.iter().find(|row| row["key"] == key).unwrap()["permits"].as_u64();
    assert_eq!((permits("uploads"), permits("job")), (Some(3), Some(0)));
    assert!(metrics.locks_html().contains("<small>3 permits</small>"), "{}", metrics.locks_html());
}

#[test]
#[limit]
fn whatever_keys_contain_stays_text() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let evil = "lock:<script>alert('1')</script>\"><img src=x onerror=alert(1)>\u{1b}[2J\n\u{202e}&amp;";
    let mut one = Acquire::new(&observer, 1, "lock:<b>\"", evil);
    one.site = "<i>site</i>";
    one.take();
    let two = Acquire::new(&observer, 2, "lock:<b>\"", evil);
    two.send(LockEventKind::WaitStarted);
    two.send(LockEventKind::Contended { holder: Some(&holder("</td><script>x</script>")) });
    let page = metrics.locks_html();
    for bad in ["<script", "<img", "<i>", "<b>\"", "\u{1b}", "onerror=alert(1)>\u{1b}"] {
        assert!(!page.contains(bad), "{bad:?} in {page}");
    }
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"), "{page}");
    assert!(page.contains("\\u{1b}[2J\\n\\u{202e}&amp;amp;"), "{page}");
    // JSON is exact.
    assert_eq!(json(&metrics)["locks"][0]["key"], evil);
}

#[test]
#[limit]
fn the_page_needs_nothing_from_anywhere() {
    let page = builder().build().unwrap().locks_html();
    assert!(page.contains("http-equiv=\"refresh\"") && page.contains("width=device-width"));
    assert!(page.contains("id=\"empty\"") && page.contains("<table id=\"locks\">"));
    for bad in ["src=", "href=", "@import", "url(", "<script", "style=\"", "http:", "https:"] {
        assert!(!page.contains(bad), "{bad}");
    }
    let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    let hash = base64(&Sha256::digest(style));
    assert!(LIVE_VIEW_CSP.contains(&format!("style-src 'sha256-{hash}'")), "the hash of the style is {hash}");
    assert!(LIVE_VIEW_CSP.starts_with("default-src 'none'; ") && !LIVE_VIEW_CSP.contains("unsafe"));
    let meta = page.split("Content-Security-Policy\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(LIVE_VIEW_CSP.starts_with(meta));
}

/// Encodes without line breaks, as CSP requires.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().chain([&0, &0]).take(3).fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        for place in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * place) & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[test]
#[limit]
fn a_hundred_thousand_holds_are_cut_to_what_can_be_read() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    for attempt in 0..100_000 {
        Acquire::new(&observer, attempt, "job", &format!("job:{attempt}")).acquired(
            GrantPath::Uncontended,
            Duration::ZERO,
            None,
        );
    }
    let page = metrics.locks_html();
    assert_eq!(attributes(&page, "data-key").len(), 500);
    assert!(page.contains("and 99500 more") && page.contains("100000 held"), "{}", &page[page.len() - 200..]);
    let json = json(&metrics);
    assert_eq!((json["locks"].as_array().unwrap().len(), &json["not_shown"]), (500, &Value::from(99_500)));
    // The worst row, whichever comes first.
    let waits = Acquire::new(&observer, 100_001, "job", "job:77777");
    waits.send(LockEventKind::WaitStarted);
    let mut stuck = Acquire::new(&observer, 100_002, "job", "job:stuck");
    stuck.stuck_after = Duration::ZERO;
    stuck.take();
    let page = metrics.locks_html();
    assert_eq!(attributes(&page, "data-key")[..3], ["job:stuck", "job:77777", "job:77777"]);
    assert_eq!(attributes(&page, "data-state")[..3], ["stuck", "held", "waiting"]);
    assert!(page.contains("lockctl why &#39;job:stuck&#39;"), "the command for the one that is stuck");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_real_contended_lock_is_seen_with_its_waiter() {
    let metrics = builder().build().unwrap();
    let locks = LockManager::in_memory();
    locks.observe(metrics.observer());
    let guard = locks.lock("lock:job:1").with_site("shop::charge").acquire().await.unwrap();
    let waiter = tokio::task::JoinSet::from_iter([{
        let locks = locks.clone();
        async move { locks.lock("lock:job:1").with_site("shop::report").acquire().await.unwrap().release().await.unwrap() }
    }]);
    let seen = eventually("the waiter sees its holder", || {
        let json = json(&metrics);
        json["locks"][1]["waits_for"]["site"].is_string().then_some(json)
    });
    assert_eq!(order(&seen), [("lock:job:1".into(), "held".into()), ("lock:job:1".into(), "waiting".into())]);
    assert_eq!(
        (&seen["locks"][1]["site"], &seen["locks"][1]["waits_for"]["site"]),
        (&"shop::report".into(), &"shop::charge".into())
    );
    assert_eq!(seen["locks"][0]["token"], guard.token().to_string());
    guard.release().await.unwrap();
    waiter.join_all().await;
    locks.shutdown(Duration::from_secs(5)).await;
    eventually("an empty page", || metrics.locks_html().contains("id=\"empty\"").then_some(()));
}

#[tokio::test]
#[limit]
async fn what_has_a_role_is_told_below_the_rows() {
    let metrics = builder().build().unwrap();
    assert!(!metrics.locks_html().contains("id=\"roles\""), "nothing has a role");
    let locks = LockManager::builder(lock_core::MemoryStore::new()).lint_lock_order(true).build().unwrap();
    locks.observe(metrics.observer());
    let leads = locks.elect("billing").with_label("billing<b>").campaign().await.unwrap();
    let job = locks.lock("cron:report").with_label("report").at_most_every(Duration::from_secs(3600));
    job.run(async |_| Ok::<_, lock_core::LockError>(())).await.unwrap();
    let failing = locks.lock("cron:bill").with_label("bill").at_most_every(Duration::from_secs(60));
    let failed = failing.run(async |_| Err::<(), _>(lock_core::LockError::unavailable("on fire"))).await;
    assert!(failed.is_err());
    for (outer, inner) in [("cart", "stock"), ("stock", "cart")] {
        let inner = locks.lock(inner).with_label(inner);
        locks
            .lock(outer)
            .with_label(outer)
            .run(async |_| inner.run(async |_| Ok::<_, lock_core::LockError>(())).await)
            .await
            .unwrap();
    }
    let page = metrics.locks_html();
    for part in [
        "election billing&lt;b&gt;: this process leads",
        "job report, every 1 h 00 min: a run succeeded in this process ",
        "job bill, every 1 min 00 s: no run has succeeded in this process",
        "lock order</b>: ",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("deadlocks</b>"), "{page}");
    let roles = &json(&metrics)["roles"];
    assert_eq!(roles["elections"][0], serde_json::json!({ "lock": "billing<b>", "leads": 1 }));
    assert_eq!(
        (&roles["jobs"][0]["lock"], roles["jobs"][0]["succeeded_seconds_ago"].is_null()),
        (&"bill".into(), true)
    );
    assert_eq!(roles["order_inversions"].as_object().unwrap().len(), 1, "{roles:#}");
    assert_eq!(roles["deadlocks"], serde_json::json!({ "victim": 0, "member": 0 }));
    leads.resign().await.unwrap();
    assert!(metrics.locks_html().contains("this process is a candidate"));
}

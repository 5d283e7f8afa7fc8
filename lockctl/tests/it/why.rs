//! One answer about one lock, from Redis and from live views, whatever of them there is.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use lock_core::{
    FencedWrite, FencingGate, LockEvent, LockGuard, LockLabel, LockManager, LockObserver, Notice, Renew, observe_all,
};
use lock_metrics::{LockMetrics, MetricsHandle};
use lock_testing::{RedisServer, Reply, limit};
use serde_json::Value;

use crate::program::{Ended, lockctl, lockctl_at, watch};
use crate::take;

const KEY: &str = "lock:user:42";

/// A process with a live view, whose locks it shows.
pub(crate) struct Observed {
    pub(crate) metrics: MetricsHandle,
    pub(crate) locks: LockManager,
    pub(crate) address: String,
}

pub(crate) async fn observed(url: &str) -> Observed {
    let metrics = lock_metrics::builder().with_listener(([127, 0, 0, 1], 0)).with_trace_ids(|| Some([0xab; 16]));
    let metrics = metrics.with_trace_link("https://tempo.example/{trace_id}").build().unwrap();
    let locks = LockManager::connect(url).await.unwrap();
    locks.observe(metrics.observer());
    let address = format!("http://{}", metrics.listener().unwrap());
    Observed { metrics, locks, address }
}

impl Observed {
    async fn take(&self, key: &str) -> LockGuard {
        let request = self.locks.lock(key).with_label(LockLabel::new(key.to_owned())).with_site("shop::charge");
        let request = request.with_ttl(Duration::from_secs(60));
        request.with_stuck_after(Duration::from_millis(1)).acquire().await.unwrap()
    }
}

fn why(server: &RedisServer, views: &[&str]) -> (Ended, Value) {
    let mut arguments = vec!["why", KEY];
    views.iter().for_each(|view| arguments.extend(["--live-view", view]));
    let text = lockctl(server, &arguments);
    arguments.push("--json");
    let json = lockctl(server, &arguments);
    assert_eq!(text.code, json.code, "{text:?} {json:?}");
    (text, json.json())
}

#[track_caller]
pub(crate) fn assert_says(ended: &Ended, parts: &[&str]) {
    for part in parts {
        assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_stuck_holder_and_its_callers_are_one_answer() {
    let server = RedisServer::start();
    let holder = observed(&server.url()).await;
    let guard = holder.take(KEY).await;
    // To the store another process: it waits in the queue there.
    let other = LockManager::connect(&server.url()).await.unwrap();
    other.observe(holder.metrics.observer());
    let mut waiting = tokio::task::JoinSet::new();
    for site in ["api::pay", "api::pay", "worker::ship"] {
        let request = other.lock(KEY).with_site(site).with_wait(Duration::from_secs(120));
        waiting.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    }
    let seen = || why(&server, &[&holder.address]);
    let (text, json) = (0..500).map(|_| seen()).find(|(_, json)| json["waiting"]["callers"] == 3).unwrap();
    text.assert_code(0);
    let owner = json["owner"].as_str().unwrap().to_owned();
    assert_says(
        &text,
        &[
            &format!("{KEY} is held for "),
            &format!(" by shop::charge, pid {} on ", std::process::id()),
            "alive: its live view has the hold, stuck for ",
            &format!("trace    https://tempo.example/{}", "ab".repeat(16)),
            "its clock agrees with the store's",
            " of 1 min 00 s, renewed ",
            "3 callers: 2 at api::pay on ",
            "1 at worker::ship on ",
            &format!("checks fencing tokens (its token is {})", guard.token()),
            &format!("lockctl release '{KEY}' --expect-owner {owner} --reason '…'"),
        ],
    );
    assert_eq!((&json["process"]["life"], &json["process"]["clock_ahead_seconds"]), (&"alive".into(), &0.0.into()));
    assert_eq!(json["waiting"]["at_least"], false);
    assert_eq!(json["process"]["token"], guard.token().to_string());
    guard.release().await.unwrap();
    waiting.join_all().await;
}

/// The observer of checked tokens that `install` would set, without the locks of the other tests.
struct Checks(LockMetrics);

impl LockObserver for Checks {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        self.0.on_notice(notice);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_lock_whose_tokens_are_checked_is_safe_to_force() {
    let server = RedisServer::start();
    let holder = observed(&server.url()).await;
    observe_all(Checks(holder.metrics.observer()));
    let says = |fenced: bool, guard: &LockGuard| {
        let (text, json) = why(&server, &[&holder.address]);
        let token = format!("(its token is {})", guard.token());
        let advice = if fenced {
            format!("safe: its writes are fenced, since its process checks the tokens of this lock {token}")
        } else {
            format!("safe only if all that it writes to checks fencing tokens {token}")
        };
        assert_says(&text, &[&advice]);
        assert_eq!(json["process"]["fenced"], fenced);
    };
    let guard = holder.take(KEY).await;
    // It does not report another lock or an unknown holder.
    let other = holder.take("lock:other").await;
    FencingGate::new().admit(other.token()).unwrap();
    says(false, &guard);
    let gate = FencingGate::new();
    gate.admit(guard.token()).unwrap();
    says(true, &guard);
    guard.release().await.unwrap();
    // The next holder has not written yet, but its lock is the same.
    let guard = holder.take(KEY).await;
    says(true, &guard);
    guard.release().await.unwrap();

    // A write that Redis checks counts too.
    let fresh = observed(&server.url()).await;
    observe_all(Checks(fresh.metrics.observer()));
    let guard = fresh.take(KEY).await;
    drop(FencedWrite::new("stock", guard.token(), "SET").arg("1").eval_args());
    let (text, _) = why(&server, &[&fresh.address]);
    assert_says(&text, &["safe: its writes are fenced"]);
}

#[tokio::test]
#[limit]
async fn without_a_view_the_lease_tells_that_the_holder_lives() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, KEY).await;
    let (text, json) = why(&server, &[]);
    text.assert_code(0);
    assert_says(&text, &["by shop::charge, pid ", "seems alive: its lease was renewed ", "none in the store's queue"]);
    assert_eq!((&json["process"]["life"], &json["waiting"]["callers"]), (&"renews".into(), &0.into()));
}

#[cfg(unix)]
#[test]
#[limit]
fn a_dead_holder_is_overdue() {
    let server = RedisServer::start();
    let mut holder = watch(&server, &["run", KEY, "--ttl", "60s", "--", "sh", "-c", "echo runs; exec sleep 600"]);
    holder.wait_for("runs");
    // Killed, so it gives nothing back.
    drop(holder);
    // As late as if half a minute had passed.
    assert_eq!(server.command(&["PEXPIRE", KEY, "25000"]), Reply::Int(1));
    let (text, json) = why(&server, &[]);
    assert_says(
        &text,
        &["dead, hanging or cut off: its lease was last renewed ", "hardly worth it: it is free by itself in 2"],
    );
    assert_eq!(json["process"]["life"], "overdue");
    let ago = json["process"]["renewed_seconds_ago"].as_f64().unwrap();
    assert!((35.0..60.0).contains(&ago), "{ago}");
}

#[tokio::test]
#[limit]
async fn a_process_that_forgot_its_hold_no_longer_works_under_it() {
    let server = RedisServer::start();
    // As a container that restarted under its old name and number: its view has nothing of what it did before.
    let restarted = observed(&server.url()).await;
    let (_locks, _guard) = take(&server, KEY).await;
    let (text, json) = why(&server, &[&restarted.address]);
    assert_says(&text, &["its live view answers, but does not show the hold", "safe: the process that took it"]);
    assert_eq!(json["process"]["life"], "let_go");
}

#[tokio::test]
#[limit]
async fn a_free_lock_that_a_process_believes_to_hold() {
    let server = RedisServer::start();
    let (text, json) = why(&server, &[]);
    text.assert_code(1);
    assert!(text.stdout.starts_with(&format!("{KEY} is free\n")), "{text:?}");
    assert_eq!((&json["state"], json.get("force")), (&"free".into(), None));
    let holder = observed(&server.url()).await;
    // It is told within a fifth of a second, in which a busy machine may not come to both answers.
    for _ in 0..100 {
        let _guard = holder.take(KEY).await;
        server.command(&["DEL", KEY]);
        let (text, json) = why(&server, &[&holder.address]);
        if json["also_believe_to_hold"][0]["pid"] == std::process::id() {
            return assert_says(&text, &[" also believes to hold it, while the store has it free"]);
        }
    }
    panic!("it is never seen");
}

#[tokio::test]
#[limit]
async fn locks_that_have_no_holder_of_ours() {
    let server = RedisServer::start();
    server.command(&["SET", KEY, "nonce", "PX", "600000"]);
    let (text, json) = why(&server, &[]);
    text.assert_code(0);
    assert_says(
        &text,
        &[
            "is held by a client of another library, which leaves no name",
            " left\n",
            "only if its client is gone",
            &format!("lockctl release '{KEY}' --expect-value='nonce' --reason '…'"),
        ],
    );
    assert_eq!((&json["state"], &json["process"]["life"]), (&"foreign".into(), &"unknown".into()));
    server.command(&["PERSIST", KEY]);
    assert_says(&why(&server, &[]).0, &["none: this key never expires"]);
    server.command(&["DEL", KEY]);

    let locks = LockManager::connect(&server.url()).await.unwrap();
    let request = locks.lock(KEY).with_min_hold(Duration::from_secs(600));
    request.acquire().await.unwrap().release().await.unwrap();
    let (text, json) = why(&server, &[]);
    assert_says(&text, &["was released, and stays taken for the rest of its min_hold", "nobody works under it"]);
    assert_eq!((&json["state"], &json["force"]["command"]), (&"kept".into(), &Value::Null));
}

#[tokio::test]
#[limit]
async fn a_lock_that_never_ends_is_forced_with_care() {
    let server = RedisServer::start();
    // Without renewal, which would give the key an end again.
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let request = locks.lock(KEY).with_ttl(Duration::from_secs(60)).with_renew(Renew::Off);
    let _guard = request.acquire().await.unwrap();
    // A look after a fifth of a second gives it an end once, too.
    for _ in 0..100 {
        server.command(&["PERSIST", KEY]);
        let (text, json) = why(&server, &[]);
        if json["process"]["life"] == "unknown" {
            let says = ["unknown whether it is alive", "none: this key never", "safe if its process is gone, or "];
            return assert_says(&text, &says);
        }
    }
    panic!("it always has an end");
}

#[tokio::test]
#[limit]
async fn a_clock_that_differs_from_that_of_the_store() {
    let directory = std::env::temp_dir().join(format!("lockctl-why-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (source, shim, offset) = (path("shim.c"), path("shim.so"), path("offset"));
    std::fs::write(&source, include_str!("../../../lock-core/tests/support/shim.c")).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &shim, &source]).status();
    assert!(built.unwrap().success());
    std::fs::write(&offset, 3600i64.to_ne_bytes()).unwrap();
    let server = RedisServer::builder().with_env("LD_PRELOAD", &shim).with_env("CLOCK_OFFSET", &offset).start();
    let holder = observed(&server.url()).await;
    let _guard = holder.take(KEY).await;
    let (text, json) = why(&server, &[&holder.address]);
    std::fs::remove_dir_all(&directory).unwrap();
    let behind = json["process"]["clock_ahead_seconds"].as_f64().unwrap();
    assert!((-3602.0..-3598.0).contains(&behind), "{behind}");
    assert_says(&text, &["alive: ", "min", " behind the store's, so that times in its log are off"]);
}

#[tokio::test]
#[limit]
async fn views_that_cannot_be_read_are_named_and_hide_nothing_else() {
    let server = RedisServer::start();
    let holder = observed(&server.url()).await;
    let _guard = holder.take(KEY).await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let missing = format!("{}/elsewhere", holder.address);
    let metrics = format!("http://127.0.0.1:{}", server.port());
    let views = [&*holder.address, "http://127.0.0.1:1", &silent, &missing, &metrics, "http://{host}:1"];
    let (text, json) = why(&server, &views);
    text.assert_code(0);
    let host = json["host"].as_str().unwrap();
    assert_says(
        &text,
        &[
            "alive: its live view has the hold",
            "http://127.0.0.1:1: Connection refused",
            &format!("{silent}: "),
            &format!("{missing}: it answers 404 at /elsewhere.json; a service with a router of its own"),
            &format!("{metrics}: it broke off"),
            &format!("http://{host}:1: "),
            "views that were not read may show callers",
        ],
    );
    assert_eq!((json["views"].as_array().unwrap().len(), &json["waiting"]["at_least"]), (6, &true.into()));
    for wrong in ["shop:9464", "https://shop:9464", "http://u:p@shop"] {
        let ended = lockctl(&server, &["why", KEY, "--live-view", wrong]);
        ended.assert_code(2);
        assert!(!ended.stderr.contains("u:p"), "{ended:?}");
    }
}

#[tokio::test]
#[limit]
async fn a_namespace_and_a_server_that_is_away() {
    let mut server = RedisServer::start();
    let url = format!("{}?key_prefix=prod:", server.url());
    let holder = observed(&url).await;
    let _guard = holder.take(KEY).await;
    let ended = lockctl_at(&url, &["why", KEY, "--live-view", &holder.address]);
    assert_says(&ended, &[&format!("prod:{KEY} is held"), "alive: its live view has the hold"]);
    server.kill();
    lockctl_at(&url, &["why", KEY, "--live-view", &holder.address]).assert_code(3);
}

/// The note that a holder publishes every second while it waits inside a lock.
#[tokio::test]
#[limit]
async fn what_its_holder_waits_for_is_named_and_a_ring_is_a_deadlock() {
    use lock_core::store::Blocked;
    use lock_core::store::BlockedNotes as _;
    use lock_core::{FencingToken, LockKey, RedisStore};

    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let (a, b) = (LockKey::new("cart").unwrap(), LockKey::new("stock").unwrap());
    let cart = locks.lock("cart").with_site("shop::buy").acquire().await.unwrap();
    let stock = locks.lock("stock").with_site("shop::refill").acquire().await.unwrap();
    let store = RedisStore::new(&server.url()).unwrap();
    let publish = async |on: &LockKey, waits_for: &LockKey| {
        let holder = locks.holder(on.as_str()).await.unwrap().unwrap();
        let blocked = Blocked::new(holder.owner.unwrap(), FencingToken::new(1), 1, waits_for.clone());
        store.set_blocked(on, Some(&blocked)).await.unwrap();
    };
    // It is kept for three seconds: on a busy machine the answer may come too late to see it.
    let seen = async |ring: bool, what: &str| {
        for _ in 0..100 {
            publish(&a, &b).await;
            if ring {
                publish(&b, &a).await;
            }
            let (text, json) =
                (lockctl(&server, &["why", "cart"]).stdout, lockctl(&server, &["why", "cart", "--json"]).json());
            if text.contains(what) && json["blocked"].as_array().is_some_and(|hops| hops.len() == 1 + usize::from(ring))
            {
                return (text, json);
            }
        }
        panic!("{what} is never seen");
    };
    let (text, json) = seen(false, "the holder of cart waits for stock, held by shop::refill, pid ").await;
    assert!(!text.contains("deadlock"), "{text}");
    assert_eq!(
        (&json["blocked"][0]["waits_for"], &json["blocked"][0]["closes_a_ring"]),
        (&"stock".into(), &false.into())
    );
    let (text, json) = seen(true, "the holder of stock waits for cart, held by shop::buy").await;
    assert!(text.contains("a deadlock"), "{text}");
    assert_eq!(json["blocked"][1]["closes_a_ring"], true, "{json:#}");
    // The note of the earlier holder does not belong to the next.
    publish(&a, &b).await;
    cart.release().await.unwrap();
    let _next = locks.lock("cart").acquire().await.unwrap();
    assert_eq!(lockctl(&server, &["why", "cart", "--json"]).json()["blocked"], serde_json::json!([]));
    stock.release().await.unwrap();
}

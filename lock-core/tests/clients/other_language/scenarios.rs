//! The scenarios of the vectors.

use serde_json::{Value, json};

/// Keys, and calls one after the other: what each is about, who listens meanwhile, and the call.
pub(crate) struct Scenario {
    pub(crate) keys: Value,
    pub(crate) calls: Vec<(&'static str, &'static [&'static str], Value)>,
}

/// The owner of a claim.
fn owner(name: &str) -> String {
    name.repeat(32)
}

/// Adds the fields of one object to another.
fn with(mut call: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("no object: {more}") };
    call.as_object_mut().unwrap().extend(more);
    call
}

fn try_acquire(name: &str) -> Value {
    json!({
        "step": "acquire", "key": "k", "owner": owner(name), "ttl": 60_000, "floor": "0-0",
        "tail": format!("60000|host-{name}|1|app::work|"),
    })
}

fn queued(call: Value, name: &str, stamp: u64) -> Value {
    let inbox = format!("distributed-lock:inbox:{name}");
    with(call, json!({ "ticket": { "stamp": stamp, "grant_ttl": 20_000, "inbox": inbox } }))
}

fn acquire(name: &str, stamp: u64) -> Value {
    queued(try_acquire(name), name, stamp)
}

fn share(name: &str, mode: &str, stamp: u64) -> Value {
    with(acquire(name, stamp), json!({ "mode": mode }))
}

fn simple(step: &str, name: &str) -> Value {
    json!({ "step": step, "key": "k", "owner": owner(name) })
}

fn renew(name: &str) -> Value {
    with(simple("renew", name), json!({ "ttl": 60_000 }))
}

fn shared(call: Value, mode: &str) -> Value {
    with(call, json!({ "mode": mode }))
}

fn value(name: &str) -> String {
    format!("{}|<ms-5s>|60000|host-{name}|1|app::work|", owner(name))
}

fn entry(name: &str, confirmed: &str) -> String {
    format!("distributed-lock:inbox:{name}|1|{confirmed}|0|20000|0-0|60000|host-{name}|1|app::work|")
}

/// Claims that wait, with what is known of each.
fn waiting(lock: Option<Value>, waiters: &[(&str, String)]) -> Value {
    let queue: Vec<_> = waiters.iter().map(|(name, _)| json!([owner(name), "<us-5s>"])).collect();
    let hash: serde_json::Map<_, _> = waiters.iter().map(|(name, entry)| (owner(name), json!(entry))).collect();
    let mut keys = json!({
        "{k}@queue": { "zset": queue, "pttl": 30_000 },
        "{k}@waiters": { "hash": hash, "pttl": 30_000 },
    });
    if let Some(lock) = lock {
        keys["k"] = lock;
    }
    keys
}

fn held_by(name: &str) -> Value {
    json!({ "string": value(name), "pttl": 30_000 })
}

pub(crate) fn all() -> Vec<Scenario> {
    let empty = || json!({});
    let held = || json!({ "k": held_by("a") });
    vec![
        Scenario {
            keys: empty(),
            calls: vec![
                ("a free lock is taken", &[], try_acquire("a")),
                ("a repeat confirms it, with a greater token", &[], try_acquire("a")),
                ("somebody else finds it held", &[], try_acquire("b")),
                ("and takes a place in the queue", &["b"], acquire("b", 1)),
                ("the place is confirmed, and not another", &["b"], acquire("b", 2)),
                ("whoever comes later stands behind it", &["b", "c"], acquire("c", 3)),
                ("the holder renews", &["b", "c"], renew("a")),
                ("the release grants to the first in the same step", &["b", "c"], simple("release", "a")),
                ("a repeat of the release finds nothing to free", &["b", "c"], simple("release", "a")),
                ("the grant is raised to the whole lease by a renewal", &["b", "c"], renew("b")),
                ("a waiter withdraws", &["b", "c"], simple("release", "c")),
                ("nobody waits, so nothing stays", &["b"], simple("release", "b")),
            ],
        },
        Scenario {
            keys: waiting(Some(held_by("a")), &[("b", entry("b", "<us-1s>"))]),
            calls: vec![
                (
                    "a requeue ends one claim, and the next stands behind all others",
                    &["b", "d"],
                    with(acquire("d", 7), json!({ "ended": owner("a"), "ended_mode": "x" })),
                ),
                ("a claim that was granted withdraws, and the next has it", &["b", "d"], simple("release", "b")),
            ],
        },
        Scenario {
            keys: held(),
            calls: vec![
                (
                    "a requeue where nobody waits is granted at once",
                    &["d"],
                    with(acquire("d", 7), json!({ "ended": owner("a"), "ended_mode": "x" })),
                ),
                (
                    "a lock that stays taken for a while has no owner",
                    &[],
                    with(simple("release", "d"), json!({ "keep": 10_000 })),
                ),
                ("nor is it free", &[], try_acquire("b")),
            ],
        },
        Scenario {
            keys: waiting(None, &[("b", entry("b", "<us-1s>"))]),
            calls: vec![(
                "a lease has ended: whoever asks first has the queue served, and does not pass it",
                &["b"],
                try_acquire("c"),
            )],
        },
        Scenario {
            keys: waiting(None, &[("b", entry("b", "<us-1s>")), ("c", entry("c", "<us-1s>"))]),
            calls: vec![("a waiter finds that a lease has ended, and is the first", &["b", "c"], acquire("b", 4))],
        },
        Scenario {
            keys: waiting(Some(held_by("a")), &[("b", entry("b", "<us-1s>")), ("c", entry("c", "<us-1s>"))]),
            calls: vec![
                ("a waiter that does not listen is passed over, and keeps its place", &["c"], simple("release", "a")),
                ("it asks again, and is granted unheard from now on", &["c"], acquire("b", 5)),
            ],
        },
        Scenario {
            keys: waiting(Some(held_by("a")), &[("b", entry("b", "<us-1s>").replace("|0|20000", "|2|20000"))]),
            calls: vec![
                ("a waiter that asked again is granted unheard: it will ask", &[], simple("release", "a")),
                ("and is told so", &[], acquire("b", 6)),
            ],
        },
        Scenario {
            keys: waiting(
                Some(json!({ "string": format!("{}|<us-5s>", value("a")), "pttl": 30_000 })),
                &[("b", entry("b", "<us-1s>"))],
            ),
            calls: vec![
                (
                    "a lock that has passed on for a second is left free, and the next is told",
                    &["b"],
                    simple("release", "a"),
                ),
                ("when the moment is over, the first that asks has it", &["b"], acquire("b", 2)),
            ],
        },
        Scenario {
            keys: waiting(Some(held_by("a")), &[("b", entry("b", "<us-60s>")), ("c", entry("c", "<us-1s>"))]),
            calls: vec![("a waiter that confirms no more is dropped", &["b", "c"], simple("release", "a"))],
        },
        Scenario {
            keys: waiting(Some(held_by("a")), &[("b", "rubbish".to_owned()), ("c", entry("c", "<us-1s>"))]),
            calls: vec![("an entry that cannot be read is passed over", &["b", "c"], simple("release", "a"))],
        },
        Scenario {
            keys: json!({ "k": { "string": "a value of another library", "pttl": 30_000 } }),
            calls: vec![
                ("a foreign holder is noted", &[], try_acquire("a")),
                ("and waited for", &["a"], acquire("a", 1)),
                ("its lock is not freed by us", &["a"], simple("release", "a")),
                ("nor renewed", &[], renew("a")),
            ],
        },
        Scenario {
            keys: empty(),
            calls: vec![
                ("a token exceeds the floor", &[], with(try_acquire("a"), json!({ "floor": "<ms+60s>-5" }))),
                ("a floor too far ahead is refused", &[], with(try_acquire("a"), json!({ "floor": "<ms+7200s>-5" }))),
            ],
        },
        phases(),
        Scenario {
            keys: waiting(Some(held_by("a")), &[("b", entry("b", "<us-1s>").replace("0-0", "s1/16|0-0"))]),
            calls: vec![(
                "a downgrade keeps the token, and lets in who fits beside it",
                &["b"],
                shared(with(renew("a"), json!({ "step": "downgrade", "token": "<token 1>-3" })), "s1/16"),
            )],
        },
    ]
}

fn phases() -> Scenario {
    let requeued = |name: &str| with(share(name, "s3/4", 9), json!({ "ended": owner("b"), "ended_mode": "s1/4" }));
    Scenario {
        keys: json!({}),
        calls: vec![
            ("a free lock is shared", &["a"], share("a", "s2/4", 1)),
            ("another joins, with the same token", &["a", "b"], share("b", "s1/4", 2)),
            ("what does not fit waits, and who shares is told", &["a", "b", "c"], share("c", "s2/4", 3)),
            ("who wants it alone waits behind", &["a", "b", "c", "d"], acquire("d", 4)),
            ("what would fit does not pass who waits", &["a", "b", "c", "d", "e"], share("e", "s1/4", 5)),
            ("a renewal says that somebody waits", &[], shared(renew("a"), "s2/4")),
            (
                "units come back, and the first that fits has them",
                &["b", "c", "d"],
                shared(simple("release", "a"), "s2/4"),
            ),
            ("a requeue among those who share", &["c", "d", "f"], requeued("f")),
            ("the last of a phase passes the lock on", &["c", "d"], shared(simple("release", "c"), "s2/4")),
            ("the next phase has a greater token", &["e", "f"], simple("release", "d")),
            ("it ends with its last holder", &[], shared(simple("release", "e"), "s1/4")),
            ("and nothing stays", &[], shared(simple("release", "f"), "s3/4")),
        ],
    }
}

//! Keys that are left in the stores after every process has ended.

use std::time::{Duration, Instant};

use lock_testing::{RedisServer, Reply};

use crate::harness::servers::Topology;

/// How long the remnant of a lease may still be there after every process has ended.
const REMNANT: Duration = Duration::from_millis(500);

/// Returns the keys that should have gone, with the rest of their time in ms.
pub(crate) fn after(servers: &dyn Topology) -> Vec<String> {
    let started = Instant::now();
    loop {
        let mut left = servers.remnants();
        left.extend(servers.serving().into_iter().flat_map(|place| of(servers.server(place))));
        if left.is_empty() || started.elapsed() > REMNANT {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn of(server: &RedisServer) -> Vec<String> {
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no list of keys") };
    let left = |key: &Reply| {
        let key = key.text();
        let Reply::Int(expiry) = server.command(&["PTTL", key]) else { panic!("no expiry of {key}") };
        // The key expired after it was listed.
        let gone = expiry == -2;
        (!gone && !may_stay(key, expiry)).then(|| format!("{key} for {expiry} ms"))
    };
    keys.iter().filter_map(left).collect()
}

/// Returns whether a key is the token counter that another library keeps for each lock. Without it, a lock that was lost
/// would draw an old token again, so it is not a fault that it stays.
pub(crate) fn is_counter(key: &str) -> bool {
    key.starts_with("redisson_lock_token:")
}

/// Two kinds of keys stay for good: the source of tokens, and the birth of a quorum member's data. The keys that
/// remember jobs, tokens and members have an expiry. So has the place of a killed process in a queue: it expires, or
/// the next acquire removes it.
fn may_stay(key: &str, expiry: i64) -> bool {
    let for_good = key.starts_with("distributed-lock:clock") || key == "distributed-lock:birth";
    let for_a_time = key == "distributed-lock:members" || key.ends_with("@fence") || key.contains("soak:job:");
    let for_a_minute = key.ends_with("@queue") || key.ends_with("@waiters");
    for_good || for_a_time && expiry > 0 || for_a_minute && (1..=60_000).contains(&expiry)
}

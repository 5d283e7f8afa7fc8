//! What locks leave behind when everybody has gone.

use std::time::{Duration, Instant};

use lock_core::testing::{RedisServer, Reply};

use crate::harness::servers::Topology;

/// How long a remnant of a lease may still be there when everybody has gone.
const REMNANT: Duration = Duration::from_millis(500);

/// Returns the keys that should have gone, with what is left of their time in ms.
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
        // Gone since they were listed.
        let gone = expiry == -2;
        (!gone && !may_stay(key, expiry)).then(|| format!("{key} for {expiry} ms"))
    };
    keys.iter().filter_map(left).collect()
}

/// Where tokens come from, and since when a member of a quorum has its data, stays. What is remembered of jobs, of tokens
/// and of members has an end, and so has the place of a process in a queue, which was killed: whoever takes the lock next
/// takes it out, or it runs out.
fn may_stay(key: &str, expiry: i64) -> bool {
    let for_good = key.starts_with("distributed-lock:clock") || key == "distributed-lock:birth";
    let for_a_time = key == "distributed-lock:members" || key.ends_with("@fence") || key.contains("soak:job:");
    let for_a_minute = key.ends_with("@queue") || key.ends_with("@waiters");
    for_good || for_a_time && expiry > 0 || for_a_minute && (1..=60_000).contains(&expiry)
}

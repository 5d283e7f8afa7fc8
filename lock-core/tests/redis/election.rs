//! Leaders that are killed and stopped, on a real server.

use std::time::Duration;

use lock_core::{LockManager, Observation};
use lock_testing::{RedisServer, Stopwatch, limit};

use crate::support::{Resource, SECOND, Scratch, Worker, exists, figure, locked_keys, locks};

/// A lease that ends while a test waits, and that a stall of the machine does not end.
const TTL: Duration = Duration::from_secs(3);

/// Waits until somebody leads who is not `but`, and tells who.
async fn leader(observation: &mut Observation, but: Option<usize>) -> usize {
    loop {
        let leader = observation.changed().await.unwrap();
        let name = leader.and_then(|leader| leader.announced().map(str::to_owned));
        match name.map(|name| name.parse().unwrap()) {
            Some(leader) if Some(leader) != but => return leader,
            _ => {}
        }
    }
}

fn candidate(name: usize, server: &RedisServer, scratch: &Scratch, resource: &Resource) -> Worker {
    Worker::start(
        "lead",
        &[
            ("url", &server.url()),
            ("history", &scratch.path("history")),
            ("resource", &resource.address()),
            ("ttl_ms", &TTL.as_millis().to_string()),
            ("key", "billing"),
            ("name", &name.to_string()),
        ],
    )
}

/// Four candidates; each leader is killed or stopped. A next leader follows when the lease ends, and there are never two.
/// The history says when each held the lock. The resource says that an older term never wrote after a newer one.
#[tokio::test]
#[limit(120)]
async fn leaders_that_are_killed_and_stopped_are_followed_and_never_two_lead() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut candidates: Vec<Worker> = (0..4).map(|name| candidate(name, &server, &scratch, &resource)).collect();
    let watching: LockManager = locks(&server);
    let mut observation = watching.elect("billing").observe();
    let mut leading = leader(&mut observation, None).await;
    for round in 0..6 {
        // So that it writes for a while.
        tokio::time::sleep(SECOND / 4).await;
        let (fallen, since) = (leading, Stopwatch::start());
        let killed = round % 2 == 0;
        if killed {
            let pid = candidates[fallen].pid();
            candidates[fallen].kill().await;
            scratch.recorder().killed(pid);
        } else {
            candidates[fallen].stop();
        }
        leading = leader(&mut observation, Some(fallen)).await;
        let how = if killed { "SIGKILL" } else { "SIGSTOP" };
        figure(&format!("the next leader after {how} of one with a ttl of 3 s"), since.elapsed());
        since.assert_within(TTL + 2 * SECOND, "the next leader is seen");
        if killed {
            candidates[fallen] = candidate(fallen, &server, &scratch, &resource);
        } else {
            // It stands for election again.
            candidates[fallen].resume();
        }
    }
    for mut candidate in candidates {
        let pid = candidate.pid();
        candidate.kill().await;
        scratch.recorder().killed(pid);
    }
    let verdict = scratch.verdict();
    assert_eq!(verdict.violations, []);
    assert!(verdict.grants >= 7 && verdict.writes > 0, "{verdict:?}");
}

/// A leader that returns from `main` is followed at once, not when its lease ends.
#[tokio::test]
#[limit]
async fn a_term_ends_with_its_manager() {
    let server = RedisServer::start();
    let (one, other) = (locks(&server), locks(&server));
    let leadership = one.elect("billing").with_ttl(600 * SECOND).announcing("one").campaign().await.unwrap();
    let next = tokio::spawn(other.elect("billing").announcing("other").campaign());
    let mut observation = other.elect("billing").observe();
    assert_eq!(observation.changed().await.unwrap().unwrap().announced(), Some("one"));
    let term = leadership.term();
    drop(leadership);
    drop(one);
    let leadership = next.await.unwrap().unwrap();
    assert!(leadership.term() > term && exists(&server, "billing"));
    assert_eq!(observation.changed().await.unwrap().unwrap().announced(), Some("other"));
    leadership.resign().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

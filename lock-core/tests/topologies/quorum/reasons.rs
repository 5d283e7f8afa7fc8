//! Why a quorum grants nothing: the error tells the reason, and names a process only if a majority of the members does.

use lock_core::{HolderInfo, LockBackend, LockError, LockErrorKind, LockKey, MemoryStore};
use lock_store::{AcquireRequest, Claim};
use lock_testing::{RedisServer, limit};

use crate::quorum::network::{Network, Process, process, process_with, stores};
use crate::quorum::servers::{begin, servers};
use crate::quorum::{MS, SECOND};
use crate::support::eventually;

/// Waits for the lock in vain.
async fn wait(process: &Process, wait: std::time::Duration) -> LockError {
    process.locks.lock("k").with_ttl(6 * SECOND).with_wait(wait).await.unwrap_err()
}

/// Tries to take the lock, and returns what the error of a caller that does not wait says, if there is one.
async fn try_once(process: &Process) -> LockError {
    process.locks.lock("k").with_ttl(6 * SECOND).with_wait(std::time::Duration::ZERO).await.unwrap_err()
}

/// Leaves a claim of a process that has never held the lock at one member.
async fn leave_at(store: &MemoryStore, site: &str) {
    let claim = Claim::new(LockKey::new("k").unwrap(), 60 * SECOND);
    let request = AcquireRequest::new(claim, HolderInfo::new("elsewhere", 4711, site));
    store.try_acquire(&request).await.unwrap();
}

fn names_a_holder(error: &LockError) -> bool {
    ["held by", "taken by", "still taken"].iter().any(|says| error.to_string().contains(says))
}

/// A member may have too little time to say that it does not count.
fn tells_of_members(text: &str) -> bool {
    ["has begun with empty data", "did not answer", "has not answered"].iter().any(|told| text.contains(told))
}

#[tokio::test(start_paused = true)]
#[limit]
async fn callers_that_meet_at_members_that_do_not_count_are_told_so() {
    for delay in [5, 20, 60] {
        let stores = stores(3);
        let processes = [(); 3].map(|()| process_with(&stores, |quorum| quorum.with_max_ttl(60 * SECOND).unwrap()));
        stores[..2].iter().for_each(MemoryStore::lose_data);
        processes.iter().for_each(|process| process.set(0..3, Network::Delays(delay * MS)));
        for waited in 1..=8 {
            let waited = 700 * MS * waited;
            let [one, two, three] = &processes;
            let errors = tokio::join!(wait(one, waited), wait(two, waited), wait(three, waited));
            for error in [errors.0, errors.1, errors.2] {
                let text = error.to_string();
                assert!(tells_of_members(&text) && !names_a_holder(&error), "{delay} ms: {text}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn votes_that_are_split_are_named_so() {
    let stores = stores(3);
    let process = process(&stores);
    leave_at(&stores[1], "one").await;
    leave_at(&stores[2], "two").await;
    let error = wait(&process, SECOND).await;
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("split") && !names_a_holder(&error), "{error}");
    let error = try_once(&process).await;
    assert!(error.to_string().contains("split") && !names_a_holder(&error), "{error}");
    assert!(process.locks.lock("k").with_ttl(6 * SECOND).try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_process_that_one_member_names_is_not_the_holder() {
    for network in [Network::Refuses, Network::Swallows, Network::Mutes] {
        let stores = stores(3);
        let process = process(&stores);
        leave_at(&stores[1], "left").await;
        process.set([2], network);
        let error = wait(&process, 2 * SECOND).await;
        let text = error.to_string();
        assert!(text.contains("left (pid 4711 on elsewhere) has it at 1 of 3 members"), "{network:?}: {text}");
        assert!(text.contains("c: ") || text.contains("c did not answer"), "{network:?}: {text}");
        assert!(!names_a_holder(&error), "{network:?}: {text}");
        // With one more away, it is the members.
        process.set([0], network);
        let error = wait(&process, 2 * SECOND).await;
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{network:?}: {error}");
        assert!(
            error.to_string().contains("2 of 3 members must grant the lock, and only 1 can"),
            "{network:?}: {error}"
        );
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn callers_behind_one_that_waits_are_told_what_it_was_told() {
    let stores = stores(3);
    let (holder, process) = (process(&stores), process(&stores));
    let guard = holder.locks.lock("k").with_ttl(6 * SECOND).await.unwrap();
    let waiting = tokio::join!(wait(&process, SECOND), wait(&process, SECOND), async {
        tokio::time::sleep(MS).await;
        try_once(&process).await
    });
    for error in [waiting.0, waiting.1, waiting.2] {
        assert!(names_a_holder(&error), "a majority names the holder: {error}");
    }
    let away = async {
        tokio::time::sleep(SECOND).await;
        process.set([1, 2], Network::Refuses);
    };
    let (one, two, three, ()) =
        tokio::join!(wait(&process, 3 * SECOND), wait(&process, 3 * SECOND), wait(&process, 4 * SECOND), away);
    for error in [one, two, three] {
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("b: ") && !names_a_holder(&error), "{error}");
    }
    drop(guard);
}

#[tokio::test]
#[limit]
async fn callers_that_meet_at_servers_that_restarted_are_told_so() {
    let mut servers: Vec<RedisServer> = servers(3);
    let locks = [begin(&servers, "?max_ttl=60s").await, begin(&servers, "?max_ttl=60s").await];
    servers[0].restart();
    servers[1].restart();
    for locks in &locks {
        eventually("all members answer again", || {
            servers.iter().all(|server| server.command(&["PING"]).text() == "PONG")
        })
        .await;
        while locks.sync("k").await.unwrap().nodes.iter().any(|node| node.answer.is_err()) {}
    }
    for round in 0..12 {
        let wait = 250 * MS + 70 * MS * round;
        let wait = |locks: &lock_core::LockManager| locks.lock("k").with_ttl(6 * SECOND).with_wait(wait).acquire();
        let (one, two) = tokio::join!(wait(&locks[0]), wait(&locks[1]));
        for error in [one.unwrap_err(), two.unwrap_err()] {
            let text = error.to_string();
            assert!(tells_of_members(&text) && !names_a_holder(&error), "round {round}: {text}");
        }
    }
}

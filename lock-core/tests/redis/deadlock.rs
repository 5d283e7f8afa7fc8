//! Tasks and processes that wait for each other, on a real server.

use lock_core::LockErrorKind;
use lock_testing::{RedisServer, limit};

use crate::rings::{Told, assert_one_gave_way, crossing_in_scopes, ring};
use crate::support::{Worker, eventually, locked_keys, locks, nothing_is_left};

/// A process that holds one lock of the ring, and will want the next one's.
fn member(server: &RedisServer, place: usize, count: usize) -> Worker {
    let (first, second) = (format!("ring:{place}"), format!("ring:{}", (place + 1) % count));
    let (url, ttl) = (server.url(), "600000");
    Worker::start("nest", &[("url", &url), ("ttl_ms", ttl), ("first", &first), ("second", &second)])
}

/// One of them gives way, and names the cycle; the others go on, and nothing is left.
async fn broken_by_one(count: usize) {
    let server = RedisServer::start();
    let mut members: Vec<Worker> = (0..count).map(|place| member(&server, place, count)).collect();
    for member in &mut members {
        assert_eq!(member.next().await, "held");
    }
    for member in &mut members {
        member.send("go").await;
    }
    let mut ends = Vec::new();
    for member in &mut members {
        ends.push(member.next().await);
    }
    let gave_way: Vec<(usize, &String)> = ends.iter().enumerate().filter(|(_, end)| *end != "done").collect();
    let [(victim, text)] = gave_way.as_slice() else { panic!("{ends:?}") };
    assert!(text.starts_with("WouldDeadlock ") && text.contains("worker::nest"), "{text}");
    for (place, member) in members.iter().enumerate() {
        assert!(text.contains(&format!("\"ring:{place}\"")), "ring:{place} in {text}");
        // Its own lock it knows without a name.
        if place != *victim {
            assert!(text.contains(&format!("pid {}", member.pid())), "{}: {text}", member.pid());
        }
    }
    for member in members {
        member.ended().await;
    }
    eventually("nothing is left", || locked_keys(&server).is_empty()).await;
}

#[tokio::test]
#[limit]
async fn two_processes_that_wait_for_each_other_are_told_apart_and_one_gives_way() {
    broken_by_one(2).await;
}

#[tokio::test]
#[limit]
async fn a_ring_of_three_processes_is_broken_by_one_that_names_the_other_two() {
    broken_by_one(3).await;
}

/// A member that dies breaks the ring when its lease ends, and nobody gives way for it.
#[tokio::test]
#[limit]
async fn a_member_that_dies_ends_the_cycle_and_nobody_gives_way() {
    let server = RedisServer::start();
    let start = |first: &str, second: &str| {
        let (url, ttl) = (server.url(), "2000");
        Worker::start("nest", &[("url", &url), ("ttl_ms", ttl), ("first", first), ("second", second)])
    };
    let (mut lives, mut dies) = (start("a", "b"), start("b", "a"));
    assert_eq!((lives.next().await, dies.next().await), ("held".to_owned(), "held".to_owned()));
    // It is gone before it wants anything.
    dies.kill().await;
    lives.send("go").await;
    assert_eq!(lives.next().await, "done");
    lives.ended().await;
    eventually("nothing is left", || locked_keys(&server).is_empty()).await;
}

#[tokio::test]
#[limit]
async fn processes_on_a_server_are_found_and_leave_nothing() {
    let (server, told) = (RedisServer::start(), Told::default());
    let managers = [locks(&server), locks(&server), locks(&server)];
    managers.iter().for_each(|locks| locks.observe(told.clone()));
    let ends = ring(&managers).await;
    assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1, "{ends:?}");
    let victim = ends.iter().find_map(|end| end.as_ref().err()).unwrap();
    assert_eq!(victim.kind(), LockErrorKind::WouldDeadlock);
    assert!(victim.to_string().contains(&format!("pid {}", std::process::id())), "{victim}");
    nothing_is_left(&server).await;
    let reserved = managers[0].lock("{ring:1}@blocked").await.unwrap_err();
    assert_eq!(reserved.kind(), LockErrorKind::InvalidKey);
}

#[tokio::test]
#[limit]
async fn two_tasks_with_guards_in_a_scope_are_found_on_a_server() {
    let (server, told) = (RedisServer::start(), Told::default());
    let managers = [locks(&server), locks(&server)];
    managers.iter().for_each(|locks| locks.observe(told.clone()));
    assert_one_gave_way(&crossing_in_scopes(managers).await, &told);
    nothing_is_left(&server).await;
}

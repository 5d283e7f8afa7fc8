//! The turn of a claim that waited: when it is granted without a write, and what others see of it.

use std::time::{Duration, SystemTime};

use lock_core::FencingToken;
use lock_testing::{EventLog, limit};
use lock_zookeeper::ZooKeeper;
use zookeeper_client::Client;

use crate::servers::{Pace, Servers};
use crate::support::{LONG, SECOND, eventually, locks};

/// A turn in a server of its own.
struct Turn {
    /// The token of its grant, as steps above the number in front of tokens.
    token: u64,
    /// The transaction that removed the node of the holder before.
    removal: u64,
    /// When that holder released the lock, and since when others saw it held at last.
    released: SystemTime,
    since: SystemTime,
}

/// Lets a claim wait for that long with a session that lasts that long.
async fn turn(session: Duration, waits: Duration) -> Option<Turn> {
    let servers = Servers::one(Pace::PATIENT)?;
    let url = servers.url("/turns?session=60s");
    let (holder, events) = (locks(&url), EventLog::default());
    let waiter = locks(&servers.url(&format!("/turns?session={}s", session.as_secs())));
    waiter.observe(events.clone());
    let guard = holder.lock("k").await.unwrap();
    let waiting = tokio::spawn(async move { (waiter.lock("k").await.unwrap(), waiter) });
    eventually("it waits", || events.count("Contended") > 0).await;
    tokio::time::sleep(waits).await;
    let (before, released) = (guard.token(), SystemTime::now());
    guard.release().await.unwrap();
    let (granted, _waiter) = waiting.await.unwrap();
    assert!(granted.token() > before, "{} after {before}", granted.token());
    let operator = Client::connect(&format!("127.0.0.1:{}", servers.port(0))).await.unwrap();
    let folder = operator.list_children("/turns/l").await.unwrap().pop().unwrap();
    let (names, stat) = operator.get_children(&format!("/turns/l/{folder}")).await.unwrap();
    assert_eq!(names.len(), 1, "only the new holder has a node: {names:?}");
    let others = ZooKeeper::new(&url).unwrap();
    let noted = async {
        loop {
            let holder = lock_core::LockBackend::holder(&others, granted.key()).await.unwrap().unwrap();
            match holder.since {
                Some(since) if since + SECOND > released => return since,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let since = tokio::time::timeout(LONG, noted)
        .await
        .expect("others see since when it is held, and not since when it waited");
    let token = (granted.token().get() - FencingToken::PLAIN.get()) / FencingToken::PER_GRANT;
    Some(Turn { token, removal: u64::try_from(stat.pzxid).unwrap(), released, since })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_turn_soon_after_a_write_is_granted_without_another_and_its_time_is_noted() {
    let mut tries = 0;
    let turn = loop {
        let Some(turn) = turn(LONG, 2 * SECOND + SECOND / 2).await else { return };
        assert!(turn.token >= turn.removal, "{} is below {}", turn.token, turn.removal);
        if turn.token == turn.removal {
            break turn;
        }
        // On a busy machine its caller asked again just then, and was granted the lock by a write.
        tries += 1;
        assert!(tries < 5, "each turn took a write");
    };
    let apart = turn.since.duration_since(turn.released).unwrap_or_default();
    assert!(apart < LONG, "{apart:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_turn_whose_session_has_not_written_for_long_is_granted_by_a_write() {
    // Within six seconds its caller has asked again, and only a write can promise it half a session since then.
    let Some(turn) = turn(4 * SECOND, 6 * SECOND).await else { return };
    assert!(turn.token > turn.removal, "{} is not above {}", turn.token, turn.removal);
}

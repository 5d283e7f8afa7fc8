//! A claim that learns late that it is the first: others came and went since it made its node.

use lock_testing::{Direction, EventLog, FaultProxy, limit};

use crate::servers::{Pace, Servers};
use crate::support::{Scratch, eventually};

/// How many bytes a directory is asked for with: the frame and its header, a path and whether to watch.
const BEHIND: u64 = (4 + 8) + (4 + "/late/l/000".len() as u64) + 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_claim_that_lists_its_directory_late_gets_a_greater_token_than_those_that_came_and_went() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let (proxy, scratch, events) = (FaultProxy::start(servers.port(0)), Scratch::new(), EventLog::default());
    let url = servers.url("/late?session=60s");
    let late = scratch.locks(&format!("zookeeper://127.0.0.1:{}/late?session=60s", proxy.port()));
    let [holder, next] = [scratch.locks(&url), scratch.locks(&url)];
    next.observe(events.clone());
    // All have a session, and the lock has a directory.
    for locks in [&late, &holder, &next] {
        locks.lock("k").await.unwrap().release().await.unwrap();
    }
    let before = proxy.bytes(Direction::ToServer);
    let guard = late.lock("k").await.unwrap();
    let length = proxy.bytes(Direction::ToServer) - before;
    guard.release().await.unwrap();
    for _ in 0..5 {
        let (free, contended) = (servers.nodes(), events.count("Contended"));
        let guard = holder.lock("k").await.unwrap();
        let waiting = tokio::spawn({
            let next = next.clone();
            async move { next.lock("k").await.unwrap() }
        });
        eventually("the next one waits", || events.count("Contended") > contended && servers.nodes() == free + 2).await;
        // Its node is made, and its list is held back.
        proxy.silent_after(Direction::ToServer, usize::try_from(length - BEHIND + 8).unwrap());
        let asking = tokio::spawn({
            let late = late.clone();
            async move { late.lock("k").await.unwrap() }
        });
        eventually("the late one has its node", || servers.nodes() == free + 3).await;
        guard.release().await.unwrap();
        let second = waiting.await.unwrap();
        let newest = second.token();
        second.release().await.unwrap();
        proxy.resume();
        let third = asking.await.unwrap();
        assert!(third.token() > newest, "{} after {newest}", third.token());
        third.release().await.unwrap();
    }
}

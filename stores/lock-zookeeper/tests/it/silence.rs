//! Servers that say nothing, nodes that an operator removes, and stores that are dropped.

use lock_core::{HolderInfo, LockBackend as _, LockErrorKind, LockKey, LockManager};
use lock_store::{
    AcquireRequest, Attempt, Claim, Doctor as _, DoneMarks as _, FindingGrade, Freed, Inspector as _, JobRecords as _,
    JobVersion, Release, Renewal,
};
use lock_testing::{Direction, FaultProxy, Stopwatch, limit};
use lock_zookeeper::ZooKeeper;
use tokio::time::timeout;
use zookeeper_client::Client;

use crate::servers::{NEWEST, Pace, Servers, is_installed};
use crate::support::{LONG, SECOND, eventually, locks};

fn request(key: &str) -> AcquireRequest {
    let claim = Claim::new(LockKey::new(key).unwrap(), LONG);
    let mut request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"));
    request.execute_within = LONG;
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn every_call_ends_while_the_servers_are_silent_and_works_when_they_speak_again() {
    if !is_installed(NEWEST) {
        return;
    }
    let proxy = FaultProxy::start(Servers::shared(NEWEST, 1).port(0));
    let url = format!("zookeeper://127.0.0.1:{}/silence?session=60s", proxy.port());
    let store = ZooKeeper::new(&url).unwrap();
    let (held, version) = (request("held"), JobVersion::new("v1").unwrap());
    let (claim, key) = (&held.claim, &held.claim.key);
    assert!(matches!(store.try_acquire(&held).await, Ok(Attempt::Granted { .. })));
    assert!(store.scan("", 100, None).await.is_ok(), "also the session for looks is open");
    for way in [Direction::ToServer, Direction::ToClient] {
        proxy.black_hole(way);
    }
    let watch = Stopwatch::start();
    let mut asked = request("asked");
    asked.execute_within = SECOND;
    let failed = tokio::join!(
        async { store.holder(key).await.is_err() },
        async { store.last_run(key).await.is_err() },
        async { store.done(key, &version).await.is_err() },
        async { store.mark_done(claim, &version, None).await.is_err() },
        async { store.forget_done(key, &version).await.is_err() },
        async { store.renew(std::slice::from_ref(claim)).await[0].is_err() },
        async { store.withdraw(&asked.claim).await.is_err() },
        // A caller that goes is not waited for.
        async { !matches!(timeout(SECOND, store.try_acquire(&asked)).await, Ok(Ok(_))) },
    );
    assert_eq!(failed, (true, true, true, true, true, true, true, true));
    // The client leaves a silent connection after a sixth of the session, and then there is nothing to wait for. It has not yet.
    assert_eq!(store.ping().await, Ok(()), "a call has waited until its client gave up");
    println!("figure: every call to silent servers has ended after {:?}", watch.elapsed());
    watch.assert_within(8 * SECOND, "every call ends");
    let (page, waiters, findings, fresh) =
        tokio::join!(store.scan("", 100, None), store.waiters(key), store.examine(), LockManager::connect(&url));
    assert!(page.is_err() && waiters.is_err());
    assert!(findings.iter().any(|finding| finding.grade == FindingGrade::Unknown), "{findings:?}");
    assert_eq!(fresh.unwrap_err().kind(), LockErrorKind::Unavailable);
    watch.assert_within(20 * SECOND, "every look ends, and so does connecting");
    proxy.resume();
    // The lock was not lost, and what nobody waited for has left nothing.
    let renewed = async {
        while store.renew(std::slice::from_ref(claim)).await != [Ok(Renewal::RenewedFor(LONG / 2))] {
            tokio::time::sleep(SECOND / 10).await;
        }
    };
    timeout(LONG, renewed).await.expect("it is renewed again");
    assert_eq!(store.release(&Release::new(held.claim.clone())).await, Ok(Freed::Released));
    for key in [key, &asked.claim.key] {
        let free = async {
            while !matches!(store.holder(key).await, Ok(None)) {
                tokio::time::sleep(SECOND / 10).await;
            }
        };
        timeout(LONG, free).await.expect("it is free");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn the_node_of_a_process_is_made_again_when_an_operator_has_removed_it() {
    if !is_installed(NEWEST) {
        return;
    }
    let servers = Servers::shared(NEWEST, 1);
    let store = ZooKeeper::new(&servers.url("/beats?session=60s")).unwrap();
    let operator = Client::connect(&format!("127.0.0.1:{}", servers.port(0))).await.unwrap();
    let held = request("k");
    assert!(matches!(store.try_acquire(&held).await, Ok(Attempt::Granted { .. })));
    for with_directory in [false, true] {
        for node in operator.list_children("/beats/h").await.unwrap() {
            operator.delete(&format!("/beats/h/{node}"), None).await.unwrap();
        }
        if with_directory {
            operator.delete("/beats/h", None).await.unwrap();
        }
        let both = [held.claim.clone(), held.claim.clone()];
        let renewed = tokio::join!(store.renew(&both[..1]), store.renew(&both[1..]));
        let expected = [Ok(Renewal::RenewedFor(LONG / 2))];
        assert_eq!(renewed, (expected.to_vec(), expected.to_vec()));
        assert_eq!(operator.list_children("/beats/h").await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_store_that_is_dropped_leaves_no_node_of_a_holder_or_a_waiter() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let ours = locks(&servers.url("/dropped?session=60s"));
    let theirs = locks(&servers.url("/dropped?session=60s"));
    let guard = ours.lock("k").await.unwrap();
    // The nodes of sessions that live.
    let left = |folder: &str| servers.ask(0, "dump").unwrap_or_default().matches(folder).count();
    let waiting = tokio::spawn(async move { theirs.lock("k").await.map(drop) });
    eventually("the other waits", || left("/dropped/l/") == 2).await;
    let watch = Stopwatch::start();
    waiting.abort();
    assert!(waiting.await.is_err());
    drop(guard);
    drop(ours);
    eventually("all of their nodes are gone", || left("/dropped/") == 0).await;
    watch.assert_within(20 * SECOND, "no session has to end by its time-out");
}

//! The base of tokens, which an operator or another process may raise at any time.

use lock_core::{FencingToken, HolderInfo, LockBackend as _, LockKey};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release};
use lock_testing::{FaultProxy, limit};
use lock_zookeeper::ZooKeeper;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::servers::{Pace, Servers};
use crate::support::{LONG, locks};

/// A process reads the base once, and then only after an event or over a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_lock_that_is_taken_again_has_the_newest_base_of_tokens() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let proxy = FaultProxy::start(servers.port(0));
    let locks = locks(&format!("zookeeper://127.0.0.1:{}/base?session=60s", proxy.port()));
    let operator = Client::connect(&format!("127.0.0.1:{}", servers.port(0))).await.unwrap();
    let token = || async {
        let guard = locks.lock("k").await.unwrap();
        let token = guard.token().get();
        guard.release().await.unwrap();
        token
    };
    let mut newest = token().await;
    let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for raises in 1..=8 {
        let raised = FencingToken::PLAIN.get() + (raises << 56);
        let text = raised.to_string();
        let write = async {
            match raises {
                1 => operator.create("/base/base", text.as_bytes(), &lasting).await.map(drop),
                _ => operator.set_data("/base/base", text.as_bytes(), None).await.map(drop),
            }
        };
        if raises % 2 == 0 {
            // It hears of nothing meanwhile.
            proxy.refuse(true);
            proxy.kill_connections();
        }
        write.await.unwrap();
        proxy.refuse(false);
        // Several learn at once that they do not know it any more.
        let others: JoinSet<_> = (0..8).map(|other| locks.lock(format!("k:{other}")).acquire()).collect();
        for other in others.join_all().await {
            assert!(other.unwrap().token().get() > raised);
        }
        let token = token().await;
        assert!(token > raised && token > newest, "{token} after {newest}, with the base {raised}");
        newest = token;
    }
}

/// Takes a lock under a token above the floor, and releases it.
async fn token(store: &ZooKeeper, floor: u64) -> u64 {
    let claim = Claim::new(LockKey::new("k").unwrap(), LONG);
    let mut request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"));
    (request.floor, request.execute_within) = (FencingToken::new(floor), LONG);
    let attempt = store.try_acquire(&request).await;
    let Ok(Attempt::Granted { token, .. }) = attempt else { panic!("{attempt:?}") };
    assert_eq!(store.release(&Release::new(request.claim)).await, Ok(Freed::Released));
    token.get()
}

/// Some processes have a user already, and some do not yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_base_that_a_user_has_raised_is_known_to_processes_without_a_user() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let [nobody, user] = ["", "ana:open-sesame@"].map(|login| {
        ZooKeeper::new(&format!("zookeeper://{login}127.0.0.1:{}/mixed?session=60s", servers.port(0))).unwrap()
    });
    let before = token(&nobody, 0).await;
    let raised = token(&user, before + (1 << 56)).await;
    let after = token(&nobody, 0).await;
    assert!(after > raised, "{after} after {raised}");
}

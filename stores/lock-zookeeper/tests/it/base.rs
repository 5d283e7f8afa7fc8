//! The base of tokens, which an operator or another process may raise at any time.

use lock_core::FencingToken;
use lock_testing::{FaultProxy, limit};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::servers::{Pace, Servers};
use crate::support::locks;

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

//! What observers hear of this store: the same as of every other store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{LockEvent, LockManager, LockObserver, Notice};
use lock_postgres as _;
use lock_testing::{FaultProxy, PostgresServer, limit};

use crate::support::{LONG, on_runtime};

/// The notices of a store, in words.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl LockObserver for Heard {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        let text = match notice {
            Notice::Connection { node, up } => format!("{node} up {up}"),
            Notice::Server { node, id, version, kind } => format!("{node} is {kind} {version} {id}"),
            Notice::Command { op, node, error, .. } => format!("{node} {op} {}", error.is_none()),
            _ => return,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

impl Heard {
    /// Waits until it has heard this.
    async fn soon(&self, what: &str) -> String {
        let heard = async {
            loop {
                if let Some(text) = self.0.lock().unwrap().iter().find(|text| text.contains(what)) {
                    return text.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let heard = tokio::time::timeout(LONG, heard).await;
        heard.unwrap_or_else(|_| panic!("{what:?} is missing: {:?}", self.0.lock().unwrap()))
    }
}

/// A service that takes no lock for hours hears of it too.
#[test]
#[limit(300)]
fn a_store_says_whether_it_is_reached_and_which_server_it_is() {
    on_runtime(async {
        let server = PostgresServer::shared();
        let proxy = FaultProxy::start(server.port());
        let url = format!("postgres://test@127.0.0.1:{}/postgres", proxy.port());
        let (locks, heard) = (LockManager::connect(&url).await.unwrap(), Heard::default());
        locks.observe(heard.clone());
        let node = format!("127.0.0.1:{}/postgres", proxy.port());
        heard.soon(&format!("{node} up true")).await;
        let told = heard.soon(" is server ").await;
        let version = server.run("SHOW server_version").split(' ').next().unwrap().to_owned();
        assert!(told.starts_with(&format!("{node} is server postgres {version} 1-")), "{told}");
        locks.lock("signals").with_ttl(LONG).acquire().await.unwrap().release().await.unwrap();
        for op in ["acquire", "release"] {
            heard.soon(&format!("{node} {op} true")).await;
        }
        assert!(!heard.0.lock().unwrap().iter().any(|text| text.ends_with("up false")), "it was never away");
        // Away, while nobody calls.
        heard.0.lock().unwrap().clear();
        proxy.refuse(true);
        proxy.kill_connections();
        heard.soon(&format!("{node} up false")).await;
        heard.0.lock().unwrap().clear();
        proxy.refuse(false);
        heard.soon(&format!("{node} up true")).await;
        heard.soon(" is server ").await;
    });
}

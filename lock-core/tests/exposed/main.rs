//! The warning of a store whose failover may lose locks, although nobody has chosen that. It reads the log of the whole process.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockEvent, LockManager, LockObserver, Notice};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer, Reply, limit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Remembers warnings about failovers, and how often a server has said how many replicas it has.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<String>>>, tokio::sync::watch::Sender<Vec<bool>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("take over") || text.0.contains("promote") {
            self.0.lock().unwrap().push(text.0);
        }
    }
}

impl LockObserver for Log {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::FailoverExposure { exposed, .. } = notice {
            self.1.send_modify(|seen| seen.push(*exposed));
        }
    }
}

/// Returns the warnings about a URL, once so many masters have been asked.
async fn said(log: &Log, url: &str, masters: usize) -> (Vec<String>, Vec<bool>) {
    log.0.lock().unwrap().clear();
    log.1.send_replace(Vec::new());
    let locks = LockManager::builder_for(url).unwrap().observer(log.clone()).connect().await.unwrap();
    let mut seen = log.1.subscribe();
    let all = seen.wait_for(|seen| seen.len() >= masters);
    tokio::time::timeout(Duration::from_secs(40), all)
        .await
        .expect("each master says how many replicas it has")
        .unwrap();
    drop(locks);
    let said = log.0.lock().unwrap().clone();
    (said, seen.borrow().clone())
}

/// One test, because the log is that of the process: the keeper has a thread of its own.
#[tokio::test]
#[limit]
async fn a_failover_that_loses_locks_is_a_warning_once_unless_somebody_has_chosen() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let server = RedisServer::start();
    assert_eq!(said(&log, &server.url(), 1).await, (Vec::new(), vec![false]), "nobody follows it");

    let replica = RedisServer::builder().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    while !replica.command(&["INFO", "replication"]).text().contains("master_link_status:up") {
        tokio::task::yield_now().await;
    }
    let (warned, exposed) = said(&log, &server.url(), 1).await;
    assert!(warned.len() == 1 && exposed == [true], "{warned:?} {exposed:?}");
    assert!(
        warned[0].contains("acks=1") && warned[0].contains("acks=0") && warned[0].contains("two holders"),
        "{warned:?}"
    );
    // Servers that refuse writes without a replica lose the newest locks all the same.
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(said(&log, &server.url(), 1).await.0.len(), 1);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // The disk of a master does not come with the replica that takes over.
    let (warned, exposed) = said(&log, &format!("{}?fsync=local", server.url()), 1).await;
    assert!(warned.len() == 1 && exposed == [true], "{warned:?} {exposed:?}");
    for chosen in ["acks=1", "acks=0", "fsync=1", "acks=0&fsync=local"] {
        let told = said(&log, &format!("{}?{chosen}", server.url()), 1).await;
        assert_eq!(told, (Vec::new(), vec![false]), "{chosen}");
    }
    // A user who may not ask is neither warned nor failed.
    let rules = "ACL SETUSER app reset on >pass ~* &* +@all -info";
    assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), Reply::Text("OK".to_owned()));
    let url = format!("redis://app:pass@127.0.0.1:{}", server.port());
    assert_eq!(said(&log, &url, 0).await, (Vec::new(), Vec::new()));

    let servers = RedisSentinels::start();
    assert_eq!(said(&log, &servers.url(), 1).await.0.len(), 1);
    assert_eq!(said(&log, &format!("{}?acks=0", servers.url()), 1).await, (Vec::new(), vec![false]));
    assert_eq!(said(&log, &format!("{}?acks=all", servers.url()), 1).await, (Vec::new(), vec![false]));

    let cluster = RedisCluster::start(2);
    let _replicas = [cluster.start_replica_of(0), cluster.start_replica_of(1)];
    let (warned, exposed) = said(&log, &cluster.url(), 2).await;
    assert!(warned.len() == 1 && exposed == [true, true], "once for the URL: {warned:?} {exposed:?}");
    assert_eq!(said(&log, &format!("{}?acks=0", cluster.url()), 2).await.0, Vec::<String>::new());
}

//! A program learns at its start the error that its first lock would get.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager};
use lock_testing::{RedisServer, Reply, limit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Starts strictly.
async fn refused(url: &str) -> LockError {
    let error = LockManager::builder_for(url).unwrap().strict().connect().await.unwrap_err();
    assert!(LockManager::connect(url).await.is_ok(), "only what is strict refuses: {error}");
    error
}

/// A user with all permissions that locks need, but for one thing.
fn user(server: &RedisServer, rules: &[&str]) -> String {
    server.command(&[&["ACL", "SETUSER", "app", "reset", "on", ">pw", "&*", "+@all"], rules].concat());
    format!("redis://app:pw@127.0.0.1:{}", server.port())
}

#[tokio::test]
#[limit]
async fn a_store_that_would_refuse_the_first_lock_is_a_warning_and_strictly_an_error() {
    let server = RedisServer::start();
    let url = server.url();
    for query in ["", "?key_prefix=prod:"] {
        let url = format!("{url}{query}");
        assert!(LockManager::builder_for(&url).unwrap().strict().connect().await.is_ok());
    }
    let Reply::List(left) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    assert_eq!(left.iter().map(Reply::text).collect::<Vec<_>>(), ["distributed-lock:clock"], "nothing else is left");

    let without_replicas = refused(&format!("{url}?acks=5")).await;
    assert!(without_replicas.to_string().contains("replica"), "{without_replicas}");
    let never_on_disk = refused(&format!("{url}?fsync=local")).await;
    assert_eq!(
        never_on_disk.kind(),
        LockErrorKind::Misconfigured,
        "an old server, or one without appendonly: {never_on_disk}"
    );
    for (rules, says) in [
        (&["~*", "-xadd"][..], "xadd"),
        (&["~*", "-set"], "set"),
        (&["~*", "-evalsha", "-eval"], "eval"),
        (&["~lock:*", "~{lock:*"], "NOPERM"),
    ] {
        let error = refused(&format!("{}?key_prefix=prod:", user(&server, rules))).await;
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains("the user may not do that") && error.to_string().contains(says), "{error}");
    }

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = refused(&url).await;
    assert!(full.to_string().contains("its memory is full"), "{full}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let replica = refused(&url).await;
    assert!(replica.to_string().contains("connect to the master"), "{replica}");
}

#[tokio::test]
#[limit]
async fn who_may_use_other_keys_only_is_not_warned_without_a_prefix() {
    let server = RedisServer::start();
    let url = user(&server, &["~orders:*", "~{orders:*", "~distributed-lock:clock*"]);
    let locks = LockManager::builder_for(&url).unwrap().strict().connect().await.unwrap();
    drop(locks.lock("orders:1").await.unwrap());
}

#[tokio::test]
#[limit]
async fn the_warning_of_the_first_lock_comes_once() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.clone());
    drop(LockManager::connect(&server.url()).await.unwrap());
    drop(logging);
    let log = log.0.lock().unwrap().clone();
    assert_eq!(log.matches("locks cannot be taken here now").count(), 1, "{log}");
    assert!(log.contains("its memory is full"), "{log}");
}

#[tokio::test]
#[limit]
async fn a_refused_connect_is_an_error_and_no_warning_about_waiters() {
    const WARNING: &str = "refuses a background connection";
    let server = RedisServer::start();
    let url = server.url().replace("://", "://nobody:wrong@");
    let builder = || LockManager::builder_for(&url).unwrap().drive_on_current_runtime();
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    builder().connect().await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!log.0.lock().unwrap().contains(WARNING), "there is no manager");
    let _kept = builder().build().unwrap();
    while !log.0.lock().unwrap().contains(WARNING) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}: {value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Answers everything as a web server does.
async fn web_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut asked = [0; 16];
            let _ = connection.read(&mut asked).await;
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    });
    port
}

#[tokio::test]
#[limit]
async fn a_web_server_is_recognised() {
    let error = LockManager::connect(&format!("redis://127.0.0.1:{}", web_server().await)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("but as a web server; correct host and port"), "{error}");
}

#[tokio::test]
#[limit]
async fn valkey_is_a_scheme() {
    let server = RedisServer::start();
    let url = server.url();
    let (one, two) = (LockManager::connect(&url).await.unwrap(), url.replacen("redis", "valkey", 1));
    let two = LockManager::connect(&two).await.unwrap();
    let guard = one.lock("k").with_ttl(Duration::from_secs(30)).await.unwrap();
    assert_eq!(two.lock("k").without_waiting().await.unwrap_err().kind(), LockErrorKind::Busy);
    drop(guard);
    let tls = LockManager::builder_for("valkeys://127.0.0.1:1");
    assert_eq!(tls.is_ok(), cfg!(feature = "tls"));
}

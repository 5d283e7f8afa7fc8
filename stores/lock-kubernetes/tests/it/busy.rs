//! Answers that a real API server seldom gives: 429 with *Retry-After*, 500 for a write that it has executed, and an older version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockErrorKind, ReleaseOutcome};
use lock_kubernetes::Kubernetes;
use lock_store::types::system::sync::Mutex;
use lock_store::{Doctor as _, FindingGrade};
use lock_testing::{Stopwatch, limit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{LONG, SECOND, Scratch, eventually, locks_for};

/// One Lease, and how the next requests about it are answered.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    version: AtomicU64,
    /// How many requests are answered with 429, and what they are told.
    refuses: AtomicU64,
    retry_after: AtomicU64,
    /// How many writes are executed and answered with 500.
    fails: AtomicU64,
    /// How many writes are executed only after three seconds.
    delays: AtomicU64,
    /// Whether it answers watches.
    watches: AtomicU64,
    /// How much older than 1.37 it is.
    older: AtomicU64,
    requests: Mutex<Vec<String>>,
}

impl Server {
    /// Starts it, and returns its URL.
    async fn start(scratch: &Scratch) -> (Arc<Self>, String) {
        let (server, listener) = (Arc::new(Self::default()), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let port = listener.local_addr().unwrap().port();
        let serving = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&serving).serve(client));
            }
        });
        let path = scratch.history().with_extension("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake", "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "c", "user": "a"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        (server, format!("kubernetes://fake/jobs?kubeconfig={}", path.display()))
    }

    /// Answers the requests of one connection.
    async fn serve(self: Arc<Self>, mut client: TcpStream) {
        let mut read = Vec::new();
        loop {
            let end = loop {
                let text = String::from_utf8_lossy(&read).into_owned();
                if let Some(head) = text.find("\r\n\r\n") {
                    let length = text
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                    let end = head + 4 + length.unwrap_or(0usize);
                    if read.len() >= end {
                        break (head + 4, end);
                    }
                }
                if client.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    return;
                }
            };
            let first = String::from_utf8_lossy(&read).lines().next().unwrap().to_owned();
            let mut words = first.split(' ');
            let (method, path) = (words.next().unwrap(), words.next().unwrap());
            if ["POST", "PUT"].contains(&method) && take(&self.delays) {
                tokio::time::sleep(3 * SECOND).await;
            }
            let (status, more, body) = self.answer(method, path, &read[end.0..end.1]);
            let body = format!("{body}\n");
            let head = format!("HTTP/1.1 {status} Status\r\n{more}content-length: {}\r\n\r\n", body.len());
            if client.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
                return;
            }
            read.drain(..end.1);
        }
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, String, Value) {
        if path == "/version" {
            let minor = 37 - self.older.load(Ordering::Relaxed);
            let version = json!({"gitVersion": format!("v1.{minor}.2"), "major": "1", "minor": format!("{minor}+")});
            return (200, String::new(), version);
        }
        if path.contains("watch=true") {
            return self.watch(path);
        }
        self.requests.lock().push(method.to_owned());
        if take(&self.refuses) {
            let wait = self.retry_after.load(Ordering::Relaxed);
            return (429, format!("retry-after: {wait}\r\n"), json!({"message": "too many"}));
        }
        let mut lease = self.lease.lock();
        if method == "GET" {
            return lease.clone().map_or((404, String::new(), json!({})), |lease| (200, String::new(), lease));
        }
        let mut new: Value = serde_json::from_slice(body).unwrap();
        let is_based = lease.as_ref().map(|lease| &lease["metadata"]["resourceVersion"]);
        if is_based != new["metadata"].get("resourceVersion") {
            return (409, String::new(), json!({"message": "it has changed"}));
        }
        new["metadata"]["resourceVersion"] = (self.version.fetch_add(1, Ordering::Relaxed) + 1).to_string().into();
        *lease = Some(new.clone());
        if take(&self.fails) {
            (500, String::new(), json!({"message": "it failed"}))
        } else {
            (200, String::new(), new)
        }
    }

    /// Answers a watch from the present state with one event, and one behind a version with 410, if it watches at all.
    fn watch(&self, path: &str) -> (u16, String, Value) {
        let lease = self.lease.lock().clone();
        match lease.filter(|_| self.watches.load(Ordering::Relaxed) > 0) {
            None => (403, String::new(), json!({"message": "no watch"})),
            Some(_) if path.contains("resourceVersion=") => {
                self.requests.lock().push("WATCH BEHIND".to_owned());
                (410, String::new(), json!({"message": "too old resource version"}))
            }
            Some(lease) => {
                self.requests.lock().push("WATCH".to_owned());
                (200, String::new(), json!({"type": "ADDED", "object": lease}))
            }
        }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }
}

/// Counts down, if there is anything left.
fn take(count: &AtomicU64) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_request_waits_as_long_as_a_busy_server_says_and_no_longer_than_it_may() {
    let scratch = Scratch::new();
    let (server, url) = Server::start(&scratch).await;
    let locks = locks_for(&url, LONG);
    server.retry_after.store(1, Ordering::Relaxed);
    server.refuses.store(2, Ordering::Relaxed);
    let watch = Stopwatch::start();
    let guard = locks.lock("busy").await.unwrap();
    assert!(watch.elapsed() >= 2 * SECOND, "it asked again too early: {:?}", watch.elapsed());
    assert_eq!(server.requests(), ["POST", "POST", "POST"], "one request at a time");
    server.retry_after.store(100, Ordering::Relaxed);
    server.refuses.store(1, Ordering::Relaxed);
    let watch = Stopwatch::start();
    let error = locks.lock("other").without_waiting().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("429"), "{error}");
    watch.assert_within(2 * SECOND, "a wait that is too long is not begun");
    server.refuses.store(0, Ordering::Relaxed);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

/// An error of the server says nothing about what it has done. The claim reads the Lease, and finds itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_write_that_was_executed_and_answered_with_500_makes_no_phantom_holder() {
    let scratch = Scratch::new();
    let (server, url) = Server::start(&scratch).await;
    let locks = locks_for(&url, LONG);
    server.fails.store(1, Ordering::Relaxed);
    let guard = locks.lock("failed").await.unwrap();
    assert_eq!(server.requests()[..3], ["POST", "GET", "PUT"], "by owner, it is its own");
    server.fails.store(1, Ordering::Relaxed);
    assert!(matches!(guard.release().await, Ok(ReleaseOutcome::Released | ReleaseOutcome::AlreadyLost(_))));
    let holder = server.lease.lock().as_ref().unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder, "", "it is free");
    tokio::time::sleep(Duration::from_millis(10)).await;
    let guard = locks.lock("failed").with_wait(10 * SECOND).await.unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

/// The caller has given up. Its write is still on its way, to a Lease that does not exist yet or that is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_write_that_comes_late_does_not_take_the_lock_for_a_claim_that_has_ended() {
    let scratch = Scratch::new();
    let (server, url) = Server::start(&scratch).await;
    let locks = locks_for(&url, LONG);
    for write in ["POST", "PUT"] {
        server.delays.store(1, Ordering::Relaxed);
        let error = locks.lock("late").with_wait(SECOND).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        tokio::time::sleep(4 * SECOND).await;
        let mut requests = server.requests();
        requests.retain(|method| method != "GET");
        assert_eq!(requests, [write, write], "the end of the claim is written first, and the late one is refused");
        let holder = server.lease.lock().as_ref().unwrap()["spec"]["holderIdentity"].clone();
        assert!(holder.is_null() || holder == "", "{write}: {holder}");
        let guard = locks.lock("late").await.unwrap();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        server.requests();
    }
}

/// The server does not know the changes behind any version. Each watch begins anew with the present state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_watch_behind_a_forgotten_version_starts_over() {
    let scratch = Scratch::new();
    let (server, url) = Server::start(&scratch).await;
    let locks = locks_for(&url, LONG);
    let guard = locks.lock("watched").await.unwrap();
    server.watches.store(1, Ordering::Relaxed);
    let (mut count, mut seen) = (0, Vec::new());
    eventually("it watches the present state three times", || {
        seen.extend(server.requests());
        count = seen.iter().filter(|request| *request == "WATCH").count();
        count >= 3
    })
    .await;
    assert!(seen.contains(&"WATCH BEHIND".to_owned()), "{seen:?}");
    assert_eq!(guard.ensure_held(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn an_older_server_is_refused_unless_no_resource_checks_tokens() {
    let scratch = Scratch::new();
    let (server, url) = Server::start(&scratch).await;
    server.older.store(3, Ordering::Relaxed);
    let error = locks_for(&url, LONG).lock("old").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    for part in ["v1.34.2", "since 1.35", "tokens=unchecked"] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    let url = format!("{url}&tokens=unchecked");
    let guard = locks_for(&url, LONG).lock("old").await.unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let findings = Kubernetes::new(&url).unwrap().examine().await;
    assert_eq!(findings[0].grade, FindingGrade::Warning, "{findings:?}");
}

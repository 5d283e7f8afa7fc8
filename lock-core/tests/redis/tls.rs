//! `rediss://`: which servers we trust, which we do not, and what the errors say.
//!
//! The certificates in `support/tls/` are only for these tests. They were made by `openssl req -x509` and `openssl
//! x509 -req`, for a hundred years and the name `localhost`; the keys of the authorities were thrown away.

mod renewed;

use std::path::{Path, PathBuf};

use lock_core::{LockErrorKind, LockManager};
use lock_testing::{RedisServer, Stopwatch, limit};

use crate::support::{SECOND, Worker, eventually, exists};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/tls").join(name)
}

fn server() -> RedisServer {
    RedisServer::builder().with_tls(&file("server.pem"), &file("server.key")).start()
}

/// A process that trusts one authority, instead of those of this machine.
fn worker(mode: &str, url: &str, authority: &str) -> Worker {
    let trusted = file(authority);
    Worker::start_in(&[("SSL_CERT_FILE", trusted.to_str().unwrap())], mode, &[("url", url), ("ttl_ms", "30000")])
}

#[tokio::test]
#[limit]
async fn a_server_with_a_certificate_that_we_trust_is_used_like_any_other() {
    let server = server();
    let url = server.tls_url("localhost");
    let (mut one, mut two) = (worker("hold", &url, "authority.pem"), worker("hold", &url, "authority.pem"));
    assert_eq!((one.next().await, two.next().await), ("ready".to_owned(), "ready".to_owned()));
    assert!(one.order("acquire k").await.starts_with("held "));
    assert!(exists(&server, "k"), "seen over the plain port of the same server");
    // A grant passes over the connection that listens.
    two.send("acquire k").await;
    eventually("it waits", || exists(&server, "{k}@queue")).await;
    assert_eq!(one.order("release").await, "Released");
    assert!(two.next().await.starts_with("held "));
    assert_eq!(two.order("release").await, "Released");
    one.ended().await;
    two.ended().await;
}

#[tokio::test]
#[limit]
async fn the_members_of_a_quorum_are_reached_over_tls() {
    let servers = [server(), server(), server()];
    let member = |server: &RedisServer| server.tls_url("localhost").trim_start_matches("rediss://").to_owned();
    let url = format!("redlocks://{}?restarts=remember", servers.each_ref().map(member).join(","));
    let mut one = worker("hold", &url, "authority.pem");
    assert_eq!(one.next().await, "ready");
    assert!(one.order("acquire k").await.starts_with("held "));
    for server in &servers {
        eventually("every member has it", || exists(server, "k")).await;
    }
    assert_eq!(one.order("release").await, "Released");
    one.ended().await;
    let mut stranger = worker("connect", &url, "other-authority.pem");
    let said = stranger.next().await;
    assert!(said.contains("install the certificate authority"), "{said}");
    stranger.ended().await;
}

#[tokio::test]
#[limit]
async fn a_certificate_that_we_do_not_trust_is_a_mistake_that_says_what_to_do() {
    let server = server();
    for (host, authority, says) in [
        ("localhost", "other-authority.pem", "install the certificate authority that signed the server's certificate"),
        ("127.0.0.1", "authority.pem", "use the host name that the certificate is for"),
    ] {
        let mut worker = worker("connect", &server.tls_url(host), authority);
        let said = worker.next().await;
        assert!(said.starts_with("Misconfigured ") && said.contains(says), "{host}, {authority}: {said}");
        worker.ended().await;
    }
}

#[tokio::test]
#[limit]
async fn tls_and_plain_text_at_the_wrong_door_are_errors_in_time() {
    let server = server();
    let (plain, tls) = (server.url(), server.tls_url("localhost"));
    for url in [plain.replace("redis://127.0.0.1", "rediss://localhost"), tls.replace("rediss://", "redis://")] {
        let watch = Stopwatch::start();
        let error = LockManager::connect(&url).await.unwrap_err();
        watch.assert_within(5 * SECOND, "a connection to the wrong port");
        assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Misconfigured), "{url}: {error}");
    }
}

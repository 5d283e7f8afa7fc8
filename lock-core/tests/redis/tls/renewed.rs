//! Certificates that are replaced while the program runs, and what the errors say about certificates.

use std::fs;
use std::path::PathBuf;

use lock_core::{LockError, LockErrorKind, LockManager};
use lock_testing::{EventLog, RedisCluster, RedisSentinels, RedisServer, RedisServerBuilder, limit};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use tracing::Level;

use crate::collector::Collector;
use crate::support::{Authority, Scratch, renewals, watched};

/// The files of one program and of its servers, all of one authority.
struct Files(Scratch);

impl Files {
    fn new() -> Self {
        let files = Self(Scratch::new());
        files.renew();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name).into()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Replaces every file in place, with those of another authority.
    fn renew(&self) {
        let authority = Authority::new();
        self.write("ca.pem", authority.pem());
        for owner in ["server", "app"] {
            let (certificate, key) = authority.issue_with(&["localhost", "127.0.0.1"], |_| {});
            self.write(&format!("{owner}.pem"), certificate);
            self.write(&format!("{owner}.key"), key);
        }
    }

    /// A server that asks its clients for a certificate.
    fn server(&self) -> RedisServerBuilder {
        RedisServer::builder()
            .with_tls(&self.path("server.pem"), &self.path("server.key"))
            .with("tls-ca-cert-file", self.path("ca.pem").to_str().unwrap())
            .with("tls-auth-clients", "yes")
    }

    fn query(&self) -> String {
        let path = |name| self.path(name).display().to_string();
        format!("ca={}&cert={}&cert_key={}", path("ca.pem"), path("app.pem"), path("app.key"))
    }
}

/// Has servers read their files again, and ends every connection.
fn reload(files: &Files, servers: &[&RedisServer]) {
    for server in servers {
        let ca = files.path("ca.pem").display().to_string();
        let done = server.command(&["CONFIG", "SET", "tls-ca-cert-file", &ca]);
        assert_eq!(done.text(), "OK");
        disconnect(server);
    }
}

fn disconnect(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

/// Holds a lock while every certificate is replaced, twice, and takes another one afterwards.
async fn goes_on_with_renewed_certificates(files: &Files, url: &str, key: &str, servers: &[&RedisServer]) {
    let events = EventLog::default();
    let locks = LockManager::builder_for(url).unwrap().observer(events.clone()).build().unwrap();
    let held = watched(&locks, key).await.unwrap();
    renewals(&events, 2).await;
    for round in 0..2 {
        files.renew();
        reload(files, servers);
        renewals(&events, 3).await;
        held.ensure_held().unwrap();
        locks.lock(format!("{{{key}}}{round}")).await.unwrap().release().await.unwrap();
    }
    held.release().await.unwrap();
}

fn tls_port(server: &RedisServer) -> String {
    server.tls_url("").trim_start_matches("rediss://:").to_owned()
}

#[tokio::test]
#[limit]
async fn certificates_that_are_replaced_in_place_are_read_again() {
    let files = Files::new();
    let server = files.server().start();
    let url = format!("{}?{}", server.tls_url("localhost"), files.query());
    goes_on_with_renewed_certificates(&files, &url, "k", &[&server]).await;
}

#[tokio::test]
#[limit]
async fn certificates_are_read_again_behind_sentinels() {
    let files = Files::new();
    let servers = RedisSentinels::builder().with_servers(files.server()).start();
    let nat = |server: &RedisServer| format!("127.0.0.1:{}>127.0.0.1:{}", server.port(), tls_port(server));
    let nat: Vec<String> = servers.servers().iter().map(nat).collect();
    let url = servers.url().replace("redis+", "rediss+");
    let url = format!("{url}?sentinel_tls=no&nat={}&{}", nat.join(","), files.query());
    let all: Vec<&RedisServer> = servers.servers().iter().collect();
    goes_on_with_renewed_certificates(&files, &url, "k", &all).await;
}

#[tokio::test]
#[limit]
async fn certificates_are_read_again_in_a_cluster() {
    let files = Files::new();
    let cluster = RedisCluster::with(files.server(), 2);
    let nodes: Vec<&RedisServer> = cluster.masters().iter().collect();
    let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", tls_port(node))).collect();
    let nat = |node: &&RedisServer| format!("127.0.0.1:{}>127.0.0.1:{}", node.port(), tls_port(node));
    let nat: Vec<String> = nodes.iter().map(nat).collect();
    let url = format!("rediss+cluster://{}?nat={}&{}", hosts.join(","), nat.join(","), files.query());
    goes_on_with_renewed_certificates(&files, &url, &cluster.key_on(1, "lock:"), &nodes).await;
}

#[tokio::test]
#[limit]
async fn certificates_are_read_again_for_the_members_of_a_quorum() {
    let files = Files::new();
    let servers = [0, 1, 2].map(|_| files.server().start());
    let hosts = servers.each_ref().map(|server| format!("localhost:{}", tls_port(server)));
    let url = format!("redlocks://{}?restarts=remember&{}", hosts.join(","), files.query());
    goes_on_with_renewed_certificates(&files, &url, "k", &servers.each_ref()).await;
}

#[tokio::test]
#[limit]
async fn a_file_that_is_half_written_ends_nothing_and_is_warned_of_once() {
    let (log, _installed) = Collector::install(Level::WARN);
    let files = Files::new();
    let server = files.server().start();
    let (url, events) = (format!("{}?{}", server.tls_url("localhost"), files.query()), EventLog::default());
    let locks =
        LockManager::builder_for(&url).unwrap().observer(events.clone()).drive_on_current_runtime().build().unwrap();
    let held = watched(&locks, "k").await.unwrap();
    let other_key = Authority::new().issue("localhost").1;
    for (name, broken) in [
        ("ca.pem", b"".as_slice()),
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nMIIB"),
        ("app.pem", b"-----BEGIN CERTIFICATE-----\nMIIB"),
        ("app.key", b""),
        // The key of another certificate: the pair is replaced file by file.
        ("app.key", other_key.as_bytes()),
    ] {
        let whole = fs::read(files.path(name)).unwrap();
        files.write(name, broken);
        for _ in 0..2 {
            disconnect(&server);
            renewals(&events, 2).await;
        }
        files.write(name, whole);
        disconnect(&server);
        renewals(&events, 2).await;
    }
    fs::remove_file(files.path("app.key")).unwrap();
    disconnect(&server);
    renewals(&events, 2).await;
    held.ensure_held().unwrap();
    let warnings = log.everything().matches("stay in use").count();
    assert_eq!(warnings, 6, "{}", log.everything());
    // They are tried again.
    files.renew();
    reload(&files, &[&server]);
    renewals(&events, 2).await;
    held.release().await.unwrap();
}

/// Starts a server with a certificate, and returns why it cannot be connected to at `localhost`.
async fn refusal(files: &Files, server: RedisServerBuilder, query: &str) -> LockError {
    let server = server.start();
    let url = format!("{}?{}", server.tls_url("localhost"), query);
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(!error.to_string().contains(files.path("").to_str().unwrap()), "{error}");
    error
}

#[tokio::test]
#[limit]
async fn each_fault_of_a_servers_certificate_has_its_own_advice() {
    let files = Files::new();
    let authority = Authority::new();
    files.write("ca.pem", authority.pem());
    let query = format!("ca={}", files.path("ca.pem").display());
    type Differs = fn(&mut CertificateParams);
    let cases: [(&str, &str, Differs, &str); 5] = [
        (
            "localhost",
            "expired",
            |params| params.not_after = date_time_ymd(2001, 1, 1),
            "renew the certificate of the server",
        ),
        ("localhost", "not valid yet", |params| params.not_before = date_time_ymd(4000, 1, 1), "the clock"),
        ("other.example", "not valid for name", |_| {}, "use the host name that the certificate is for"),
        (
            "localhost",
            "purpose",
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "issue one for servers (serverAuth)",
        ),
        (
            "localhost",
            "UnknownIssuer",
            |_| {},
            "install the certificate authority that signed the server's certificate",
        ),
    ];
    for (name, says, differs, advice) in cases {
        let signs = if says == "UnknownIssuer" { &Authority::new() } else { &authority };
        let (certificate, key) = signs.issue_with(&[name], differs);
        files.write("server.pem", certificate);
        files.write("server.key", key);
        let server = RedisServer::builder().with_tls(&files.path("server.pem"), &files.path("server.key"));
        let error = refusal(&files, server, &query).await.to_string();
        assert!(error.contains(advice), "{says}: {error}");
        let install = error.contains("install the certificate authority");
        assert_eq!(install, says == "UnknownIssuer", "{says}: {error}");
        eprintln!("{says}: {error}");
    }
}

#[tokio::test]
#[limit]
async fn a_server_that_refuses_the_clients_certificate_says_what_is_wrong_with_it() {
    let files = Files::new();
    let (app, ca) = (files.path("app.pem").display().to_string(), files.path("ca.pem").display().to_string());
    let key = files.path("app.key").display().to_string();
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let server = || files.server().with("tls-protocols", protocols);
        let error = refusal(&files, server(), &format!("ca={ca}")).await.to_string();
        assert!(error.contains("name its files with cert and cert_key"), "{protocols}: {error}");
        eprintln!("{protocols} missing: {error}");
        let (certificate, of_it) = Authority::new().issue("app");
        files.write("app.pem", certificate);
        files.write("app.key", of_it);
        let error = refusal(&files, server(), &format!("ca={ca}&cert={app}&cert_key={key}")).await.to_string();
        assert!(error.contains("the server does not trust the client's certificate"), "{protocols}: {error}");
        eprintln!("{protocols} unknown: {error}");
        files.renew();
        let authority = Authority::new();
        files.write("ca.pem", authority.pem());
        let (certificate, of_it) = authority.issue("localhost");
        files.write("server.pem", certificate);
        files.write("server.key", of_it);
        let old = |params: &mut CertificateParams| params.not_after = date_time_ymd(2001, 1, 1);
        let (certificate, of_it) = authority.issue_with(&["app"], old);
        files.write("app.pem", certificate);
        files.write("app.key", of_it);
        let error = refusal(&files, server(), &format!("ca={ca}&cert={app}&cert_key={key}")).await.to_string();
        assert!(error.contains("the client's certificate has expired"), "{protocols}: {error}");
        eprintln!("{protocols} expired: {error}");
        files.renew();
    }
    let old = files.server().with("tls-auth-clients", "no").with("tls-protocols", "TLSv1.1");
    let error = refusal(&files, old, &format!("ca={ca}")).await.to_string();
    assert!(error.contains("version of TLS"), "{error}");
    eprintln!("{error}");
}

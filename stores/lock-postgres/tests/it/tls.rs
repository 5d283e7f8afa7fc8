//! TLS: which servers are trusted, which are not, and what the errors say.

use std::path::{Path, PathBuf};

use lock_core::{LockBackend as _, LockErrorKind, LockManager};
use lock_postgres::PostgresStore;
use lock_store::{Doctor as _, FindingGrade};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, granted, on_runtime};

#[path = "../../../../lock-core/tests/support/authority.rs"]
mod authority;

use authority::Authority;

/// The certificates that the tests of Redis use too: for the name `localhost`.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lock-core/tests/support/tls").join(name)
}

fn server() -> PostgresServer {
    PostgresServer::start_with_tls(&file("server.pem"), &file("server.key"))
}

fn url(server: &PostgresServer, host: &str, authority: &str) -> String {
    let authority = file(authority);
    format!("postgres://test@{host}:{}/postgres?sslmode=verify-full&ca={}", server.port(), authority.display())
}

async fn refusal(url: &str) -> String {
    let error = PostgresStore::new(url).unwrap().ping().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    error.to_string()
}

#[test]
#[limit]
fn a_server_that_proves_its_name_is_used_like_any_other() {
    on_runtime(async {
        let server = server();
        let url = url(&server, "localhost", "authority.pem");
        let [one, two] = [LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap()];
        let guard = one.lock("k").await.unwrap();
        let encrypted = "SELECT count(*) > 0 AND bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                         WHERE a.application_name LIKE 'lock-postgres%'";
        assert_eq!(server.run(encrypted), "t");
        let (next, released) = tokio::join!(two.lock("k").acquire(), guard.release());
        assert!(next.is_ok() && released.is_ok());
        let found = PostgresStore::new(&url).unwrap().examine().await;
        assert!(found.iter().all(|one| matches!(one.grade, FindingGrade::Works | FindingGrade::Warning)), "{found:#?}");
    });
}

#[test]
#[limit]
fn a_server_that_does_not_prove_its_name_is_refused_in_a_sentence() {
    on_runtime(async {
        let server = server();
        for (host, authority, says) in [
            (
                "localhost",
                "other-authority.pem",
                "does not prove its name: invalid peer certificate: UnknownIssuer; name the authority",
            ),
            ("127.0.0.1", "authority.pem", "name the host for which its certificate is"),
            ("localhost", "nowhere.pem", "nowhere.pem cannot be read"),
            ("localhost", "server.key", "there is no certificate in it"),
        ] {
            let said = refusal(&url(&server, host, authority)).await;
            assert!(said.contains(says), "{host}, {authority}: {said}");
        }
        // No authority of this machine knows it.
        let said = refusal(&format!("postgres://test@localhost:{}/postgres?sslmode=require", server.port())).await;
        assert!(said.contains("does not prove its name") && said.contains("?ca=FILE"), "{said}");
    });
}

#[test]
#[limit]
fn tls_on_one_side_only_is_named() {
    on_runtime(async {
        let said = refusal(&server().url()).await;
        assert!(said.contains("lets nobody in without TLS") && said.contains("sslmode=verify-full"), "{said}");
        let said = refusal(&url(&PostgresServer::shared(), "localhost", "authority.pem")).await;
        assert!(said.contains("has no TLS"), "{said}");
    });
}

/// Files of a test, where the server can read them.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lock-pg-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Has the server write a file of its own, as an operator would.
fn write_there(server: &PostgresServer, setting: &str, text: &str) {
    let file = server.run(&format!("SHOW {setting}"));
    let file = if file.starts_with('/') { file } else { format!("{}/{file}", server.run("SHOW data_directory")) };
    let lines: Vec<String> = text.lines().map(|line| format!("('{line}')")).collect();
    server.run(&format!("COPY (VALUES {}) TO '{file}'", lines.join(", ")));
}

/// Has the server read its files again, and waits until a new session sees that.
fn reload(server: &PostgresServer, is_so: &str) {
    server.run("SELECT pg_reload_conf()");
    while server.run(is_so) != "t" {}
}

/// Gives the server another certificate in place.
fn renew(server: &PostgresServer, (certificate, key): &(String, String)) {
    write_there(server, "ssl_cert_file", certificate);
    write_there(server, "ssl_key_file", key);
    let loaded = "SELECT pg_conf_load_time() > '%'";
    let before = server.run("SELECT pg_conf_load_time()");
    reload(server, &loaded.replace('%', &before));
}

/// The first authority ends, and the next takes over, while a process is at work.
#[test]
#[limit]
fn certificates_that_are_renewed_in_place_are_read_by_the_next_connection() {
    on_runtime(async {
        let (old, new, files) = (Authority::new(), Authority::new(), Files::new("renewed"));
        let (certificate, key) = old.issue("localhost");
        let server =
            PostgresServer::start_with_tls(&files.write("own.pem", &certificate), &files.write("own.key", &key));
        let trusted = files.write("ca.pem", &old.pem());
        let url = format!(
            "postgres://test@localhost:{}/postgres?sslmode=verify-full&ca={}",
            server.port(),
            trusted.display()
        );
        let store = PostgresStore::new(&url).unwrap();
        granted(&store, &claim("before", LONG)).await;
        renew(&server, &new.issue("localhost"));
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'lock-postgres%'";
        server.run(ended);
        let request =
            lock_store::AcquireRequest::new(claim("between", LONG), lock_core::HolderInfo::new("here", 1, "test"));
        let error = loop {
            match store.try_acquire(&request).await {
                // The session of the store may be that which was ended.
                Err(error) if error.kind() == LockErrorKind::Unavailable => {}
                answer => break answer.unwrap_err(),
            }
        };
        assert!(error.to_string().contains("name the authority that signed it by ?ca=FILE"), "{error}");
        files.write("ca.pem", &new.pem());
        granted(&store, &claim("after", LONG)).await;
    });
}

#[test]
#[limit]
fn each_reason_why_a_certificate_is_refused_has_its_own_advice() {
    on_runtime(async {
        let (authority, files) = (Authority::new(), Files::new("reasons"));
        let (certificate, key) = authority.issue("localhost");
        let server =
            PostgresServer::start_with_tls(&files.write("own.pem", &certificate), &files.write("own.key", &key));
        let trusted = files.write("ca.pem", &authority.pem());
        let url = |mode: &str| {
            format!("postgres://test@localhost:{}/postgres?sslmode={mode}&ca={}", server.port(), trusted.display())
        };
        let expired =
            authority.issue_with(&["localhost"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
        let early = authority.issue_with(&["localhost"], |params| params.not_before = rcgen::date_time_ymd(2999, 1, 1));
        let client = authority.issue_with(&["localhost"], |params| {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        });
        for (issued, advice) in [
            (expired, "have the certificate of the server renewed"),
            (early, "the clock of this machine is behind"),
            (client, "not one of a server"),
            (authority.issue("elsewhere"), "name the host for which its certificate is"),
            (Authority::new().issue("localhost"), "name the authority that signed it by ?ca=FILE"),
        ] {
            renew(&server, &issued);
            let said = refusal(&url("verify-full")).await;
            assert!(said.contains("does not prove its name: ") && said.contains(advice), "{advice}: {said}");
        }
        // Any name, but no certificate of another authority.
        assert!(refusal(&url("verify-ca")).await.contains("name the authority that signed it"));
        renew(&server, &authority.issue("elsewhere"));
        PostgresStore::new(&url("verify-ca")).unwrap().ping().await.unwrap();
    });
}

#[test]
#[limit]
fn a_client_proves_itself_by_a_certificate_and_binds_a_password_to_that_of_the_server() {
    on_runtime(async {
        let (authority, files) = (Authority::new(), Files::new("client"));
        let (certificate, key) = authority.issue("localhost");
        let trusted = files.write("ca.pem", &authority.pem());
        let server =
            PostgresServer::start_with_tls(&files.write("own.pem", &certificate), &files.write("own.key", &key));
        let port = server.port();
        server.run("CREATE ROLE app LOGIN SUPERUSER; SET password_encryption = 'scram-sha-256'; CREATE ROLE scram LOGIN SUPERUSER PASSWORD 's3cret'");
        let folder = server.run("SHOW data_directory");
        server.run(&format!("ALTER SYSTEM SET ssl_ca_file = '{folder}/clients.pem'"));
        let lines: Vec<String> = authority.pem().lines().map(|line| format!("('{line}')")).collect();
        server.run(&format!("COPY (VALUES {}) TO '{folder}/clients.pem'", lines.join(", ")));
        write_there(
            &server,
            "hba_file",
            "hostssl all app all cert\nhostssl all scram all scram-sha-256\nhostssl all all all trust",
        );
        reload(&server, "SELECT current_setting('ssl_ca_file') <> ''");
        let ca = trusted.display();
        let app = format!("postgres://app@localhost:{port}/postgres?sslmode=verify-full&ca={ca}");
        let said = refusal(&app).await;
        assert!(said.contains("valid client certificate") && said.contains("sslcert=FILE&sslkey=FILE"), "{said}");
        let (certificate, key) = authority.issue_with(&["app"], |params| {
            params.distinguished_name.push(rcgen::DnType::CommonName, "app");
        });
        let (certificate, key) = (files.write("app.pem", &certificate), files.write("app.key", &key));
        let proven = format!("{app}&sslcert={}&sslkey={}", certificate.display(), key.display());
        PostgresStore::new(&proven).unwrap().ping().await.unwrap();
        // A certificate that is renewed in place is read again: here it is one that the server does not know.
        let (other, other_key) = Authority::new().issue("app");
        std::fs::write(&certificate, other).unwrap();
        std::fs::write(&key, other_key).unwrap();
        assert!(PostgresStore::new(&proven).unwrap().ping().await.is_err());

        let scram = |user: &str| {
            format!("postgres://{user}@localhost:{port}/postgres?sslmode=require&channel_binding=require&ca={ca}")
        };
        PostgresStore::new(&scram("scram:s3cret")).unwrap().ping().await.unwrap();
        let said = refusal(&scram("test")).await;
        assert!(said.contains("channel_binding=require") && said.contains("SCRAM-SHA-256"), "{said}");
        let said = refusal(&scram("scram:wrong")).await;
        assert!(
            said.contains("password authentication failed for user \"scram\"") && !said.contains("wrong"),
            "{said}"
        );
    });
}

//! TLS: which servers are trusted, which are not, and what the errors say.

use std::path::{Path, PathBuf};

use lock_core::testing::{PostgresServer, limit};
use lock_core::{Doctor as _, FindingGrade, LockBackend as _, LockErrorKind, LockManager};
use lock_postgres::PostgresStore;

use crate::support::on_runtime;

/// The certificates that the tests of Redis use too: for the name `localhost`.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lock-core/tests/it/tls").join(name)
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
            ("localhost", "other-authority.pem", "does not prove its name: invalid peer certificate"),
            ("127.0.0.1", "authority.pem", "name the host for which its certificate is"),
            ("localhost", "nowhere.pem", "nowhere.pem cannot be read"),
            ("localhost", "server.key", "there is no certificate in it"),
        ] {
            let said = refusal(&url(&server, host, authority)).await;
            assert!(said.contains(says), "{host}, {authority}: {said}");
        }
        // Of this machine none knows it.
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

//! Every refusal of a real server reaches the user in the server's own words, with advice that fits them.

use lock_core::{HolderInfo, LockBackend as _, LockError, LockErrorKind};
use lock_postgres::PostgresStore;
use lock_store::AcquireRequest;
use lock_testing::{PostgresServer, limit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{LONG, claim, granted, on_runtime, session};

use LockErrorKind::{Misconfigured, Unavailable};

fn url(server: &PostgresServer, user: &str, database: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/{database}", server.port())
}

async fn refusal(store: &PostgresStore) -> LockError {
    let request = AcquireRequest::new(claim("refused", LONG), HolderInfo::new("here", 1, "test"));
    store.try_acquire(&request).await.expect_err("it is refused")
}

#[track_caller]
fn says(error: &LockError, kind: LockErrorKind, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    assert!(error.kind() == kind && !text.contains("s3cret"), "{:?}: {text}", error.kind());
}

/// Writes the rules by which sessions are let in.
fn let_in(server: &PostgresServer, rules: &[&str]) {
    let file = server.run("SHOW hba_file");
    let lines: Vec<String> = rules.iter().map(|rule| format!("('{rule}')")).collect();
    let before = server.run("SELECT pg_conf_load_time()");
    server.run(&format!("COPY (VALUES {}) TO '{file}'; SELECT pg_reload_conf()", lines.join(", ")));
    while server.run(&format!("SELECT pg_conf_load_time() > '{before}'")) != "t" {}
}

#[test]
#[limit]
fn what_keeps_a_session_out_is_said_in_the_words_of_the_server() {
    on_runtime(async {
        let server = PostgresServer::start_with(&[("superuser_reserved_connections", "3"), ("max_connections", "20")]);
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run(
            "CREATE ROLE secret LOGIN PASSWORD 's3cret'; CREATE ROLE sleeping NOLOGIN; CREATE ROLE few LOGIN CONNECTION LIMIT 0;
             CREATE ROLE app LOGIN; CREATE DATABASE closed; REVOKE CONNECT ON DATABASE closed FROM PUBLIC;
             CREATE DATABASE narrow CONNECTION LIMIT 0; CREATE DATABASE gone",
        );
        server.run("ALTER DATABASE gone ALLOW_CONNECTIONS false");
        let_in(
            &server,
            &[
                "host all secret all scram-sha-256",
                "host all barred all reject",
                "host all named 10.0.0.7/32 trust",
                "host all test all trust",
                "host all app all trust",
                "host all few all trust",
                "host all sleeping all trust",
                "host all nobody all trust",
            ],
        );
        for (user, database, kind, words) in [
            (
                "secret:wrong",
                "postgres",
                Misconfigured,
                &["password authentication failed for user \"secret\"", "PGPASSWORD"][..],
            ),
            ("secret", "postgres", Misconfigured, &["asks for a password", "PGPASSWORD", "~/.pgpass"]),
            ("nobody", "postgres", Misconfigured, &["role \"nobody\" does not exist", "the user must exist"]),
            ("sleeping", "postgres", Misconfigured, &["role \"sleeping\" is not permitted to log in", "LOGIN"]),
            ("barred", "postgres", Misconfigured, &["pg_hba.conf rejects connection for host", "not from this host"]),
            ("named", "postgres", Misconfigured, &["no pg_hba.conf entry for host \"127.0.0.1\"", "add a line there"]),
            ("app", "nowhere", Misconfigured, &["database \"nowhere\" does not exist", "name another in the URL"]),
            ("app", "closed", Misconfigured, &["User does not have CONNECT privilege", "GRANT CONNECT ON DATABASE"]),
            ("app", "gone", Unavailable, &["not currently accepting connections"]),
            (
                "few",
                "postgres",
                Unavailable,
                &["too many connections for role \"few\"", "ALTER ROLE <user> CONNECTION LIMIT"],
            ),
            (
                "app",
                "narrow",
                Unavailable,
                &["too many connections for database \"narrow\"", "ALTER DATABASE <database> CONNECTION"],
            ),
        ] {
            let error = refusal(&PostgresStore::new(&url(&server, user, database)).unwrap()).await;
            says(&error, kind, words);
        }
        let mut others = Vec::new();
        let full = loop {
            while let Ok((client, connection)) =
                tokio_postgres::connect(&url(&server, "app", "postgres"), tokio_postgres::NoTls).await
            {
                others.push((client, tokio::spawn(connection)));
            }
            let error = refusal(&PostgresStore::new(&url(&server, "app", "postgres")).unwrap()).await;
            // A session that ended a moment ago may have left room for one more.
            if error.kind() == Unavailable {
                break error;
            }
        };
        says(&full, Unavailable, &["remaining connection slots are reserved", "raise max_connections"]);
    });
}

/// Answers each connection with these bytes, and ends it.
async fn answering(bytes: Vec<u8>) -> PostgresStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://app@{}/postgres", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(&bytes).await;
        }
    });
    PostgresStore::new(&url).unwrap()
}

/// An error as a server writes it. A pooler names no function.
fn error(code: &str, message: &str, detail: &str, routine: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in
        [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', code), (b'M', message), (b'D', detail), (b'R', routine)]
    {
        if !value.is_empty() {
            fields.extend([&[name], value.as_bytes(), &[0]].concat());
        }
    }
    fields.push(0);
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    [&b"E"[..], &length, &fields].concat()
}

/// These are states that no test brings a server into, and servers that speak another language.
#[test]
#[limit]
fn what_a_server_or_a_pooler_says_at_the_door_is_repeated() {
    on_runtime(async {
        for (code, message, detail, routine, kind, words) in [
            (
                "57P03",
                "the database system is starting up",
                "",
                "ProcessStartupPacket",
                Unavailable,
                &["is not ready"][..],
            ),
            (
                "57P03",
                "the database system is not accepting connections",
                "Hot standby mode is disabled.",
                "x",
                Unavailable,
                &["not ready", "Hot standby mode is disabled"],
            ),
            (
                "28P01",
                "Passwort-Authentifizierung fehlgeschlagen",
                "",
                "auth_failed",
                Misconfigured,
                &["check both in the URL"],
            ),
            (
                "28000",
                "kein pg_hba.conf-Eintrag",
                "",
                "ClientAuthentication",
                Misconfigured,
                &["hostssl", "sslmode=verify-full"],
            ),
            ("28000", "Rolle existiert nicht", "", "InitializeSessionUserId", Misconfigured, &["the user must exist"]),
            ("53300", "zu viele Verbindungen", "", "InitializeSessionUserId", Unavailable, &["ALTER ROLE"]),
            ("53300", "zu viele Verbindungen", "", "CheckMyDatabase", Unavailable, &["ALTER DATABASE"]),
            (
                "53300",
                "tut mir leid, schon zu viele Verbindungen",
                "",
                "InitProcess",
                Unavailable,
                &["raise max_connections"],
            ),
            ("53200", "out of memory", "Failed on request of size 8192.", "x", Unavailable, &["request of size 8192"]),
            ("08P01", "no more connections allowed (max_client_conn)", "", "", Unavailable, &["raise max_client_conn"]),
            (
                "08P01",
                "server login has been failing, try again later (server_login_retry)",
                "",
                "",
                Unavailable,
                &["cannot reach PostgreSQL"],
            ),
            ("08P01", "pgbouncer cannot connect to server", "", "", Unavailable, &["cannot reach PostgreSQL"]),
            ("08P01", "no such user: app", "", "", Misconfigured, &["auth_file"]),
            ("28P01", "password authentication failed", "", "", Misconfigured, &["auth_file"]),
            ("08P01", "no such database: postgres", "", "", Misconfigured, &["check the database there"]),
            ("08P01", "unsupported startup parameter: options", "", "", Misconfigured, &["ignore_startup_parameters"]),
            ("08P01", "SSL required", "", "", Misconfigured, &["sslmode=verify-full"]),
            ("XX000", "Tenant or user not found", "", "", Unavailable, &["(XX000)"]),
            (
                "08P01",
                "The endpoint has been disabled. Enable it using the API and retry.",
                "",
                "",
                Unavailable,
                &["(08P01)"],
            ),
        ] {
            let store = answering(error(code, message, detail, routine)).await;
            says(&refusal(&store).await, kind, &[&[message], words].concat());
        }
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"-ERR unknown command\r\n", b""] {
            says(
                &refusal(&answering(bytes.to_vec()).await).await,
                Unavailable,
                &["there is no PostgreSQL at 127.0.0.1:"],
            );
        }
    });
}

#[test]
#[limit]
fn what_refuses_a_command_is_said_in_the_words_of_the_server() {
    on_runtime(async {
        let server = PostgresServer::start();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run("CREATE ROLE app LOGIN");
        let app = || PostgresStore::new(&url(&server, "app", "postgres")).unwrap();
        says(
            &refusal(&app()).await,
            Misconfigured,
            &["permission denied for schema lock_core", "GRANT USAGE ON SCHEMA lock_core"],
        );
        server.run("GRANT USAGE ON SCHEMA lock_core TO app");
        says(&refusal(&app()).await, Misconfigured, &["permission denied for function version_v1", "GRANT EXECUTE ON"]);
        server.run("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_core TO app");
        let store = app();
        granted(&store, &claim("held", LONG)).await;
        for (code, severity, kind, words) in [
            ("53100", "EXCEPTION", Unavailable, &["could not extend file", "has no room"][..]),
            ("53200", "EXCEPTION", Unavailable, &["could not extend file", "has no room"]),
            ("54000", "EXCEPTION", Unavailable, &["could not extend file", "(54000)"]),
            ("XX001", "EXCEPTION", Unavailable, &["could not extend file", "(XX001)", "look at the disk", "page 7"]),
            ("25006", "EXCEPTION", Unavailable, &["could not extend file", "takes no writes"]),
        ] {
            server.run(&format!(
                "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE {severity} 'could not extend file' USING ERRCODE = '{code}', DETAIL = 'page 7', HINT = 'look at the disk.'; END $$;
                 CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON lock_core.lock EXECUTE FUNCTION public.refuse()"
            ));
            says(&refusal(&store).await, kind, words);
        }
        server.run("DROP TRIGGER refuse ON lock_core.lock");

        // A locked row stops the session of the store, so that the signal meets a statement.
        let client = session(&server).await;
        let waits = "SELECT pid FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock'";
        for (signal, kind, words) in [
            ("pg_cancel_backend", Unavailable, &["canceling statement due to user request", "pg_cancel_backend"][..]),
            (
                "pg_terminate_backend",
                Unavailable,
                &["terminating connection due to administrator command", "is not known"],
            ),
        ] {
            granted(
                &PostgresStore::new(&server.url()).unwrap(),
                &claim("refused", std::time::Duration::from_millis(1)),
            )
            .await;
            client.batch_execute("BEGIN; SELECT FROM lock_core.lock WHERE key = 'refused' FOR UPDATE").await.unwrap();
            let stop = async {
                loop {
                    if let Some(row) = session(&server).await.query_opt(waits, &[]).await.unwrap() {
                        let pid: i32 = row.get(0);
                        return server.run(&format!("SELECT {signal}({pid})"));
                    }
                }
            };
            let (error, _) = tokio::join!(refusal(&store), stop);
            client.batch_execute("ROLLBACK").await.unwrap();
            says(&error, kind, words);
        }
        // A function that is missing, and then everything.
        while store.ping().await.is_err() {}
        granted(&store, &claim("again", LONG)).await;
        server.run("ALTER FUNCTION lock_core.acquire_v2 RENAME TO gone_v1");
        says(&refusal(&store).await, Misconfigured, &["lock_core.acquire_v2", "sql/"]);
    });
}

/// A lock ends with its table: the next process makes the tables anew, and grants it.
#[test]
#[limit]
fn a_schema_that_is_dropped_ends_the_locks_in_it_and_is_named() {
    on_runtime(async {
        let server = PostgresServer::start();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        // With `migrate=auto` a new session would make another schema of this name.
        let store = PostgresStore::new(&format!("{}?migrate=never", server.url())).unwrap();
        let held = claim("held", LONG);
        granted(&store, &held).await;
        server.run("ALTER SCHEMA lock_core RENAME TO away");
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(lock_store::Renewal::Lost)]);
        says(&refusal(&store).await, Misconfigured, &["schema \"lock_core\" does not exist", "not installed"]);
        let error = store.holder(&held.key).await.unwrap_err();
        says(&error, Misconfigured, &["schema \"lock_core\" does not exist"]);
        server.run("ALTER SCHEMA away RENAME TO lock_core");
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(lock_store::Renewal::Renewed)]);
    });
}

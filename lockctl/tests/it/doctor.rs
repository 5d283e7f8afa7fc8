//! The output of `lockctl doctor`, for people and for programs.

use lock_core::testing::{PostgresServer, RedisServer, limit};

use crate::program::{Ended, lockctl, lockctl_at};

/// The parts that differ from server to server.
fn plain(text: &str, server: &PostgresServer) -> String {
    let version = server.run("SHOW server_version");
    text.replace(&format!("PostgreSQL {version}"), "PostgreSQL 15").replace(&server.port().to_string(), "5432")
}

fn doctor(server: &PostgresServer, arguments: &[&str]) -> Ended {
    lockctl_at(&server.url(), &[&["doctor"], arguments].concat())
}

const TEXT: &str = "\
STATE    WHAT                                 FINDING
works    server                               PostgreSQL 15
works    primary                              it takes writes
works    schema                               lock_core is not there yet; whoever takes the first lock makes it
works    waiters                              told at once
works    max_connections                      200, of which a process takes 7; 14 or more are free
works    synchronous_commit                   on for grants and renewals; on for this user's own transactions
works    synchronous_standby_names            none, and nobody follows this server: locks survive what its disk survives
works    default_transaction_isolation        read committed
works    statement_timeout                    none for this user's own transactions; a call of the store ends after 8 s
works    lock_timeout                         none for this user's own transactions, in which a pin waits until the one before it ends; a call of the store waits for a row for 1 s
warning  idle_in_transaction_session_timeout  none: a transaction that has pinned a lock and stands idle keeps it for ever
                                              -> ALTER ROLE test SET idle_in_transaction_session_timeout = '60s'
works    idle_session_timeout                 none
works    autovacuum                           on, also for the tables of the store
works    old transactions                     none keeps dead rows from being removed
works    encoding                             UTF8, which has every name
works    clock                                within a second of this machine's
127.0.0.1:5432/postgres: locks can be taken; 1 warning, 0 unknown
";

#[test]
#[limit]
fn what_is_found_is_a_table_and_a_document() {
    let server = PostgresServer::start_with(&[("fsync", "on")]);
    let ended = doctor(&server, &[]);
    ended.assert_code(0);
    // Servers from 17 on know one time-out more.
    let text: String = plain(&ended.stdout, &server)
        .lines()
        .filter(|line| !line.contains("transaction_timeout"))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_eq!(text, TEXT);

    let json = doctor(&server, &["--json"]).json();
    assert_eq!(json["nodes"][0]["node"], format!("127.0.0.1:{}/postgres", server.port()));
    let found = json["nodes"][0]["findings"].as_array().unwrap();
    let warning = found.iter().find(|one| one["grade"] == "warning").unwrap();
    assert_eq!(
        serde_json::to_string(warning).unwrap(),
        "{\"subject\":\"idle_in_transaction_session_timeout\",\"grade\":\"warning\",\"says\":\"none: a transaction that has pinned a \
         lock and stands idle keeps it for ever\",\"remedy\":\"ALTER ROLE test SET idle_in_transaction_session_timeout = \
         '60s'\"}"
    );
    assert!(found.iter().all(|one| one["grade"] == "works" && one["remedy"].is_null() || one == warning), "{json:#}");
}

#[test]
#[limit]
fn the_code_says_whether_locks_can_be_taken() {
    let server = PostgresServer::start();
    let refused = lockctl_at(&format!("{}?migrate=never", server.url()), &["doctor"]);
    refused.assert_code(4);
    assert!(
        refused.stdout.contains("no lock can be taken")
            && refused.stdout.contains("-> run the files of sql/ of the crate lock-postgres")
    );
    let nobody = lockctl_at("postgres://u:s3cret@127.0.0.1:1/shop", &["doctor"]);
    nobody.assert_code(3);
    assert!(nobody.stdout.contains("is not known; 0 warnings, 1 unknown") && !nobody.stdout.contains("s3cret"));
    lockctl_at("postgres://u:s3cret@127.0.0.1:1/shop?acks=1", &["doctor"]).assert_code(2);
    assert_eq!(server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_core'"), "0");
}

#[test]
#[limit]
fn a_store_that_does_not_examine_its_servers_is_not_called_healthy() {
    let server = RedisServer::start();
    let ended = lockctl(&server, &["doctor"]);
    ended.assert_code(3);
    assert!(ended.stdout.contains("a store of the kind redis does not examine its servers"), "{ended:?}");
    assert!(ended.stdout.contains("whether locks can be taken is not known"), "{ended:?}");
    let members = format!("redlock://127.0.0.1:{0},127.0.0.1:1,127.0.0.1:2", server.port());
    let json = lockctl_at(&members, &["doctor", "--json"]).json();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 3, "each member: {json:#}");
}

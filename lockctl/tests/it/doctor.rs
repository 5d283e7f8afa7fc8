//! The output of `lockctl doctor`, for people and for programs.

use lock_testing::{FaultProxy, PostgresServer, RedisRelative, RedisServer, Reply, limit};

use crate::program::{Ended, lockctl, lockctl_at, watch};

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
works    max_connections                      200, of which a process takes 11; 22 or more are free
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
    ended.assert_code(1);
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
    refused.assert_code(2);
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

const REDIS: &str = "\
STATE  WHAT                FINDING
works  server              redis 7.0, which speaks RESP3 (HELLO 3)
works  role                it is a master
works  active-active       no other master takes writes, as far as the server tells
works  SET NX PX           a key that is taken is not taken again
works  MULTI, XADD         fencing tokens come from a stream, in one transaction with their lock
works  scripts             the largest is kept and runs, and may free locks
works  PUBLISH             a waiter is told of its grant
works  PUBLISH in scripts  a grant that nobody hears is taken back
works  SPUBLISH            only the masters of a cluster need it
works  CLIENT KILL         a command that nobody awaits can be cut off
works  CLIENT TRACKING     a loss is noticed within milliseconds
works  WAIT                replicas, or disks, can confirm locks
works  clock               within a second of this machine's
works  maxmemory-policy    noeviction
works  persistence         an append-only file (appendfsync everysec); a crash forgets the last second or more
works  replicas            none: no failover can lose locks
127.0.0.1:6379: locks can be taken; 0 warnings, 0 unknown
";

#[test]
#[limit]
fn redis_is_examined_and_the_code_says_how_it_is_since_redis_7() {
    let server = RedisServer::builder().with("appendonly", "yes").start();
    let ended = lockctl(&server, &["doctor"]);
    ended.assert_code(0);
    let info = server.command(&["INFO", "server"]).text().to_owned();
    let version = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    let version = version("valkey_version:").map(|it| format!("valkey {it}"));
    let version =
        version.or_else(|| Some(format!("redis {}", info.lines().find_map(|l| l.strip_prefix("redis_version:"))?)));
    let text = ended.stdout.replace(&server.port().to_string(), "6379").replace(&version.unwrap(), "redis 7.0");
    assert_eq!(text, REDIS);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let warned = lockctl(&server, &["doctor", "--json"]);
    warned.assert_code(1);
    let found = warned.json()["nodes"][0]["findings"].as_array().unwrap().clone();
    let warnings: Vec<_> = found.iter().filter(|one| one["grade"] == "warning").map(|one| &one["remedy"]).collect();
    assert_eq!(warnings, ["maxmemory-policy noeviction"]);
    let tair = FaultProxy::start_as(RedisRelative::TairCluster, server.port());
    let refused = lockctl_at(&tair.url(), &["doctor"]);
    refused.assert_code(2);
    assert!(refused.stdout.contains("set its parameter script_check_enable to 0"), "{refused:?}");
    assert!(refused.stdout.contains("no lock can be taken"), "{refused:?}");
    lockctl_at("redis://127.0.0.1:1", &["doctor"]).assert_code(3);
    let members = format!("redlock://127.0.0.1:{0},127.0.0.1:1,127.0.0.1:2", server.port());
    let some = lockctl_at(&members, &["doctor", "--json"]);
    some.assert_code(3);
    assert_eq!(some.json()["nodes"].as_array().unwrap().len(), 3, "each member");
}

/// It is killed at many moments, and leaves only keys that end by themselves.
#[test]
#[limit]
fn nothing_is_left_behind_by_a_doctor_that_is_killed() {
    let server = RedisServer::start();
    let calls = || {
        let info = server.command(&["INFO", "commandstats"]).text().to_owned();
        info.lines().filter(|line| line.starts_with("cmdstat_set:") || line.starts_with("cmdstat_xadd:")).count()
    };
    for seen in [0, 1, 2] {
        server.command(&["CONFIG", "RESETSTAT"]);
        let running = watch(&server, &["doctor"]);
        // Killed when the server has got this far.
        while calls() < seen {
            std::thread::yield_now();
        }
        drop(running);
        let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
        for key in keys.iter().map(Reply::text) {
            let left = server.command(&["PTTL", key]).int();
            assert!(left == -2 || (0..=5_000).contains(&left), "{key} stays for {left} ms");
        }
        while server.command(&["PUBSUB", "CHANNELS"]) != Reply::List(Vec::new()) {
            std::thread::yield_now();
        }
    }
}

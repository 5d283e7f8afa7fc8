//! A bad value is refused alone, also if another program has left it behind.

use std::time::Duration;

use lock_core::{FencingToken, HolderInfo, LockBackend, LockErrorKind, LockKey};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Inspector as _, Release, Renewal, Ticket};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, granted, on_runtime, pid, pin, refusal, session};

fn request(claim: &Claim) -> AcquireRequest {
    let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
    request.execute_within = LONG;
    request
}

fn is_granted(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Granted { .. })
}

fn all<F: Future + Send + 'static>(calls: impl IntoIterator<Item = F>) -> Vec<tokio::task::JoinHandle<F::Output>>
where
    F::Output: Send,
{
    calls.into_iter().map(tokio::spawn).collect()
}

#[test]
#[limit]
fn a_name_that_the_database_cannot_write_is_refused_and_its_neighbours_go_on() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
        let url = server.url().replace("/postgres", "/latin");
        let store: &'static PostgresStore = Box::leak(Box::new(PostgresStore::new(&url).unwrap()));
        granted(store, &claim("makes the schema", LONG)).await;
        let claims: Vec<Claim> = (0..60)
            .map(|number| claim(&format!("{} {number}", if number % 10 == 0 { "ключ" } else { "key é" }), LONG))
            .collect();
        let is_bad = |index: usize| index.is_multiple_of(10);
        let asked = claims.iter().map(request).map(|request| async move { store.try_acquire(&request).await });
        for (index, one) in all(asked).into_iter().enumerate() {
            match one.await.unwrap() {
                Err(error) => {
                    assert!(is_bad(index) && error.kind() == LockErrorKind::Misconfigured, "{index}: {error}");
                }
                Ok(granted) => assert!(!is_bad(index) && is_granted(&granted), "{index}"),
            }
        }
        for (index, renewed) in store.renew(&claims).await.into_iter().enumerate() {
            assert_eq!(renewed.is_err(), is_bad(index), "{index}: {renewed:?}");
            assert!(is_bad(index) || renewed == Ok(Renewal::Renewed));
        }
        let freed = claims.iter().cloned().map(|claim| async move { store.release(&Release::new(claim)).await });
        for (index, one) in all(freed).into_iter().enumerate() {
            match one.await.unwrap() {
                Err(error) => {
                    assert!(is_bad(index) && error.kind() == LockErrorKind::Misconfigured, "{index}: {error}");
                }
                Ok(freed) => assert!(!is_bad(index) && freed == Freed::Released, "{index}"),
            }
        }
        let several: Vec<AcquireRequest> = [&claims[0], &claims[1]].map(request).into();
        assert!(store.try_acquire_all(&several).await.is_err());
        granted(store, &claims[1]).await;
    });
}

/// Rows and numbers of another program that may call the functions.
#[test]
#[limit]
fn what_another_program_leaves_in_a_queue_fails_no_release_and_no_acquire() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        granted(&store, &claim("makes the schema", LONG)).await;
        let call = |grant: &str, inbox: &str| {
            format!(
                "SELECT outcome FROM lock_core.acquire_v1('{{k}}', ARRAY[gen_random_uuid()], '{{9223372036854775807}}', '{{0}}', '{{x}}', \
                 '{{9000000000000000}}', ARRAY['{inbox}'], '{{0}}', '{{{grant}}}', 'on')"
            )
        };
        let row = |grant: &str, inbox: &str, floor: &str, confirmed: &str| {
            format!(
                "INSERT INTO lock_core.waiter (key, owner, inbox, stamp, grant_ms, floor, since, confirmed, reach, about) VALUES \
                 ('k', gen_random_uuid(), '{inbox}', 9223372036854775807, {grant}, {floor}, now(), {confirmed}, 2, '')"
            )
        };
        let held = claim("k", LONG);
        granted(&store, &held).await;
        let long = "x".repeat(100);
        assert!(server.try_run(&call("1000", &long)).unwrap_err().contains("too long for the name of a channel"));
        for (grant, inbox) in [("9223372036854775807", "a"), ("-9223372036854775808", "b"), ("0", "c")] {
            assert_eq!(server.run(&call(grant, inbox)), "queued", "{grant}");
        }
        let most = server.run("SELECT max(grant_ms), min(grant_ms) FROM lock_core.waiter");
        assert_eq!(most, "3600000|1", "an hour, as in Redis");
        // As builds before version 3 took them in.
        for (grant, inbox, floor, confirmed) in [
            ("9223372036854775807", "d", "0", "now()"),
            ("-9223372036854775808", "e", "0", "now()"),
            ("1000", long.as_str(), "0", "now()"),
            ("1000", "f", "9223372036854775807", "now()"),
            ("1000", "g", "-9223372036854775808", "now()"),
            ("9223372036854775807", "h", "0", "'294270-01-01'"),
        ] {
            server.run(&row(grant, inbox, floor, confirmed));
        }
        assert_eq!(store.release(&Release::new(held.clone())).await, Ok(Freed::Released));
        // Each of them may have it for a moment, and none for longer than an hour.
        while !is_granted(&store.try_acquire(&request(&held)).await.unwrap()) {
            let longest =
                server.run("SELECT max(until) < now() + interval '61 minutes' FROM lock_core.lock WHERE key = 'k'");
            assert_eq!(longest, "t");
            server.run("UPDATE lock_core.lock SET until = now() WHERE key = 'k'");
        }
        assert_eq!(store.release(&Release::new(held)).await, Ok(Freed::Released));
        // Waiters that nobody has passed over yet keep their place for as long as their processes may live.
        let left = "SELECT string_agg(inbox, '' ORDER BY inbox) FROM lock_core.waiter";
        assert_eq!(server.run(left), "a");
    });
}

#[test]
#[limit]
fn the_longest_times_and_the_oddest_words_are_taken() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let held = claim("k", Duration::MAX);
        let mut odd = request(&held);
        odd.info = HolderInfo::new("a\0b\u{1f}c|é", u32::MAX, "\n");
        odd.ticket = Some(Ticket::new("inbox".into(), u64::MAX, Duration::MAX));
        assert!(is_granted(&store.try_acquire(&odd).await.unwrap()));
        odd.claim.owner = claim("k", LONG).owner;
        assert!(!is_granted(&store.try_acquire(&odd).await.unwrap()));
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        let mut release = Release::new(held);
        release.keep_for = Duration::MAX;
        assert_eq!(store.release(&release).await, Ok(Freed::Released));
    });
}

#[test]
#[limit]
fn a_token_of_the_far_future_is_not_admitted() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let token = granted(&store, &claim("k", LONG)).await;
        let client = session(&server).await;
        let far = client.batch_execute("SELECT lock_core.admit('k', 9223372036854775807)").await;
        let (code, text) = refusal(far);
        assert!(code == "22023" && text.contains("more than an hour ahead"), "{code}: {text}");
        // A store without a clock counts from there, for example ZooKeeper.
        let plain = FencingToken::PLAIN.get();
        client.batch_execute(&format!("SELECT lock_core.admit('plain', {plain})")).await.unwrap();
        for [stale, code] in [["(2^62)::bigint - 1", "22023"], ["1", "LK002"]] {
            let refused = client.batch_execute(&format!("SELECT lock_core.admit('plain', {stale})")).await;
            assert_eq!(refusal(refused).0, code, "{stale}");
        }
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "k", token).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        // As a build before version 3 admitted it; the owner of the schema takes it back.
        server.run("UPDATE lock_core.fence SET token = 9223372036854775807");
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(refusal(pin(&client, "k", token).await).0, "LK002");
        client.batch_execute("ROLLBACK").await.unwrap();
        server.run("DELETE FROM lock_core.fence WHERE resource = 'k'");
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "k", token).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    });
}

/// A role that may only connect can take any advisory lock.
#[test]
#[limit]
fn an_advisory_lock_of_a_stranger_is_no_pin() {
    on_runtime(async {
        use lock_store::Inspector as _;
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let held = claim("k", LONG);
        let token = granted(&store, &held).await;
        server.run("CREATE ROLE stranger LOGIN");
        let number = server.run("SELECT lock_core.pin_number('k')");
        let url = server.url().replace("test@", "stranger@");
        let (stranger, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let takes =
            format!("BEGIN; SELECT pg_advisory_xact_lock_shared({number}); SELECT pg_advisory_lock_shared({number})");
        stranger.batch_execute(&takes).await.unwrap();
        let details = async || store.entry(&held.key).await.unwrap().unwrap().details;
        assert_eq!(details().await, []);
        let client = session(&server).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "k", token).await.unwrap();
        let (pinned, ours) = (details().await, pid(&client).await.to_string());
        assert!(pinned.len() == 1 && pinned[0].1.contains(&ours), "{pinned:?}");
        assert!(!pinned[0].1.contains(&pid(&stranger).await.to_string()), "{pinned:?}");
        client.batch_execute("COMMIT").await.unwrap();
        store.release(&Release::new(held.clone())).await.unwrap();
        assert!(store.entry(&held.key).await.unwrap().is_none());
    });
}

/// A name or a text that no client can read is left out, page by page, and everything else is listed.
#[test]
#[limit]
fn a_name_that_no_client_can_read_keeps_no_other_out_of_the_list() {
    on_runtime(async {
        let server = PostgresServer::start();
        // In SQL_ASCII every byte is a text; in WIN1252 the byte 81 stands for no character.
        for (encoding, byte) in [("SQL_ASCII", "ff"), ("WIN1252", "81")] {
            server.run(&format!(
                "CREATE DATABASE {encoding} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ));
            let url = server.url().replace("/postgres", &format!("/{}", encoding.to_lowercase()));
            let store = PostgresStore::new(&url).unwrap();
            for key in ["a", "m", "z"] {
                granted(&store, &claim(key, LONG)).await;
            }
            let (user, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            let bad = format!("convert_from('\\x{byte}'::bytea, getdatabaseencoding())");
            let spoil = format!(
                "INSERT INTO lock_core.lock (key, owner, token, until, since, about) \
                   SELECT k, gen_random_uuid(), 128, now() + '1 hour', now(), '' FROM (VALUES ({bad}), ('b' || {bad}), ('n' || {bad})) v(k); \
                 INSERT INTO lock_core.done (key, version, about, at) SELECT k, {bad}, {bad}, now() FROM (VALUES ('m'), ('n' || {bad})) v(k); \
                 INSERT INTO lock_core.job (key, every_ms, about, started, succeeded, good, until) \
                   SELECT k, 1000, {bad}, now(), true, now(), now() + '1 hour' FROM (VALUES ('job'), ('n' || {bad})) v(k); \
                 INSERT INTO lock_core.lock (key, owner, token, until, since, about) \
                   VALUES ('of another', gen_random_uuid(), 128, now() + '1 hour', now(), {bad}); \
                 INSERT INTO lock_core.waiter (key, owner, inbox, stamp, grant_ms, floor, since, confirmed, about) \
                   SELECT 'm', gen_random_uuid(), 'nobody', 0, 1000, 0, now(), now(), about FROM (VALUES ('h|1|site|'), ({bad})) v(about)"
            );
            user.batch_execute(&spoil).await.unwrap();
            for limit in [1, 2, 100] {
                let (mut found, mut after) = (Vec::new(), None);
                loop {
                    let page = store.scan("", limit, after.as_ref()).await.unwrap();
                    found.extend(page.entries.iter().map(|entry| entry.key.as_str().to_owned()));
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(found, ["a", "m", "z"], "{encoding}, in pages of {limit}");
            }
            let waiters = store.waiters(&LockKey::new("m").unwrap()).await.unwrap();
            assert_eq!(waiters.len(), 2, "{encoding}: whoever waits is shown, also beside a text that nobody can read");
        }
    });
}

/// A record that another program has written is left out, and everything else is listed.
#[test]
#[limit]
fn a_record_that_no_lock_store_has_written_keeps_no_other_out_of_the_list() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        granted(&store, &claim("k", LONG)).await;
        server.run("INSERT INTO lock_core.done (key, version, about, at) VALUES ('k', 'v1', 'nonsense', now())");
        server.run(
            "INSERT INTO lock_core.job (key, every_ms, about, started, succeeded, good, until) \
             VALUES ('k', -1, 'nonsense', now(), true, now(), now() + '1 hour')",
        );
        let page = store.scan("", 100, None).await.unwrap();
        assert_eq!((page.entries.len(), page.jobs.len(), page.done.len()), (1, 0, 0));
    });
}

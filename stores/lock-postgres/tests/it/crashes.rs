//! A server whose processes are killed, with `commit=off`: which locks it forgets, and that no write is lost under a pin.
//!
//! `LOCK_CRASHES=100 cargo test -p lock-postgres --test it crashes::` kills it as often.

use std::process::Command;
use std::time::Duration;

use lock_core::{FencingToken, LockBackend as _};
use lock_postgres::PostgresStore;
use lock_store::{Claim, Renewal};
use lock_testing::{PostgresServer, limit};
use tokio_postgres::Client;

use crate::support::{claim, granted, on_runtime, pin, refusal, refused, session};

/// Longer than the whole test.
const HELD: Duration = Duration::from_secs(3600);

/// Writes in a transaction under a pin, and leaves it open.
async fn write(client: &Client, held: &Claim, token: FencingToken) {
    client.batch_execute("BEGIN").await.unwrap();
    pin(client, held.key.as_str(), token).await.unwrap();
    client.execute("INSERT INTO ledger VALUES ($1)", &[&held.key.as_str()]).await.unwrap();
}

/// Kills one process of the server with SIGKILL. PostgreSQL then ends all others, gives up their memory and recovers from its log.
async fn crash(server: &PostgresServer, client: &Client) {
    let process = server.run("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
    let killed = Command::new("kill").args(["-KILL", &process]).status().unwrap();
    assert!(killed.success(), "{process} was killed");
    while !client.is_closed() {
        tokio::task::yield_now().await;
    }
    while server.try_run("SELECT 1").is_err() {}
}

/// The log is one sequence: a commit that was flushed has flushed every grant before it.
#[test]
#[limit(1200)]
fn a_crash_forgets_no_lock_under_which_a_transaction_has_committed() {
    let rounds: u32 = std::env::var("LOCK_CRASHES").map_or(4, |text| text.parse().expect("LOCK_CRASHES is a number"));
    on_runtime(async {
        // The log stays in memory until a commit flushes it.
        let server = PostgresServer::start_with(&[("wal_writer_delay", "10s"), ("autovacuum", "off")]);
        server.run("CREATE TABLE ledger (key text)");
        let url = format!("{}?commit=off", server.url());
        let mut forgotten = 0;
        for round in 0..rounds {
            let store = PostgresStore::new(&url).unwrap();
            let client = session(&server).await;
            let (kept, open, risk) = (format!("kept {round}"), format!("open {round}"), "at risk");
            let [kept, open, risk] = [&*kept, &*open, risk].map(|key| claim(key, HELD));
            let (first, second) = (granted(&store, &kept).await, granted(&store, &open).await);
            write(&client, &kept, first).await;
            client.batch_execute("COMMIT").await.unwrap();
            let third = granted(&store, &risk).await;
            write(&client, &open, second).await;
            crash(&server, &client).await;

            let (store, client) = (PostgresStore::new(&url).unwrap(), session(&server).await);
            let written = server.run(&format!("SELECT key FROM ledger WHERE key LIKE '% {round}'"));
            assert_eq!(written, kept.key.as_str(), "what was committed is there, and nothing else");
            for (held, token) in [(&kept, first), (&open, second)] {
                assert!(refused(&store, &claim(held.key.as_str(), HELD)).await, "{held:?} was forgotten");
                write(&client, held, token).await;
                client.batch_execute("ROLLBACK").await.unwrap();
            }
            // Its holder may be at work outside of this database.
            let next = claim(risk.key.as_str(), HELD);
            if refused(&store, &next).await {
                server.run("UPDATE lock_core.lock SET until = 'epoch', owner = NULL WHERE key = 'at risk'");
                continue;
            }
            forgotten += 1;
            assert_eq!(store.renew(std::slice::from_ref(&risk)).await, [Ok(Renewal::Lost)]);
            client.batch_execute("BEGIN").await.unwrap();
            assert_eq!(refusal(pin(&client, risk.key.as_str(), third).await).0, "LK001", "it writes nothing");
            client.batch_execute("ROLLBACK").await.unwrap();
            let token: i64 = server.run("SELECT token FROM lock_core.lock WHERE key = 'at risk'").parse().unwrap();
            assert!(token.cast_unsigned() > third.get(), "{token} after {third}");
            server.run("UPDATE lock_core.lock SET until = 'epoch', owner = NULL WHERE key = 'at risk'");
        }
        println!("{forgotten} of {rounds} locks that no commit followed were forgotten");
        assert!(forgotten > 0, "nothing is forgotten, so this test shows nothing");
    });
}

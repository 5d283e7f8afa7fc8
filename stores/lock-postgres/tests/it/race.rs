//! A lock that changes hands between the last look at it and the commit: the same steps of two sessions, in the same order, with a look
//! in the transaction as pg_lease 0.1.3 has it, and with a pin.

use lock_core::testing::{PostgresServer, limit};
use lock_core::{Attempt, FencingToken, LockBackend as _};
use lock_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::support::{LONG, ask, claim, on_runtime, pin, session};

/// Takes a lease as pg_lease does: one row, given to another when its time is over.
const TAKE: &str = "INSERT INTO _pg_lease AS l VALUES ('race', $1, now() + interval '1 min') ON CONFLICT (name) \
                    DO UPDATE SET worker_id = EXCLUDED.worker_id, held_until = EXCLUDED.held_until WHERE l.held_until < now() RETURNING 1";

/// Looks as its `verify_lease_held` does, in the user's transaction. The time is asked for too, which that does not.
const LOOK: &str = "SELECT 1 FROM _pg_lease WHERE name = 'race' AND worker_id = $1 AND held_until > clock_timestamp()";

enum Subject {
    Looks,
    Pins(Box<PostgresStore>),
}

impl Subject {
    /// Tries to take the lock. The holder is named by the token, if there is one.
    async fn take(&self, client: &Client, who: &str) -> Option<FencingToken> {
        match self {
            Self::Looks => client.query_opt(TAKE, &[&who]).await.unwrap().map(|_| FencingToken::new(0)),
            Self::Pins(store) => match ask(store, &claim("race", LONG)).await {
                Attempt::Granted { token, .. } => Some(token),
                _ => None,
            },
        }
    }

    /// Begins a transaction, makes sure that the lock is held, and reads the counter.
    async fn begin(&self, client: &Client, who: &str, token: FencingToken) -> i64 {
        client.batch_execute("BEGIN").await.unwrap();
        match self {
            Self::Looks => drop(client.query_one(LOOK, &[&who]).await.unwrap()),
            Self::Pins(_) => drop(pin(client, "race", token).await.unwrap()),
        }
        client.query_one("SELECT n FROM counter", &[]).await.unwrap().get(0)
    }

    /// Ends the lease, as its time would.
    fn end(&self, server: &PostgresServer) {
        server.run(match self {
            Self::Looks => "UPDATE _pg_lease SET held_until = clock_timestamp()",
            Self::Pins(_) => "UPDATE lock_core.lock SET until = clock_timestamp() WHERE key = 'race'",
        });
    }
}

async fn write(client: &Client, n: i64) {
    client.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}

/// Two sessions add one each, of which the first outlives its lease between its look and its write. Returns the sum.
async fn two_additions(server: &PostgresServer, subject: &Subject) -> String {
    server.run("UPDATE counter SET n = 0");
    let (first, second) = (session(server).await, session(server).await);
    let token = subject.take(&first, "first").await.unwrap();
    let read = subject.begin(&first, "first", token).await;
    subject.end(server);
    let next = subject.take(&second, "second").await;
    let was_refused = next.is_none();
    if let Some(next) = next {
        let read = subject.begin(&second, "second", next).await;
        write(&second, read).await;
    }
    write(&first, read).await;
    if was_refused {
        let next = subject.take(&second, "second").await.expect("the first has ended");
        let read = subject.begin(&second, "second", next).await;
        write(&second, read).await;
    }
    server.run("SELECT n FROM counter")
}

#[test]
#[limit]
fn a_look_loses_a_write_where_a_pin_keeps_it() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run("CREATE TABLE counter (n bigint NOT NULL); INSERT INTO counter VALUES (0)");
        server.run("CREATE TABLE _pg_lease (name text PRIMARY KEY, worker_id text, held_until timestamptz)");
        assert_eq!(
            two_additions(&server, &Subject::Looks).await,
            "1",
            "both were told that it is theirs, and one addition is lost"
        );
        let store = PostgresStore::new(&server.url()).unwrap();
        store.ping().await.unwrap();
        assert_eq!(
            two_additions(&server, &Subject::Pins(Box::new(store))).await,
            "2",
            "the second waits for the commit of the first"
        );
    });
}

//! One of the processes.

use std::env;
use std::io::Read as _;
use std::time::Duration;

use lock_core::{JobVersion, LockManager, Renew};
use lock_postgres as _;
use tokio_postgres::{Client, NoTls};

/// The lease. It is not renewed: a body that sleeps outlives it, like a process that was paused.
const TTL: Duration = Duration::from_millis(400);

type Failure = Box<dyn std::error::Error>;

/// Adds to the counter until it is killed.
pub(super) fn work(role: &str) {
    // Ends with the test, however that ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let url = env::var("LOCK_PIN_URL").expect("the test names the server");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locks = loop {
            // A session may be cut also while it is made.
            if let Ok(locks) = LockManager::connect(&url).await {
                break locks;
            }
        };
        if role == "migrate" {
            let done = migrate(&locks, &url).await.expect("the work is done");
            return println!("{}", if done { "done" } else { "done before" });
        }
        loop {
            // After any failure, the next round has its own connection.
            if let Ok(mut client) = connect(&url).await {
                while add(&locks, &mut client, role == "pin").await.is_ok() {}
            }
        }
    });
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "a program with a runtime of its own")]
    tokio::spawn(connection);
    Ok(client)
}

async fn add(locks: &LockManager, client: &mut Client, pinned: bool) -> Result<(), Failure> {
    let guard = locks.lock("counter").with_ttl(TTL).with_renew(Renew::Off).with_wait(Duration::from_secs(20)).await?;
    let transaction = client.transaction().await?;
    if pinned {
        let pin = lock_postgres::pin(&guard);
        transaction.execute(pin.text(), &[&pin.key(), &pin.token()]).await?;
    } else {
        guard.ensure_held()?;
        let row = "SELECT FROM lock_core.lock WHERE key = 'counter' AND token = $1 AND until > clock_timestamp()";
        let token = i64::try_from(guard.token().get())? / 128 * 128;
        transaction.query_one(row, &[&token]).await?;
    }
    let n: i64 = transaction.query_one("SELECT n FROM counter", &[]).await?.get(0);
    if fastrand::u8(..100) < 12 {
        #[expect(clippy::disallowed_methods, reason = "a program with a runtime of its own")]
        tokio::time::sleep(TTL + TTL / 4).await;
    }
    transaction.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await?;
    transaction.execute("INSERT INTO done VALUES ($1)", &[&std::process::id().cast_signed()]).await?;
    transaction.commit().await?;
    guard.release().await?;
    Ok(())
}

/// Does the work of a version, and stops where the test says until it is killed. Returns whether it was done here.
async fn migrate(locks: &LockManager, url: &str) -> Result<bool, Failure> {
    let [stops, version] = ["LOCK_PIN_STOPS", "LOCK_PIN_VERSION"].map(|name| env::var(name).expect("the test says"));
    let mut client = connect(url).await?;
    let marked = JobVersion::new(&version)?;
    let stop = async |here: &str| {
        if here == stops {
            println!("{here}");
            std::future::pending::<()>().await;
        }
    };
    let request = locks.lock("migrate").with_ttl(Duration::from_secs(2)).with_wait(Duration::from_secs(60));
    let ran = request.once_for(version.as_str()).run(async |guard| {
        let transaction = client.transaction().await?;
        let mark = lock_postgres::mark_done(guard, &marked);
        transaction.execute(mark.text(), &[&mark.key(), &mark.token(), &mark.version()]).await?;
        transaction.execute("INSERT INTO work VALUES ($1)", &[&version]).await?;
        stop("before").await;
        transaction.commit().await?;
        stop("after").await;
        Ok::<_, Failure>(())
    });
    Ok(ran.await?.is_some())
}

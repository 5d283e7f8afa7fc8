//! One step at a time: each step of this library right after the bare statements that it is compared with.

use std::time::Duration;

use lock_core::store::{AcquireRequest, Attempt, Claim, Release, Renewal};
use lock_core::{HolderInfo, LockBackend as _, LockGuard, LockKey, LockManager};
use lock_postgres::PostgresStore;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

use crate::process::job::Statements;
use crate::row::postgres::crowd::{FOR_UPDATE, row_locked};
use crate::row::postgres::server::{PAIR, bare_pair, listener, manager, session};
use crate::stats::percentile;
use crate::{Failure, Result, clock};

/// Medians, µs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Steps {
    /// One statement in a transaction of its own.
    pub(super) durable: f64,
    pub(super) pair: f64,
    /// The statements of a pair, by one session and without the rest of this library.
    pub(super) bare: f64,
    /// A row that is locked until the end of its transaction, as users do instead.
    pub(super) for_update: f64,
    /// A transaction of two statements: read and write.
    pub(super) plain: f64,
    pub(super) pinned: f64,
    /// A message from a transaction that writes and commits on disk, until it is heard.
    pub(super) notify: f64,
    pub(super) hand_off: f64,
    pub(super) update: f64,
    pub(super) renewals: f64,
    /// How many tokens in the hand-offs were not greater than the one before.
    pub(super) inversions: u64,
}

/// How many leases are renewed at once.
const LEASES: usize = 100;

/// How many keys a single caller cycles through.
const KEYS: u32 = 50;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, n bigint NOT NULL);
    INSERT INTO account SELECT n, 0 FROM generate_series(0, 1023) n ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS bare (key text COLLATE \"C\" PRIMARY KEY, until timestamptz NOT NULL) WITH (fillfactor = 50);
    INSERT INTO bare SELECT 'lease:' || n, now() FROM generate_series(1, 100) n ON CONFLICT DO NOTHING";

/// The times of one step, ns.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    async fn of<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let started = clock::now();
        let done = work.await?;
        self.0.push(clock::now() - started);
        Ok(done)
    }

    fn median(mut self) -> f64 {
        self.0.sort_unstable();
        percentile(&self.0, 500) as f64 / 1e3
    }
}

pub(super) async fn measure(job: &Statements) -> Result<Steps> {
    let mut client = session(&job.url).await?;
    client.batch_execute(TABLES).await?;
    let mut steps = Steps::default();
    pairs(job, &mut client, &mut steps).await?;
    hand_offs(job, &client, &mut steps).await?;
    renewals(job, &client, &mut steps).await?;
    Ok(steps)
}

/// Pairs beside a statement in a transaction of its own, and transactions with and without a pin.
async fn pairs(job: &Statements, client: &mut Client, steps: &mut Steps) -> Result<()> {
    let locks = manager(&job.url).await?;
    let guard = locks.lock("pinned").await?;
    let pin = lock_postgres::pin(&guard);
    let write = client.prepare("UPDATE account SET n = n + 1 WHERE id = 1").await?;
    let read = client.prepare("SELECT n FROM account WHERE id = 1").await?;
    let keep = client.prepare(pin.text()).await?;
    let select = client.prepare(FOR_UPDATE).await?;
    let statements = [client.prepare(PAIR[0]).await?, client.prepare(PAIR[1]).await?];
    let [mut durable, mut pair, mut bare, mut for_update, mut plain, mut pinned] = [const { Times(Vec::new()) }; 6];
    for step in 0..job.steps {
        let key = format!("pair:{}", step % KEYS);
        durable.of(async { Ok(client.execute(&write, &[]).await?) }).await?;
        pair.of(async { Ok(locks.lock(key.as_str()).await?.release().await?) }).await?;
        bare.of(bare_pair(client, &statements, &key, "00000000-0000-0000-0000-000000000000")).await?;
        for_update.of(row_locked(client, &select, (step % KEYS).into())).await?;
        plain.of(transaction(client, &read, &write, None)).await?;
        pinned.of(transaction(client, &read, &write, Some((&keep, pin.key(), pin.token())))).await?;
    }
    guard.release().await?;
    (steps.durable, steps.pair, steps.bare) = (durable.median(), pair.median(), bare.median());
    (steps.for_update, steps.plain, steps.pinned) = (for_update.median(), plain.median(), pinned.median());
    Ok(())
}

/// Reads and writes in one transaction, under a pin if one is given.
async fn transaction(
    client: &mut Client,
    read: &Statement,
    write: &Statement,
    pin: Option<(&Statement, &str, i64)>,
) -> Result<()> {
    let transaction = client.transaction().await?;
    if let Some((keep, key, token)) = pin {
        transaction.execute(keep, &[&key, &token]).await?;
    }
    transaction.query_one(read, &[]).await?;
    transaction.execute(write, &[]).await?;
    Ok(transaction.commit().await?)
}

/// From the call of a release to the guard of a waiter in another process. A message of a durable transaction is the comparison.
async fn hand_offs(job: &Statements, client: &Client, steps: &mut Steps) -> Result<()> {
    let (_listening, mut heard) = listener(&job.url, "bench").await?;
    let (here, there) = (manager(&job.url).await?, manager(&job.url).await?);
    let write = "WITH new AS (UPDATE account SET n = n + 1 WHERE id = 1) SELECT pg_notify('bench', '')";
    let write = client.prepare(write).await?;
    let [mut notify, mut hand_off] = [const { Times(Vec::new()) }; 2];
    let mut guard = here.lock("handed").await?;
    for step in 0..job.steps {
        let message = async { Ok::<_, Failure>(client.execute(&write, &[]).await?) };
        let heard = async { heard.recv().await.ok_or_else(|| Failure::from("the session that listens has ended")) };
        notify.of(async { tokio::try_join!(message, heard) }).await?;
        let next = if step % 2 == 0 { &there } else { &here };
        let waiter = queued(client, next).await?;
        let before = guard.token();
        let release = async { Ok::<_, Failure>(guard.release().await?) };
        (_, guard) = hand_off.of(async { tokio::try_join!(release, async { waiter.await? }) }).await?;
        steps.inversions += u64::from(guard.token() <= before);
    }
    guard.release().await?;
    (steps.notify, steps.hand_off) = (notify.median(), hand_off.median());
    Ok(())
}

/// Lets a manager wait for the lock, and returns when its claim is in the queue.
pub(super) async fn queued(client: &Client, locks: &LockManager) -> Result<JoinHandle<Result<LockGuard>>> {
    let request = locks.lock("handed");
    let waiter = tokio::spawn(async move { Ok(request.await?) });
    let look = "SELECT count(*) FROM lock_core.waiter WHERE key = 'handed'";
    while client.query_one(look, &[]).await?.get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    Ok(waiter)
}

/// A hundred renewed leases, beside a hundred rows that get a new time.
async fn renewals(job: &Statements, client: &Client, steps: &mut Steps) -> Result<()> {
    let store = PostgresStore::new(&job.url)?;
    let mut claims = Vec::new();
    for number in 1..=LEASES {
        let claim = Claim::new(LockKey::new(format!("lease:{number}"))?, Duration::from_secs(3600));
        let request = AcquireRequest::new(claim.clone(), HolderInfo::new("bench", std::process::id(), "renewals"));
        let got = store.try_acquire(&request).await?;
        if !matches!(got, Attempt::Granted { .. }) {
            return Err(format!("a lease that nobody has was not granted: {got:?}").into());
        }
        claims.push(claim);
    }
    let all = "UPDATE bare SET until = clock_timestamp() + interval '30 s' WHERE key = ANY($1)";
    let all = client.prepare(all).await?;
    let keys: Vec<&str> = claims.iter().map(|claim| claim.key.as_str()).collect();
    let [mut update, mut renewals] = [const { Times(Vec::new()) }; 2];
    for _ in 0..job.steps {
        update.of(async { Ok(client.execute(&all, &[&keys]).await?) }).await?;
        let answers = renewals.of(async { Ok(store.renew(&claims).await) }).await?;
        if let Some(other) = answers.iter().find(|answer| !matches!(answer, Ok(Renewal::Renewed))) {
            return Err(format!("a lease that is held was not renewed: {other:?}").into());
        }
    }
    for claim in claims {
        store.release(&Release::new(claim)).await?;
    }
    (steps.update, steps.renewals) = (update.median(), renewals.median());
    Ok(())
}

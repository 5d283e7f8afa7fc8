//! Healthy locks, so that their panels show something: permits, stripes, a leader, and a job.

use std::time::Duration;

use anyhow::Result;
use lock_core::{LockManager, lock_key};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scenes::{PATIENCE, STEADY_TTL, TTL, expected, hold_for};

const JOB_EVERY: Duration = Duration::from_secs(4);
/// If an election changes its leader more often than this, an alert fires.
const TERM: Duration = Duration::from_secs(300);
const STRIPES: u32 = 16;

/// Starts every scene twice: the two managers are two processes to the store.
pub(crate) fn play(scenes: &mut JoinSet<Result<()>>, processes: [&LockManager; 2], run: u32) {
    for locks in processes {
        scenes.spawn(send_mails(locks.clone(), run));
        scenes.spawn(fill_carts(locks.clone(), run));
        scenes.spawn(schedule(locks.clone(), run));
        scenes.spawn(report(locks.clone(), run));
    }
}

/// All processes together send at most three mails at a time.
async fn send_mails(locks: LockManager, run: u32) -> Result<()> {
    let mut mails = JoinSet::new();
    for _ in 0..3 {
        let locks = locks.clone();
        mails.spawn(async move {
            loop {
                let permit = locks.semaphore(lock_key!("demo:permits:mail:<run>"), 3);
                hold_for(permit.with_ttl(TTL).with_wait(PATIENCE), Duration::from_millis(40)).await?;
                sleep(Duration::from_millis(30)).await;
            }
        });
    }
    mails.join_next().await.map_or(Ok(()), |ended| ended?)
}

/// Any number of carts, distributed over sixteen locks.
async fn fill_carts(locks: LockManager, run: u32) -> Result<()> {
    let carts = locks.striped(lock_key!("demo:striped:cart:<run>"), STRIPES);
    for cart in 0.. {
        let request = carts.lock(cart).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_millis(20)).await?;
        sleep(Duration::from_millis(80)).await;
    }
    Ok(())
}

/// One of the two leads for a while, then the other.
async fn schedule(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let election = locks.elect(lock_key!("demo:leader:schedule:<run>")).with_ttl(STEADY_TTL);
        expected(election.run(async |_| sleep(TERM).await).await)?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// Both start the job repeatedly. It runs once in each period.
async fn report(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let job = locks.lock(lock_key!("demo:job:report:<run>")).with_ttl(TTL).at_most_every(JOB_EVERY);
        let ran = job.run(async |_| {
            sleep(Duration::from_millis(200)).await;
            Ok(())
        });
        expected(ran.await.map(drop))?;
        sleep(Duration::from_millis(500)).await;
    }
}

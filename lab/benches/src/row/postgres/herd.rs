//! The server's processor time for a hand-off, while a few and while many processes listen.

use std::fs;
use std::time::Duration;

use lock_core::LockManager;
use tokio_postgres::Client;

use crate::Result;
use crate::process::job::Statements;
use crate::row::postgres::server::{manager, session};
use crate::row::postgres::steps::queued;

/// How many managers listen. Each has connections of its own, as a process has.
const LISTENING: [usize; 3] = [3, 30, 100];

/// Returns µs for each setting.
pub(super) async fn measure(job: &Statements) -> Result<[f64; 3]> {
    let client = session(&job.url).await?;
    let server = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)";
    let server: String = client.query_one(server, &[]).await?.get(0);
    let (mut managers, mut costs) = (Vec::new(), [0.0; 3]);
    for (cost, count) in costs.iter_mut().zip(LISTENING) {
        while managers.len() < count {
            managers.push(manager(&job.url).await?);
        }
        *cost = hand_offs(&client, &managers, &server, (job.steps / 5).max(1)).await?;
    }
    Ok(costs)
}

/// Hands a lock from manager to manager. Every manager has waited once, so it listens, before anything counts.
async fn hand_offs(client: &Client, managers: &[LockManager], server: &str, steps: u32) -> Result<f64> {
    let mut guard = managers[0].lock("handed").await?;
    let (mut spent, mut turns) = (0, managers.iter().cycle().skip(1));
    for step in 0..managers.len() + usize::try_from(steps)? {
        let waiter = queued(client, turns.next().ok_or("no manager")?).await?;
        let before = cpu(server)?;
        guard.release().await?;
        guard = waiter.await??;
        // Every session gets the time to hear of it.
        tokio::time::sleep(Duration::from_millis(20)).await;
        if step >= managers.len() {
            spent += cpu(server)?.saturating_sub(before);
        }
    }
    guard.release().await?;
    Ok(spent as f64 / 1e3 / f64::from(steps))
}

/// Returns the processor time of all sessions of the server, ns. A session that has just ended has no file.
fn cpu(server: &str) -> Result<u64> {
    let sessions = fs::read_to_string(format!("/proc/{server}/task/{server}/children"))?;
    let spent = |pid| fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    Ok(sessions.split_whitespace().filter_map(spent).sum())
}

//! 64 tasks with a key each out of many: this library, and what users pick instead.

use std::sync::Arc;

use lock_core::LockManager;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Statement};

use crate::Result;
use crate::process::job::Statements;
use crate::row::pairs::{Pairs, rate};
use crate::row::postgres::server::{manager, session};

const TASKS: usize = 64;

/// How many keys each task cycles through.
const KEYS: u64 = 16;

/// How many connections the tasks share, on lines with more than one connection.
const CONNECTIONS: usize = 8;

/// Pairs per second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Crowd {
    pub(super) ours: f64,
    /// Advisory locks of one session. They have no lease and no token, and their statements are pipelined.
    pub(super) advisory: f64,
    /// Advisory locks over eight sessions.
    pub(super) advisory_spread: f64,
    /// A locked row until the end of a transaction, which has one of eight sessions to itself.
    pub(super) for_update: f64,
}

/// One way to take and release locks.
#[derive(Clone)]
enum Line {
    Ours(LockManager),
    Advisory(Arc<Client>, [Statement; 2]),
    ForUpdate(Arc<Mutex<Client>>, Statement),
}

impl Pairs for Line {
    async fn pair(&self, task: u64, turn: u64) -> Result<()> {
        let key = task * KEYS + turn % KEYS;
        match self {
            Self::Ours(locks) => {
                locks.lock(format!("bench:{key}")).await?.release().await?;
            }
            Self::Advisory(client, [take, free]) => {
                let key = i64::try_from(key)?;
                client.execute(take, &[&key]).await?;
                client.execute(free, &[&key]).await?;
            }
            Self::ForUpdate(client, select) => {
                row_locked(&mut *client.lock().await, select, i64::try_from(key)?).await?;
            }
        }
        Ok(())
    }
}

pub(super) const FOR_UPDATE: &str = "SELECT n FROM account WHERE id = $1 FOR UPDATE";

/// Locks a row in a transaction, and ends the transaction.
pub(super) async fn row_locked(client: &mut Client, select: &Statement, row: i64) -> Result<()> {
    let transaction = client.transaction().await?;
    transaction.query_one(select, &[&row]).await?;
    Ok(transaction.commit().await?)
}

pub(super) async fn measure(job: &Statements) -> Result<Crowd> {
    let ours = vec![Line::Ours(manager(&job.url).await?)];
    let (mut advisory, mut for_update) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let (client, other) = (session(&job.url).await?, session(&job.url).await?);
        let [take, free] = ["SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"];
        let statements = [client.prepare(take).await?, client.prepare(free).await?];
        advisory.push(Line::Advisory(Arc::new(client), statements));
        let select = other.prepare(FOR_UPDATE).await?;
        for_update.push(Line::ForUpdate(Arc::new(Mutex::new(other)), select));
    }
    let one = advisory[..1].to_vec();
    let (lines, mut rates) = ([ours, one, advisory, for_update], [0.0; 4]);
    // Each round begins with another line, so that a line does not always follow the same one.
    for place in 0..lines.len() {
        let index = (place + usize::try_from(job.first)?) % lines.len();
        rates[index] = rate(lines[index].iter().cycle().take(TASKS).cloned(), job.window_ms).await?;
    }
    let [ours, advisory, advisory_spread, for_update] = rates;
    Ok(Crowd { ours, advisory, advisory_spread, for_update })
}

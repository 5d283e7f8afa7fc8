//! 64 tasks with a key each out of many: this library, its functions without batches, and advisory locks.

use std::sync::Arc;
use std::time::Duration;

use lock_core::LockManager;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use crate::process::job::Statements;
use crate::row::postgres::server::{PAIR, bare_pair, manager, session};
use crate::{Result, clock};

const TASKS: u64 = 64;

/// How many keys each task cycles through.
const KEYS: u64 = 16;

/// How many connections the tasks share, on lines with more than one connection.
const CONNECTIONS: usize = 8;

/// Pairs per second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Crowd {
    pub(super) ours: f64,
    /// One claim per statement and commit, over eight connections.
    pub(super) unbatched: f64,
    /// Advisory locks of one session. They have no lease and no token, and their statements are pipelined.
    pub(super) advisory: f64,
    /// Advisory locks over eight sessions.
    pub(super) advisory_spread: f64,
}

/// One way to take and release locks.
#[derive(Clone)]
enum Line {
    Ours(LockManager),
    /// The session, the two statements, and the owner.
    Unbatched(Arc<Client>, [Statement; 2], String),
    Advisory(Arc<Client>, [Statement; 2]),
}

impl Line {
    async fn pair(&self, task: u64, turn: u64) -> Result<()> {
        let key = task * KEYS + turn % KEYS;
        match self {
            Self::Ours(locks) => {
                locks.lock(format!("bench:{key}")).await?.release().await?;
            }
            Self::Unbatched(client, statements, owner) => {
                bare_pair(client, statements, &format!("bench:{key}"), owner).await?;
            }
            Self::Advisory(client, [take, free]) => {
                let key = i64::try_from(key)?;
                client.execute(take, &[&key]).await?;
                client.execute(free, &[&key]).await?;
            }
        }
        Ok(())
    }
}

pub(super) async fn measure(job: &Statements) -> Result<Crowd> {
    let ours = vec![Line::Ours(manager(&job.url).await?)];
    let (mut unbatched, mut advisory) = (Vec::new(), Vec::new());
    for number in 0..CONNECTIONS {
        let client = session(&job.url).await?;
        let claims = [client.prepare(PAIR[0]).await?, client.prepare(PAIR[1]).await?];
        let [take, free] = ["SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"];
        let sessions = [client.prepare(take).await?, client.prepare(free).await?];
        let client = Arc::new(client);
        unbatched.push(Line::Unbatched(Arc::clone(&client), claims, format!("00000000-0000-0000-0000-{number:012}")));
        advisory.push(Line::Advisory(client, sessions));
    }
    let one = advisory[..1].to_vec();
    let (lines, mut rates) = ([ours, unbatched, one, advisory], [0.0; 4]);
    // Each round begins with another line, so that a line does not always follow the same one.
    for place in 0..lines.len() {
        let index = (place + usize::try_from(job.first)?) % lines.len();
        rates[index] = rate(&lines[index], job.window_ms).await?;
    }
    let [ours, unbatched, advisory, advisory_spread] = rates;
    Ok(Crowd { ours, unbatched, advisory, advisory_spread })
}

/// Returns how many pairs per second the tasks do on the given lines. A fifth of the time comes before as warm-up.
async fn rate(lines: &[Line], window_ms: u64) -> Result<f64> {
    let window = clock::as_nanos(Duration::from_millis(window_ms));
    let from = clock::now() + window / 5;
    let mut tasks = JoinSet::new();
    for (task, line) in (0..TASKS).zip(lines.iter().cycle()) {
        let line = line.clone();
        tasks.spawn(async move {
            let mut counted = 0_u64;
            for turn in 0.. {
                line.pair(task, turn).await?;
                let now = clock::now();
                if now >= from + window {
                    break;
                }
                counted += u64::from(now >= from);
            }
            Ok::<_, crate::Failure>(counted)
        });
    }
    let mut counted = 0;
    while let Some(done) = tasks.join_next().await {
        counted += done??;
    }
    Ok(counted as f64 / Duration::from_nanos(window).as_secs_f64())
}

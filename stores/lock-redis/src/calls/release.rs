//! The end of a claim, and what must come first: settling an attempt that nobody awaits any more.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::batch::coalesce::{Coalescer, Flush};
use crate::batch::exchange::{Answer, Call};
use crate::batch::unsettled::Sent;
use crate::calls::elsewhere::check_master;
use crate::calls::run::{Operation, ask, step};
use crate::connection::link::{ClientId, Link};
use crate::error;
use crate::protocol::steps;
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{BoxFuture, Freed, JobRun, Release};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::command_timeout;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::Clock;
use lock_store::types::system::together::all;

/// How long an attempt that nobody awaits may stay unanswered before its connection is closed.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many locks are freed together that were freed before. The server does nothing else meanwhile.
const BATCH: usize = 32;

/// How often it is tried to free them again, and how long to wait between.
const TRIES: (usize, Duration) = (5, Duration::from_secs(1));

/// Why a claim ends: its holder is done, or nobody waits for it any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Release,
    Withdraw,
}

impl End {
    /// The name of the step in errors.
    fn op(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Withdraw => "withdraw",
        }
    }
}

/// Ends a claim.
pub(crate) struct Free<'a>(pub(crate) End, pub(crate) &'a Release);

impl Operation for Free<'_> {
    type Answer = Freed;

    fn lock(&self) -> &LockKey {
        &self.1.claim.key
    }

    fn within(&self) -> Duration {
        command_timeout(self.1.claim.ttl)
    }

    fn at(&self, node: &Node, way: Way) -> impl Future<Output = Result<Freed>> + Send {
        free(node, self.0, self.1, way)
    }
}

/// Fails if a lock that is granted could not be given back. After a refusal the server is asked each time, because somebody may
/// permit it.
pub(crate) async fn may_grant(server: &Node, link: &Link) -> Result<()> {
    if !link.refuses_release() {
        return Ok(());
    }
    let mut questions = redis::pipe();
    steps::try_out(&mut questions);
    let answers = link.send_all(&questions).await.map_err(|error| server.failed("acquire", &error))?;
    match steps::refusal(answers) {
        Some(why) => Err(error::unreleasable(server.name(), &why)),
        None => {
            link.note_release(false);
            Ok(())
        }
    }
}

/// Frees a lock without its queue, if the server refused both. Then the user may use the lock and not its queue, as with
/// `~lock:*` without `~{lock:*`. Returns the first error if this fails too.
fn free_alone<'a>(
    server: &'a Node,
    refused: LockError,
    end: End,
    release: &'a Release,
    way: Way,
) -> BoxFuture<'a, Result<(Freed, Arc<Coalescer>)>> {
    Box::pin(async move {
        if refused.kind() != LockErrorKind::Misconfigured || way.alone || release.claim.mode.is_shared() {
            return Err(refused);
        }
        let alone = Way { alone: true, ..way };
        // The first try has noted the run of the job, if one ends.
        let mut release = release.clone();
        release.run = None;
        match free_once(server, end, &release, alone).await {
            // The refusal says more: the lock was never asked together with its queue.
            Ok((Freed::NotHeld, _)) | Err(_) => Err(refused),
            freed => freed,
        }
    })
}

pub(crate) async fn free(server: &Node, end: End, release: &Release, way: Way) -> Result<Freed> {
    let (freed, connection) = free_once(server, end, release, way).await?;
    if freed == Freed::NotHeld {
        Box::pin(check_master(server, &connection.link, end.op())).await?;
    }
    server.repeats.note(release);
    Ok(freed)
}

/// Frees a lock, also a lock that was freed before. A caller that does not hold it need not ask whether a replica answered.
pub(crate) async fn free_once(server: &Node, end: End, release: &Release, way: Way) -> Result<(Freed, Arc<Coalescer>)> {
    let (lock, owner) = (&release.claim.key, release.claim.owner);
    server.check(lock)?;
    if server.pool.unsettled.get(owner).is_some() {
        Box::pin(settle(server, owner)).await?;
    }
    if let Some(run) = release.run {
        Box::pin(note_run(server, release, run, way)).await;
    }
    let connection = match server.pool.open_connection(Clock::system().now()) {
        Some(connection) => connection,
        None => Box::pin(server.pool.connection()).await?,
    };
    let flush = if release.in_background { Flush::WithTheNext } else { Flush::Now };
    let answer = if release.keep_for.is_zero() && way == Way::default() {
        match connection.call(Call::Release(release.claim.clone()), flush).await {
            Answer::Value(answer) => Ok(answer),
            Answer::Failed(error) => Err(server.failed(end.op(), &error)),
            Answer::Taken(_) => Err(server.unreadable(end.op())),
        }
    } else {
        Box::pin(free_by_itself(server, end.op(), &connection, release, flush, way)).await
    };
    let freed = answer.and_then(|answer| {
        let freed = steps::freed(&answer).ok_or_else(|| server.unreadable(end.op()))?;
        freed.map_err(|text| server.script_failed(end.op(), &text))
    });
    match freed {
        Ok(freed) => Ok((freed, connection)),
        Err(refused) => free_alone(server, refused, end, release, way).await,
    }
}

/// Frees a lock by a script of its own: one that stays taken for a while, or whose slot is being moved.
async fn free_by_itself(
    server: &Node,
    op: &str,
    connection: &Arc<Coalescer>,
    release: &Release,
    flush: Flush,
    way: Way,
) -> Result<Value> {
    let claim = &release.claim;
    let call = |clock: &str| {
        // A shared lock cannot be freed without its queue, so the release is retried.
        if way.alone && !claim.mode.is_shared() {
            steps::free_one(claim, release.keep_for)
        } else {
            steps::release(std::iter::once(claim), clock, release.keep_for)
        }
    };
    let reply = ask(server, op, connection, &claim.key, (way, flush), call).await?;
    Ok(steps::each_freed(reply, 1).next().unwrap_or(Value::Nil))
}

/// Notes the run of a job that ends. A failure only makes the next run look overdue: it must not keep the lock
/// from being freed.
async fn note_run(server: &Node, release: &Release, run: JobRun, way: Way) {
    if let Err(error) = step(server, &steps::note_run(&release.claim, run), way).await {
        tracing::debug!(key = %release.claim.key, %error, "the run of a job was not noted");
    }
}

/// Frees again what was freed lately, on a server that has taken over. Ids are never used twice, so nobody else's
/// lock is freed.
pub(crate) async fn repeat_releases(server: &Node) {
    let clock = Clock::system();
    let mut claims = server.repeats.live(clock.now());
    claims.retain(|claim| server.serves(&claim.key));
    for _ in 0..TRIES.0 {
        let mut failed = Vec::new();
        for batch in claims.chunks(BATCH) {
            let releases: Vec<Release> = batch.iter().cloned().map(Release::new).collect();
            let freed =
                all(releases.iter().map(|release| free_once(server, End::Release, release, Way::default()))).await;
            // Other refusals do not pass by themselves.
            let again = |error| matches!(error, Some(LockErrorKind::Unavailable));
            let kinds = freed.into_iter().map(|freed| freed.err().map(|error| error.kind()));
            failed.extend(batch.iter().zip(kinds).filter(|(_, error)| again(*error)).map(|(claim, _)| claim.clone()));
        }
        if failed.is_empty() {
            return;
        }
        claims = failed;
        clock.sleep_until(clock.now().after(TRIES.1)).await;
    }
    tracing::debug!(node = server.name(), count = claims.len(), "releases before a failover cannot be repeated");
}

/// Makes sure that the server executes no further attempt of a claim, or executes it before anything that this
/// runtime sends next.
pub(crate) async fn settle(server: &Node, owner: OwnerId) -> Result<()> {
    let unsettled = &server.pool.unsettled;
    if unsettled.get(owner).is_none() {
        return Ok(());
    }
    let clock = Clock::system();
    loop {
        let mut settled = std::pin::pin!(unsettled.settled.notified());
        settled.as_mut().enable();
        let Some(sent) = unsettled.get(owner) else { return Ok(()) };
        let mut gone = sent.gone.clone();
        let connection = server.pool.connection().await?;
        if connection.link.generation == sent.generation {
            return Ok(());
        }
        let patience_ends = sent.since.after(PATIENCE);
        if gone.has_changed().is_err() || clock.now() >= patience_ends {
            return close(server, &connection.link, &sent).await;
        }
        tokio::select! {
            () = settled => {}
            _ = gone.changed() => {}
            () = clock.sleep_until(patience_ends) => {}
        }
    }
}

/// Has the server close a connection. When the server has closed it, or knows no such connection, it
/// executes nothing more that was sent over it.
pub(crate) async fn close(server: &Node, link: &Link, sent: &Sent) -> Result<()> {
    let ClientId { id, address } = &sent.client;
    match link.send(redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).arg("ADDR").arg(address)).await {
        Ok(_) => {
            tracing::debug!(node = server.name(), client = id, "closed a connection that did not answer");
            server.pool.unsettled.closed(sent.generation);
            Ok(())
        }
        Err(error) => Err(LockError::unavailable(format!(
            "an earlier command of the claim is still unanswered, and its connection could not be closed: {}",
            server.failed("close a connection", &error),
        ))),
    }
}

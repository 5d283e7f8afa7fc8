//! Raising leases, by a script that looks at the owner first.

use redis::{Pipeline, RedisError, Value};

use crate::calls::durability::confirm_renewals;
use crate::calls::run::{renewing, step};
use crate::connection::link::Link;
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, Unrenewed, share};
use crate::server::changes::ChangeListener;
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{Claim, Renewal};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::options::command_timeout;
use lock_store::types::system::together::all;

/// How many locks are renewed together. The script takes about a quarter of a millisecond for them, in which
/// the server serves nobody else.
const TOGETHER: usize = 50;

/// Renews claims: those that share their locks at one time, beside all others. Most share nothing.
pub(crate) async fn renew(server: &Node, claims: &[Claim]) -> Vec<Result<Renewal>> {
    if !claims.iter().any(|claim| claim.mode.is_shared()) {
        return renew_alone(server, claims).await;
    }
    Box::pin(renew_beside(server, claims)).await
}

async fn renew_beside(server: &Node, claims: &[Claim]) -> Vec<Result<Renewal>> {
    let alone: Vec<Claim> = claims.iter().filter(|claim| !claim.mode.is_shared()).cloned().collect();
    let sharing =
        claims.iter().filter(|claim| claim.mode.is_shared()).map(|claim| renew_shared(server, claim, Way::default()));
    let (alone, mut sharing) = tokio::join!(renew_alone(server, &alone), all(sharing));
    let shared: Vec<&Claim> = claims.iter().filter(|claim| claim.mode.is_shared()).collect();
    track(server, &shared, &mut sharing).await;
    let (mut alone, mut sharing) = (alone.into_iter(), sharing.into_iter());
    let answer = |claim: &Claim| if claim.mode.is_shared() { sharing.next() } else { alone.next() };
    claims.iter().map(answer).map(|answer| answer.unwrap_or_else(|| Err(server.unreadable("renew")))).collect()
}

/// Renews a claim that shares a lock.
async fn renew_shared(server: &Node, claim: &Claim, way: Way) -> Result<Renewal> {
    step(server, &share::renew(claim), way).await
}

/// Has the server report the next change to locks that are shared. Renewals do not do this: their script reads the queue too,
/// and runs on another connection. The current value will be watched, so a claim is renewed once more
/// if that is not its phase.
async fn track(server: &Node, claims: &[&Claim], answers: &mut [Result<Renewal>]) {
    let Some(listener) = server.listeners.current() else { return };
    let mut message = Pipeline::with_capacity(claims.len());
    for claim in claims {
        message.cmd("GETRANGE").arg(claim.key.as_str()).arg(0).arg(543);
    }
    let unanswered = listener.unanswered();
    let Ok(values) = listener.link.send_all(&message).await else { return };
    unanswered.answered();
    for ((claim, answer), value) in claims.iter().zip(answers).zip(&values) {
        if matches!(answer, Ok(Renewal::Renewed | Renewal::Wanted))
            && matches!(value, Value::BulkString(value) if !share::may_hold(value, claim))
        {
            *answer = renew_shared(server, claim, Way::default()).await;
        }
    }
}

/// Raises the leases of some claims that have their locks alone. Answers come in their order.
pub(crate) async fn renew_alone(server: &Node, claims: &[Claim]) -> Vec<Result<Renewal>> {
    let mut answers = Vec::with_capacity(claims.len());
    for batch in claims.chunks(TOGETHER) {
        let renewed = match server.listeners.current() {
            Some(listener) => renew_tracked(server, &listener, batch).await,
            None => renew_untracked(server, batch).await,
        };
        answers.extend(
            renewed.into_iter().zip(batch).map(|(answer, claim)| answer.map_err(|error| error.with_key(&claim.key))),
        );
    }
    answers
}

/// Renews over a connection that then receives changes to the keys.
async fn renew_tracked(server: &Node, listener: &ChangeListener, claims: &[Claim]) -> Vec<Result<Renewal>> {
    let unanswered = listener.unanswered();
    let link = &listener.link;
    let mut answers = renew_by_script(server, link, claims, true).await;
    if !answers.iter().any(is_unknown) {
        unanswered.answered();
    }
    if !answers.is_empty() && answers.iter().all(is_refused) {
        // Reading them may be forbidden on this connection only because it tracks: MGET where GET is not.
        answers = renew_untracked(server, claims).await;
        if answers.iter().any(Result::is_ok) {
            listener.refuse();
        }
        return answers;
    }
    confirm_renewals(server, link, claims, &mut answers).await;
    answers
}

async fn renew_untracked(server: &Node, claims: &[Claim]) -> Vec<Result<Renewal>> {
    let within = claims.iter().map(|claim| command_timeout(claim.ttl)).min().unwrap_or_default();
    match renewing(server, within).await {
        Ok(connection) => {
            let mut answers = renew_by_script(server, &connection.link, claims, false).await;
            confirm_renewals(server, &connection.link, claims, &mut answers).await;
            answers
        }
        Err(error) => vec![Err(error); claims.len()],
    }
}

/// Renews by the script. If the server refuses all claims because of one, each is sent again by itself.
async fn renew_by_script(server: &Node, link: &Link, claims: &[Claim], track: bool) -> Vec<Result<Renewal>> {
    if server.cluster.is_some() {
        return renew_each(server, link, claims, track).await;
    }
    let reply = link.eval(&steps::renew(claims, track)).await;
    match read_renewals(server, claims, reply) {
        Ok(answers) => answers,
        Err(error) if claims.len() > 1 && error.kind() == LockErrorKind::Misconfigured => {
            renew_each(server, link, claims, track).await
        }
        Err(error) => vec![Err(error); claims.len()],
    }
}

/// Renews each claim by a script of its own, in one message. A node of a cluster takes only keys of one slot,
/// and if that is being moved, only one key.
async fn renew_each(server: &Node, link: &Link, claims: &[Claim], track: bool) -> Vec<Result<Renewal>> {
    let calls: Vec<Eval> = claims.chunks(1).map(|claim| steps::renew(claim, track)).collect();
    let replies = link.eval_each(&calls.iter().collect::<Vec<_>>()).await;
    let one = |(claim, reply)| read_renewals(server, std::slice::from_ref(claim), reply)?.remove(0);
    claims.iter().zip(replies).map(one).collect()
}

/// Renews a claim whose slot this server is taking over.
pub(crate) async fn renew_asking(server: &Node, claim: &Claim) -> Result<Renewal> {
    if claim.mode.is_shared() {
        return renew_shared(server, claim, Way { asking: true, alone: false }).await;
    }
    let connection = renewing(server, command_timeout(claim.ttl)).await?;
    let claim = std::slice::from_ref(claim);
    let reply = connection.link.eval_asking(&steps::renew(claim, false)).await;
    let mut answers = read_renewals(server, claim, reply)?;
    confirm_renewals(server, &connection.link, claim, &mut answers).await;
    answers.remove(0)
}

fn read_renewals(
    server: &Node,
    claims: &[Claim],
    reply: std::result::Result<Value, RedisError>,
) -> Result<Vec<Result<Renewal>>> {
    let answer = reply.map_err(|error| server.failed("renew", &error))?;
    let mut renewals = vec![Ok(Renewal::Renewed); claims.len()];
    for (place, why) in steps::unrenewed(&answer).ok_or_else(|| server.unreadable("renew"))? {
        let Some(renewal) = renewals.get_mut(place) else { return Err(server.unreadable("renew")) };
        *renewal = match why {
            Unrenewed::Lost => Ok(Renewal::Lost),
            Unrenewed::Failed(text) => Err(server.script_failed("renew", &text)),
        };
    }
    Ok(renewals)
}

/// Returns whether the server refused for a reason that does not pass by itself.
fn is_refused(answer: &Result<Renewal>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == LockErrorKind::Misconfigured)
}

/// Returns whether the server may not have answered.
fn is_unknown(answer: &Result<Renewal>) -> bool {
    answer.as_ref().is_err_and(LockError::is_ambiguous)
}

#[cfg(test)]
#[path = "tests/renew.rs"]
mod tests;

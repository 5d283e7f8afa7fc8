//! Raising leases, by a script that looks at the owner first.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};

use crate::server::changes::ChangeListener;
use crate::server::node::{Node, Way};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, Unrenewed};
use crate::batch::coalesce::Coalescer;
use crate::connection::link::Link;
use lock_store::contract::backend::{Claim, Renewal};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::options::command_timeout;
use lock_store::types::system::clock::Clock;

/// How many locks are renewed together. The script takes about a quarter of a millisecond for them, in which
/// the server serves nobody else.
const TOGETHER: usize = 50;

impl Node {
    /// Returns the connection for renewals that the listening connection does not carry. A keeper has one of its own:
    /// a release or a claim that hangs would otherwise cost the leases behind it. A renewal goes over the connection for
    /// other work while its own cannot be opened, for example because the server has too many clients.
    pub(crate) async fn renewing(&self, within: Duration) -> Result<Arc<Coalescer>> {
        if self.renewals.are_kept_here() {
            let clock = Clock::system();
            let patience_ends = clock.now().after(within / 4);
            let own = tokio::select! {
                biased;
                own = self.renewals.pool.connection() => own.ok(),
                () = clock.sleep_until(patience_ends) => None,
            };
            if let Some(own) = own {
                return Ok(own);
            }
        }
        self.pool.connection().await
    }

    /// Returns whether a lease can be renewed now without another connection.
    pub(crate) fn can_renew(&self) -> bool {
        self.listeners.current().is_some() || self.renewals.pool.open_connection(Clock::system().now()).is_some()
    }

    /// Raises the leases of some claims that have their locks alone. Answers come in their order.
    pub(crate) async fn renew_alone(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for batch in claims.chunks(TOGETHER) {
            let renewed = match self.listeners.current() {
                Some(listener) => self.renew_tracked(&listener, batch).await,
                None => self.renew_untracked(batch).await,
            };
            answers.extend(
                renewed
                    .into_iter()
                    .zip(batch)
                    .map(|(answer, claim)| answer.map_err(|error| error.with_key(&claim.key))),
            );
        }
        answers
    }

    /// Renews over a connection that then receives changes to the keys.
    async fn renew_tracked(&self, listener: &ChangeListener, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let unanswered = listener.unanswered();
        let link = &listener.link;
        let mut answers = self.renew_by_script(link, claims, true).await;
        if !answers.iter().any(is_unknown) {
            unanswered.answered();
        }
        if !answers.is_empty() && answers.iter().all(is_refused) {
            // Reading them may be forbidden on this connection only because it tracks: MGET where GET is not.
            answers = self.renew_untracked(claims).await;
            if answers.iter().any(Result::is_ok) {
                listener.refuse();
            }
            return answers;
        }
        self.confirm_renewals(link, claims, &mut answers).await;
        answers
    }

    async fn renew_untracked(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let within = claims.iter().map(|claim| command_timeout(claim.ttl)).min().unwrap_or_default();
        match self.renewing(within).await {
            Ok(connection) => {
                let mut answers = self.renew_by_script(&connection.link, claims, false).await;
                self.confirm_renewals(&connection.link, claims, &mut answers).await;
                answers
            }
            Err(error) => vec![Err(error); claims.len()],
        }
    }

    /// Renews by the script. If the server refuses all claims because of one, each is sent again by itself.
    async fn renew_by_script(&self, link: &Link, claims: &[Claim], track: bool) -> Vec<Result<Renewal>> {
        if self.cluster.is_some() {
            return self.renew_each(link, claims, track).await;
        }
        let reply = link.eval(&steps::renew(claims, track)).await;
        match self.read_renewals(claims, reply) {
            Ok(answers) => answers,
            Err(error) if claims.len() > 1 && error.kind() == LockErrorKind::Misconfigured => {
                self.renew_each(link, claims, track).await
            }
            Err(error) => vec![Err(error); claims.len()],
        }
    }

    /// Renews each claim by a script of its own, in one message. A node of a cluster takes only keys of one slot,
    /// and if that is being moved, only one key.
    async fn renew_each(&self, link: &Link, claims: &[Claim], track: bool) -> Vec<Result<Renewal>> {
        let calls: Vec<Eval> = claims.chunks(1).map(|claim| steps::renew(claim, track)).collect();
        let replies = link.eval_each(&calls.iter().collect::<Vec<_>>()).await;
        let one = |(claim, reply)| self.read_renewals(std::slice::from_ref(claim), reply)?.remove(0);
        claims.iter().zip(replies).map(one).collect()
    }

    /// Renews a claim whose slot this server is taking over.
    pub(crate) async fn renew_asking(&self, claim: &Claim) -> Result<Renewal> {
        if claim.mode.is_shared() {
            return self.renew_shared(claim, Way { asking: true, alone: false }).await;
        }
        let connection = self.renewing(command_timeout(claim.ttl)).await?;
        let claim = std::slice::from_ref(claim);
        let reply = connection.link.eval_asking(&steps::renew(claim, false)).await;
        let mut answers = self.read_renewals(claim, reply)?;
        self.confirm_renewals(&connection.link, claim, &mut answers).await;
        answers.remove(0)
    }

    fn read_renewals(
        &self,
        claims: &[Claim],
        reply: std::result::Result<Value, RedisError>,
    ) -> Result<Vec<Result<Renewal>>> {
        let answer = reply.map_err(|error| self.failed("renew", &error))?;
        let mut renewals = vec![Ok(Renewal::Renewed); claims.len()];
        for (place, why) in steps::unrenewed(&answer).ok_or_else(|| self.unreadable("renew"))? {
            let Some(renewal) = renewals.get_mut(place) else { return Err(self.unreadable("renew")) };
            *renewal = match why {
                Unrenewed::Lost => Ok(Renewal::Lost),
                Unrenewed::Failed(text) => Err(self.script_failed("renew", &text)),
            };
        }
        Ok(renewals)
    }
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

//! Renewals: a statement for all that are due, which waits for no row, and one for each lock whose row is locked.

use std::time::Duration;

use lock_core::{LockError, Result};
use lock_store::{Claim, Renewal};
use tokio_postgres::types::Type;

use crate::calls::call::Asked;
use crate::calls::context::Context;
use crate::calls::values::{exactly, millis, order_by_key, texts};
use crate::error::{has_code, has_moved_away, is_blocked, is_gone, may_be_of_one};
use crate::session::Session;

/// Claims to renew, and where the answers go.
pub(crate) type Due = Asked<Vec<Claim>, Vec<Result<Renewal>>>;

/// A message to the worker that renews.
pub(crate) enum Renewals {
    /// A lock may be held from now on: renewals will come.
    Ahead,
    Due(Due),
}

/// Renewals some of which found their rows locked.
pub(crate) struct Late {
    due: Due,
    answers: Vec<Result<Renewal>>,
    /// The places of the claims that nothing is known of.
    locked: Vec<usize>,
}

/// Renews claims. Returns those whose rows were locked, if there are any; for all others it answers.
pub(crate) async fn renew(context: &Context, session: &Session, due: Due) -> Option<Late> {
    let claims = &due.question;
    let order = order_by_key(claims.len(), |index| &claims[index].key);
    let unknown = LockError::not_executed(
        "a transaction keeps the row of this lock locked, so the lease was not renewed; look in pg_stat_activity for a session \
         that is idle in transaction, and in pg_prepared_xacts",
    );
    let mut late = Late { answers: vec![Err(unknown); claims.len()], locked: Vec::new(), due };
    let mut sets = vec![&*order];
    while let Some(set) = sets.pop() {
        let answers = match ask(context, session, &late.due.question, set, Duration::ZERO).await {
            Ok(answers) => answers,
            // One lease may be at fault, and every lease of the set would end without a renewal. So the halves are asked apart while the
            // caller waits: after twelve statements, a set of 50 is renewed but for that lease.
            Err(error) if set.len() > 1 && may_be_of_one(&error) => {
                let (one, other) = set.split_at(set.len() / 2);
                sets.extend([other, one].into_iter().filter(|_| late.patience(context) > Duration::ZERO));
                continue;
            }
            Err(error) if is_blocked(&error) => vec![None],
            Err(error) => {
                // The server may say that it ends this session (57P) before the connection ends. The next renewal must not meet it.
                if has_moved_away(&error) || has_code(&error, "57P") {
                    drop(session.close());
                }
                vec![Some(Err(error)); set.len()]
            }
        };
        for (index, answer) in set.iter().zip(answers) {
            match answer {
                Some(answer) => late.answers[*index] = answer,
                None => late.locked.push(*index),
            }
        }
    }
    if late.locked.is_empty() {
        late.answer();
        return None;
    }
    Some(late)
}

/// Returns what became of the claims, in the order of `order`. `None` where the row was locked, which is waited for if there is patience.
async fn ask(
    context: &Context,
    session: &Session,
    claims: &[Claim],
    order: &[usize],
    patience: Duration,
) -> Result<Vec<Option<Result<Renewal>>>> {
    let keys = texts(order, |index| claims[*index].key.as_str().to_owned());
    let owners = texts(order, |index| claims[*index].owner.to_hex());
    let ttls: Vec<i64> = order.iter().map(|index| millis(claims[*index].ttl)).collect();
    let text = format!(
        "SELECT renewed FROM {}.renew_v2($1, $2::pg_catalog.text[]::pg_catalog.uuid[], $3, $4, $5)",
        context.settings.schema
    );
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] = [
        (&keys, Type::TEXT_ARRAY),
        (&owners, Type::TEXT_ARRAY),
        (&ttls, Type::INT8_ARRAY),
        (&context.settings.commit, Type::TEXT),
        (&millis(patience), Type::INT8),
    ];
    let rows = match exactly(order.len(), "leases", session.call(&text, &values).await) {
        // The locks went with their table. The next process makes it anew, and may grant each of them.
        Err(error) if is_gone(&error) => {
            tracing::warn!(%error, "the locks in PostgreSQL are gone");
            return Ok(vec![Some(Ok(Renewal::Lost)); order.len()]);
        }
        known => known?,
    };
    let renewal = |renewed: bool| Ok(if renewed { Renewal::Renewed } else { Renewal::Lost });
    Ok(rows.iter().map(|row| row.get::<_, Option<bool>>(0).map(renewal)).collect())
}

/// Returns how long the answer of a renewal may take before its connection is given up: its caller has gone then, and the next renewal must
/// not wait behind it.
pub(crate) fn bound(due: &Due) -> Duration {
    (shortest(due) / 6).clamp(Duration::from_secs(1), Duration::from_secs(5))
}

fn shortest(due: &Due) -> Duration {
    due.question.iter().map(|claim| claim.ttl).min().unwrap_or_default()
}

impl Late {
    /// Returns how long it may still take: less than the caller waits.
    pub(crate) fn patience(&self, context: &Context) -> Duration {
        let most = (shortest(&self.due) / 12).clamp(Duration::from_millis(20), Duration::from_millis(500));
        most.saturating_sub(context.clock.now().since(self.due.since))
    }

    /// Renews each claim alone, and waits for its row for a while.
    pub(crate) async fn renew(&mut self, context: &Context, session: &Session) {
        for (done, index) in std::mem::take(&mut self.locked).into_iter().enumerate() {
            let left = self.patience(context) / u32::try_from(self.answers.len() - done).unwrap_or(u32::MAX).max(1);
            if left < Duration::from_millis(1) {
                return;
            }
            match ask(context, session, &self.due.question, &[index], left).await {
                Ok(mut answers) => self.answers[index] = answers.pop().flatten().unwrap_or(Ok(Renewal::Lost)),
                Err(error) => self.answers[index] = Err(error),
            }
        }
    }

    pub(crate) fn answer(self) {
        drop(self.due.answer.send(self.answers));
    }
}

//! The locks of a quorum for operators: what each member has, and what a majority holds.

mod joint;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use crate::Quorum;
use crate::queries::{self, MAJORITY, READ, asked, named};
use crate::shared::Shared;
use lock_store::contract::backend::{
    BoxFuture, Doctor, DynBackend, Finding, Freed, Inspector, JobRecord, LockEntry, NodeReport, Revocation, ScanPage,
    ScanPosition, SyncReport, Waiter,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;

/// How long the examination of one member may take.
const EXAMINED: Duration = Duration::from_secs(60);

/// The answer of each member about one key.
type Entries = SyncReport<Option<LockEntry>>;

/// Members keep no queue for a quorum, and a quorum grants no shared locks. So nobody waits or shares.
impl Inspector for Quorum {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        // Every string of another client counts.
        self.scan_with_foreign(prefix, &[String::new()], limit, after).await
    }

    async fn scan_with_foreign(
        &self,
        prefix: &str,
        foreign: &[String],
        limit: u32,
        after: Option<&ScanPosition>,
    ) -> Result<ScanPage> {
        walk::page(&self.shared, (prefix, foreign), limit, after).await
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        let entries = Arc::new(entries(&self.shared, key, &[]).await);
        match joint::entry(&entries) {
            None if !entries.has_majority() => {
                Err(entries.undecided("it is unknown whether the lock is free").with_key(key))
            }
            entry => Ok(entry),
        }
    }

    async fn waiters(&self, _: &LockKey) -> Result<Vec<Waiter>> {
        Ok(Vec::new())
    }

    /// Takes it away at every member at once, because a member that kept it would count for the holder.
    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        let ask = |member: usize| Some(self.shared.members[member].backend().revoke(key.clone(), revocation.clone()));
        let (answers, _) = asked(&self.shared, MAJORITY, ask, |_| false).await;
        let answers = named(&self.shared, answers);
        for (node, error) in answers.nodes.iter().filter_map(|it| Some((&it.node, it.answer.as_ref().err()?))) {
            tracing::warn!(
                target: "lock_core::audit",
                action = "release", node = &**node, key = key.as_str(), outcome = "unknown", %error,
                "this member of the quorum may still have the lock"
            );
        }
        // The members that gave no answer may still be a majority.
        let unknown = answers.nodes.len() - answers.known().count();
        if unknown >= answers.majority {
            let says = "so many members may still have it that the lock may still be held; try again";
            return Err(answers.undecided(says).with_key(key));
        }
        // A vote that arrived after its claim had ended may be left at a minority. Its owner does not hold the lock.
        let freed = answers.known().filter(|freed| **freed == Freed::Released).count();
        Ok(if freed > 0 && freed + unknown >= answers.majority { Freed::Released } else { Freed::NotHeld })
    }

    async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        queries::last_run(&self.shared, |member: Arc<dyn DynBackend>| member.job(key.clone())).await
    }

    async fn members(&self, key: &LockKey) -> Result<Option<Entries>> {
        Ok(Some(entries(&self.shared, key, &[]).await))
    }
}

impl Doctor for Quorum {
    async fn examine(&self) -> Vec<Finding> {
        let ask = |member: usize| -> Option<BoxFuture<'static, Result<_>>> {
            let backend = self.shared.members[member].backend();
            Some(Box::pin(async move { Ok(backend.examine().await) }))
        };
        let (answers, _) = asked(&self.shared, EXAMINED, ask, |_| false).await;
        let found = named(&self.shared, answers).nodes.into_iter().flat_map(|NodeReport { node, answer, .. }| {
            let mut found = answer.unwrap_or_else(|error| vec![Finding::unknown("store", error.to_string())]);
            // A member that says nothing is not known to work.
            if found.is_empty() {
                found.push(Finding::unknown("store", "it says nothing"));
            }
            found.iter_mut().for_each(|finding| finding.node = Some(Arc::clone(&node)));
            found
        });
        found.collect()
    }
}

/// Asks members at once for one lock. `failed` has the members that are not asked again, with their errors.
async fn entries(shared: &Shared, key: &LockKey, failed: &[Option<LockError>]) -> Entries {
    let error_of = |member: usize| failed.get(member).and_then(Option::as_ref);
    let ask = |member: usize| error_of(member).is_none().then(|| shared.members[member].backend().entry(key.clone()));
    let (mut answers, _) = asked(shared, READ, ask, |_| false).await;
    for (member, answer) in answers.iter_mut().enumerate() {
        if let Some(error) = error_of(member) {
            *answer = Some(Err(error.clone()));
        }
    }
    named(shared, answers)
}

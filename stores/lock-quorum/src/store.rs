//! The quorum as a store.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::members::failovers;
use crate::members::refreshed_every;
use crate::run::{Home, Rest};
use crate::shared::Shared;
use crate::{Quorum, acquire, marks, queries, release, repair};
use lock_store::contract::backend::{
    AcquireRequest, Attempt, Capabilities, Claim, Doctor, DoneMark, DoneMarks, DynBackend, Freed, Inbox, Inspector,
    JobRecord, JobRecords, JobVersion, LockBackend, NodeReport, Release, Renewal, SyncReport, drive_again,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Clock;

/// How long the refresh of a member list may take.
const REFRESH: Duration = Duration::from_secs(5);

impl LockBackend for Quorum {
    fn kind(&self) -> &'static str {
        "quorum"
    }

    fn node(&self, _: u16) -> &str {
        &self.shared.name
    }

    fn failovers(&self, _: u16) -> u64 {
        failovers::together(&self.shared.failovers())
    }

    fn has_failed_over(&self, _: u16, before: u64) -> bool {
        failovers::cost_the_majority(before, &self.shared.failovers(), self.shared.list.majority)
    }

    fn capabilities(&self) -> Capabilities {
        let known: Vec<Capabilities> = self.shared.members.iter().map(|member| member.backend.capabilities()).collect();
        let mut ours = Capabilities::polled();
        // A member that tells of a loss is given the claim again at once.
        ours.push_loss = known.iter().any(|member| member.push_loss);
        ours.shared = known.iter().all(|member| member.shared);
        ours
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.shared.clock.set(clock.clone());
        self.shared.members.iter().for_each(|member| member.backend.attach(clock));
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        let _home = Home::here(&self.shared);
        let mut tasks = JoinSet::new();
        for member in &self.shared.members {
            tasks.spawn(drive_again(member.backend(), inbox.clone(), self.shared.clock().clone()));
        }
        for member in 0..self.shared.members.len() {
            let shared = Arc::clone(&self.shared);
            tasks.spawn(async move { remain_member(&shared, member).await });
        }
        let (shared, told) = (Arc::clone(&self.shared), inbox.clone());
        tasks.spawn(async move { shared.report(told).await });
        while tasks.join_next().await.is_some() {}
        LockError::unavailable("the members' background work ended")
    }

    async fn ping(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { (queries::ping(&shared).await, Rest::nothing()) }).await?
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.run(acquire::acquire(Arc::clone(&self.shared), request.clone())).await?
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        match self.run(repair::renew(Arc::clone(&self.shared), one_lane.to_vec())).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); one_lane.len()],
        }
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.run(release::release(Arc::clone(&self.shared), release.clone())).await?
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.release(&Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        self.run(async move { (queries::holder(&shared, &key).await, Rest::nothing()) }).await?
    }

    async fn sync(&self, key: &LockKey) -> SyncReport {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        let asking = async move { (queries::sync(&shared, &key).await, Rest::nothing()) };
        self.run(asking).await.unwrap_or_else(|error| {
            let nodes =
                self.shared.members.iter().map(|member| NodeReport::new(Arc::clone(&member.name), Err(error.clone())));
            SyncReport::new(nodes.collect(), self.shared.list.majority)
        })
    }

    async fn settled(&self) {
        let shared = Arc::clone(&self.shared);
        // Without a keeper nothing goes on behind an answer.
        let _ = self.run(async move { (shared.settled().await, Rest::nothing()) }).await;
    }

    lock_store::has_parts! { jobs: JobRecords, marks: DoneMarks, inspector: Inspector, doctor: Doctor }
}

impl DoneMarks for Quorum {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        self.run(marks::done(Arc::clone(&self.shared), key.clone(), version.clone())).await?
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        self.run(marks::mark(Arc::clone(&self.shared), claim.clone(), version.clone(), keep)).await?
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        self.run(marks::forget(Arc::clone(&self.shared), key.clone(), version.clone())).await?
    }
}

impl JobRecords for Quorum {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        let asking = async move {
            let ask = |member: Arc<dyn DynBackend>| member.last_run(key.clone());
            (queries::last_run(&shared, ask).await, Rest::nothing())
        };
        self.run(asking).await?
    }
}

/// Has a member remember the list for as long as this process uses it.
async fn remain_member(shared: &Arc<Shared>, member: usize) {
    let (at, clock) = (&shared.members[member], shared.clock());
    queries::lists(shared, queries::PATIENCE).await;
    loop {
        let refreshed = tokio::select! {
            refreshed = at.remain(&shared.list, shared.admit_list().is_ok()) => Some(refreshed),
            () = clock.sleep_until(clock.now().after(REFRESH)) => None,
        };
        at.health.answered(matches!(refreshed, Some(Ok(()))));
        if let Some(Err(error)) = refreshed {
            tracing::warn!(member = &*at.name, %error, "this member of the quorum cannot be used");
        }
        clock.sleep_until(clock.now().after(refreshed_every(&shared.list))).await;
    }
}

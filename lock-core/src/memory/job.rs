//! The records of the runs of jobs.

use crate::memory::State;
use lock_store::contract::backend::{JobRecord, JobRun, Release};
use lock_store::types::key::LockKey;
use lock_store::types::owner::HolderInfo;
use lock_store::types::system::clock::Timestamp;

/// The last run of a job.
#[derive(Debug)]
pub(super) struct Remembered {
    run: JobRun,
    info: HolderInfo,
    started: Timestamp,
    /// When the last successful run started. If no run has succeeded, when the first recorded one started.
    succeeded: Timestamp,
    forgotten: Timestamp,
}

impl State {
    /// Records the run that ends with a claim, which has the lock.
    pub(super) fn note_run(&mut self, release: &Release, now: Timestamp) {
        let key = &release.claim.key;
        let (Some(run), Some(slot)) = (release.run, self.locks.get(key)) else { return };
        // A store has few jobs.
        self.jobs.retain(|_, known| known.forgotten > now);
        let before = self.jobs.get(key).filter(|_| !run.succeeded).map(|known| known.succeeded);
        let remembered = Remembered {
            run,
            info: slot.info.clone(),
            started: slot.granted,
            succeeded: before.unwrap_or(slot.granted),
            forgotten: now.after(run.kept_for()),
        };
        self.jobs.insert(key.clone(), remembered);
    }

    pub(super) fn last_run(&self, key: &LockKey, now: Timestamp) -> Option<JobRecord> {
        let known = self.jobs.get(key).filter(|known| known.forgotten > now)?;
        Some(JobRecord::new(known.run, known.info.clone(), now.since(known.started), now.since(known.succeeded)))
    }
}

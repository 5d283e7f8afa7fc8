//! The roles of this process's locks, shown below the rows of the live view: leaders, runs of jobs, and problems among
//! locks inside locks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::state::Core;
use crate::state::table::{Phase, Role};
use crate::words::labels::DEADLOCK_ROLES;
use crate::words::time::Moment;

/// All roles of this process.
pub(super) struct Roles {
    /// By name: how often this process leads now.
    pub(super) elections: BTreeMap<String, usize>,
    pub(super) jobs: Vec<Job>,
    /// By name: how often its order was inverted.
    pub(super) inversions: BTreeMap<String, u64>,
    /// In the order of [`DEADLOCK_ROLES`].
    pub(super) deadlocks: [u64; DEADLOCK_ROLES.len()],
}

/// A job that this process starts.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) every: Option<Duration>,
    /// How long ago a run ended in this process without an error.
    pub(super) succeeded: Option<Duration>,
}

impl Roles {
    pub(super) fn new(core: &Core, at: Moment) -> Self {
        let mut roles = Self {
            elections: BTreeMap::new(),
            jobs: Vec::new(),
            inversions: BTreeMap::new(),
            deadlocks: std::array::from_fn(|role| core.deadlocks[role].load(Ordering::Relaxed)),
        };
        for (name, family) in core.shown_stores().flat_map(|(_, store)| store.families()) {
            if family.uses.is_election() {
                roles.elections.entry(name.to_owned()).or_default();
            }
            if let Some(last) = family.uses.last_success() {
                let succeeded = (last != Moment::default()).then(|| at.since(last));
                roles.jobs.push(Job { name: name.to_owned(), every: family.uses.period(), succeeded });
            }
        }
        roles.jobs.sort_by(|one, other| one.name.cmp(&other.name));
        for shard in core.table.shards() {
            for row in shard.rows.values().filter(|row| row.role == Role::Leader && matches!(row.phase, Phase::Held(_)))
            {
                *roles.elections.entry(core.nth_family(row.family()).0.to_owned()).or_default() += 1;
            }
            for (family, _, counts) in shard.counts.iter().filter(|(_, _, counts)| counts.order_inversions > 0) {
                let name = core.nth_family(family).0;
                *roles.inversions.entry(name.to_owned()).or_default() += counts.order_inversions;
            }
        }
        roles
    }

    pub(super) fn json(&self) -> Value {
        let job = |job: &Job| {
            json!({
                "lock": job.name,
                "every_seconds": job.every.map(|every| every.as_secs_f64()),
                "succeeded_seconds_ago": job.succeeded.map(|ago| ago.as_secs_f64()),
            })
        };
        let roles = DEADLOCK_ROLES.into_iter().zip(self.deadlocks);
        json!({
            "elections": self.elections.iter().map(|(lock, leads)| json!({ "lock": lock, "leads": leads })).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
            "order_inversions": self.inversions,
            "deadlocks": roles.collect::<BTreeMap<_, _>>(),
        })
    }
}

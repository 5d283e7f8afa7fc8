//! The work of the tasks of one run, and its duration.

use std::time::Duration;

use crate::contestant::{Kind, Wants};

/// The work of all processes of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) processes: u32,
    /// The number of tasks in each process.
    pub(crate) tasks: u32,
    pub(crate) keys_per_task: u32,
    pub(crate) hold_us: u64,
    pub(crate) wants: Wants,
    pub(crate) multi_thread: bool,
    /// Whether each task has a manager and connections of its own, as a process would.
    pub(crate) apart: bool,
    pub(crate) times: Option<u64>,
}

impl Work {
    /// One process whose tasks each cycle through their own keys.
    pub(crate) fn distinct(tasks: u32) -> Self {
        let keys_per_task = (1024 / tasks).max(16);
        let wants = Wants::Alone;
        Self { processes: 1, tasks, keys_per_task, hold_us: 0, wants, multi_thread: false, apart: false, times: None }
    }

    /// Processes whose tasks all compete for one key.
    pub(crate) fn hot(processes: u32, tasks: u32) -> Self {
        Self { processes, keys_per_task: 0, ..Self::distinct(tasks) }
    }

    pub(crate) fn holding(self, hold_us: u64) -> Self {
        Self { hold_us, ..self }
    }

    pub(crate) fn wanting(self, wants: Wants) -> Self {
        Self { wants, ..self }
    }

    pub(crate) fn multi_thread(self) -> Self {
        Self { multi_thread: true, ..self }
    }

    pub(crate) fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    pub(crate) fn waiters(&self) -> u32 {
        self.processes * self.tasks
    }
}

/// The duration of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

impl Pace {
    /// Twenty times the warm-up for languages that are compiled at run time: 8 s in a full run.
    pub(crate) fn for_kind(self, kind: Kind) -> Self {
        let longer = if matches!(kind, Kind::Peer { warms_up: true, .. }) { 20 } else { 1 };
        Self { warm_up: self.warm_up * longer, ..self }
    }
}

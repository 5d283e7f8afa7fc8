//! What the faults strike: servers and processes, and the history of what happens to them.

use std::time::Duration;

use lock_core::testing::RedisServer;

use crate::harness::fleet::Fleet;
use crate::harness::servers::{Change, Topology};
use crate::harness::{LONGEST_LEASE, SERVED_WITHIN};
use crate::record::Record;
use crate::record::recorder::{Recorder, now};

/// After how long every process knows that a server began another history: an idle connection looks once a minute.
const NOTICED: Duration = Duration::from_secs(65);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// What the faults strike.
pub(crate) struct World {
    pub(crate) servers: Box<dyn Topology>,
    pub(crate) fleet: Fleet,
    pub(crate) recorder: Recorder,
    /// Whether it is written down when servers forget on purpose.
    pub(crate) excuses: bool,
}

impl World {
    /// A server that decides on locks now.
    pub(super) fn serving(&self, number: usize) -> &RedisServer {
        self.servers.one_of_serving(number)
    }

    /// Writes down that leases of before may meet others, until the last of them is over.
    pub(super) fn forgotten_from(&mut self, change: Change, from: u64) {
        if self.excuses && self.servers.forgets(change) {
            self.recorder.record(&Record::Forgot { from, until: now() + nanos(LONGEST_LEASE) });
        }
    }

    /// Writes down that a server began another history, which forgot nothing: who shares a lock may have a token of before.
    pub(super) fn renamed_from(&mut self, from: u64) {
        self.recorder.record(&Record::Renamed { from, until: now() + nanos(NOTICED) });
    }

    /// Reads the sets, and writes down what is in them.
    pub(super) fn read_sets(&self) {
        let at = now();
        for (key, elements) in self.servers.sets() {
            self.recorder.record(&Record::Set { key, elements, at });
        }
    }

    /// Waits until everybody is served, and writes down how long it took.
    pub(super) async fn served_again(&mut self) -> Option<Duration> {
        let took = self.fleet.served_again().await;
        self.recorder.record(&Record::Served { took: took.map(nanos), bound: nanos(SERVED_WITHIN) });
        took
    }
}

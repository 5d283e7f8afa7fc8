//! The servers and processes that faults strike, and the history of the faults.

use std::time::Duration;

use lock_testing::RedisServer;

use crate::harness::fleet::Fleet;
use crate::harness::servers::{Change, Topology};
use crate::harness::{LONGEST_LEASE, SERVED_WITHIN};
use crate::record::{Record, Recorder, now};

/// After this time every process has noticed a new replication ID: an idle connection checks it once a minute.
const NOTICED: Duration = Duration::from_secs(65);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// The target of the faults.
pub(crate) struct World {
    pub(crate) servers: Box<dyn Topology>,
    pub(crate) fleet: Fleet,
    pub(crate) recorder: Recorder,
    /// Whether the history records when servers forget on purpose.
    pub(crate) excuses: bool,
}

impl World {
    /// A server that decides on locks now.
    pub(super) fn serving(&self, number: usize) -> &RedisServer {
        self.servers.one_of_serving(number)
    }

    /// Records that older leases may meet new ones until the last of them has expired.
    pub(super) fn forgotten_from(&mut self, change: Change, from: u64) {
        if self.excuses && self.servers.forgets(change) {
            self.recorder.record(&Record::Forgot { from, until: now() + nanos(LONGEST_LEASE) });
        }
    }

    /// Records a new replication ID on a server that forgot nothing. Shared holders may have an older token for a while.
    pub(super) fn renamed_from(&mut self, from: u64) {
        self.recorder.record(&Record::Renamed { from, until: now() + nanos(NOTICED) });
    }

    /// Reads the sets, and records their elements.
    pub(super) fn read_sets(&self) {
        let at = now();
        for (key, elements) in self.servers.sets() {
            self.recorder.record(&Record::Set { key, elements, at });
        }
    }

    /// Waits until every process is served, and records how long that took.
    pub(super) async fn served_again(&mut self) -> Option<Duration> {
        let took = self.fleet.served_again().await;
        self.recorder.record(&Record::Served { took: took.map(nanos), bound: nanos(SERVED_WITHIN) });
        took
    }
}

//! Two servers behind one address: a master, and a replica that may be promoted without the last writes.

use fastrand::Rng;
use lock_testing::{Direction, FaultProxy, RedisServer};

use crate::harness::servers::clock::MovableClock;
use crate::harness::servers::{Change, Topology, follows, ok, without_snapshot};

pub(crate) struct One {
    both: [RedisServer; 2],
    /// A proxy in front of each server, through which the other replicates.
    links: [FaultProxy; 2],
    master: usize,
    /// Moves the clock of both servers, if it can be moved.
    clock: Option<MovableClock>,
}

impl One {
    pub(crate) fn start() -> Self {
        Self::start_by(None)
    }

    /// Starts servers whose clock can be moved.
    pub(crate) fn with_movable_clock() -> Result<Self, String> {
        Ok(Self::start_by(Some(MovableClock::new()?)))
    }

    fn start_by(clock: Option<MovableClock>) -> Self {
        let start = || {
            let server = RedisServer::builder().with("repl-diskless-sync-delay", "0").with("repl-timeout", "5");
            clock.iter().fold(server, |server, clock| clock.of(server)).start()
        };
        let both = [start(), start()];
        let links = [FaultProxy::start(both[0].port()), FaultProxy::start(both[1].port())];
        let servers = Self { both, links, master: 0, clock };
        servers.follow(1);
        servers
    }

    fn follow(&self, replica: usize) {
        let port = self.links[1 - replica].port().to_string();
        ok(&self.both[replica], &["REPLICAOF", "127.0.0.1", &port]);
        follows(&self.both[replica]);
    }
}

impl Topology for One {
    fn addresses(&self) -> usize {
        1
    }

    fn port(&self, _: usize) -> u16 {
        self.both[self.master].port()
    }

    fn url(&self, proxies: &[u16]) -> String {
        format!("redis://127.0.0.1:{}", proxies[0])
    }

    fn server(&self, place: usize) -> &RedisServer {
        &self.both[place]
    }

    fn serving(&self) -> Vec<usize> {
        vec![self.master]
    }

    fn may_be_demoted(&self) -> bool {
        true
    }

    fn any_change(&self, random: &mut Rng) -> Change {
        match random.u8(0..3) {
            0 => Change::Flush(0),
            1 => Change::Restart(0),
            _ => Change::Usurp,
        }
    }

    fn forgets(&self, _: Change) -> bool {
        true
    }

    fn begin(&mut self, change: Change) {
        if change == Change::Usurp {
            // From now on, new writes do not reach the replica.
            follows(&self.both[1 - self.master]);
            self.links[self.master].black_hole(Direction::ToClient);
        }
    }

    fn end(&mut self, change: Change) {
        match change {
            Change::Flush(_) => ok(&self.both[self.master], &["FLUSHALL"]),
            Change::Leap => self.clock.as_mut().expect("a clock that can be moved").leap(),
            Change::Restart(_) => {
                let place = self.master;
                without_snapshot(&self.both[place]);
                self.both[place].restart();
                follows(&self.both[1 - place]);
            }
            _ => {
                let demoted = self.master;
                self.master = 1 - demoted;
                ok(&self.both[self.master], &["REPLICAOF", "NO", "ONE"]);
                self.links[demoted].kill_connections();
                self.links[demoted].resume();
                self.follow(demoted);
            }
        }
    }
}

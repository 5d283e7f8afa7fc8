//! Three independent servers. Two of them must agree.

use fastrand::Rng;
use lock_testing::{RedisServer, Reply};

use crate::harness::servers::{Change, Topology, ok};

pub(crate) struct Members(Vec<RedisServer>);

impl Members {
    pub(crate) fn start() -> Self {
        Self((0..3).map(|_| RedisServer::start()).collect())
    }

    /// The two other members, which are a majority.
    fn most(&self, but: usize) -> impl Iterator<Item = &RedisServer> {
        self.0.iter().enumerate().filter(move |(place, _)| *place != but).map(|(_, server)| server)
    }
}

impl Topology for Members {
    fn addresses(&self) -> usize {
        self.0.len()
    }

    fn port(&self, address: usize) -> u16 {
        self.0[address].port()
    }

    fn url(&self, proxies: &[u16]) -> String {
        let hosts: Vec<String> = proxies.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("quorum://{}", hosts.join(","))
    }

    fn server(&self, place: usize) -> &RedisServer {
        &self.0[place]
    }

    fn serving(&self) -> Vec<usize> {
        (0..self.0.len()).collect()
    }

    fn may_be_demoted(&self) -> bool {
        true
    }

    fn any_change(&self, random: &mut Rng) -> Change {
        let member = random.usize(..self.0.len());
        match random.u8(0..5) {
            0 | 1 => Change::Restart(member),
            2 | 3 => Change::Flush(member),
            _ => Change::HangMost(member),
        }
    }

    /// A member that forgot its locks does not vote until the last of these leases has expired.
    fn forgets(&self, _: Change) -> bool {
        false
    }

    fn begin(&mut self, change: Change) {
        match change {
            Change::Restart(member) => self.0[member].kill(),
            Change::HangMost(but) => self.most(but).for_each(RedisServer::pause),
            _ => {}
        }
    }

    fn end(&mut self, change: Change) {
        match change {
            Change::Restart(member) => self.0[member].restart(),
            Change::Flush(member) => ok(&self.0[member], &["FLUSHALL"]),
            Change::ForgetMost(but) => self.most(but).for_each(forget_unnoticed),
            Change::HangMost(but) => self.most(but).for_each(RedisServer::resume),
            _ => {}
        }
    }
}

/// Makes a member forget its locks but keep its birth. Without a new birth, no caller can see that it must not vote.
fn forget_unnoticed(member: &RedisServer) {
    let birth = member.command(&["GET", "distributed-lock:birth"]);
    ok(member, &["FLUSHALL"]);
    if let Reply::Text(birth) = birth {
        ok(member, &["SET", "distributed-lock:birth", &birth]);
    }
}

//! Faults of processes, connections and servers.

use std::time::Duration;

use fastrand::Rng;
use lock_testing::{Direction, FaultProxy};

use crate::harness::TTL;
use crate::harness::refusal::{Refusal, assert_answers};
use crate::harness::servers::{Change, Topology, ok};
use crate::harness::world::World;
use crate::record::{Record, now};

/// The connections of a process to one address, or to all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    process: usize,
    address: Option<usize>,
}

/// The numbers are those of processes and servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Kill(usize),
    Stop(usize),
    Hold(Line, Direction),
    Delay(Line, u64),
    Disconnect(Line),
    Strand(Line),
    Unreachable(Line),
    DropReplies(Line, u64),
    Cut(Line, Direction, usize),
    PauseServer(usize),
    ForgetScripts(usize),
    KillClients(usize),
    Refuse(usize, Refusal),
    Change(Change),
}

/// Which faults may strike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Menu {
    /// Every kind of fault.
    Everything,
    /// Stopped processes, broken connections, and a server that is stopped or loses its connections. No server forgets anything.
    Outside,
    /// Processes that stand still for longer than a lease.
    Stops,
    /// One change of the servers, again and again.
    Only(Change),
}

impl Fault {
    pub(crate) fn any(random: &mut Rng, servers: &dyn Topology, processes: usize, may_change: bool) -> Self {
        let server = random.usize(..servers.serving().len());
        match random.u8(0..if may_change { 16 } else { 8 }) {
            0 | 1 => Self::of_process(random.usize(..processes), random, servers),
            2 => Self::PauseServer(server),
            3 => Self::ForgetScripts(server),
            4 => Self::KillClients(server),
            5..8 => Self::Refuse(server, Refusal::any(random, servers.may_be_demoted())),
            _ => Self::Change(servers.any_change(random)),
        }
    }

    /// A fault that any lock library must survive.
    pub(crate) fn from_outside(random: &mut Rng, servers: &dyn Topology, processes: usize) -> Self {
        let process = random.usize(..processes);
        match random.u8(0..8) {
            0 | 1 => Self::Stop(process),
            2 => Self::Kill(process),
            3 => Self::PauseServer(0),
            4 => Self::KillClients(0),
            _ => Self::of_process(process, random, servers),
        }
    }

    /// A fault that may strike beside another one. It leaves alone the servers and the process of the other fault.
    pub(crate) fn beside(other: Self, random: &mut Rng, servers: &dyn Topology, processes: usize) -> Self {
        let process = random.usize(..processes - 1);
        let after = other.process().is_some_and(|taken| process >= taken);
        Self::of_process(process + usize::from(after), random, servers)
    }

    fn of_process(process: usize, random: &mut Rng, servers: &dyn Topology) -> Self {
        let direction = if random.bool() { Direction::ToServer } else { Direction::ToClient };
        let address = random.bool().then(|| random.usize(..servers.addresses()));
        let line = Line { process, address };
        match random.u8(0..9) {
            0 => Self::Kill(process),
            1 => Self::Stop(process),
            2 => Self::Hold(line, direction),
            3 => Self::Delay(line, random.u64(1..60)),
            4 => Self::Disconnect(line),
            5 => Self::Strand(line),
            6 => Self::Unreachable(line),
            7 => Self::DropReplies(line, random.u64(1..5)),
            _ => Self::Cut(line, direction, random.usize(1..2_000)),
        }
    }

    fn process(self) -> Option<usize> {
        match self {
            Self::Kill(process) | Self::Stop(process) => Some(process),
            Self::Hold(line, _)
            | Self::Delay(line, _)
            | Self::Disconnect(line)
            | Self::Strand(line)
            | Self::Unreachable(line)
            | Self::DropReplies(line, _)
            | Self::Cut(line, ..) => Some(line.process),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> String {
        let first = |text: String| text.split(['(', ' ']).next().unwrap_or_default().to_owned();
        match self {
            Self::Change(change) => first(format!("{change:?}")),
            Self::Refuse(_, refusal) => first(format!("{refusal:?}")),
            fault => first(format!("{fault:?}")),
        }
    }

    /// How long the fault lasts. A refusal outlasts most leases.
    pub(crate) fn length(self, random: &mut Rng) -> Duration {
        // A process that is stopped for longer than its lease finds another holder when it goes on.
        if matches!(self, Self::Refuse(..)) || matches!(self, Self::Stop(_)) && random.bool() {
            return TTL + Duration::from_millis(random.u64(200..2_500));
        }
        let longest = if random.bool() { 300 } else { 3_000 };
        Duration::from_millis(random.u64(5..longest))
    }

    pub(crate) async fn begin(self, world: &mut World) {
        match self {
            Self::Kill(process) => {
                // The time is read before the kill, so the process held its locks at least until then.
                let (process_id, at) = (world.fleet.pid(process), now());
                world.recorder.record(&Record::Killed { process: process_id, at });
                world.fleet.kill(process).await;
            }
            Self::Stop(process) => world.fleet.stop_one(process),
            Self::Hold(line, direction) => line.each(world, |proxy| proxy.black_hole(direction)),
            Self::Delay(line, ms) => line.each(world, |proxy| {
                for direction in [Direction::ToServer, Direction::ToClient] {
                    proxy.delay(direction, Duration::from_millis(ms));
                }
            }),
            Self::Disconnect(line) => line.each(world, FaultProxy::kill_connections),
            Self::Strand(line) => line.each(world, FaultProxy::strand_connections),
            Self::Unreachable(line) => line.each(world, |proxy| {
                proxy.refuse(true);
                proxy.kill_connections();
            }),
            Self::DropReplies(line, count) => line.each(world, |proxy| proxy.drop_replies(count)),
            Self::Cut(line, direction, bytes) => line.each(world, |proxy| proxy.cut_after(direction, bytes)),
            Self::PauseServer(place) => world.servers.pause(place),
            Self::ForgetScripts(place) => ok(world.serving(place), &["SCRIPT", "FLUSH"]),
            Self::KillClients(place) => world.servers.kill_clients(place),
            Self::Refuse(place, refusal) => refusal.begin(world.serving(place)),
            Self::Change(change) => {
                let from = now();
                world.servers.begin(change);
                world.forgotten_from(change, from);
                if change.promotes() {
                    world.renamed_from(from);
                }
            }
        }
    }

    pub(crate) async fn end(self, world: &mut World, stays_open: Option<Duration>) {
        match self {
            Self::Kill(process) => world.fleet.replace(process, &*world.servers).await,
            Self::Stop(process) => world.fleet.resume_one(process),
            Self::PauseServer(place) => world.servers.resume(place),
            Self::Refuse(place, refusal) => {
                assert_answers(world.serving(place), &format!("{refusal:?}"));
                let from = now();
                refusal.end(world.serving(place));
                if matches!(refusal, Refusal::Demoted) {
                    world.renamed_from(from);
                }
                assert_answers(world.serving(place), &format!("after {refusal:?}"));
            }
            Self::Change(change) => {
                let from = now();
                world.servers.end(change);
                world.fleet.lead_to(&*world.servers);
                world.forgotten_from(change, from);
                if let Some(stays_open) = stays_open.filter(|_| change == Change::Usurp) {
                    // The connections to the replaced master stay open for a while, or for good.
                    tokio::time::sleep(stays_open).await;
                    world.fleet.disconnect();
                }
            }
            Self::Hold(line, _)
            | Self::Delay(line, _)
            | Self::Unreachable(line)
            | Self::DropReplies(line, _)
            | Self::Cut(line, ..) => line.each(world, FaultProxy::resume),
            Self::Disconnect(_) | Self::Strand(_) | Self::ForgetScripts(_) | Self::KillClients(_) => {}
        }
    }
}

impl Line {
    fn each(self, world: &World, strike: impl Fn(&FaultProxy)) {
        let proxies = world.fleet.proxies(self.process);
        match self.address {
            Some(address) => strike(&proxies[address]),
            None => proxies.iter().for_each(strike),
        }
    }
}

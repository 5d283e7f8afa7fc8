//! What is done to processes, connections and servers.

use std::time::Duration;

use fastrand::Rng;
use lock_core::testing::{Direction, Record, Reply};

use crate::{LONGEST_LEASE, PROCESSES, World};

/// Numbers are those of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Kill(usize),
    Stop(usize),
    Hold(usize, Direction),
    Delay(usize, u64),
    Disconnect(usize),
    Strand(usize),
    Refuse(usize),
    DropReplies(usize, u64),
    Cut(usize, Direction, usize),
    PauseServer,
    ForgetScripts,
    KillClients,
    Deny(&'static str),
    Full,
    Flush,
    Restart,
    /// How long connections stay open to the server that was master: for good if there is no time.
    FailOver(Option<Duration>),
}

/// What a permission may take away.
const DENIED: [&str; 10] = [
    "-multi",
    "-xadd",
    "-evalsha",
    "-@scripting",
    "-publish",
    "-subscribe",
    "-mget",
    "-client|tracking",
    "-set",
    "-pexpire",
];

impl Fault {
    pub(crate) fn any(random: &mut Rng, may_forget: bool) -> Self {
        match random.u8(0..if may_forget { 14 } else { 8 }) {
            0..3 => Self::of_process(random.usize(..PROCESSES), random),
            3 => Self::PauseServer,
            4 => Self::ForgetScripts,
            5 => Self::KillClients,
            6 => Self::Deny(DENIED[random.usize(..DENIED.len())]),
            7 => Self::Full,
            8 | 9 => Self::Flush,
            10 | 11 => Self::Restart,
            _ => Self::FailOver(random.bool().then(|| Duration::from_millis(random.u64(0..3_000)))),
        }
    }

    /// One that may strike beside another: it leaves the servers alone, and the process of the other.
    pub(crate) fn beside(other: Self, random: &mut Rng) -> Self {
        let process = random.usize(..PROCESSES - 1);
        let after = other.process().is_some_and(|taken| process >= taken);
        Self::of_process(process + usize::from(after), random)
    }

    fn of_process(process: usize, random: &mut Rng) -> Self {
        let direction = if random.bool() { Direction::ToServer } else { Direction::ToClient };
        match random.u8(0..9) {
            0 => Self::Kill(process),
            1 => Self::Stop(process),
            2 => Self::Hold(process, direction),
            3 => Self::Delay(process, random.u64(1..60)),
            4 => Self::Disconnect(process),
            5 => Self::Strand(process),
            6 => Self::Refuse(process),
            7 => Self::DropReplies(process, random.u64(1..5)),
            _ => Self::Cut(process, direction, random.usize(1..2_000)),
        }
    }

    fn process(self) -> Option<usize> {
        match self {
            Self::Kill(process)
            | Self::Stop(process)
            | Self::Hold(process, _)
            | Self::Delay(process, _)
            | Self::Disconnect(process)
            | Self::Strand(process)
            | Self::Refuse(process)
            | Self::DropReplies(process, _)
            | Self::Cut(process, ..) => Some(process),
            _ => None,
        }
    }

    /// Whether the server loses what it knew.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Self::Flush | Self::Restart | Self::FailOver(_))
    }

    pub(crate) fn name(self) -> String {
        let full = format!("{self:?}");
        full.split('(').next().unwrap_or_default().to_owned()
    }

    pub(crate) async fn begin(self, world: &mut World) {
        let proxy = |process: usize| &world.fleet.member(process).proxy;
        match self {
            Self::Kill(process) => {
                let pid = world.fleet.kill(process).await;
                world.recorder.killed(pid);
            }
            Self::Stop(process) => world.fleet.stop_one(process),
            Self::Hold(process, direction) => proxy(process).black_hole(direction),
            Self::Delay(process, ms) => {
                for direction in [Direction::ToServer, Direction::ToClient] {
                    proxy(process).delay(direction, Duration::from_millis(ms));
                }
            }
            Self::Disconnect(process) => proxy(process).kill_connections(),
            Self::Strand(process) => proxy(process).strand_connections(),
            Self::Refuse(process) => {
                proxy(process).refuse(true);
                proxy(process).kill_connections();
            }
            Self::DropReplies(process, count) => proxy(process).drop_replies(count),
            Self::Cut(process, direction, bytes) => proxy(process).cut_after(direction, bytes),
            Self::PauseServer => world.servers.master().pause(),
            Self::ForgetScripts => order(world, &["SCRIPT", "FLUSH"]),
            Self::KillClients => {
                let reply = world.servers.master().command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
            }
            Self::Deny(what) => order(world, &["ACL", "SETUSER", "default", what]),
            Self::Full => order(world, &["CONFIG", "SET", "maxmemory", "1"]),
            Self::Flush | Self::Restart => {}
            Self::FailOver(_) => world.servers.cut_replication().await,
        }
    }

    pub(crate) async fn end(self, world: &mut World) {
        let from = world.recorder.now();
        match self {
            Self::Kill(process) => world.fleet.replace(process).await,
            Self::Stop(process) => world.fleet.resume_one(process),
            Self::PauseServer => world.servers.master().resume(),
            Self::Deny(_) => order(world, &["ACL", "SETUSER", "default", "+@all"]),
            Self::Full => order(world, &["CONFIG", "SET", "maxmemory", "0"]),
            Self::Flush => order(world, &["FLUSHALL"]),
            Self::Restart => world.servers.restart().await,
            Self::FailOver(stay_open) => {
                world.servers.fail_over().await;
                world.fleet.lead_to(world.servers.port());
                forgiven_from(world, from);
                let Some(stay_open) = stay_open else { return };
                tokio::time::sleep(stay_open).await;
                return world.fleet.disconnect();
            }
            Self::Hold(process, _)
            | Self::Delay(process, _)
            | Self::Refuse(process)
            | Self::DropReplies(process, _)
            | Self::Cut(process, ..) => world.fleet.member(process).proxy.resume(),
            Self::Disconnect(_) | Self::Strand(_) | Self::ForgetScripts | Self::KillClients => {}
        }
        if self.forgets() {
            forgiven_from(world, from);
        }
    }
}

/// Writes down that leases of before may meet others, until the last of them is over.
fn forgiven_from(world: &World, from: u64) {
    let until = world.recorder.now() + u64::try_from(LONGEST_LEASE.as_nanos()).unwrap();
    world.recorder.record(&Record::Excuse { from, until });
}

fn order(world: &World, words: &[&str]) {
    let reply = world.servers.master().command(words);
    assert_eq!(reply, Reply::Text("OK".to_owned()), "{words:?}");
}

//! The parts of the model.

use crate::scenario::{AHEAD, Faults, Mode, READ, Scenario, Wrong};

/// The number of a process, and of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct At {
    pub(crate) process: usize,
    pub(crate) key: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) at: At,
    pub(crate) number: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Claim(Claim),
    /// The rest of a lease with a minimum, after its release.
    Remnant(Claim),
    /// A client of the classic protocol.
    Stranger,
    /// Claims that share the lock: how many units they use, and the token of all of them.
    Phase {
        used: u16,
        drawn: Drawn,
    },
}

/// A claim that shares a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sharer {
    pub(crate) claim: Claim,
    pub(crate) units: u16,
    pub(crate) expires: u16,
}

/// Whether an entry could be told of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Unknown,
    PassedOver,
    /// It asked again after that.
    Polling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) claim: Claim,
    pub(crate) stamp: u16,
    pub(crate) attempt: u16,
    pub(crate) reach: Reach,
    pub(crate) confirmed: u16,
    pub(crate) asleep: bool,
}

/// A lock on the server. Times are those of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) owner: Option<Owner>,
    pub(crate) expires: u16,
    /// Leftovers of an earlier phase are included.
    pub(crate) sharers: Vec<Sharer>,
    pub(crate) queue: Vec<Entry>,
    /// Since when it passes from claim to claim, and until when it is left free.
    pub(crate) passing: Option<u16>,
    pub(crate) window: u16,
}

/// The server's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) locks: Vec<Lock>,
    /// The newest draw.
    pub(crate) clock: u32,
}

/// The facts about a lock that only the judge knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) grants: u16,
    /// The newest grant whose token was used, and that token.
    pub(crate) newest: Option<(u16, u32)>,
    /// How many newcomers passed the queue since a lease ended unreleased.
    pub(crate) passes: u16,
}

/// The draw of a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Drawn {
    pub(crate) draw: u32,
    /// Which grant of the lock it is for: the order that tokens must follow.
    pub(crate) grant: u16,
}

/// One send of a claim to the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ask {
    pub(crate) claim: Claim,
    pub(crate) attempt: u16,
    pub(crate) sent: u16,
    pub(crate) execute_before: u16,
    pub(crate) floor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Command {
    /// The native first attempt. Attempts that follow each other share one draw.
    Take {
        claim: Claim,
        sent: u16,
    },
    /// Only where the rule is removed that a draw belongs to its lock.
    Draw {
        claim: Claim,
        sent: u16,
        grant: u16,
    },
    Acquire(Ask),
    /// Also a requeue, if another claim follows.
    Release {
        claim: Claim,
        next: Option<Ask>,
    },
    /// Only where the rule is removed that a withdraw frees.
    Leave {
        claim: Claim,
    },
    /// The renewal, which looks at the owner first.
    Renew {
        claim: Claim,
        sent: u16,
        ttl: u16,
    },
    /// From here on the claim shares the lock, with the token that it has.
    Downgrade {
        claim: Claim,
        sent: u16,
        drawn: Drawn,
    },
    /// Kills the connections that were given up.
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Granted {
        claim: Claim,
        sent: u16,
        drawn: Drawn,
    },
    Queued {
        claim: Claim,
        sent: u16,
        attempt: u16,
        sleep: Option<u16>,
    },
    Busy {
        claim: Claim,
    },
    Stale {
        claim: Claim,
    },
    /// An error of the native attempt, after which the lock may be taken, by this grant.
    Undecided {
        claim: Claim,
        sent: u16,
        taken: Option<u16>,
    },
    /// The clock may not be raised as far as this key needs.
    Refused {
        claim: Claim,
    },
    Released {
        claim: Claim,
        next: Option<Ask>,
        outcome: Outcome,
    },
    Renewed {
        claim: Claim,
        sent: u16,
        ttl: u16,
    },
    Lost {
        claim: Claim,
    },
    Left {
        claim: Claim,
    },
}

/// The result of the next claim of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    None,
    Granted(Drawn),
    Queued,
}

/// A grant on its way to an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) claim: Claim,
    pub(crate) drawn: Drawn,
    pub(crate) stamp: u16,
    pub(crate) attempt: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Waiting,
    Holding,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    #[default]
    Away,
    Waiting,
    /// It has the turn, and has not been polled since.
    Offered,
    Inside,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) place: Place,
    /// Nobody polls it.
    pub(crate) asleep: bool,
    /// It let a turn go by, and has not been polled since.
    pub(crate) passed_over: bool,
}

/// The knowledge of one process about one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    pub(crate) stage: Stage,
    pub(crate) claim: Option<Claim>,
    pub(crate) claims: u16,
    pub(crate) attempt: u16,
    pub(crate) execute_before: u16,
    /// Whether a send is unanswered.
    pub(crate) asking: bool,
    /// When a claim that sleeps asks again.
    pub(crate) asleep_until: Option<u16>,
    /// Whether it was woken while it asked.
    pub(crate) woken: bool,
    /// The newest confirmation that was received: when it was sent, and which attempt it was.
    pub(crate) confirmed: Option<(u16, u16)>,
    pub(crate) last_sent: u16,
    pub(crate) pending: Option<Grant>,
    pub(crate) deadline: u16,
    pub(crate) drawn: Drawn,
    /// Whether the caller goes on as a reader, and whether a reader wants the lock for itself before it ends.
    pub(crate) downgraded: bool,
    pub(crate) upgrades: bool,
    /// How many callers this grant has let in.
    pub(crate) entered: u32,
    pub(crate) offered_at: u16,
    /// Renewals on their way.
    pub(crate) renewals: u16,
    /// The newest draw that is known of the lock.
    pub(crate) floor: u32,
    pub(crate) callers: [Caller; 2],
    /// Endings without an answer: the claim, and what follows it.
    pub(crate) ending: Vec<(Claim, Option<Claim>)>,
    /// Claims whose acquire may be executed until a moment.
    pub(crate) ambiguous: Vec<(Claim, u16)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    /// Whether its inbox hears.
    pub(crate) hears: bool,
    pub(crate) gates: Vec<Gate>,
    pub(crate) requests: Vec<Command>,
    pub(crate) replies: Vec<Reply>,
    /// The commands of broken connections. They are executed late, or never.
    pub(crate) stray: Vec<Command>,
    pub(crate) inbox: Vec<Grant>,
    /// Only where the rule is removed that a draw serves its batch.
    pub(crate) kept_draw: Option<u32>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The clients' clock.
    pub(crate) now: u16,
    /// How far the server's is ahead.
    pub(crate) ahead: u16,
    pub(crate) store: Store,
    /// The state that a failover falls back to.
    pub(crate) replica: Option<Box<Store>>,
    pub(crate) processes: Vec<Process>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) faults: Faults,
    /// Whether the server lost data or freed by force, so that two may believe.
    pub(crate) excused: bool,
    pub(crate) failed_over: bool,
    pub(crate) wrong: Option<Wrong>,
}

impl State {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let gates = vec![Gate::default(); scenario.keys];
        let process = Process { alive: true, hears: true, gates, ..Process::default() };
        Self {
            ahead: AHEAD,
            store: Store { locks: vec![Lock::default(); scenario.keys], clock: 0 },
            processes: vec![process; scenario.processes],
            seen: vec![Seen::default(); scenario.keys],
            faults: scenario.faults,
            ..Self::default()
        }
    }

    pub(crate) fn server_now(&self) -> u16 {
        self.now + self.ahead
    }

    pub(crate) fn is_free(&self, key: usize) -> bool {
        let lock = &self.store.locks[key];
        lock.owner.is_none() || self.server_now() >= lock.expires
    }

    pub(crate) fn is_held_by(&self, key: usize, owner: Owner) -> bool {
        !self.is_free(key) && self.store.locks[key].owner == Some(owner)
    }

    /// Returns what the claim of a gate has or wants.
    pub(crate) fn mode(&self, scenario: &Scenario, at: At) -> Mode {
        if self.processes[at.process].gates[at.key].downgraded { READ } else { scenario.modes[at.process] }
    }

    pub(crate) fn gate(&mut self, at: At) -> &mut Gate {
        &mut self.processes[at.process].gates[at.key]
    }

    pub(crate) fn report(&mut self, wrong: Wrong) {
        self.wrong = self.wrong.or(Some(wrong));
    }
}

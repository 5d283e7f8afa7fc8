//! What the model consists of.

/// The owner that stands for a client of the classic protocol.
pub(crate) const STRANGER: u16 = 0xFFFE;
/// How much the clock adds to a token in one tick.
pub(crate) const TOKENS_PER_TICK: u16 = 64;
/// How many tokens a grant reserves.
pub(crate) const BLOCK: u16 = 2;
/// The lease of a grant through the queue, of an acquire, and of a short renewal, in ticks.
pub(crate) const GRANT_TTL: u16 = 2;
pub(crate) const TTL: u16 = 3;
pub(crate) const SHORT_TTL: u16 = 1;
/// How long after its sending a command that takes the lock may be executed.
pub(crate) const EXECUTE_WITHIN: u16 = 1;
/// How long an entry stays that cannot be told of a grant and does not ask.
pub(crate) const UNCONFIRMED: u16 = 3;

/// A rule of the protocol that a scenario can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A grant names the newest confirmation it follows, and older ones are void.
    GrantsEchoStamps,
    /// A lease counts from the confirmation that was answered, not from the newest send.
    CountedFromConfirmation,
    /// A repeated acquire of an own lock raises its expiry.
    RepeatRaises,
    /// An owner serves one claim.
    FreshOwners,
    /// A withdraw frees what was granted meanwhile.
    WithdrawFrees,
    /// A requeue enters the queue before it moves on.
    EntersBeforeWalk,
    /// A renewal only ever raises the expiry.
    NeverShortens,
    /// A grant for a claim that holds the lock already tells nothing.
    HeldGrantIgnored,
    /// Who cannot be told of a grant is passed over, and keeps the place.
    PassedOverKeepPlace,
    /// A claim that ended unanswered is released again after its deadline.
    AmbiguousReleasedTwice,
    /// A command that takes the lock is not executed late.
    SendsHaveDeadlines,
    /// A grant uses the lease that its entry names.
    EntriesNameTheirLease,
    /// A token is at least the server's time.
    TokensFollowTime,
    /// A release that finds the lock free moves the queue on, also when it was not its own.
    ReleaseAlwaysMovesOn,
    /// A claim that was lost is released too.
    ReleaseAfterLoss,
    /// An acquire that finds the lock free moves the queue on, past those that cannot be told.
    AskingMovesOn,
    /// A grant reserves a token for each caller that it may be passed to.
    BlocksAreReserved,
    /// After a connection broke, releases without an answer are sent again.
    ReleasesAreRepeated,
    /// Whoever waits asks again now and then.
    Backstop,
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// Two believe that they hold the lock.
    Exclusion,
    /// A later grant has an older token.
    TokenOrder,
    /// The lock belongs to a live process that will never touch it again.
    OrphanKey,
    /// The lock is free, somebody waits for it, and nothing is on its way.
    Stall,
    /// Somebody is not served although nothing fails any more.
    Starvation,
}

/// What may happen, and how far it is followed.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) removed: Option<Rule>,
    pub(crate) processes: usize,
    /// How many callers each process has, at most two.
    pub(crate) callers: usize,
    /// How many ticks the clock makes.
    pub(crate) horizon: u16,
    /// How often one claim is sent.
    pub(crate) attempts: u16,
    /// How many claims a process makes.
    pub(crate) claims: u16,
    pub(crate) faults: Faults,
    pub(crate) renews: bool,
    pub(crate) renews_shorter: bool,
    /// Whether every turn goes through the server.
    pub(crate) never_passes: bool,
    pub(crate) finds_stalls: bool,
    /// How many states are looked at.
    pub(crate) states: usize,
}

impl Scenario {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }
}

/// How often each fault may strike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    pub(crate) connection: u16,
    pub(crate) inbox: u16,
    pub(crate) death: u16,
    pub(crate) flush: u16,
    pub(crate) failover: u16,
    pub(crate) cancel: u16,
    pub(crate) stranger: u16,
}

/// Whether an entry could be told of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Unknown,
    PassedOver,
    /// It asked again after that.
    Polling,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) claim: u16,
    pub(crate) process: usize,
    pub(crate) stamp: u16,
    pub(crate) attempt: u16,
    pub(crate) reach: Reach,
    pub(crate) confirmed: u16,
}

/// The server's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    /// The claim that holds the lock, zero for none.
    pub(crate) owner: u16,
    pub(crate) expires: u16,
    pub(crate) token: u16,
    pub(crate) fence: u16,
    pub(crate) queue: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Command {
    Acquire {
        claim: u16,
        attempt: u16,
        sent: u16,
        floor: u16,
    },
    /// Also a requeue, if `next` is a claim.
    Release {
        claim: u16,
        next: u16,
        sent: u16,
        floor: u16,
    },
    /// Only where the rule is removed that a withdraw frees.
    Leave {
        claim: u16,
    },
    Renew {
        claim: u16,
        sent: u16,
        ttl: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Granted { claim: u16, sent: u16, token: u16 },
    Queued { claim: u16, sent: u16, attempt: u16 },
    Stale { claim: u16 },
    Released { claim: u16, next: u16, sent: u16, outcome: Outcome },
    Renewed { claim: u16, sent: u16, ttl: u16 },
    Lost { claim: u16 },
    Left { claim: u16 },
}

/// What became of the next claim of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    None,
    Granted(u16),
    Queued,
}

/// A grant on its way to an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) claim: u16,
    pub(crate) token: u16,
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
pub(crate) enum Caller {
    #[default]
    Away,
    Waiting,
    Inside,
    Done,
}

/// What follows a claim that ends: a release with its successor, or a mere leave.
pub(crate) const LEAVE: u16 = 0xFFF1;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    /// Whether its inbox hears.
    pub(crate) hears: bool,
    pub(crate) stage: Stage,
    pub(crate) claim: u16,
    pub(crate) claims: u16,
    pub(crate) attempt: u16,
    /// Whether an acquire is unanswered.
    pub(crate) asking: bool,
    /// The newest confirmation that was received.
    pub(crate) confirmed: Option<(u16, u16)>,
    pub(crate) last_sent: u16,
    pub(crate) pending: Option<Grant>,
    pub(crate) deadline: u16,
    pub(crate) token: u16,
    pub(crate) passes: u16,
    pub(crate) renewals: u16,
    pub(crate) floor: u16,
    pub(crate) callers: [Caller; 2],
    pub(crate) requests: Vec<Command>,
    pub(crate) replies: Vec<Reply>,
    /// What a broken connection carried, executed late if at all.
    pub(crate) stray: Vec<Command>,
    pub(crate) inbox: Vec<Grant>,
    /// Releases without an answer: the claim and what follows it.
    pub(crate) releasing: Vec<(u16, u16)>,
    /// Claims whose acquire may be executed until a moment.
    pub(crate) ambiguous: Vec<(u16, u16)>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) now: u16,
    pub(crate) store: Store,
    /// What a failover falls back to.
    pub(crate) replica: Option<Box<Store>>,
    pub(crate) processes: Vec<Process>,
    /// The newest token that a caller was given, and that was ever granted.
    pub(crate) newest_used: u16,
    pub(crate) newest_granted: u16,
    pub(crate) faults: Faults,
    /// Whether the server has lost data, so that two may believe.
    pub(crate) lost_data: bool,
    pub(crate) failed_over: bool,
    pub(crate) wrong: Option<Wrong>,
}

impl State {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let process = Process { alive: true, hears: true, ..Process::default() };
        Self { processes: vec![process; scenario.processes], faults: scenario.faults, ..Self::default() }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.store.owner == 0 || self.now >= self.store.expires
    }

    pub(crate) fn is_held_by(&self, claim: u16) -> bool {
        self.store.owner == claim && self.now < self.store.expires
    }
}

/// The process that a claim belongs to.
pub(crate) fn process_of(claim: u16) -> usize {
    usize::from(claim / 4096) - 1
}

//! The possible events of an exploration, its bounds, and the rule that it does without.

use crate::state::Claim;

/// How far the server's clock moves tokens in one tick.
pub(crate) const DRAWS_PER_TICK: u32 = 64;
/// How many holders one draw serves, one after the other.
pub(crate) const NUMBERS_PER_DRAW: u32 = 2;
/// How far beyond the server's time a token may raise the clock.
pub(crate) const RAISE_LIMIT: u32 = 8 * DRAWS_PER_TICK;
/// A token that no server ever gave.
pub(crate) const NONSENSE: u32 = 1_000_000;
/// The lease of a grant through the queue, of an acquire, and of a short renewal, in ticks.
pub(crate) const GRANT_TTL: u16 = 2;
pub(crate) const TTL: u16 = 3;
pub(crate) const SHORT_TTL: u16 = 1;
/// The rest of a lease with a minimum after a release.
pub(crate) const REMNANT: u16 = 1;
/// How long a caller waits, where the server checks it.
pub(crate) const BUDGET: u16 = 2;
/// How long an entry stays that cannot be told of a grant and does not ask.
pub(crate) const UNCONFIRMED: u16 = 3;
/// How long a lock passes from claim to claim before it is left free, and for how long it then is.
pub(crate) const PASSING: u16 = 2;
pub(crate) const WINDOW: u16 = 1;
/// How far the server's clock is ahead of the clients', and by how much it steps back.
pub(crate) const AHEAD: u16 = 4;

/// The wish of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// The lock for itself.
    Exclusive,
    /// Units of the lock, if no more than the limit are in use then.
    Shared { units: u16, limit: u16 },
}

/// Any number of readers.
pub(crate) const READ: Mode = Mode::Shared { units: 1, limit: 9 };

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
    /// A claim that cannot be reached is passed over, and keeps its place.
    PassedOverKeepPlace,
    /// A claim that is passed over gets no message, not from a replica either.
    PassedOverHearNothing,
    /// A grant uses the lease that its entry names.
    EntriesNameTheirLease,
    /// A release that finds the lock free moves the queue on, also when it was not its own.
    ReleaseAlwaysMovesOn,
    /// A claim that was lost is released too.
    ReleaseAfterLoss,
    /// An acquire that finds the lock free moves the queue on, past those that cannot be told.
    AskingMovesOn,
    /// After a connection broke, releases without an answer are sent again.
    ReleasesAreRepeated,
    /// A waiter asks again now and then.
    Backstop,
    /// The release of a newcomer that passed the queue serves the queue.
    OnePass,
    /// A lock that passes from claim to claim is left free now and then, for clients that poll.
    LeftFreeNowAndThen,

    /// A grant to one that sleeps is confirmed before the body runs.
    SleepersConfirm,
    /// A sleeper keeps its place for as long as it announced.
    SleepersKeepPlaces,
    /// When a lock passes on, the one that is to watch it from now on is woken.
    WatchersAreWoken,
    /// A claim that watches a lock asks when the holder's lease is due to end.
    WatchersAskAtTheEnd,
    /// A claim that could not listen for a while asks again when it can.
    DeafAreWoken,

    /// A process that gives a connection up has it killed before it undoes anything on another.
    KilledBeforeUndo,
    /// An ending goes behind the sends of its claim that are unanswered.
    EndingsGoBehind,
    /// Where nothing can be killed, a command that takes the lock is not executed late.
    SendsHaveDeadlines,
    /// Where nothing can be killed, a claim is undone once more after its deadline.
    UndoneAfterDeadline,
    /// A claim has one deadline, which its repeats share.
    OneDeadline,
    /// An error does not tell that nothing was done.
    ErrorsAreAmbiguous,

    /// A token is at least the server's time.
    TokensFollowTime,
    /// A token is greater than every token that the clock gave before.
    ClockNeverFalls,
    /// A token is drawn at the instant at which the lock is taken.
    DrawnWithTheLock,
    /// A draw serves the locks that were taken with it, and no later one.
    DrawServesItsBatch,
    /// A draw that cannot be used is repeated by the script that looks at the owner.
    NeverDrawnBare,
    /// A process takes no token below those it knows of the key.
    FloorsAreKept,
    /// A token that is too far beyond the server's time does not raise the clock.
    RaisingIsBounded,
    /// A grant owns the numbers that it passes on.
    GrantsOwnTheirNumbers,

    /// A turn goes back from a caller that does not take it.
    TurnsAreTakenBack,
    /// A turn that was taken back can be taken no more.
    TurnsHaveOneTaker,
    /// A caller that missed a turn gets none until it is polled.
    PassedOverUntilPolled,
    /// The deadline is looked at when a turn is taken.
    DeadlineReadAtTake,

    /// A renewal looks at the owner first.
    RenewalsLookFirst,

    /// A claim that wants the lock for itself fits only a free lock.
    WritersAreAlone,
    /// A claim uses as many units as it says.
    UnitsAreCounted,
    /// A limit is that of the claim that comes: who shares the lock already keeps its units.
    LimitsBindNewcomers,
    /// A newcomer goes behind the waiters.
    NewcomersGoBehind,
    /// No claim is granted past a waiter that does not fit and can be reached.
    NobodyIsPassed,
    /// A claim that cannot be reached and has missed a confirmation does not block others.
    DeafMakeNobodyWait,
    /// A batch goes on as long as the next one fits.
    BatchesGoOn,
    /// A claim that is granted in the reply brings its batch along.
    AskersBringTheirBatch,
    /// A granted claim leaves the queue.
    GrantsLeaveTheQueue,
    /// A step takes out the claims whose leases are over before it looks whether another fits.
    EndedLeasesAreTakenOut,
    /// Leases that are over give their units back.
    EndedLeasesGiveBack,
    /// A step that finds leases over moves the queue on, whatever else it does.
    EndedLeasesMoveOn,
    /// A claim that leaves a shared lock moves the queue on.
    LeaversMoveOn,
    /// A release gives back only what its claim has.
    LeaversGiveBackTheirOwn,
    /// A repeat of a claim that shares the lock already takes no units.
    RepeatsTakeNothing,
    /// The lock lasts as long as the last lease of its sharers: it is raised when a claim joins.
    JoinsRaiseTheLock,
    /// It is raised when a claim renews.
    RenewalsRaiseTheLock,
    /// It stays for the others when somebody leaves.
    LeaversKeepTheLock,
    /// Leftovers of an earlier phase do not count as sharers of the next one.
    LeftoversDoNotCount,
    /// The first of those who share a lock draws a token.
    FirstSharerDraws,
    /// The others get the same.
    SharersHaveOneToken,
    /// A downgrade never leaves the lock free.
    DowngradesInOneStep,
    /// A downgrade moves the queue on.
    DowngradesMoveOn,
    /// A claim that shares a lock does not wait to have it exclusively.
    NoUpgrades,
}

/// The states that must never occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Wrong {
    /// Two believe that they hold the lock.
    Exclusion,
    /// A caller enters under a lease that is over.
    LateEntry,
    /// More units are in use than the claims that use them allow.
    OverLimit,
    /// A later grant has an older token, or those who share the lock have several.
    TokenOrder,
    /// The clock of all is far beyond the time.
    ClockRuns,
    /// The lock belongs to a live process that will never touch it again.
    OrphanKey,
    /// A renewal lengthens what its own release left, or a lease of another.
    Stretched,
    /// Newcomers pass the queue twice for one lease that ended unreleased, or a grant passes one that waits.
    Overtaken,
    /// The first who waits fits, and is left waiting, or somebody who can be told loses the place.
    LeftOut,
    /// The lock passes from claim to claim and is never free.
    NeverFree,
    /// The lock is free, somebody waits for it, and nothing is on its way.
    Stall,
    /// A waiter is not served although the faults have ended.
    Starvation,
}

/// The possible events, and the bounds of the exploration.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) removed: Option<Rule>,
    pub(crate) processes: usize,
    /// The wishes of each process's claims.
    pub(crate) modes: [Mode; 3],
    /// Whether a caller that has a lock for itself may go on as a reader. Only with one caller each: the token of
    /// those who share has no number of a hand-off here.
    pub(crate) downgrades: bool,
    pub(crate) keys: usize,
    /// How many callers each process has for each key, at most two.
    pub(crate) callers: usize,
    /// How many ticks the clock makes.
    pub(crate) horizon: u16,
    /// How often one claim is sent to the script.
    pub(crate) attempts: u16,
    /// How many claims a process makes for a key.
    pub(crate) claims: u16,
    pub(crate) faults: Faults,
    /// Whether first attempts are native: else the key is known to be contended, or the server refuses.
    pub(crate) native: bool,
    /// Whether connections can be killed: else sends have deadlines.
    pub(crate) kills: bool,
    pub(crate) renews: bool,
    pub(crate) renews_shorter: bool,
    /// Whether a release leaves a remnant of the lease.
    pub(crate) keeps_remnant: bool,
    /// Whether every turn goes through the server.
    pub(crate) never_passes: bool,
    /// Whether clients of the classic protocol may want the locks too.
    pub(crate) shares: bool,
    /// Whether a claim that asks a second time sleeps from then on: it asks only if it watches the lock.
    pub(crate) sleeps: bool,
    pub(crate) finds_stalls: bool,
    /// One state in so many is followed to its end, to see whether everybody is served.
    pub(crate) followed: usize,
    /// How many states are looked at.
    pub(crate) states: usize,
}

impl Scenario {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    pub(crate) fn mode(&self, claim: Claim) -> Mode {
        self.modes[claim.at.process]
    }

    pub(crate) fn has_sharers(&self) -> bool {
        self.modes != [Mode::Exclusive; 3]
    }
}

/// How often each fault may strike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A connection breaks, and what it carried is executed late or never.
    pub(crate) connection: u16,
    /// An inbox goes deaf.
    pub(crate) inbox: u16,
    /// A process dies.
    pub(crate) death: u16,
    /// A caller gives up.
    pub(crate) cancel: u16,
    /// A caller is not polled.
    pub(crate) sleep: u16,
    /// A first attempt takes the lock and answers an error instead of a token.
    pub(crate) refusal: u16,
    /// A client of the classic protocol takes the lock.
    pub(crate) stranger: u16,
    /// An operator frees a lock by force.
    pub(crate) force: u16,
    /// The server loses everything.
    pub(crate) flush: u16,
    /// A replica without the last write takes over.
    pub(crate) failover: u16,
    /// The server's clock steps back.
    pub(crate) step_back: u16,
    /// A process is told a token that no server gave.
    pub(crate) nonsense: u16,
}

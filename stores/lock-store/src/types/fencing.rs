//! Fencing tokens: the protection against holders that pause for longer than their lease.
//!
//! A resource that remembers the newest token it has seen, and refuses older ones, stays correct even when a lease lock
//! does not: after a pause, a partition or a clock step. The rule is from Martin Kleppmann, *How to do distributed
//! locking* (2016).

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock never gave a token before the year 2020.
const FIRST: Duration = Duration::from_secs(1_577_836_800);

/// A number greater than that of every earlier grant of the same key.
///
/// On Redis it comes from a hybrid logical clock of the server: `milliseconds · 2²⁰ + sequence · 2⁷ + n`. It is drawn
/// at the instant at which the lock is taken. `n` counts the holders to which the process hands the lock on locally.
///
/// The clock never falls behind the server's time. Tokens therefore also grow across a flush, an eviction, a restart, a
/// step of the server's time, or a failover that lost writes. A plain counter would repeat after these. Tokens can fall
/// only if the clock is lost *and* the server's time is behind.
///
/// The store in memory draws tokens from the machine's time of day in the same way. A resource that has seen tokens of
/// one of these stores therefore accepts those of the other.
///
/// # Storing and comparing
///
/// A token fits an `i64`, and so a column of type `BIGINT`. It exceeds the integers that a double holds exactly. In
/// JSON, JavaScript and Lua, send it as text, which `Display` writes and `FromStr` reads. Compare the numbers and never
/// the text.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let older = locks.lock("report").await?.token();
/// let newer = locks.lock("report").await?.token();
/// assert!(newer > older);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Wraps a token that was read back from a resource.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// How many consecutive tokens a grant owns. The first holder has the token of the grant. Each holder to which the
    /// process hands the lock on locally has the next token.
    pub const PER_GRANT: u64 = 128;

    /// The least token of a store without a clock, which counts from here. It exceeds every token with a time before the
    /// year 2109, so a lock may move from Redis to such a store. To move back, first forget the tokens at its resources.
    pub const PLAIN: Self = Self(1 << 62);

    /// Returns the number to send along with every write.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns when the token was drawn, by the clock of the store. `None` if unknown: some stores
    /// [count](Self::PLAIN) without a clock.
    ///
    /// ```
    /// # use lock_core::FencingToken;
    /// assert_eq!(FencingToken::new(7).drawn_at(), None);
    /// assert_eq!(FencingToken::PLAIN.drawn_at(), None);
    /// ```
    #[must_use]
    pub fn drawn_at(self) -> Option<SystemTime> {
        let drawn = UNIX_EPOCH + Duration::from_millis(self.0 >> 20);
        (self < Self::PLAIN && drawn > UNIX_EPOCH + FIRST).then_some(drawn)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// The error of a write whose token is older than one that was already admitted.
///
/// ```
/// use lock_core::{FencingGate, FencingToken};
///
/// let gate = FencingGate::resuming(FencingToken::new(7));
/// let stale = gate.admit(FencingToken::new(6)).unwrap_err();
/// assert_eq!((stale.token, stale.newest), (FencingToken::new(6), FencingToken::new(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token of the refused write.
    pub token: FencingToken,
    /// The newest admitted token.
    pub newest: FencingToken,
}

impl StaleToken {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(token: FencingToken, newest: FencingToken) -> Self {
        Self { token, newest }
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, newest } = self;
        write!(
            f,
            "fencing token {token} is stale, {newest} was already admitted; the lock has passed to another holder, stop writing"
        )
    }
}

impl std::error::Error for StaleToken {}

//! The settings of one acquire, and their bounds.

mod durability;
mod text;

use std::time::Duration;

use crate::types::error::{LockError, Result};
pub use text::parse_duration;

pub use durability::Durability;

/// The shortest lease that a watchdog can renew in time.
pub const MIN_RENEWED_TTL: Duration = Duration::from_secs(1);
/// The shortest lease that is never renewed.
pub const MIN_FIXED_TTL: Duration = Duration::from_millis(50);
/// The shortest renewal interval. A shorter one would only load the store.
pub const MIN_RENEW_INTERVAL: Duration = Duration::from_millis(10);
/// The longest lease.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long an acquire waits for a lock that is taken.
///
/// ```
/// use std::time::Duration;
/// use lock_core::Wait;
///
/// assert_eq!(Wait::from(Duration::from_secs(5)), Wait::AtMost(Duration::from_secs(5)));
/// assert_eq!(Wait::from(Duration::ZERO), Wait::None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Do not wait: make one attempt.
    None,
    /// Wait this long at most, over all stages of waiting.
    AtMost(Duration),
    /// Wait until the lock is granted or the future is dropped.
    Forever,
}

impl Wait {
    /// Returns the limit of the wait: zero for [`Wait::None`], `None` for [`Wait::Forever`].
    #[doc(hidden)]
    #[must_use]
    pub const fn limit(self) -> Option<Duration> {
        match self {
            Self::None => Some(Duration::ZERO),
            Self::AtMost(limit) => Some(limit),
            Self::Forever => None,
        }
    }
}

impl From<Duration> for Wait {
    fn from(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::AtMost(limit) }
    }
}

/// Whether and how often the watchdog renews a lease.
///
/// ```
/// use std::time::Duration;
/// use lock_core::Renew;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// // A hard limit: lost after ten seconds, whatever happens.
/// let guard = locks.lock("export").with_ttl(Duration::from_secs(10)).with_renew(Renew::Off).await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renew {
    /// Every third of the ttl.
    Auto,
    /// At this interval.
    Every(Duration),
    /// Never: the lock is lost when its ttl ends.
    Off,
}

/// The settings of one acquire. A manager has the defaults; a request changes a copy.
///
/// ```
/// use std::time::Duration;
/// use lock_core::LockOptions;
///
/// let options = LockOptions::default().with_ttl(Duration::from_secs(10)).without_waiting();
/// options.validate()?;
/// # Ok::<(), lock_core::LockError>(())
/// ```
///
/// With the feature `serde`, they can be read from a configuration file. Times are written as `"10s"` or `"1m30s"`:
///
/// ```toml
/// ttl = "10s"
/// wait = "forever"        # or "none", or a time
/// renew = "auto"          # or "off", or an interval
/// max_hold = "1h"
/// min_hold = "0s"
/// stuck_after = "2m"
/// handoff = true
/// release_in_background = false
/// durability = "acks=1"   # or "acks=all", "fsync=local", "fsync=1", "master"
/// ```
#[must_use = "options do nothing until a manager or a request has them"]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOptions {
    /// The lease: how long the store keeps the lock after the last renewal. Default 30 s.
    pub ttl: Duration,
    /// How long to wait for a lock that is taken. Default 5 s.
    pub wait: Wait,
    /// The watchdog. Default every third of the ttl.
    pub renew: Renew,
    /// How long the lock may be held before the watchdog ends the hold. Default unbounded.
    pub max_hold: Option<Duration>,
    /// How long the key stays taken after the grant, even if it is released earlier. It may be longer than the ttl: the
    /// server then keeps the key for the rest of this time when the work ends. Default zero.
    pub min_hold: Duration,
    /// How long a hold may last before alerts call it stuck. Default three times the ttl, at least 30 s.
    /// [`Duration::MAX`] means never. Elections and jobs have a default of their own.
    pub stuck_after: Option<Duration>,
    /// Whether the lock may pass directly between callers of this process, which saves round trips to the store.
    /// Default true.
    pub handoff: bool,
    /// Whether a release returns as soon as it is handed to the keeper, without waiting for the store's answer. Default
    /// false. Dropping a guard never waits.
    pub release_in_background: bool,
    /// Where a grant or a renewal must have arrived before it counts. Default: as the URL of the store says, or the
    /// master alone if the URL does not say.
    pub durability: Option<Durability>,
}

/// The names of all options, as they are written in configuration.
pub const NAMES: [&str; 9] =
    ["ttl", "wait", "renew", "max_hold", "min_hold", "stuck_after", "handoff", "release_in_background", "durability"];

/// Gives a type the setters of lock options. Options, requests and builders therefore have the same names.
#[doc(hidden)]
#[macro_export]
macro_rules! __lock_option_setters {
    ($type:ty $(, $options:ident)?) => {
        impl $type {
            /// Sets the lease: how long the store keeps the lock after the last renewal.
            ///
            /// At least 1 s with renewal and 50 ms without. With renewal it does not limit the work: it is how long
            /// other callers wait after this process died.
            pub fn with_ttl(mut self, ttl: std::time::Duration) -> Self {
                self $(.$options)? .ttl = ttl;
                self
            }

            /// Sets how long to wait for a lock that is taken.
            pub fn with_wait(mut self, wait: impl Into<$crate::Wait>) -> Self {
                self $(.$options)? .wait = wait.into();
                self
            }

            /// Refuses to wait: a taken lock fails at once with [`Busy`](crate::LockErrorKind::Busy).
            pub fn without_waiting(self) -> Self {
                self.with_wait($crate::Wait::None)
            }

            /// Sets whether and how often the watchdog renews the lease.
            pub fn with_renew(mut self, renew: $crate::Renew) -> Self {
                self $(.$options)? .renew = renew;
                self
            }

            /// Limits how long a lock may be held. At the limit it is lost, even if the work hangs. If `min_hold` is
            /// longer, the key stays taken for the rest of it.
            pub fn with_max_hold(mut self, limit: std::time::Duration) -> Self {
                self $(.$options)? .max_hold = Some(limit);
                self
            }

            /// Keeps the key taken for at least this long after the grant, even if it is released earlier.
            ///
            /// It may be longer than the ttl. The lease stays short while the work runs, so that a crash frees the key
            /// soon. When the work ends, the server keeps the key for the rest of this time.
            pub fn with_min_hold(mut self, least: std::time::Duration) -> Self {
                self $(.$options)? .min_hold = least;
                self
            }

            /// Sets the age at which alerts call a hold stuck.
            pub fn with_stuck_after(mut self, age: std::time::Duration) -> Self {
                self $(.$options)? .stuck_after = Some(age);
                self
            }

            /// Forbids the lock to pass directly from or to another caller of this process. Each grant then comes from
            /// the store.
            pub fn without_handoff(mut self) -> Self {
                self $(.$options)? .handoff = false;
                self
            }

            /// Releases without waiting for the store's answer, which saves the caller a round trip.
            ///
            /// The keeper makes sure that the release arrives. Until then, other callers find the lock taken. Only an
            /// event reports a failure: `LockGuard::release` returns
            /// `InBackground`.
            ///
            /// A program that returns from `main` waits for such releases when it drops the last handle of its manager,
            /// for at most 250 ms. A program that calls `std::process::exit` drops nothing: locks whose releases are in
            /// flight may then stay taken for their ttl. Await `shutdown` before.
            pub fn release_in_background(mut self) -> Self {
                self $(.$options)? .release_in_background = true;
                self
            }

            /// Sets where a grant or a renewal must have arrived before it counts. It overrides the URL of the store.
            pub fn with_durability(mut self, durability: $crate::Durability) -> Self {
                self $(.$options)? .durability = Some(durability);
                self
            }
        }
    };
}
pub use __lock_option_setters as setters;

__lock_option_setters!(LockOptions);

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: Wait::AtMost(Duration::from_secs(5)),
            renew: Renew::Auto,
            max_hold: None,
            min_hold: Duration::ZERO,
            stuck_after: None,
            handoff: true,
            release_in_background: false,
            durability: None,
        }
    }
}

impl LockOptions {
    /// Returns the interval at which the lease is renewed, if it is renewed.
    #[must_use]
    #[inline]
    pub fn renew_interval(&self) -> Option<Duration> {
        match self.renew {
            Renew::Auto => Some(self.ttl / 3),
            Renew::Every(interval) => Some(interval),
            Renew::Off => None,
        }
    }

    /// Returns the age at which a hold counts as stuck.
    #[must_use]
    #[inline]
    pub fn stuck_threshold(&self) -> Duration {
        self.stuck_after.unwrap_or_else(|| self.ttl.saturating_mul(3).max(Duration::from_secs(30)))
    }

    /// Returns how long one command to the store may take: a sixth of the ttl, at least 20 ms and at most 5 s. Several
    /// attempts therefore fit between a renewal and the end of the lease.
    #[must_use]
    pub fn command_timeout(&self) -> Duration {
        command_timeout(self.ttl)
    }

    /// Checks that the settings fit together and are within their bounds.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured), with the value to change and its bounds.
    pub fn validate(&self) -> Result<()> {
        let ttl = self.ttl;
        if ttl > MAX_TTL {
            return refuse(format!(
                "ttl {ttl:?} is over the limit of 30 days; use a shorter lease, the watchdog renews it"
            ));
        }
        if let Some(interval) = self.renew_interval() {
            if ttl < MIN_RENEWED_TTL {
                return refuse(format!(
                    "ttl {ttl:?} leaves {:?} between renewals; use at least {MIN_RENEWED_TTL:?}, or turn renewal off",
                    ttl / 3,
                ));
            }
            if interval < MIN_RENEW_INTERVAL {
                return refuse(format!(
                    "renewing every {interval:?} would load the store for nothing; use at least {MIN_RENEW_INTERVAL:?} (a \
                     third of the ttl is the default)",
                ));
            }
            if interval > ttl / 2 {
                return refuse(format!(
                    "renewing every {interval:?} leaves no second chance within a ttl of {ttl:?}; use at most half of the ttl \
                     (a third is the default)",
                ));
            }
        } else if ttl < MIN_FIXED_TTL {
            return refuse(format!("ttl {ttl:?} is too short to hold anything; use at least {MIN_FIXED_TTL:?}"));
        }
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return refuse("max_hold of zero would lose every lock at once; leave it out for no limit".to_owned());
        }
        if self.min_hold > MAX_TTL {
            return refuse(format!("min_hold {:?} is over the limit of 30 days; use a shorter one", self.min_hold));
        }
        if self.stuck_after.is_some_and(|age| age.is_zero()) {
            return refuse(
                "stuck_after of zero calls every lock stuck; leave it out for three times the ttl".to_owned(),
            );
        }
        Ok(())
    }
}

/// The limits of local hand-offs, after which other processes get their turn.
#[derive(Clone, Copy, Debug)]
pub struct HandoffLimits {
    #[doc(hidden)]
    pub passes: u32,
    #[doc(hidden)]
    pub slice: Duration,
}

impl HandoffLimits {
    /// A grant has a limited number of tokens, and the first holder needs one too. More passes are therefore not
    /// possible.
    #[doc(hidden)]
    pub const MOST: u32 = 127;
}

/// Returns how long one command about a lease may take.
#[must_use]
pub fn command_timeout(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(20), Duration::from_secs(5))
}

fn refuse(text: String) -> Result<()> {
    Err(LockError::misconfigured(text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LockOptions, MAX_TTL, Renew};

    fn with(ttl: Duration, renew: Renew) -> Result<(), String> {
        LockOptions { ttl, renew, ..LockOptions::default() }.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn bounds() {
        assert_eq!(LockOptions::default().validate(), Ok(()));
        assert!(with(Duration::ZERO, Renew::Auto).unwrap_err().contains("at least 1s"));
        assert!(with(Duration::from_millis(200), Renew::Auto).unwrap_err().contains("66"));
        assert!(with(Duration::ZERO, Renew::Off).unwrap_err().contains("at least 50ms"));
        assert!(with(Duration::from_millis(50), Renew::Off).is_ok());
        assert!(with(Duration::MAX, Renew::Auto).unwrap_err().contains("30 days"));
        assert!(with(MAX_TTL, Renew::Auto).is_ok());
        let second = Duration::from_secs(1);
        assert!(with(second, Renew::Every(second)).unwrap_err().contains("at most half"));
        for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(9_999)] {
            assert!(with(second, Renew::Every(interval)).unwrap_err().contains("at least 10ms"));
        }
        assert!(with(second, Renew::Every(Duration::from_millis(10))).is_ok());
        assert!(with(second, Renew::Every(second / 2)).is_ok());
        assert!(LockOptions { max_hold: Some(Duration::ZERO), ..LockOptions::default() }.validate().is_err());
        let stuck = LockOptions { stuck_after: Some(Duration::ZERO), ..LockOptions::default() };
        assert!(stuck.validate().unwrap_err().to_string().contains("three times the ttl"));
        assert!(LockOptions { min_hold: MAX_TTL, ..LockOptions::default() }.validate().is_ok());
        assert!(LockOptions { min_hold: MAX_TTL + second, ..LockOptions::default() }.validate().is_err());
    }
}

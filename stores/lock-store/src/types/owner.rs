//! The holder of a lock: the random identity of one grant, and its description for people.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::types::fencing::FencingToken;
use crate::types::key::LockLabel;
use crate::types::system::fork::MadeIn;
use crate::types::system::text::human;

/// 128 random bits that identify one claim on one key.
///
/// An identity serves a single claim. It is drawn before the first byte is sent and ends when the first release is
/// sent. It proves ownership, so `Debug` shows only its first four digits.
///
/// ```
/// use lock_core::OwnerId;
///
/// let owner = OwnerId::random();
/// assert_eq!(OwnerId::from_hex(&owner.to_hex()), Some(owner));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId([u8; 16]);

impl OwnerId {
    /// Draws a new identity from the operating system's random source.
    ///
    /// Several identities are drawn at a time. A process that forks draws anew, so parent and child never share one.
    ///
    /// # Panics
    ///
    /// Panics if the operating system has no random source. Exclusion is not possible without one.
    #[must_use]
    pub fn random() -> Self {
        thread_local! {
            static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn::NOTHING) };
        }
        // A thread that ends may lock for a last time after its thread-local store is gone.
        DRAWN.try_with(|drawn| drawn.borrow_mut().take()).unwrap_or_else(|_| {
            let mut drawn = Drawn::NOTHING;
            drawn.take()
        })
    }

    /// Reads the form that [`to_hex`](Self::to_hex) writes.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Returns 32 lower-case hexadecimal digits, as stored in Redis.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.digits().into_iter().map(char::from).collect()
    }

    /// Returns the first four digits: enough to recognise an owner, too little to act as it.
    #[doc(hidden)]
    #[must_use]
    pub fn short(self) -> impl fmt::Display {
        /// Written only where it is shown: a span that nobody records costs no text.
        struct Short(OwnerId);
        impl fmt::Display for Short {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:02x}{:02x}", self.0.0[0], self.0.0[1])
            }
        }
        Short(self)
    }

    /// Returns the digits of [`to_hex`](Self::to_hex), without an allocation.
    #[doc(hidden)]
    #[must_use]
    pub fn digits(self) -> [u8; 32] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        digits
    }
}

/// Identities that were drawn and not given out yet. A system call for each identity would cost as much as the rest of
/// a claim.
struct Drawn {
    owners: [[u8; 16]; 16],
    left: usize,
    /// The process that drew them. A fork copies them, and must not use them.
    process: Option<MadeIn>,
}

impl Drawn {
    const NOTHING: Self = Self { owners: [[0; 16]; 16], left: 0, process: None };

    fn take(&mut self) -> OwnerId {
        if self.left == 0 || self.process.as_ref().is_none_or(MadeIn::was_forked) {
            #[expect(clippy::expect_used, reason = "a predictable owner could release somebody else's lock")]
            getrandom::fill(self.owners.as_flattened_mut()).expect("the operating system gives random bytes");
            (self.left, self.process) = (self.owners.len(), Some(MadeIn::this_process()));
        }
        self.left -= 1;
        OwnerId(self.owners[self.left])
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({}…)", self.short())
    }
}

/// The description that a holder gives of itself: host, process, call site and the name of the lock.
///
/// ```
/// use lock_core::HolderInfo;
///
/// let info = HolderInfo::new("web-3", 4711, "shop::charge");
/// assert_eq!(info.to_string(), "shop::charge (pid 4711 on web-3)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The host's name.
    pub host: Arc<str>,
    /// The process id on that host.
    pub pid: u32,
    /// The function or source line that took the lock.
    pub site: Arc<str>,
    /// The name of the lock: its template or declared name, as in metrics. `None` if unknown.
    pub lock: Option<LockLabel>,
}

impl HolderInfo {
    /// Describes a holder.
    #[must_use]
    pub fn new(host: impl Into<Arc<str>>, pid: u32, site: impl Into<Arc<str>>) -> Self {
        Self { host: host.into(), pid, site: site.into(), lock: None }
    }

    /// Adds the name of the lock.
    #[must_use]
    pub fn with_lock(mut self, lock: LockLabel) -> Self {
        self.lock = Some(lock);
        self
    }
}

impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {} on {})", self.site, self.pid, self.host)
    }
}

/// The current holder of a key, as the store reports it.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let guard = locks.lock("report").with_site("night::report").await?;
/// if let Some(holder) = locks.holder("report").await? {
///     println!("{holder}, for {:?} more", holder.ttl_left);
/// }
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's own description. `None` for a client of the classic protocol, whose value is an opaque string.
    pub info: Option<HolderInfo>,
    /// The identity of the grant. `None` for a client of the classic protocol.
    pub owner: Option<OwnerId>,
    /// The fencing token of the grant. For a lease that is handed on locally, this is the first holder's token. `None`
    /// from Redis: only the holder's process knows it.
    pub token: Option<FencingToken>,
    /// When the lock was granted, by the server's clock, as the holder estimated it; for Redisson, when a waiter here first saw it. `None`
    /// if that is not known, and for a [shared](Self::is_shared) lock: it may be taken without a break for days, by changing members.
    pub since: Option<SystemTime>,
    /// How long until the store frees the key by itself. `None` if it never will.
    pub ttl_left: Option<Duration>,
    /// What keeps the lock beside its lease and after it, and how that ends, in words: in PostgreSQL an open transaction that has
    /// pinned the lock. Neither the end of the lease nor a release frees the lock before.
    pub kept_by: Option<Arc<str>>,
    pub(crate) seen: Seen,
    #[doc(hidden)]
    pub shared: bool,
    /// Why it is not certain that this claim holds the key, and what to do then: of a quorum of which no majority names it.
    ///
    /// A thin pointer: the future of every acquire has room for a holder.
    #[doc(hidden)]
    pub doubt: Option<Arc<String>>,
}

/// Further knowledge about a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// Only the store's report.
    #[default]
    Stored,
    /// The holder is in this process.
    Here,
    /// The holder has released, and the key stays taken for the rest of its `min_hold`.
    Kept,
    /// Not even the lease is known, only that a claim has the lock.
    Nothing,
}

/// How a taken key becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its holder frees it, or the end of the lease.
    Leased,
    /// Only a client that may have ended would free it.
    Endless,
    /// Its holder has gone, and the end of the lease frees it.
    Kept,
    /// Its lease is over, and something else keeps it.
    Pinned,
}

impl Holder {
    /// Describes a holder of this library.
    #[must_use]
    pub fn new(info: HolderInfo, owner: OwnerId, token: FencingToken, ttl_left: Option<Duration>) -> Self {
        Self { info: Some(info), owner: Some(owner), token: Some(token), ..Self::foreign(ttl_left) }
    }

    /// Describes a holder of which only the key is known.
    #[must_use]
    pub fn foreign(ttl_left: Option<Duration>) -> Self {
        Self {
            info: None,
            owner: None,
            token: None,
            since: None,
            ttl_left,
            kept_by: None,
            seen: Seen::Stored,
            shared: false,
            doubt: None,
        }
    }

    /// Describes a holder about which no data could be read.
    #[doc(hidden)]
    #[must_use]
    pub fn unseen() -> Self {
        Self { seen: Seen::Nothing, ..Self::foreign(None) }
    }

    /// Turns it into a holder that has released a key that stays taken, for its `min_hold` or the period of a job.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { owner: None, seen: Seen::Kept, ..self }
    }

    /// Says that the holder is a caller of this process, and whether it shares the lock.
    #[doc(hidden)]
    #[must_use]
    pub fn here(self, shared: bool) -> Self {
        Self { seen: Seen::Here, shared, ..self }
    }

    /// Says why it is not certain that this claim holds the key, and what to do then.
    #[doc(hidden)]
    #[must_use]
    pub fn doubted(self, why: String) -> Self {
        Self { doubt: Some(Arc::new(why)), ..self }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn standing(&self) -> Standing {
        match (self.seen, self.ttl_left) {
            _ if self.kept_by.is_some() => Standing::Pinned,
            (Seen::Kept, _) => Standing::Kept,
            (Seen::Stored, None) => Standing::Endless,
            _ => Standing::Leased,
        }
    }

    /// Describes the holder for an error text. `how` says what the holder does to the key, for example `held`.
    #[doc(hidden)]
    pub fn in_the_way(&self, how: &str) -> String {
        let Some(info) = self.info.as_ref().filter(|_| self.seen == Seen::Kept) else {
            return format!("{how} by {self}");
        };
        if let Some(pin) = &self.kept_by {
            return format!("released by {info}, and pinned by {pin}");
        }
        let left = self.ttl_left.map_or_else(String::new, |left| format!(" for another {}", human(left)));
        format!("released by {info}, and kept{left} (its min_hold, or the period of a job)")
    }

    /// Returns whether it stands for several members: the readers of the lock, or the holders of its permits. The
    /// description is that of the first member, which may have left.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns the holder's call site, or `"foreign"` for a client of the classic protocol.
    #[must_use]
    pub fn site(&self) -> &str {
        self.info.as_ref().map_or("foreign", |info| &info.site)
    }

    /// Returns the name of the lock (its template or declared name), if the holder gave it.
    #[must_use]
    pub fn lock(&self) -> Option<&str> {
        self.info.as_ref()?.lock.as_ref().map(LockLabel::as_str)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.info, self.seen) {
            (Some(info), Seen::Here) => write!(f, "{info} of this process")?,
            (Some(info), _) => write!(f, "{info}")?,
            (None, Seen::Nothing) => return f.write_str("somebody else"),
            (None, _) => f.write_str("another client")?,
        }
        if let Some(pin) = &self.kept_by {
            return write!(f, ", whose lease has ended, and pinned by {pin}");
        }
        match (self.ttl_left, self.seen) {
            (Some(left), Seen::Kept) => write!(f, ", released and kept for another {}", human(left)),
            (Some(left), _) => write!(f, ", lease ends in {} unless renewed", human(left)),
            (None, _) => f.write_str(", without a lease"),
        }
    }
}

/// The text before the name of a lease's holder, in the place of a call site.
#[doc(hidden)]
pub const LEASE: &str = "lease ";

/// Reads the holder of a lease and its reason, from the text in the place of a call site: `lease ci-4711: release 42`.
#[must_use]
pub fn lease_of_site(site: &str) -> Option<(&str, &str)> {
    let text = site.strip_prefix(LEASE)?;
    let Some((holder, reason)) = text.split_once(' ') else { return Some((text, "")) };
    Some((holder.strip_suffix(':')?, reason))
}

/// Reads at what age a command under `lockctl run` counts as stuck, if its call site says so: `… (stuck after 60s)`.
#[doc(hidden)]
#[must_use]
pub fn command_of_site(site: &str) -> Option<Option<Duration>> {
    let command = site.strip_prefix("lockctl run ")?;
    let (_, age) = command.rsplit_once(" (stuck after ").unwrap_or_default();
    Some(age.strip_suffix("s)").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{OwnerId, command_of_site};

    #[test]
    fn a_command_says_when_it_is_stuck_or_nothing() {
        let after = |site| command_of_site(site).map(|after| after.map(|after| after.as_secs()));
        assert_eq!(after("lockctl run backup.sh (stuck after 7200s)"), Some(Some(7200)));
        assert_eq!((after("lockctl run odd (stuck after ever)"), after("lockctl run x")), (Some(None), Some(None)));
        assert_eq!(after("shop::charge"), None);
    }

    #[test]
    fn none_is_given_twice() {
        let owners: HashSet<OwnerId> = (0..1000).map(|_| OwnerId::random()).collect();
        assert_eq!(owners.len(), 1000);
    }

    #[test]
    fn hex_round_trip_and_redaction() {
        let owner = OwnerId::random();
        assert_eq!(OwnerId::from_hex(&owner.to_hex()), Some(owner));
        assert_ne!(owner, OwnerId::random());
        assert!(!format!("{owner:?}").contains(&owner.to_hex()));
        for bad in ["", "zz", &"+f".repeat(16), &"é".repeat(16)] {
            assert_eq!(OwnerId::from_hex(bad), None, "{bad}");
        }
    }
}

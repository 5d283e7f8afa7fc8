//! The text stored in a lock: `owner|since|ttl|host|pid|site|lock name`, at most 512 bytes.
//!
//! `since` is when the lock was taken, in ms of server time: as the client estimates it, or as a
//! script reads it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use redis::{RedisWrite, ToRedisArgs};

use lock_store::types::key::LockLabel;
#[cfg(feature = "inspect")]
use lock_store::types::mode::Mode;
use lock_store::types::owner::{Holder, HolderInfo, OwnerId};

/// How many bytes of a host, of a call site and of a lock's name are stored: with the
/// longest of the other fields they make 512.
const MAX_HOST: usize = 64;
const MAX_SITE: usize = 160;
const MAX_NAME: usize = 200;

/// Later than every instant in ms, earlier than every recent one in µs.
const LATEST: u64 = 1 << 43;

/// Writes the beginning of the values of an owner's locks.
pub(crate) fn head(owner: OwnerId) -> [u8; 33] {
    let mut head = [b'|'; 33];
    head[..32].copy_from_slice(&owner.digits());
    head
}

/// All of the value, written into the command that carries it. `since` is server time in ms.
pub(crate) struct Whole<'a> {
    pub(crate) owner: OwnerId,
    pub(crate) since: u64,
    pub(crate) tail: Tail<'a>,
}

/// The part of the value after `since`. The scripts put the owner and `since` before it.
pub(crate) struct Tail<'a> {
    pub(crate) ttl: Duration,
    pub(crate) info: &'a HolderInfo,
}

/// The most bytes of a value before its tail.
const FRONT: usize = 33 + 20 + 1;

impl Whole<'_> {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        // Put together first: each part would cost the command as much as the whole.
        let mut front = [0; FRONT];
        let mut rest = front.as_mut_slice();
        rest.write_all(&head(self.owner))?;
        write_number(&mut rest, self.since)?;
        rest.write_all(b"|")?;
        let length = FRONT - rest.len();
        to.write_all(&front[..length])?;
        to.write_all(&self.tail.text())
    }
}

/// A tail that was written.
struct Written {
    ttl: Duration,
    info: HolderInfo,
    text: Rc<[u8]>,
}

/// How many tails each thread remembers.
const REMEMBERED: usize = 16;

thread_local! {
    /// The tails that were written last: the same few call sites lock again and again.
    static WRITTEN: RefCell<[Option<Written>; REMEMBERED]> = const { RefCell::new([const { None }; REMEMBERED]) };
}

impl Tail<'_> {
    /// Returns about how long it is, and not less.
    pub(crate) fn length(&self) -> usize {
        let lock = self.info.lock.as_ref().map_or(0, |lock| lock.as_str().len());
        36 + self.info.host.len().min(MAX_HOST) + self.info.site.len().min(MAX_SITE) + lock.min(MAX_NAME)
    }

    fn text(&self) -> Rc<[u8]> {
        let remembered = WRITTEN.try_with(|written| {
            // Two call sites in one place only cost a little time.
            let place = &mut written.borrow_mut()[self.info.site.as_ptr().addr() / 16 % REMEMBERED];
            match place {
                Some(known) if known.ttl == self.ttl && known.info == *self.info => Rc::clone(&known.text),
                _ => {
                    let text = self.write();
                    *place = Some(Written { ttl: self.ttl, info: self.info.clone(), text: Rc::clone(&text) });
                    text
                }
            }
        });
        // A thread that ends may lock for a last time when its memory is gone already.
        remembered.unwrap_or_else(|_| self.write())
    }

    fn write(&self) -> Rc<[u8]> {
        let HolderInfo { host, pid, site, lock, .. } = self.info;
        let lock = lock.as_ref().map_or("", |lock| lock.as_str());
        let [host, site, lock] =
            [(&**host, MAX_HOST), (&**site, MAX_SITE), (lock, MAX_NAME)].map(|(text, most)| plain(text, most));
        format!("{}|{host}|{pid}|{site}|{lock}", millis(self.ttl)).into_bytes().into()
    }
}

impl ToRedisArgs for Whole<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        // Into memory, which cannot fail.
        let _ = self.write(&mut out.writer_for_next_arg());
    }
}

impl ToRedisArgs for Tail<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        out.write_arg(&self.text());
    }
}

/// Writes a number as `fmt` would, at a fraction of its cost: there is one in every lock.
pub(crate) fn write_number(to: &mut impl Write, mut number: u64) -> io::Result<()> {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] += u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return to.write_all(&digits[first..]);
        }
    }
}

/// Reads the holder from a value. Text that is not in our format belongs to a client of the classic
/// protocol.
pub(crate) fn holder(value: &[u8], ttl_left: Option<Duration>) -> Holder {
    read(value, ttl_left).unwrap_or_else(|| Holder::foreign(ttl_left))
}

fn read(value: &[u8], ttl_left: Option<Duration>) -> Option<Holder> {
    let mut parts = std::str::from_utf8(value).ok()?.split('|');
    let owner = parts.next()?;
    // In a phase there is a count of units, and a token that begins with the time at which it was drawn.
    let shared = owner.len() == 32 && owner.starts_with("shared");
    let owner = if shared { None } else { Some(OwnerId::from_hex(owner)?) };
    let since = parts.next()?;
    let since: u64 = since.split_once('-').filter(|_| shared).map_or(since, |(ms, _)| ms).parse().ok()?;
    // Older versions wrote a token here, which was the same moment in µs.
    let since = Duration::from_millis(if since > LATEST { since / 1000 } else { since });
    // The time of a phase is not that of any of its members.
    let since = if shared { None } else { UNIX_EPOCH.checked_add(since) };
    let info = Some(info(&mut parts)?);
    let mut holder = Holder::foreign(ttl_left);
    (holder.info, holder.owner, holder.since, holder.shared) = (info, owner, since, shared);
    if value.starts_with(&[b'0'; 32]) {
        // Released, but kept for the rest of its `min_hold`: no claim holds it any more.
        return Some(holder.kept());
    }
    Some(holder)
}

/// Reads the ttl with which a lock was taken.
#[cfg(feature = "inspect")]
pub(crate) fn ttl(value: &[u8]) -> Option<Duration> {
    std::str::from_utf8(value).ok()?.split('|').nth(2)?.parse().ok().map(Duration::from_millis)
}

/// Reads a waiter, and when it last confirmed in server µs, from the text that `entry.lua` packs for
/// a claim.
pub(crate) fn waiter(entry: &[u8]) -> Option<(HolderInfo, u64)> {
    let mut parts = std::str::from_utf8(entry).ok()?.split('|');
    let confirmed = parts.nth(2)?.parse().ok()?;
    // A claim that shares has its mode before the floor.
    let mode_or_floor = parts.nth(2)?;
    let behind = usize::from(mode_or_floor.starts_with('s'));
    Some((info(parts.by_ref().skip(behind))?, confirmed))
}

/// Reads how a claim shares the lock, or wants to, from that text.
#[cfg(feature = "inspect")]
pub(crate) fn mode(entry: &[u8]) -> Option<Mode> {
    let mode_or_floor = std::str::from_utf8(entry).ok()?.split('|').nth(5)?;
    let Some(terms) = mode_or_floor.strip_prefix('s') else { return Some(Mode::Exclusive) };
    let (units, limit) = terms.split_once('/')?;
    Some(Mode::Shared { units: units.parse().ok()?, limit: limit.parse().ok()? })
}

/// Reads how many units of a lock are taken, if it is shared.
#[cfg(feature = "inspect")]
pub(crate) fn units(value: &[u8]) -> Option<u64> {
    let units = value.strip_prefix(b"shared")?.split_at_checked(26).filter(|(_, rest)| rest.starts_with(b"|"))?;
    std::str::from_utf8(units.0).ok()?.parse().ok()
}

/// Reads the fields that a holder and a waiter have in common. The lock's name is missing from values
/// that older versions wrote, and empty for a lock that has none.
pub(crate) fn info<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<HolderInfo> {
    let mut parts = parts.into_iter();
    let _ttl: u64 = parts.next()?.parse().ok()?;
    let host = parts.next()?;
    let pid = parts.next()?.parse().ok()?;
    let info = HolderInfo::new(host, pid, parts.next()?);
    Some(match parts.next() {
        Some(lock) if !lock.is_empty() => info.with_lock(LockLabel::new(lock.to_owned())),
        Some(_) | None => info,
    })
}

/// Returns whole milliseconds, at least one, since Redis refuses an expiry of zero.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Removes characters that would end the field or garble a terminal.
fn plain(text: &str, most: usize) -> Cow<'_, str> {
    // Nearly always: one look at each byte, without a branch.
    let is_plain = |plain: bool, byte: &u8| plain & (0x20..0x7f).contains(byte) & (*byte != b'|');
    if text.len() <= most && text.as_bytes().iter().fold(true, is_plain) {
        return Cow::Borrowed(text);
    }
    let bad = |c: char| c == '|' || c.is_control();
    let mut plain = String::new();
    for c in text.chars() {
        if plain.len() + c.len_utf8() > most {
            break;
        }
        plain.push(if bad(c) { '_' } else { c });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
#[path = "tests/value.rs"]
mod tests;

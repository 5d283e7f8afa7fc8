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
mod tests {
    use std::rc::Rc;
    use std::time::{Duration, UNIX_EPOCH};

    use super::{Tail, Whole, head, holder, waiter, write_number};
    use lock_store::types::key::LockLabel;
    use lock_store::types::owner::{HolderInfo, OwnerId};

    const LEFT: Option<Duration> = Some(Duration::from_secs(3));

    fn tail(ttl: Duration, info: &HolderInfo) -> String {
        let tail = Tail { ttl, info };
        let text = tail.text();
        assert!(text.len() <= tail.length());
        // The remembered value is the one that would be written.
        assert_eq!((tail.text(), tail.write()), (Rc::clone(&text), Rc::clone(&text)));
        String::from_utf8(text.to_vec()).unwrap()
    }

    fn value(owner: &str, info: &HolderInfo) -> String {
        format!("{owner}|42|{}", tail(Duration::from_secs(10), info))
    }

    #[test]
    fn round_trip() {
        let info = HolderInfo::new("web-1", 7, "app::charge").with_lock(LockLabel::from_static("lock:user:<id>"));
        let owner = OwnerId::random();
        let text = value(&owner.to_hex(), &info);
        assert_eq!(text, format!("{}|42|10000|web-1|7|app::charge|lock:user:<id>", owner.to_hex()));
        let read = holder(text.as_bytes(), LEFT);
        let mut written = Vec::new();
        Whole { owner, since: 42, tail: Tail { ttl: Duration::from_secs(10), info: &info } }
            .write(&mut written)
            .unwrap();
        assert_eq!(written, text.as_bytes());
        assert_eq!((read.info, read.owner, read.token), (Some(info), Some(owner), None));
        assert_eq!(read.since, Some(UNIX_EPOCH + Duration::from_millis(42)));
        assert_eq!(read.ttl_left, LEFT);
        assert!(text.as_bytes().starts_with(&head(owner)));
    }

    #[test]
    fn numbers_are_written_as_usual() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            let mut written = Vec::new();
            write_number(&mut written, number).unwrap();
            assert_eq!(written, number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_token_in_the_place_of_the_instant_is_read() {
        let text = format!("{}|1763000000000000|10000|web-1|7|app::charge", OwnerId::random().to_hex());
        let since = UNIX_EPOCH + Duration::from_secs(1_763_000_000);
        assert_eq!(holder(text.as_bytes(), None).since, Some(since));
    }

    #[test]
    fn a_value_without_the_name_of_its_lock_is_read() {
        let owner = OwnerId::random().to_hex();
        for text in [format!("{owner}|42|10000|web-1|7|app::charge"), format!("{owner}|42|10000|web-1|7|app::charge|")]
        {
            let read = holder(text.as_bytes(), LEFT);
            assert_eq!((read.site(), read.lock()), ("app::charge", None), "{text}");
        }
    }

    #[test]
    fn the_longest_value_is_read_whole() {
        let long = "é".repeat(300);
        let info = HolderInfo::new(&*long, u32::MAX, &*long).with_lock(LockLabel::new(long.clone()));
        let tail = tail(Duration::from_millis(u64::MAX), &info);
        let text = format!("{}|{}|{tail}", OwnerId::random().to_hex(), i64::MAX);
        assert!(text.len() <= 512, "{}", text.len());
        assert_eq!(holder(text.as_bytes(), None).lock(), Some(&*"é".repeat(100)));
    }

    #[test]
    fn separators_and_control_characters_are_taken_out() {
        let info = HolderInfo::new("a|b", 7, format!("x\n\u{1b}[2J{}", "é".repeat(300)));
        let read = holder(value(&OwnerId::random().to_hex(), &info).as_bytes(), None);
        let read = read.info.unwrap();
        assert_eq!((&*read.host, read.pid), ("a_b", 7));
        assert!(read.site.starts_with("x__[2Jé") && read.site.len() <= 160, "{}", read.site);
    }

    #[test]
    fn a_waiter_tells_who_it_is() {
        let info = HolderInfo::new("web-1", 7, "app::charge");
        let entry = format!("inbox:1|5|1700|0|3000|9-1|{}", tail(Duration::from_secs(10), &info));
        assert_eq!(waiter(entry.as_bytes()), Some((info.clone(), 1700)));
        let named = info.clone().with_lock(LockLabel::from_static("job"));
        let entry = format!("inbox:1|5|1700|0|3000|9-1|{}", tail(Duration::from_secs(10), &named));
        assert_eq!(waiter(entry.as_bytes()), Some((named, 1700)));
        for bad in ["", "a|b|c", "i|5|x|0|1|1|1|h|7|s", "i|5|1|0|1|1|1|h|x|s", "i|5|1|0|1|1|1|h|7"] {
            assert_eq!(waiter(bad.as_bytes()), None, "{bad}");
        }
    }

    #[cfg(feature = "inspect")]
    #[test]
    fn a_claim_tells_how_it_shares_and_a_phase_how_much_is_taken() {
        use lock_store::types::mode::Mode;
        let entry = |floor: &str| format!("inbox:1|5|1700|0|3000|{floor}|10000|web-1|7|app::charge|job");
        for (text, mode) in [("9-1", Some(Mode::Exclusive)), ("s3/16|9-1", Mode::permits(3, 16).ok()), ("sx|9", None)] {
            assert_eq!(super::mode(entry(text).as_bytes()), mode, "{text}");
        }
        assert_eq!(super::mode(b""), None);
        let phase = |units: &str| format!("shared{units}|1700-0-0|10000|h|1|s|");
        assert_eq!(super::units(phase(&format!("{:026}", 7)).as_bytes()), Some(7));
        for other in [phase("7"), format!("{:032}|1|10000|h|1|s|", 0), "shared".to_owned()] {
            assert_eq!(super::units(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_kept_key_has_no_owner() {
        let read = holder(value(&"0".repeat(32), &HolderInfo::new("h", 1, "s")).as_bytes(), LEFT);
        assert_eq!((read.owner, read.site()), (None, "s"));
    }

    #[test]
    fn everything_else_is_foreign() {
        let owner = OwnerId::random().to_hex();
        for text in [
            "".to_owned(),
            "1".to_owned(),
            owner.clone(),
            format!("{owner}|"),
            format!("{owner}|x|10000|h|1|s"),
            format!("{owner}|1|10000|h|x|s"),
            format!("{owner}|1|10000|h|1"),
            format!("{}|1|10000|h|1|s", &owner[1..]),
        ] {
            let read = holder(text.as_bytes(), LEFT);
            assert!(read.info.is_none() && read.owner.is_none() && read.token.is_none(), "{text}");
            assert_eq!((read.site(), read.ttl_left), ("foreign", LEFT));
        }
        assert!(holder(&[0xff, 0xfe], None).info.is_none());
    }
}

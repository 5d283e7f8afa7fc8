//! The holder of a lock: what lies in the server, and what a holder of this library says of itself.

use std::time::{Duration, UNIX_EPOCH};

use crate::listen::Channels;
use crate::names::{self, Field};
use crate::scripts::Told;
use lock_redis::layout::time_left;
use lock_store::contract::backend::{EntryState, LockEntry};
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::mode::Mode;
use lock_store::types::owner::{Holder, HolderInfo, OwnerId};

/// How much of a host, of a call site and of a lock's name is stored.
const MOST_CHARS: usize = 160;

/// The call site of a thread of Redisson. It is a metric label, so it has no number in it.
const REDISSON: &str = "Redisson";

/// A lock that is taken.
#[derive(Debug)]
pub(crate) struct Seen {
    now: Duration,
    left: Option<Duration>,
    about: String,
    /// The field of its holder. Without one it is another hash.
    pub(crate) field: Option<(String, Field)>,
    /// Since when at least a thread of Redisson has it, if releases are heard.
    since: Option<Duration>,
}

impl Seen {
    /// Reads an answer. `None` if it cannot be read.
    pub(crate) fn read(told: &Told, lock: &LockKey, channels: &Channels) -> Option<Self> {
        let (now, left) = (Duration::from_micros(told.now), time_left(told.number(1)?));
        let about = told.text(2)?.to_owned();
        let fields = (3..told.rest.len()).filter_map(|at| told.text(at));
        let field = fields.filter_map(|text| Some((text.to_owned(), Field::read(text)?))).next();
        let ends = left.map_or(Duration::MAX, |left| now.saturating_add(left));
        let thread = field.as_ref().filter(|(_, of)| matches!(of, Field::Redisson(..)));
        let since = thread.and_then(|(thread, _)| channels.held_since(&names::channel(lock), thread, now, ends));
        Some(Self { now, left, about, field, since })
    }

    /// Describes the holder.
    pub(crate) fn holder(&self) -> Holder {
        let mut holder = Holder::foreign(self.left);
        match &self.field {
            Some((_, Field::Claim(owner))) => {
                holder.owner = Some(*owner);
                self.describe(*owner, &mut holder);
            }
            Some((_, Field::Kept(owner))) => {
                self.describe(*owner, &mut holder);
                return holder.kept();
            }
            Some((_, Field::Redisson(client, thread))) => {
                holder.info = Some(HolderInfo::new(client.as_str(), thread.parse().unwrap_or(0), REDISSON));
                holder.since = self.since.map(|since| UNIX_EPOCH + since);
            }
            None => {}
        }
        holder
    }

    /// Adds what the holder says of itself, unless somebody else has said it.
    fn describe(&self, owner: OwnerId, holder: &mut Holder) {
        let Some(rest) = self.about.strip_prefix(&format!("{}|", owner.to_hex())) else { return };
        let parts: Vec<&str> = rest.split('|').collect();
        let [since, _, host, pid, site, lock] = parts.as_slice() else { return };
        holder.since = since.parse().ok().and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        let info = HolderInfo::new(*host, pid.parse().unwrap_or(0), *site);
        let label = Some(*lock).filter(|lock| !lock.is_empty()).map(|lock| LockLabel::new(lock.to_owned()));
        holder.info = Some(label.into_iter().fold(info, HolderInfo::with_lock));
    }

    /// Describes the lock.
    pub(crate) fn entry(self, key: LockKey) -> LockEntry {
        let holder = self.holder();
        let mut entry = LockEntry::new(key, holder, UNIX_EPOCH + self.now);
        entry.waiters = Some(0);
        match self.field {
            Some((_, Field::Claim(_))) => {
                let ttl = self.about.split('|').nth(2).and_then(|ttl| ttl.parse().ok());
                entry.ttl = ttl.map(Duration::from_millis);
            }
            Some((field, Field::Redisson(client, thread))) => {
                (entry.state, entry.mode) = (EntryState::Held, Some(Mode::Exclusive));
                entry.details = vec![("client", client), ("thread", thread)];
                entry.foreign_value = Some(field.into_bytes());
            }
            _ => {}
        }
        entry
    }
}

/// Writes what a holder says of itself, behind its owner and since when it has the lock.
pub(crate) fn about(ttl: Duration, info: &HolderInfo) -> String {
    let lock = info.lock.as_ref().map_or("", LockLabel::as_str);
    let [host, site, lock] = [&*info.host, &*info.site, lock].map(plain);
    format!("{}|{host}|{}|{site}|{lock}", ttl.as_millis(), info.pid)
}

fn plain(text: &str) -> String {
    let is_plain = |c: char| c != '|' && !c.is_control();
    text.chars().take(MOST_CHARS).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Seen, about};
    use crate::listen::{Channels, Verb};
    use crate::names;
    use crate::scripts::Told;
    use lock_store::contract::backend::EntryState;
    use lock_store::types::key::{LockKey, LockLabel};
    use lock_store::types::owner::{HolderInfo, OwnerId};
    use redis::Value;

    fn seen(left: i64, about: &str, fields: &[&str]) -> Seen {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let mut rest = vec![text("h"), Value::Int(left), text(about)];
        rest.extend(fields.iter().map(|field| text(field)));
        Seen::read(&Told { now: 9_000_000, rest }, &key(), &Channels::new(Verb::Plain)).unwrap()
    }

    fn key() -> LockKey {
        LockKey::new("k").unwrap()
    }

    #[test]
    fn a_java_holder_is_named_by_its_client_and_thread_and_can_be_named_to_take_its_lock_away() {
        let field = "8743c9c0-0795-4907-87fd-6c719a6b4586:42";
        let found = seen(-1, "", &["mode", field]);
        assert_eq!(
            found.holder().to_string(),
            "Redisson (pid 42 on 8743c9c0-0795-4907-87fd-6c719a6b4586), without a lease"
        );
        let entry = found.entry(key());
        assert_eq!((entry.state, entry.is_without_ttl()), (EntryState::Held, true));
        assert_eq!(entry.foreign_value.as_deref(), Some(field.as_bytes()));
        assert_eq!(entry.details, [("client", field[..36].to_owned()), ("thread", "42".to_owned())]);
        assert_eq!(
            (entry.holder.site(), entry.held_for),
            ("Redisson", None),
            "nobody listens for releases, so it is not known since when it has the lock"
        );
    }

    #[test]
    fn a_holder_of_ours_describes_itself_and_nobody_else() {
        let (owner, info) = (OwnerId::random(), HolderInfo::new("web|3", 7, "shop::charge\n"));
        let text = about(Duration::from_secs(30), &info.with_lock(LockLabel::new("order:{id}".to_owned())));
        let whole = format!("{}|5000|{text}", owner.to_hex());
        let field = names::field(owner);
        let entry = seen(900, &whole, &[&field]).entry(key());
        assert_eq!((entry.state, entry.holder.owner), (EntryState::Held, Some(owner)));
        assert_eq!((entry.held_for, entry.ttl), (Some(Duration::from_secs(4)), Some(Duration::from_secs(30))));
        let told = entry.holder.info.unwrap();
        assert_eq!((&*told.host, told.pid, &*told.site), ("web_3", 7, "shop::charge_"));
        assert_eq!(told.lock.unwrap().as_str(), "order:{id}");
        let kept = seen(900, &whole, &[&names::kept(owner)]).entry(key());
        assert_eq!((kept.state, kept.holder.owner), (EntryState::Kept, None));
        let other = seen(900, &whole, &[&names::field(OwnerId::random())]).entry(key());
        assert!(other.holder.info.is_none() && other.holder.owner.is_some());
    }

    #[test]
    fn another_hash_is_taken_and_no_lock() {
        let found = seen(-1, "", &["name", "price"]);
        assert!(found.field.is_none());
        assert_eq!(found.entry(key()).state, EntryState::Foreign);
    }
}

//! The claims about the keys of a lock, before and after a command.

use std::collections::{HashMap, HashSet};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script, Value};

use crate::checker::world::{GRANT, Known};

const LOOK: &str = "
local time, value = redis.call('TIME'), redis.call('GET', KEYS[1])
return { time[1] * 1000000 + time[2], value or '', redis.call('PEXPIRETIME', KEYS[1]),
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[3]),
  redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[3]) }";

/// How far from the end of a lease a command must be for what follows to be certain, ms.
const EDGE: f64 = 5.0;

/// A connection that looks at the keys.
pub(super) struct Eyes {
    connection: MultiplexedConnection,
    script: Script,
}

/// The keys of one lock at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    /// Server time, ms.
    now: f64,
    value: String,
    expires: i64,
    /// Owners by their scores.
    queue: Vec<(String, f64)>,
    waiters: HashMap<String, String>,
    left: [i64; 3],
}

impl Eyes {
    pub(super) async fn open(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        // A busy machine may take longer than the half second that is usual.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        Self { connection, script: Script::new(LOOK) }
    }

    pub(super) async fn look(&mut self, key: &str) -> Sight {
        let mut call = self.script.key(key);
        call.key(format!("{{{key}}}@queue")).key(format!("{{{key}}}@waiters"));
        type Parts = (f64, String, i64, Vec<(String, f64)>, HashMap<String, String>, i64, i64, i64);
        let answer: Value = call.invoke_async(&mut self.connection).await.unwrap();
        let (now, value, expires, queue, waiters, k, q, w): Parts = redis::from_redis_value(answer).unwrap();
        Sight { now: now / 1e3, value, expires, queue, waiters, left: [k, q, w] }
    }

    /// Returns whether anything but the memory of other clients is left of a lock.
    pub(super) async fn sees_nothing(&mut self, key: &str) -> bool {
        let sight = self.look(key).await;
        sight.value.is_empty() && sight.queue.is_empty() && sight.waiters.keys().all(|owner| owner == "others")
    }
}

impl Sight {
    fn used(&self) -> Option<u64> {
        self.value.strip_prefix("shared")?.get(..26)?.parse().ok()
    }

    fn waiting(&self) -> impl Iterator<Item = &(String, f64)> {
        self.queue.iter().filter(|(_, score)| *score > 0.0)
    }

    fn sharing(&self) -> impl Iterator<Item = &(String, f64)> {
        self.queue.iter().filter(|(_, score)| *score < 0.0)
    }

    /// Returns everybody who has the lock.
    fn holders(&self) -> HashSet<&str> {
        let alone = self.value.get(..32).filter(|_| self.used().is_none() && self.value.get(32..33) == Some("|"));
        self.sharing().map(|(owner, _)| owner.as_str()).chain(alone).collect()
    }

    /// Returns one of the fields of a waiter that stand between bars.
    fn field(&self, owner: &str, at: usize) -> Option<&str> {
        self.waiters.get(owner)?.split('|').nth(at)
    }

    fn units(&self, owner: &str) -> Option<u64> {
        self.field(owner, 5)?.strip_prefix('s')?.split_once('/')?.0.parse().ok()
    }

    /// Whether every live waiter is known to, and confirmed its place in time.
    fn is_told(&self, owner: &str) -> bool {
        let confirmed: f64 = self.field(owner, 2).and_then(|text| text.parse().ok()).unwrap_or(0.0);
        self.field(owner, 3) == Some("0") && self.now - confirmed / 1e3 < 0.8 * GRANT.as_millis() as f64
    }

    /// Checks what must hold at any moment.
    pub(super) fn is_sound(&self) -> Result<(), String> {
        if let Some(at) = self.left.iter().position(|left| *left == -1) {
            return Err(format!("no expiry: {} of {self:?}", ["K", "queue", "waiters"][at]));
        }
        let known: HashSet<&str> = self.waiters.keys().map(String::as_str).filter(|owner| *owner != "others").collect();
        if known != self.queue.iter().map(|(owner, _)| owner.as_str()).collect() {
            return Err(format!("queue and waiters differ: {self:?}"));
        }
        let Some(used) = self.used() else { return Ok(()) };
        let counted: Option<u64> = self.sharing().map(|(owner, _)| self.units(owner)).sum();
        if counted != Some(used) {
            return Err(format!("{counted:?} units are held, and {used} counted: {self:?}"));
        }
        let longest = self.sharing().map(|(_, score)| -score).fold(0.0, f64::max);
        if longest > self.now && (self.expires as f64) < longest {
            return Err(format!("the key ends before a lease: {self:?}"));
        }
        if longest - self.now > self.left[1].min(self.left[2]) as f64 {
            return Err(format!("queue or waiters end before a lease: {self:?}"));
        }
        Ok(())
    }

    /// Checks that nobody was passed between two sights.
    pub(super) fn follows(&self, before: &Self, known: &Known) -> Result<(), String> {
        if self.waiters.contains_key("others") || before.waiters.contains_key("others") {
            return Ok(());
        }
        let (had, have) = (before.holders(), self.holders());
        for new in have.difference(&had).filter(|owner| known.contains_key(**owner)) {
            for (ahead, place) in before.waiting().take_while(|(owner, _)| owner != new) {
                let stays = self.waiting().any(|(owner, score)| owner == ahead && score == place);
                if stays && known.get(ahead).is_some_and(|wish| wish.waits_alive) && self.is_told(ahead) {
                    return Err(format!("{new} passed {ahead}: {before:?}, then {self:?}"));
                }
            }
        }
        Ok(())
    }

    /// Checks that the first in the queue does not fit, after a command that moves the queue on.
    pub(super) fn moved_on(&self, before: &Self, known: &Known) -> Result<(), String> {
        let ends = |sight: &Self| -> Vec<f64> {
            sight.sharing().map(|(_, score)| -score).chain([sight.expires as f64]).collect()
        };
        let near = |end: &f64| (before.now - EDGE..self.now + EDGE).contains(end);
        if self.waiters.contains_key("others")
            || self.now - before.now > 50.0
            || ends(self).iter().chain(&ends(before)).any(near)
        {
            return Ok(());
        }
        let Some((first, _)) = self.waiting().next() else { return Ok(()) };
        let Some(wish) = known.get(first).filter(|wish| wish.waits_alive) else { return Ok(()) };
        let running = self.sharing().filter(|(_, score)| -score > self.now);
        let used = self.used().map(|_| running.filter_map(|(owner, _)| self.units(owner)).sum::<u64>());
        let fits = match (wish.terms, used) {
            (Some((units, limit)), Some(used)) => used + u64::from(units) <= u64::from(limit),
            _ => self.value.is_empty() || used == Some(0),
        };
        if fits && self.is_told(first) {
            return Err(format!("{first} fits and was left waiting: {before:?}, then {self:?}"));
        }
        Ok(())
    }
}

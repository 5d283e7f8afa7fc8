//! Walks through the keys of a server, slowly.

use std::collections::HashSet;
use std::time::Duration;

use redis::Value;

use crate::clock::Clock;
use crate::error::Result;
use crate::key::LockKey;
use crate::redis::inspect::{EntryState, FleetReader, Found, LockEntry};
use crate::redis::keys;

/// Says what a [`Scan`] looks at, and how much it may cost.
#[derive(Clone, Debug)]
#[must_use]
pub struct ScanOptions {
    prefix: String,
    foreign: Vec<String>,
    pause: Duration,
    max_keys: u64,
}

impl ScanOptions {
    /// How many keys the server looks at in one go. Ten times as many were measured to keep other
    /// clients waiting for 5 ms instead of 0.5 ms.
    const BATCH: u64 = 100;

    /// Looks at every key, at most a million, with a pause of 1 ms after each hundred.
    pub fn new() -> Self {
        Self { prefix: String::new(), foreign: Vec::new(), pause: Duration::from_millis(1), max_keys: 1_000_000 }
    }

    /// Looks only at keys that begin with this.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Takes strings that are not in our format for locks of other clients, below this prefix. May
    /// be given more than once; without it they are left out.
    pub fn with_foreign_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.foreign.push(prefix.into());
        self
    }

    /// Sets the pause after each hundred keys.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets how many keys are looked at, about, before the scan ends
    /// [truncated](Scan::is_truncated).
    pub fn with_max_keys(mut self, max_keys: u64) -> Self {
        self.max_keys = max_keys;
        self
    }
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A walk through the locks of a server, batch by batch.
///
/// What is taken or freed meanwhile may or may not be seen; what is held all the time is seen once.
#[derive(Debug)]
pub struct Scan<'a> {
    reader: &'a FleetReader,
    options: ScanOptions,
    /// Where to go on; `None` at the end.
    cursor: Option<u64>,
    visited: u64,
    truncated: bool,
    /// The locks given so far: SCAN may name a key twice.
    given: HashSet<LockKey>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(reader: &'a FleetReader, options: ScanOptions) -> Self {
        Self { reader, options, cursor: Some(0), visited: 0, truncated: false, given: HashSet::new() }
    }

    /// Reads the next locks; perhaps none, although there are more. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured).
    ///
    /// # Cancel safety
    ///
    /// Safe: the same batch is read again.
    pub async fn next(&mut self) -> Result<Option<Vec<LockEntry>>> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        if self.visited >= self.options.max_keys {
            self.truncated = true;
            self.cursor = None;
            return Ok(None);
        }
        if cursor != 0 {
            let clock = Clock::system();
            clock.sleep_until(clock.now().after(self.options.pause)).await;
        }
        let (next, names) = self.reader.within("scan", self.keys(cursor)).await?;
        let names: Vec<LockKey> = names.into_iter().filter(|name| !self.given.contains(name)).collect();
        let found = self.reader.read(&names).await?;
        self.cursor = Some(next).filter(|next| *next != 0);
        self.visited += ScanOptions::BATCH;
        let mut entries = Vec::new();
        for found in found {
            if let Found::Entry(entry) = found
                && self.is_wanted(&entry)
                && self.given.insert(entry.key.clone())
            {
                entries.push(entry);
            }
        }
        Ok(Some(entries))
    }

    /// Returns whether the scan ended early because it had looked at as many keys as it may.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    async fn keys(&self, cursor: u64) -> Result<(u64, Vec<LockKey>)> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("COUNT").arg(ScanOptions::BATCH).arg("TYPE").arg("string");
        if !self.options.prefix.is_empty() {
            command.arg("MATCH").arg(format!("{}*", literal(&self.options.prefix)));
        }
        let link = self.reader.store.pool.link().await?;
        let answer = link.send(&command).await.map_err(|error| self.reader.failed("scan", &error))?;
        read(answer).ok_or_else(|| self.reader.store.unreadable("scan"))
    }

    fn is_wanted(&self, entry: &LockEntry) -> bool {
        entry.state != EntryState::Foreign
            || self.options.foreign.iter().any(|prefix| entry.key.as_str().starts_with(prefix))
    }
}

/// Reads an answer of SCAN. Names that no lock can have are left out.
fn read(answer: Value) -> Option<(u64, Vec<LockKey>)> {
    let Value::Array(parts) = answer else { return None };
    let Ok([Value::BulkString(cursor), Value::Array(names)]) = <[Value; 2]>::try_from(parts) else { return None };
    let cursor = std::str::from_utf8(&cursor).ok()?.parse().ok()?;
    let name = |name: Value| match name {
        Value::BulkString(name) => String::from_utf8(name).ok().filter(|name| !keys::is_reserved(name)),
        _ => None,
    };
    let names = names.into_iter().filter_map(name).filter_map(|name| LockKey::new(name).ok());
    Some((cursor, names.collect()))
}

/// Writes text so that MATCH takes it as it is.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{literal, read};

    fn text(text: &[u8]) -> Value {
        Value::BulkString(text.to_vec())
    }

    #[test]
    fn patterns_are_taken_literally() {
        assert_eq!(literal("a*b[c]?\\é"), "a\\*b\\[c\\]\\?\\\\é");
    }

    #[test]
    fn only_names_of_locks_are_taken() {
        let long = "x".repeat(600);
        let names = [&b"a"[..], b"{a}@fence", b"x:@queue", b"\xff\xfe", long.as_bytes()].map(text).to_vec();
        let (cursor, keys) = read(Value::Array(vec![text(b"17"), Value::Array(names)])).unwrap();
        assert_eq!((cursor, keys.len(), keys[0].as_str()), (17, 1, "a"));
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        for bad in [Value::Nil, Value::Array(vec![text(b"1")]), Value::Array(vec![text(b"x"), Value::Array(vec![])])] {
            assert!(read(bad.clone()).is_none(), "{bad:?}");
        }
    }
}

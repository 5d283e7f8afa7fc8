//! The clock of a server, which is a stream: how its ids become fencing tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_store::types::fencing::FencingToken;

/// How far ahead of the server's time a token known from elsewhere may lie. As in `layout.lua`.
const HOUR: Duration = Duration::from_secs(3600);

/// How many sequence numbers of one millisecond can become tokens.
const SEQUENCE: u64 = 1 << 13;

/// The id of an entry of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl Draw {
    /// Reads `ms-seq`.
    #[must_use]
    pub fn read(id: &[u8]) -> Option<Self> {
        let (ms, seq) = std::str::from_utf8(id).ok()?.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, seq: seq.parse().ok()? })
    }

    /// Returns the draw from which a token was made.
    #[must_use]
    pub fn of(token: FencingToken) -> Self {
        let numbers = token.get() / FencingToken::PER_GRANT;
        Self { ms: numbers / SEQUENCE, seq: numbers % SEQUENCE }
    }

    /// Makes the first of the grant's 128 tokens. `None` if it would exceed 63 bits or collide with a
    /// token of another millisecond.
    #[must_use]
    pub fn token(self) -> Option<FencingToken> {
        let fits = self.ms < 1 << 43 && self.seq < SEQUENCE;
        fits.then(|| FencingToken::new((self.ms * SEQUENCE + self.seq) * FencingToken::PER_GRANT))
    }
}

impl std::fmt::Display for Draw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// Writes the token of a phase, `ms-seq-number`.
pub(crate) fn of_phase(token: FencingToken) -> String {
    format!("{}-{}", Draw::of(token), token.get() % FencingToken::PER_GRANT)
}

/// Reads the token of a phase.
pub(crate) fn token_of_phase(text: &[u8]) -> Option<FencingToken> {
    let (draw, number) = std::str::from_utf8(text).ok()?.rsplit_once('-')?;
    let number: u64 = number.parse().ok().filter(|number| *number < FencingToken::PER_GRANT)?;
    Some(FencingToken::new(Draw::read(draw.as_bytes())?.token()?.get() + number))
}

/// The newest token of a server that this process knows. The clock can be lost by a flush, an eviction
/// or a failover while the server's time is behind: then tokens continue above this one.
#[derive(Debug, Default)]
pub(crate) struct Floor(AtomicU64);

impl Floor {
    pub(crate) fn raise(&self, token: FencingToken) {
        self.0.fetch_max(token.get(), Ordering::Relaxed);
    }

    /// Returns what the next token must exceed: this token, or the one that the caller knows. A token too
    /// far ahead of the server's time for the clock to be set there is invalid data that somebody wrote,
    /// and is forgotten.
    pub(crate) fn at_least(&self, callers: FencingToken, server_micros: u64) -> FencingToken {
        let newest = FencingToken::new(self.0.load(Ordering::Relaxed));
        let hour = u64::try_from(HOUR.as_millis()).unwrap_or(u64::MAX);
        if Draw::of(newest).ms > server_micros / 1000 + hour {
            let _ = self.0.compare_exchange(newest.get(), callers.get(), Ordering::Relaxed, Ordering::Relaxed);
            return callers;
        }
        newest.max(callers)
    }
}

#[cfg(test)]
#[path = "tests/clock.rs"]
mod tests;

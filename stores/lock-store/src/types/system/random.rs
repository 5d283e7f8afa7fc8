//! Random numbers for pauses and starting places, where only their spread matters. Never use them for identities.

/// Draws 32 bits. Each state has its own keys. The first keys of a thread come from the operating system.
#[cfg(not(feature = "test-util"))]
fn draw() -> u64 {
    use std::hash::{BuildHasher, RandomState};

    RandomState::new().hash_one(()) >> 32
}

/// Draws 32 bits. A simulation gives its seed to `fastrand::seed`.
#[cfg(feature = "test-util")]
fn draw() -> u64 {
    fastrand::u32(..).into()
}

/// Draws a number from 0 up to, but not including, `limit`. Returns 0 if `limit` is 0.
#[must_use]
pub fn below(limit: u32) -> u32 {
    u32::try_from((draw() * u64::from(limit)) >> 32).unwrap_or(0)
}

/// Draws a number from 0 up to, but not including, 1.
#[must_use]
pub fn fraction() -> f64 {
    f64::from(below(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{below, fraction};

    #[test]
    fn draws_are_spread_and_stay_below_their_limit() {
        let mut counts = [0; 8];
        (0..8_000).for_each(|_| counts[below(8) as usize] += 1);
        // Seven standard deviations: about one run in 10^11 fails by chance.
        assert!(counts.iter().all(|count| (790..1_210).contains(count)), "{counts:?}");
        let (low, high) = (0..1_000)
            .map(|_| fraction())
            .fold((1.0_f64, 0.0_f64), |(low, high), drawn| (low.min(drawn), high.max(drawn)));
        assert!((0.0..0.05).contains(&low) && (0.95..1.0).contains(&high), "{low} {high}");
        assert_eq!((below(0), below(1)), (0, 0));
    }
}

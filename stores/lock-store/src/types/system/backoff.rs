//! Pauses between attempts. They grow while attempts fail.

use std::time::Duration;

use crate::types::system::clock::jitter;

/// The pauses of one loop. Each bound is twice the bound before, up to the longest. A pause is drawn at random below
/// its bound, so that the processes of a fleet do not retry at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    bound: Duration,
}

impl Backoff {
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, bound: first }
    }

    /// Draws the next pause, between a millisecond and its bound.
    pub fn pause(&mut self) -> Duration {
        let most = self.grow();
        jitter(Duration::from_millis(1), most)
    }

    /// Draws the next pause, between half of its bound and its bound. For attempts that cost much.
    pub fn long_pause(&mut self) -> Duration {
        let most = self.grow();
        jitter(most / 2, most)
    }

    /// Returns whether no attempt has failed yet, or none since the last success.
    pub(crate) fn is_shortest(&self) -> bool {
        self.bound == self.first
    }

    /// Returns whether the next pause may be the longest.
    #[must_use]
    pub fn is_longest(&self) -> bool {
        self.bound == self.longest
    }

    /// Notes how long a success lasted. After a long success, the next pause is short again.
    pub fn went_well_for(&mut self, time: Duration) {
        if time >= self.longest {
            self.reset();
        }
    }

    /// Notes that an attempt succeeded.
    pub fn reset(&mut self) {
        self.bound = self.first;
    }

    fn grow(&mut self) -> Duration {
        let bound = self.bound;
        self.bound = (bound * 2).min(self.longest);
        bound
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn pauses_grow_to_the_longest_and_are_short_again_when_it_went_well() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(20), millis(100));
        for most in [20, 40, 80, 100, 100] {
            assert_eq!(backoff.is_longest(), most == 100);
            let pause = Backoff { ..backoff }.pause();
            assert!((millis(1)..=millis(most)).contains(&pause), "{pause:?} of {most} ms");
            let pause = backoff.long_pause();
            assert!((millis(most / 2)..=millis(most)).contains(&pause), "{pause:?} of {most} ms");
        }
        backoff.went_well_for(millis(99));
        assert!(backoff.is_longest());
        backoff.went_well_for(millis(100));
        assert!(backoff.is_shortest() && backoff.pause() <= millis(20));
    }
}

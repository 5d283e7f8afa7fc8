//! The hash of tables inside this process, where the one of std would be a good part of the work.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Hashes by folded multiplication, from a random start: nobody outside of the process can choose keys that
/// share a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread(u64);

impl Default for Spread {
    fn default() -> Self {
        static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("a process"));
        Self(*START)
    }
}

impl BuildHasher for Spread {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.write_u64(rest);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        // The fractional part of the golden ratio.
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15;
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        self.0 = (half(product) ^ half(product >> 64)).wrapping_add(number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::Spread;

    #[test]
    fn similar_keys_lie_apart() {
        let spread = Spread::default();
        let keys = || (0..4096).map(|number| format!("lock:user:{number}"));
        let hashes: HashSet<u64> = keys().map(|key| spread.hash_one(key)).collect();
        assert_eq!(hashes.len(), 4096);
        // A table of std uses the low bits for the place, and the high ones to tell apart.
        for shift in [0, 57] {
            let mut places = [0_u32; 64];
            hashes.iter().for_each(|hash| places[usize::try_from(hash >> shift & 63).unwrap()] += 1);
            assert!(places.iter().all(|count| shift == 57 && *count < 256 || *count < 128), "{shift}: {places:?}");
        }
        assert_ne!(spread.hash_one(("a", "bc")), spread.hash_one(("ab", "c")));
    }
}

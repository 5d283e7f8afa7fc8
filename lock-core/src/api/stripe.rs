//! Stripes: which stripe an id belongs to, and how many stripes a name has in this process.

use std::collections::HashMap;
use std::fmt::{self, Display, Write as _};

use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::system::sync::Mutex;

/// The most stripes of one name.
pub(crate) const MAX_STRIPES: u32 = 4096;

/// How many names are remembered. A program with more names makes them up at run time; the last ones still count.
const MAX_NAMES: usize = 10_000;

/// Returns the stripe of an id: the 64-bit FNV-1a hash of its text, modulo the number of stripes. It is part of the
/// protocol between processes, so it never changes.
pub(crate) fn stripe_of(id: impl Display, count: u32) -> u32 {
    struct Fnv(u64);
    impl fmt::Write for Fnv {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // This writer never fails. If a `Display` fails, the text that it wrote so far counts.
    let _ = write!(hash, "{id}");
    // Less than `count`.
    u32::try_from(hash.0 % u64::from(count.max(1))).unwrap_or(0)
}

/// Names one stripe.
pub(crate) fn key_of(name: &LockKey, stripe: u32) -> Result<LockKey> {
    Ok(name.clone().with_suffix(&format!("#{stripe}"))?.with_stripe(stripe))
}

/// How many stripes each name has in this process. It detects two different numbers for one name.
#[derive(Debug, Default)]
pub(crate) struct Stripings(Mutex<HashMap<LockKey, u32>>);

impl Stripings {
    /// Notes the number of stripes of a name.
    ///
    /// # Errors
    ///
    /// `Misconfigured` if the name has another number here, or if the number is out of bounds.
    pub(crate) fn register(&self, name: &LockKey, count: u32) -> Result<()> {
        if !(1..=MAX_STRIPES).contains(&count) {
            return Err(LockError::misconfigured(format!(
                "{count} stripes are out of bounds; use between 1 and {MAX_STRIPES}"
            ))
            .with_key(name));
        }
        let mut counts = self.0.lock();
        let known = counts.get(name).copied();
        match known {
            Some(known) if known == count => Ok(()),
            Some(known) => Err(LockError::misconfigured(format!(
                "it has {known} stripes elsewhere in this process and {count} here, so one id would be two locks; use one \
                 number everywhere, with formerly({known}) while processes of the earlier version still run"
            ))
            .with_key(name)),
            None => {
                if counts.len() == MAX_NAMES {
                    counts.clear();
                }
                counts.insert(name.clone(), count);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAMES, Stripings, key_of, stripe_of};
    use lock_store::types::error::LockErrorKind;
    use lock_store::types::key::{LockKey, LockLabel};

    #[test]
    fn the_hash_is_that_of_the_specification() {
        // From the test vectors of the IETF draft "The FNV Non-Cryptographic Hash Algorithm".
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325_u64), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            for count in [1, 2, 16, 4095, 4096] {
                assert_eq!(u64::from(stripe_of(text, count)), hash % u64::from(count), "{text:?} of {count}");
            }
        }
        // The result does not depend on the pieces in which the text comes.
        assert_eq!(stripe_of(format_args!("{}{}", "foo", "bar"), 4096), stripe_of("foobar", 4096));
    }

    #[test]
    fn ids_spread_evenly() {
        let mut counts = [0_u32; 16];
        for id in 0..16_000 {
            counts[stripe_of(id, 16) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_stripe_keeps_the_label_of_its_name() {
        let name = LockKey::new("stock:42").unwrap().with_label(LockLabel::from_static("stock:<id>"));
        let key = key_of(&name, 7).unwrap();
        assert_eq!((key.as_str(), key.stripe(), key.label()), ("stock:42#7", Some(7), name.label()));
        assert_eq!(name.stripe(), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let known = Stripings::default();
        let name = |number: usize| LockKey::new(format!("name:{number}")).unwrap();
        for number in 0..=MAX_NAMES {
            known.register(&name(number), 2).unwrap();
        }
        assert!(known.0.lock().len() <= MAX_NAMES);
        let error = known.register(&name(MAX_NAMES), 3).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains("formerly(2)"), "{error}");
    }
}

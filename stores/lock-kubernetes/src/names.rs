//! The names of Leases.
//!
//! A key that is a valid name of a Kubernetes object names its Lease, so that a candidate of client-go stands for the same election.
//! Any other key gets a readable name with a hash, and the key itself is in an annotation.

use lock_store::LockKey;

/// Separates the readable part of a name from its hash. A key of this form gets a hash too, so no two keys share a name.
const HASHED: &str = ".lock-core.";

/// How much of a key its name repeats, and the longest key that is a name by itself.
const READABLE: usize = 60;
const LONGEST: usize = 200;

/// Returns the name of a lock's Lease.
pub(crate) fn lease_of(key: &LockKey) -> String {
    let text = key.as_str();
    if text.len() <= LONGEST && !text.contains(HASHED) && text.split('.').all(is_label) {
        return text.to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let readable: String = text.chars().map(plain).take(READABLE).collect();
    let readable = readable.trim_matches('-');
    let readable = if readable.is_empty() { "lock" } else { readable };
    format!("{readable}{HASHED}{}", hash(text))
}

/// Returns the FNV-1a hash of a text with 128 bits, in hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = text.bytes().fold(START, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

pub(crate) fn is_label(label: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.starts_with(is_plain) && label.ends_with(is_plain) && label.chars().all(|c| is_plain(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use lock_store::LockKey;

    use super::{hash, lease_of};

    fn name(key: &str) -> String {
        lease_of(&LockKey::new(key).unwrap())
    }

    #[test]
    fn a_key_that_is_a_name_stays_as_it_is() {
        for key in ["billing-controller", "a.b-c.7", "kube-scheduler"] {
            assert_eq!(name(key), key);
        }
    }

    #[test]
    fn any_other_key_has_a_name_of_its_own() {
        let order = name("order:42");
        assert_eq!(order, format!("order-42.lock-core.{}", hash("order:42")));
        for key in ["Order:42", "order/42", "a..b", "-a", "a-", "é", &order, &"x".repeat(512)] {
            let name = name(key);
            assert!(name != key && name != order && name.len() <= 253, "{key}: {name}");
            assert!(name.split('.').all(super::is_label), "{key}: {name}");
        }
        assert!(name("::").starts_with("lock.lock-core."));
        assert_eq!(hash("a"), "d228cb696f1a8caf78912b704e4a8964");
    }
}

//! Values on the command line.

use std::fmt::Write as _;
use std::time::Duration;

use lock_core::store::JobVersion;
use lock_core::{LockError, LockKey, MAX_TTL, MIN_RENEWED_TTL, OwnerId, Wait};

use lock_core::store::text::{self, visible};

/// The prefix of a foreign value that is not plain text.
const HEX: &str = "hex:";

/// Bytes that were written as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

pub(crate) fn key(text: &str) -> Result<LockKey, String> {
    LockKey::new(text).map_err(|error| error.to_string())
}

pub(crate) fn holder(text: &str) -> Result<String, String> {
    lock_core::lease::check_holder(text).map(|()| text.to_owned())
}

pub(crate) fn version(text: &str) -> Result<JobVersion, String> {
    JobVersion::new(text).map_err(|error| error.to_string())
}

/// Returns a key of a namespace as it is in Redis. Lists show this form; a command accepts both.
pub(crate) fn within(prefix: &str, key: &LockKey) -> Result<LockKey, LockError> {
    if key.as_str().starts_with(prefix) { Ok(key.clone()) } else { LockKey::new(format!("{prefix}{key}")) }
}

/// Returns the name of a key in its namespace: a manager adds the prefix, and a key that names it already must not get it twice.
pub(crate) fn without<'a>(prefix: &str, key: &'a LockKey) -> &'a str {
    key.as_str().strip_prefix(prefix).unwrap_or(key.as_str())
}

pub(crate) fn owner(text: &str) -> Result<OwnerId, String> {
    let owner = OwnerId::from_hex(text).filter(|_| text.bytes().any(|digit| digit != b'0'));
    owner.ok_or_else(|| "an owner has 32 hexadecimal digits; copy it from `lockctl show KEY`".to_owned())
}

/// Reads a foreign value as [`spell`] writes it.
pub(crate) fn value(text: &str) -> Result<Bytes, String> {
    let Some(digits) = text.strip_prefix(HEX) else { return Ok(Bytes(text.as_bytes().to_owned())) };
    let wrong = || "after hex: comes an even number of hexadecimal digits; copy it from `lockctl show KEY`".to_owned();
    if digits.is_empty() || digits.len() % 2 != 0 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
    (0..digits.len()).step_by(2).map(pair).collect::<Result<_, _>>().map(Bytes)
}

/// Writes a foreign value so that it is safe for a terminal and can be passed to `release`.
pub(crate) fn spell(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if visible(text) == text && !text.starts_with(HEX) && !text.is_empty() => text.to_owned(),
        _ => value.iter().fold(HEX.to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// Reads a time such as `90s`, `250ms` or `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    text::duration(text).map_err(|why| format!("{why}; write a time such as 30s, 250ms or 1m30s"))
}

/// Reads a lease that is long enough to be renewed.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    if !(MIN_RENEWED_TTL..=MAX_TTL).contains(&ttl) {
        return Err(format!("use at least {MIN_RENEWED_TTL:?} and at most 30d"));
    }
    Ok(ttl)
}

/// Reads how long to wait.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "none" => Ok(Wait::None),
        "forever" => Ok(Wait::Forever),
        _ => duration(text).map(Wait::from).map_err(|why| format!("{why}, none or forever")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::Wait;

    use super::{duration, owner, spell, ttl, value, wait};

    #[test]
    fn owners_are_complete_and_somebody() {
        assert!(owner(&"5f".repeat(16)).is_ok());
        for bad in ["5f0e", &"0".repeat(32), "", &"xy".repeat(16)] {
            assert!(owner(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_spelled() {
        for bytes in [&b"nonce"[..], b"it's", b"", b"\xff\x00", b"a\nb", b"hex:61", "\u{202e}x".as_bytes(), b"0x1f"] {
            let text = spell(bytes);
            assert!(!text.contains(char::is_control), "{text}");
            if bytes.is_empty() {
                continue; // Nobody locks with an empty value; there is nothing to quote.
            }
            assert_eq!(value(&text).unwrap().0, bytes, "{text}");
        }
        for bad in ["hex:", "hex:6", "hex:6x", "hex:+1"] {
            assert!(value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        for (text, millis) in [("250ms", 250), ("1m30s", 90_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "10", "1.5s", "10 s", "-1s", "10y", "1s1s", "999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("10").unwrap_err().contains("a unit is missing; write a time such as 30s"));
        assert!(ttl("999ms").is_err() && ttl("31d").is_err() && ttl("1s").is_ok());
        assert_eq!((wait("none"), wait("forever"), wait("0s")), (Ok(Wait::None), Ok(Wait::Forever), Ok(Wait::None)));
        assert!(wait("never").unwrap_err().contains("forever"));
    }
}

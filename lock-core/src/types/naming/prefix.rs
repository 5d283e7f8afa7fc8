//! Namespaces: what comes before every key of a manager.

use crate::types::error::{LockError, Result};

const RULE: &str = "write a name and a colon, such as prod: or prod-eu:, with no other colon, so that two prefixes never \
                    meet in one key";

/// Checks a prefix.
///
/// One colon, at the end: so no prefix with its key is another prefix with another key, as `a:` with `b:c` and
/// `a:b:` with `c` would be. No braces, which would decide on the slot of every key in a cluster. Nothing that
/// ends a parameter of a URL, or shows that it is the part of a password.
pub(crate) fn check_key_prefix(prefix: &str) -> Result<()> {
    let bad =
        |c: char| matches!(c, ':' | '{' | '}' | '%' | '&' | '#' | '?' | '@') || c.is_whitespace() || c.is_control();
    match prefix.strip_suffix(':') {
        Some(name) if !name.is_empty() && !name.contains(bad) => Ok(()),
        // It may come from a URL, where a password can stand in its place.
        _ => Err(LockError::misconfigured(format!("the key_prefix cannot be one: {RULE}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::check_key_prefix;

    #[test]
    fn a_prefix_has_one_colon_at_its_end() {
        for good in ["prod:", "prod-eu:", "a/b.c_d:", "ünï:"] {
            assert!(check_key_prefix(good).is_ok(), "{good}");
        }
        for bad in
            ["", ":", "prod", "prod:eu:", "prod::", "{prod}:", "a%20b:", "a b:", "a\n:", "prod: ", "a&b:", "a@b:"]
        {
            let error = check_key_prefix(bad).unwrap_err().to_string();
            assert!(error.contains("prod-eu:"), "{bad}: {error}");
        }
    }
}

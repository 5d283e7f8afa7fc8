//! Namespaces: the prefix of every key of a manager.

use crate::types::error::{LockError, Result};

const RULE: &str = "write a name and a colon, such as prod: or prod-eu:, with no other colon, so that two prefixes never \
                    meet in one key";

/// Checks a prefix.
///
/// It must have exactly one colon, at the end. Otherwise two prefixes could give the same key, for example `a:` with
/// `b:c` and `a:b:` with `c`. It must not have braces, which would decide the cluster slot of every key. It must not
/// have a character that ends a parameter of a URL, or that shows that it is part of a password.
pub fn check_key_prefix(prefix: &str) -> Result<()> {
    let bad =
        |c: char| matches!(c, ':' | '{' | '}' | '%' | '&' | '#' | '?' | '@') || c.is_whitespace() || c.is_control();
    match prefix.strip_suffix(':') {
        Some(name) if !name.is_empty() && !name.contains(bad) => Ok(()),
        // The text may come from a URL, where a password can stand in its place, so it is not shown.
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

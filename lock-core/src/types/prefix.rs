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

/// Takes `key_prefix=…` out of the query of a URL.
pub(crate) fn take_key_prefix(url: &str) -> Result<(String, Option<String>)> {
    let (url, prefix) = take_parameter(url, "key_prefix")?;
    // Programs that put URLs together encode the colon, which a query need not.
    let prefix = prefix.map(|prefix| prefix.replace("%3A", ":").replace("%3a", ":"));
    if let Some(prefix) = &prefix {
        check_key_prefix(prefix)?;
    }
    Ok((url, prefix))
}

/// Takes a parameter out of the query of a URL, as it stands there.
pub(crate) fn take_parameter(url: &str, name: &str) -> Result<(String, Option<String>)> {
    let (before, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    let Some((address, query)) = before.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (named, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|parameter| parameter.split('=').next() == Some(name));
    let value = match named.as_slice() {
        [] => return Ok((url.to_owned(), None)),
        [one] if one.contains('@') => {
            return Err(LockError::misconfigured(format!(
                "there is an @ in the {name} of the URL, as when a password contains ?; percent-encode the password",
            )));
        }
        [one] => one.split_once('=').map_or("", |(_, value)| value).to_owned(),
        _ => return Err(LockError::misconfigured(format!("the URL names more than one {name}; keep one"))),
    };
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    Ok((format!("{address}{query}{fragment}"), Some(value)))
}

#[cfg(test)]
mod tests {
    use super::{check_key_prefix, take_key_prefix};

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

    #[test]
    fn it_is_taken_out_of_the_url() {
        for (url, rest, prefix) in [
            ("redis://h", "redis://h", None),
            ("redis://:p%3F@h/2?protocol=resp3", "redis://:p%3F@h/2?protocol=resp3", None),
            ("redis://h/2?key_prefix=prod:", "redis://h/2", Some("prod:")),
            ("memory://?key_prefix=prod%3A", "memory://", Some("prod:")),
            ("unix:///s?db=1&key_prefix=ün:&pass=x", "unix:///s?db=1&pass=x", Some("ün:")),
            ("rediss://h?key_prefix=a:#x", "rediss://h#x", Some("a:")),
        ] {
            let (found, taken) = take_key_prefix(url).unwrap();
            assert_eq!((found.as_str(), taken.as_deref()), (rest, prefix), "{url}");
        }
        for bad in [
            "key_prefix",
            "key_prefix=",
            "key_prefix=a",
            "key_prefix=%zz:",
            "key_prefix=%ff:",
            "key_prefix=a:&key_prefix=a:",
        ] {
            assert!(take_key_prefix(&format!("memory://?{bad}")).is_err(), "{bad}");
        }
    }
}

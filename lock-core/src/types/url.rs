//! The URL of a store, parsed once.

use std::fmt;

use crate::types::error::{LockError, Result};
use crate::types::naming::prefix::check_key_prefix;

/// The parts of `scheme://address[?name=value&…][#fragment]`. The query has only the parameters that were not taken
/// yet.
///
/// Any part may contain a password, even one that was not percent-encoded. Therefore no part is ever shown.
#[derive(Clone)]
pub(crate) struct StoreUrl {
    /// Empty without a colon.
    scheme: String,
    /// `://`, or less.
    separator: &'static str,
    pub(crate) address: String,
    query: Vec<String>,
    fragment: Option<String>,
}

#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "memory:// has few parts"))]
impl StoreUrl {
    /// Splits a text into parts. The code that uses a part must check it.
    pub(crate) fn read(text: &str) -> Self {
        let (text, fragment) = text.split_once('#').map_or((text, None), |(text, fragment)| (text, Some(fragment)));
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, separator, address) = match (text.split_once("://"), text.split_once(':')) {
            (Some((scheme, address)), _) => (scheme, "://", address),
            (None, Some((scheme, address))) => (scheme, ":", address),
            (None, None) => ("", "", text),
        };
        Self {
            scheme: scheme.to_owned(),
            separator,
            address: address.to_owned(),
            query: query.split('&').filter(|parameter| !parameter.is_empty()).map(str::to_owned).collect(),
            fragment: fragment.map(str::to_owned),
        }
    }

    /// Returns the text before the colon.
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns whether it is the URL of a server.
    pub(crate) fn is_absolute(&self) -> bool {
        self.separator == "://"
    }

    /// Returns whether text follows a `#`. A query must not end with a fragment.
    pub(crate) fn has_fragment(&self) -> bool {
        self.fragment.is_some()
    }

    /// Returns whether it names a quorum.
    pub(crate) fn is_quorum(&self) -> bool {
        self.is_absolute() && matches!(&*self.scheme, "redlock" | "redlocks")
    }

    /// Returns the parameters that were not taken, undecoded.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
    }

    /// Takes out a parameter, undecoded.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<String>> {
        let is_named = |parameter: &String| parameter.split('=').next() == Some(name);
        let mut named = self.query.iter().filter(|parameter| is_named(parameter));
        let value = match (named.next(), named.next()) {
            (None, _) => return Ok(None),
            (Some(one), None) if one.contains('@') => {
                return Err(LockError::misconfigured(format!(
                    "there is an @ in the {name} of the URL, as when a password contains ?; percent-encode the password",
                )));
            }
            (Some(one), None) => one.split_once('=').map_or("", |(_, value)| value).to_owned(),
            _ => return Err(LockError::misconfigured(format!("the URL names more than one {name}; keep one"))),
        };
        self.query.retain(|parameter| !is_named(parameter));
        Ok(Some(value))
    }

    /// Takes out the namespace.
    pub(crate) fn take_key_prefix(&mut self) -> Result<Option<String>> {
        // Programs that build URLs encode the colon, although a query does not need that.
        let prefix = self.take("key_prefix")?.map(|prefix| prefix.replace("%3A", ":").replace("%3a", ":"));
        prefix.iter().try_for_each(|prefix| check_key_prefix(prefix))?;
        Ok(prefix)
    }

    /// Takes out some parameters. Returns the same URL with another scheme and only these parameters.
    pub(crate) fn split(&mut self, scheme: &str, taken: &[&str]) -> Result<Self> {
        let mut query = Vec::new();
        for name in taken {
            query.extend(self.take(name)?.map(|value| format!("{name}={value}")));
        }
        Ok(Self { scheme: scheme.to_owned(), query, ..self.clone() })
    }

    /// Returns the same URL with another address.
    pub(crate) fn at(&self, address: String) -> Self {
        Self { address, ..self.clone() }
    }

    /// Writes the URL for the driver of the store.
    pub(crate) fn to_text(&self) -> String {
        let Self { scheme, separator, address, query, fragment } = self;
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let fragment = fragment.as_ref().map_or_else(String::new, |fragment| format!("#{fragment}"));
        format!("{scheme}{separator}{address}{query}{fragment}")
    }
}

/// Hides all of it.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::StoreUrl;

    #[test]
    fn a_namespace_is_taken_out_of_it() {
        for (url, rest, prefix) in [
            ("redis://h", "redis://h", None),
            ("redis://:p%3F@h/2?protocol=resp3", "redis://:p%3F@h/2?protocol=resp3", None),
            ("redis://h/2?key_prefix=prod:", "redis://h/2", Some("prod:")),
            ("memory://?key_prefix=prod%3A", "memory://", Some("prod:")),
            ("unix:///s?db=1&key_prefix=ün:&pass=x", "unix:///s?db=1&pass=x", Some("ün:")),
            ("rediss://h?key_prefix=a:#x", "rediss://h#x", Some("a:")),
            ("h:6379", "h:6379", None),
            ("no-url", "no-url", None),
        ] {
            let mut read = StoreUrl::read(url);
            let taken = read.take_key_prefix().unwrap();
            assert_eq!((read.to_text().as_str(), taken.as_deref()), (rest, prefix), "{url}");
            assert_eq!(format!("{read:?}"), "StoreUrl { .. }");
        }
        for bad in [
            "key_prefix",
            "key_prefix=",
            "key_prefix=a",
            "key_prefix=%zz:",
            "key_prefix=%ff:",
            "key_prefix=a:&key_prefix=a:",
        ] {
            assert!(StoreUrl::read(&format!("memory://?{bad}")).take_key_prefix().is_err(), "{bad}");
        }
    }
}

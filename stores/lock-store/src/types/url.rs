//! The URL of a store, parsed once.

use std::fmt;

use crate::types::error::{LockError, LockErrorKind, Result};
use crate::types::naming::prefix::check_key_prefix;
use crate::types::naming::typos::is_invisible;

/// The parts of `scheme://address[?name=value&…][#fragment]`. The query has only the parameters that were not taken
/// yet.
///
/// Any part may contain a password, even one that was not percent-encoded. Therefore no part is ever shown.
#[derive(Clone)]
pub struct StoreUrl {
    /// Empty without a colon.
    scheme: String,
    /// `://`, or less.
    separator: &'static str,
    pub address: String,
    query: Vec<String>,
    fragment: Option<String>,
}

impl StoreUrl {
    /// Splits a text into parts and removes blanks around it, which a file or a copy may leave. The code that uses a part
    /// must check it.
    pub fn read(text: &str) -> Self {
        let text = text.trim();
        let (text, fragment) = text.split_once('#').map_or((text, None), |(text, fragment)| (text, Some(fragment)));
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, separator, address) = match (text.split_once("://"), text.split_once(':')) {
            (Some((scheme, address)), _) => (scheme, "://", address),
            (None, Some((scheme, address))) => (scheme, ":", address),
            (None, None) => ("", "", text),
        };
        // Schemes are the same in capitals.
        let is_scheme = separator == "://" && scheme.chars().all(|c| c.is_ascii_alphabetic() || "+-.".contains(c));
        Self {
            scheme: if is_scheme { scheme.to_ascii_lowercase() } else { scheme.to_owned() },
            separator,
            address: address.to_owned(),
            query: query.split('&').filter(|parameter| !parameter.is_empty()).map(str::to_owned).collect(),
            fragment: fragment.map(str::to_owned),
        }
    }

    /// Returns the text before the colon.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns whether it is the URL of a server.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        self.separator == "://"
    }

    /// Returns whether text follows a `#`. A query must not end with a fragment.
    #[must_use]
    pub fn has_fragment(&self) -> bool {
        self.fragment.is_some()
    }

    /// Returns whether it names a quorum.
    #[must_use]
    pub fn is_quorum(&self) -> bool {
        self.is_absolute() && matches!(&*self.scheme, "redlock" | "redlocks")
    }

    /// Returns the parameters that were not taken, undecoded.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
    }

    /// Takes out a parameter, undecoded.
    pub fn take(&mut self, name: &str) -> Result<Option<String>> {
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
    pub fn take_key_prefix(&mut self) -> Result<Option<String>> {
        // Programs that build URLs encode the colon, although a query does not need that.
        let prefix = self.take("key_prefix")?.map(|prefix| prefix.replace("%3A", ":").replace("%3a", ":"));
        prefix.iter().try_for_each(|prefix| check_key_prefix(prefix))?;
        Ok(prefix)
    }

    /// Takes out some parameters. Returns the same URL with another scheme and only these parameters.
    pub fn split(&mut self, scheme: &str, taken: &[&str]) -> Result<Self> {
        let mut query = Vec::new();
        for name in taken {
            query.extend(self.take(name)?.map(|value| format!("{name}={value}")));
        }
        Ok(Self { scheme: scheme.to_owned(), query, ..self.clone() })
    }

    /// Returns the same URL with another address.
    #[must_use]
    pub fn at(&self, address: String) -> Self {
        Self { address, ..self.clone() }
    }

    /// Adds a parameter, encoded.
    #[must_use]
    pub fn with(mut self, parameter: &str) -> Self {
        self.query.push(parameter.to_owned());
        self
    }

    /// Writes the URL for the driver of the store.
    pub fn to_text(&self) -> String {
        let Self { scheme, separator, address, query, fragment } = self;
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let fragment = fragment.as_ref().map_or_else(String::new, |fragment| format!("#{fragment}"));
        format!("{scheme}{separator}{address}{query}{fragment}")
    }
}

/// Names the mistake in a text that cannot be read as a URL, and what to write instead. Quotes nothing.
#[must_use]
pub fn mistake(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    // The user and the password before it may contain anything.
    let host = rest.rsplit('@').next().and_then(|host| host.split('?').next()).unwrap_or_default();
    let begins = |ways: &[&str]| ways.iter().any(|way| text.starts_with(way));
    let has = |ways: &[&str]| ways.iter().any(|way| scheme.contains(way) || host.contains(way));
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = |end: &str| {
        let name = text.split(end).next().unwrap_or_default().trim_start_matches("export ").trim();
        !name.is_empty() && name.chars().all(word) && text.len() > name.len()
    };
    Some(match scheme {
        _ if text.starts_with(QUOTES) => "it stands in quotation marks; leave them out",
        _ if begins(&["redis-cli", "valkey-cli", "psql "]) => "it is a command line; write only the URL of it",
        _ if begins(&["$", "%", "{{"]) || has(&["${", "$(", "{{"]) || host.starts_with('$') => {
            "the name of a variable in it was not replaced by its value"
        }
        _ if name("=") || !scheme.is_empty() && name(": ") => {
            "it begins with the name of a variable; write only what follows the name"
        }
        _ if rest.contains("://") => "there is more than one :// in it; write one URL, and percent-encode the password",
        "http" | "https" => {
            "it is the URL of a web service, and locks need the protocol of Redis; write the URL of that service which \
             begins with redis:// or rediss://"
        }
        "tcp" => "write redis:// instead of tcp://",
        "redis+tls" | "redis+ssl" | "redis-tls" | "redis-ssl" | "tls" | "ssl" => "write rediss:// for TLS",
        "redis-sentinel" | "rediss-sentinel" | "sentinel" => "write redis+sentinel://host:26379/service for sentinels",
        "redis-cluster" | "rediss-cluster" | "cluster" => "write redis+cluster://host:6379 for a cluster",
        "redis-socket" | "redis+socket" | "socket" | "file" => "write redis+unix:///path for a socket",
        "" if begins(&["jdbc:"]) => "leave out jdbc:",
        _ if scheme.starts_with("jdbc:") => "leave out jdbc:",
        "" if begins(&["redis:", "rediss:", "redis/", "rediss/", "valkey:", "valkeys:"]) => {
            "write :// behind its scheme, as in redis://host:6379"
        }
        _ if has(&[" ", "\t", "\n", "\r"]) => "there is a blank in it; take it out",
        _ if format!("{scheme}{host}").contains(|c: char| c.is_whitespace() || is_invisible(c)) => {
            "there is a character that cannot be seen in it; write it anew"
        }
        "" if begins(&["/"]) && !begins(&["//"]) => "it has no scheme; write redis+unix:///path for a socket",
        "" => "it has no scheme; write redis://host:6379, or rediss://host:6379 for TLS",
        "redis" | "rediss" | "valkey" | "valkeys" if rest.starts_with('/') => {
            "it has no host between the second and the third slash; write redis://host:6379"
        }
        _ => return None,
    })
}

/// Names the mistake in the URL of a store, if there is one that says more than an error.
#[must_use]
pub fn explained(error: LockError, url: &str) -> LockError {
    match mistake(url) {
        Some(mistake) if error.kind() == LockErrorKind::Misconfigured => {
            LockError::misconfigured(format!("the URL of the store cannot be read: {mistake}; {SHAPES}"))
        }
        _ => error,
    }
}

const SHAPES: &str = "there are memory://, redis://host:6379 (Redis or Valkey), rediss:// (TLS), redis+unix:///path, \
                      redis+sentinel://host:26379/service, redis+cluster://host,…, redlock://host,host,host, \
                      postgres://host/database with the crate lock-postgres, zookeeper://host,… with lock-zookeeper, and \
                      kubernetes://context/namespace with lock-kubernetes";

/// Files and pages put a text into these.
const QUOTES: [char; 11] = ['"', '\'', '`', '<', '“', '”', '„', '‘', '’', '«', '»'];

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

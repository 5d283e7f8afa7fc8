//! The URL of a store.

use std::sync::Arc;
use std::time::Duration;

use lock_store::types::url::StoreUrl;
use lock_store::{LockError, Result};

const SHAPE: &str = "write zookeeper://[user:password@]host[:2181],…/path?session=20s";

/// How long a session lasts if the URL does not say. A lock is promised for half of it.
const SESSION: Duration = Duration::from_secs(20);

/// Where the nodes are if the URL does not say.
const ROOT: &str = "/lock-core";

/// The settings of a URL.
#[derive(Clone)]
pub(crate) struct Settings {
    /// `host:port,…`, as the client takes it.
    pub(crate) hosts: Arc<str>,
    /// The node below which the locks are.
    pub(crate) root: String,
    pub(crate) session: Duration,
    /// `user:password`.
    pub(crate) login: Option<String>,
}

/// Hides the password.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("hosts", &self.hosts).field("root", &self.root).finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads a URL. No error repeats a part of it: a password that should have been percent-encoded can be in any of them.
    pub(crate) fn read(url: &str) -> Result<Self> {
        let mut url = StoreUrl::read(url);
        if url.scheme() == "zookeepers" {
            return Err(LockError::misconfigured(
                "zookeepers:// is not supported: this store has no TLS yet; write zookeeper:// and let a sidecar or a tunnel encrypt",
            ));
        }
        if url.scheme() != "zookeeper" || !url.is_absolute() || url.has_fragment() {
            return Err(bad("it is not of this form"));
        }
        let session = match url.take("session")? {
            None => SESSION,
            Some(text) => session(&text)?,
        };
        if let Some((name, _)) = url.parameters().next() {
            let name: String =
                name.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).take(30).collect();
            return Err(bad(&format!("there is no parameter {name}; the only one is session")));
        }
        let (login, rest) = match url.address.rsplit_once('@') {
            None => (None, url.address.as_str()),
            Some((login, rest)) => (Some(login), rest),
        };
        let login = login.map(self::login).transpose()?;
        let (hosts, root) =
            rest.split_once('/').map_or((rest, ""), |(hosts, root)| (hosts, root.trim_end_matches('/')));
        let hosts = hosts.split(',').map(host).collect::<Option<Vec<_>>>();
        let hosts =
            hosts.ok_or_else(|| bad("a host cannot be read; write host or host:2181, with a comma between two"))?;
        Ok(Self { hosts: hosts.join(",").into(), root: self::root(root)?, session, login })
    }
}

fn bad(what: &str) -> LockError {
    LockError::misconfigured(format!("the URL of ZooKeeper cannot be read: {what}; {SHAPE}"))
}

/// Reads how long a session lasts. Below a second, the pauses of a busy machine would end it.
fn session(text: &str) -> Result<Duration> {
    let time =
        lock_store::text::duration(text).map_err(|why| bad(&format!("session= is a time such as 20s: {why}")))?;
    if !(Duration::from_secs(1)..=Duration::from_secs(600)).contains(&time) {
        return Err(bad(
            "session= is between 1s and 10m, and the server bounds it by minSessionTimeout and maxSessionTimeout",
        ));
    }
    Ok(time)
}

/// Reads `user:password`, in which any byte may be written as `%2F`.
fn login(text: &str) -> Result<String> {
    let decoded = decoded(text)
        .filter(|login| login.split_once(':').is_some_and(|(user, password)| !user.is_empty() && !password.is_empty()));
    decoded.ok_or_else(|| bad("before the @ there is user:password, percent-encoded"))
}

fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Reads a host, and adds the port that servers have by default.
fn host(text: &str) -> Option<String> {
    let is_v6 = text.starts_with('[');
    let (name, port) = match text.rsplit_once(':').filter(|(name, _)| !is_v6 || name.ends_with(']')) {
        Some((name, port)) => (name, port),
        None => (text, "2181"),
    };
    let inner = name.trim_start_matches('[').trim_end_matches(']');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_v6 && ":%".contains(c));
    let is_host = !inner.is_empty() && inner.chars().all(allowed);
    port.parse::<u16>().ok().filter(|port| is_host && *port > 0).map(|port| format!("{name}:{port}"))
}

/// Reads the node below which the locks are.
fn root(path: &str) -> Result<String> {
    if path.is_empty() {
        return Ok(ROOT.to_owned());
    }
    let plain = |part: &str| {
        let is_plain = part.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
        is_plain && !part.is_empty() && part != "." && part != ".."
    };
    if !path.split('/').all(plain) || path.split('/').next() == Some("zookeeper") {
        return Err(bad("its path is a node, of letters, digits and the characters - . _ : and /, but not /zookeeper"));
    }
    Ok(format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Settings;

    #[test]
    fn urls_are_read() {
        for (url, hosts, root, seconds, login) in [
            ("zookeeper://h", "h:2181", "/lock-core", 20, None),
            ("ZooKeeper://a,b:99,[::1]:7/x/y/?session=4s", "a:2181,b:99,[::1]:7", "/x/y", 4, None),
            ("zookeeper://u:p%40%3A@h/", "h:2181", "/lock-core", 20, Some("u:p@:")),
            ("zookeeper://[fe80::1]", "[fe80::1]:2181", "/lock-core", 20, None),
        ] {
            let read = Settings::read(url).unwrap();
            assert_eq!((&*read.hosts, read.root.as_str(), read.login.as_deref()), (hosts, root, login), "{url}");
            assert_eq!(read.session, Duration::from_secs(seconds));
            assert!(!format!("{read:?}").contains("p@"), "{read:?}");
        }
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_repeated() {
        for (url, says) in [
            ("zookeepers://h", "no TLS yet"),
            ("zookeeper:h", "not of this form"),
            ("zookeeper://", "a host cannot be read"),
            ("zookeeper://h:0", "a host cannot be read"),
            ("zookeeper://secret?session=1ms", "between 1s and 10m"),
            ("zookeeper://h?session=x", "session= is a time"),
            ("zookeeper://h?sesion=4s", "there is no parameter sesion"),
            ("zookeeper://secret@h", "user:password"),
            ("zookeeper://u:%zz@h", "percent-encoded"),
            ("zookeeper://h/a//b", "its path"),
            ("zookeeper://h/zookeeper/locks", "but not /zookeeper"),
            ("zookeeper://h/../b", "its path"),
        ] {
            let error = Settings::read(url).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{url}: {error}");
        }
    }
}

//! The URL of a store.

use std::path::PathBuf;
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
    /// `None` without TLS.
    pub(crate) tls: Option<Files>,
}

/// The files of certificates that a URL names.
#[derive(Clone, Default)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "a URL of TLS is refused"))]
pub(crate) struct Files {
    /// The authorities that servers are trusted by. `None` for those of this machine.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client, and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
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
        let encrypted = url.scheme() == "zookeepers";
        if encrypted && !cfg!(feature = "tls") {
            return Err(LockError::misconfigured(
                "zookeepers:// needs TLS, which is not compiled in; enable the cargo feature `tls` of lock-zookeeper",
            ));
        }
        if !(encrypted || url.scheme() == "zookeeper") || !url.is_absolute() || url.has_fragment() {
            return Err(bad("it is not of this form"));
        }
        let session = match url.take("session")? {
            None => SESSION,
            Some(text) => session(&text)?,
        };
        let tls = if encrypted { Some(files(&mut url)?) } else { None };
        if let Some((name, _)) = url.parameters().next() {
            let name: String =
                name.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).take(30).collect();
            return Err(bad(&format!(
                "it has no parameter {name}; there is session, and with zookeepers:// ca, cert and cert_key"
            )));
        }
        let (login, rest) = match url.address.rsplit_once('@') {
            None => (None, url.address.as_str()),
            Some((login, rest)) => (Some(login), rest),
        };
        let login = login.map(self::login).transpose()?;
        let (hosts, root) =
            rest.split_once('/').map_or((rest, ""), |(hosts, root)| (hosts, root.trim_end_matches('/')));
        let port = if encrypted { "2281" } else { "2181" };
        let hosts = hosts.split(',').map(|text| host(text, port)).collect::<Option<Vec<_>>>();
        let hosts =
            hosts.ok_or_else(|| bad("a host cannot be read; write host or host:2181, with a comma between two"))?;
        Ok(Self { hosts: hosts.join(",").into(), root: self::root(root)?, session, login, tls })
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

/// Takes out the parameters that name files.
fn files(url: &mut StoreUrl) -> Result<Files> {
    let mut file = |name: &str| {
        let path = |text: String| decoded(&text).map(PathBuf::from).ok_or_else(|| bad("a path is not percent-encoded"));
        url.take(name)?.map(path).transpose()
    };
    let client = match (file("cert")?, file("cert_key")?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(bad("a client certificate is proven by its key; name both files, with cert and cert_key")),
    };
    Ok(Files { ca: file("ca")?, client })
}

/// Reads a host, and adds a port if it has none.
fn host(text: &str, default: &str) -> Option<String> {
    let is_v6 = text.starts_with('[');
    let (name, port) = match text.rsplit_once(':').filter(|(name, _)| !is_v6 || name.ends_with(']')) {
        Some((name, port)) => (name, port),
        None => (text, default),
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
            assert!(read.tls.is_none());
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_url_names_the_files_of_certificates() {
        let read = |query: &str| Settings::read(&format!("zookeepers://u:p@a,b:99/x{query}")).unwrap();
        let plain = read("");
        assert_eq!((&*plain.hosts, plain.login.as_deref()), ("a:2281,b:99", Some("u:p")));
        let files = plain.tls.unwrap();
        assert!(files.ca.is_none() && files.client.is_none());
        let files = read("?cert=a.pem&session=4s&cert_key=a%20b.key&ca=/c.pem").tls.unwrap();
        assert_eq!(files.ca, Some("/c.pem".into()));
        assert_eq!(files.client, Some(("a.pem".into(), "a b.key".into())));
        let error = Settings::read("zookeepers://secret?cert=a.pem").unwrap_err().to_string();
        assert!(error.contains("cert_key") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_repeated() {
        for (url, says) in [
            #[cfg(not(feature = "tls"))]
            ("zookeepers://h", "the cargo feature `tls` of lock-zookeeper"),
            ("zookeeper://h?ca=ca.pem", "with zookeepers:// ca,"),
            ("zookeeper:h", "not of this form"),
            ("zookeeper://", "a host cannot be read"),
            ("zookeeper://h:0", "a host cannot be read"),
            ("zookeeper://secret?session=1ms", "between 1s and 10m"),
            ("zookeeper://h?session=x", "session= is a time"),
            ("zookeeper://h?sesion=4s", "it has no parameter sesion"),
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

//! From a URL to the settings of a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::hosts::Hosts;

const SUPPORTED: &str = "write postgres://user:password@host:5432,host/database?schema=lock_core&listen=host:5432&commit=on&\
                         migrate=auto&sslmode=verify-full&ca=FILE, of which only a host is needed";

/// Where the locks are, and how to write them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// Where to listen, if not where everything else goes.
    pub(crate) listen: Option<Config>,
    pub(crate) schema: String,
    /// `synchronous_commit` of what must not be lost.
    pub(crate) commit: &'static str,
    /// Whether to make the schema if it is missing.
    pub(crate) migrate: bool,
    /// The authorities that servers are trusted by, instead of those of this machine.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "without TLS nobody is asked to prove a name"))]
    pub(crate) ca: Option<PathBuf>,
    /// Without credentials.
    pub(crate) node: Arc<str>,
    /// What the sessions of this store know of its hosts.
    pub(crate) hosts: Hosts,
}

impl Settings {
    /// Reads a URL. No error repeats a part of it: what cannot be read may be a password.
    pub(crate) fn read(url: &str) -> Result<Self> {
        let bad = || LockError::misconfigured(format!("the URL of PostgreSQL cannot be read; {SUPPORTED}"));
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        if query.contains('@') {
            return Err(LockError::misconfigured(
                "there is an @ in the parameters of the URL, as when a password contains ?; percent-encode the password",
            ));
        }
        let mut settings = Self {
            config: Config::new(),
            listen: None,
            schema: "lock_core".to_owned(),
            commit: "on",
            migrate: true,
            ca: None,
            node: "postgres".into(),
            hosts: Hosts::new(1),
        };
        let mut listen = None;
        let mut rest = Vec::new();
        for (name, value) in
            query.split('&').filter(|one| !one.is_empty()).map(|one| one.split_once('=').unwrap_or((one, "")))
        {
            match (name, value) {
                ("schema", name) => settings.schema = checked_schema(name)?,
                ("listen", address) => listen = Some(host_and_port(address).ok_or_else(bad)?),
                ("commit", "on") => settings.commit = "on",
                ("commit", "remote_apply") => settings.commit = "remote_apply",
                ("commit", "off") => settings.commit = "off",
                ("migrate", "auto") => settings.migrate = true,
                ("migrate", "never") => settings.migrate = false,
                // The second is what other clients call it.
                ("ca" | "sslrootcert", file) => settings.ca = Some(path(file).ok_or_else(bad)?),
                ("sslmode", "verify-full") => rest.push("sslmode=require".to_owned()),
                ("sslmode" | "connect_timeout" | "application_name", value) => rest.push(format!("{name}={value}")),
                _ => {
                    return Err(LockError::misconfigured(format!(
                        "the URL of PostgreSQL has a parameter, or a value of one, that is not known; {SUPPORTED}"
                    )));
                }
            }
        }
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        let mut config: Config = format!("{address}{query}").parse().map_err(|_| bad())?;
        if config.get_hosts().is_empty() {
            return Err(LockError::misconfigured(format!("the URL of PostgreSQL names no host; {SUPPORTED}")));
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("lock-postgres");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        config.keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(10));
        // `prefer` would ask for a certificate and then believe any, or fail where none was asked for.
        if config.get_ssl_mode() == SslMode::Prefer {
            config.ssl_mode(SslMode::Disable);
        }
        if config.get_ssl_mode() == SslMode::Require && !cfg!(feature = "tls") {
            return Err(LockError::misconfigured(
                "sslmode=require needs TLS, which is not compiled in; enable the cargo feature `tls` of lock-postgres",
            ));
        }
        if settings.ca.is_some() && config.get_ssl_mode() != SslMode::Require {
            return Err(LockError::misconfigured(
                "the URL of PostgreSQL names an authority of certificates, and no TLS to check any; add sslmode=verify-full",
            ));
        }
        settings.node = node(&config);
        settings.hosts = Hosts::new(config.get_hosts().len());
        settings.listen = listen.map(|(host, port)| elsewhere(&config, &host, port));
        settings.config = config;
        Ok(settings)
    }
}

/// The same user and database on another server.
fn elsewhere(config: &Config, host: &str, port: u16) -> Config {
    let mut other = Config::new();
    other.host(host).port(port).ssl_mode(config.get_ssl_mode()).target_session_attrs(TargetSessionAttrs::ReadWrite);
    other.connect_timeout(Duration::from_secs(5)).application_name("lock-postgres, listening");
    other.keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(10));
    if let Some(user) = config.get_user() {
        other.user(user);
    }
    if let Some(password) = config.get_password() {
        other.password(password);
    }
    if let Some(name) = config.get_dbname() {
        other.dbname(name);
    }
    other
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "5432"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
    Some((is_host.then(|| host.to_owned())?, port.parse().ok()?))
}

/// Reads a file name, of which any byte may be written as `%2F`.
fn path(text: &str) -> Option<PathBuf> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.contains('\0')).then(|| PathBuf::from(text))
}

fn checked_schema(name: &str) -> Result<String> {
    let is_plain = name.len() <= 30
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    // Names that begin with pg_ are the server's own.
    if is_plain && !name.starts_with("pg_") {
        return Ok(name.to_owned());
    }
    Err(LockError::misconfigured(
        "the schema of the URL is no plain name; write small letters, digits and _, such as lock_core",
    ))
}

/// The servers and the database, as metrics show them.
pub(crate) fn node(config: &Config) -> Arc<str> {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<String> = hosts.collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("{}/{database}", hosts.join(",")).into()
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn a_url_names_servers_and_what_differs_from_the_defaults() {
        let plain = Settings::read("postgres://app:s3cret@db-1/shop").unwrap();
        assert_eq!(
            (&*plain.node, &*plain.schema, plain.commit, plain.migrate),
            ("db-1:5432/shop", "lock_core", "on", true)
        );
        let url = "postgresql://app:s3cret@db-1:6432,db-2:6433/shop?schema=locks&listen=db-1:5432&commit=remote_apply&migrate=never";
        let all = Settings::read(url).unwrap();
        assert_eq!(
            (&*all.node, &*all.schema, all.commit, all.migrate),
            ("db-1:6432,db-2:6433/shop", "locks", "remote_apply", false)
        );
        assert_eq!(all.listen.unwrap().get_ports(), [5432]);
    }

    #[test]
    #[cfg(feature = "tls")]
    fn an_authority_is_a_file_by_either_name() {
        for name in ["ca", "sslrootcert"] {
            let url = format!("postgres://h/d?sslmode=verify-full&{name}=/etc/our%20own%2Fca.pem");
            assert_eq!(Settings::read(&url).unwrap().ca.unwrap().to_str(), Some("/etc/our own/ca.pem"));
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_repeated() {
        for (url, says) in [
            ("postgres://", "names no host"),
            ("postgres://u:s3cret@h/d?schema=S3cret", "small letters"),
            ("postgres://u:s3cret@h/d?schema=pg_s3", "small letters"),
            ("postgres://u:s3cret@h/d?s3cret=1", "not known"),
            ("postgres://u:s3cret@h/d?commit=s3cret", "not known"),
            ("postgres://u:s3cret@h/d?listen=s3:cret", "cannot be read"),
            ("postgres://u:s3?cret@h/d", "percent-encode"),
            ("postgres://u:s3cret@h:s3cret/d", "cannot be read"),
            ("postgres://u:s3cret@h/d?ca=s3%2", "cannot be read"),
            ("postgres://u:s3cret@h/d?ca=/s3.pem", "add sslmode=verify-full"),
        ] {
            let error = Settings::read(url).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3"), "{url}: {error}");
        }
    }
}

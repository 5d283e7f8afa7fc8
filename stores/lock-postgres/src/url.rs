//! From a URL to the settings of a store.

mod parameters;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};

use crate::hosts::{Hosts, alone};

const SUPPORTED: &str = "write postgres://user:password@host:5432,host/database?schema=lock_core&listen=host:5432&commit=on&\
                         migrate=auto&sslmode=verify-full&ca=FILE, of which only a host is needed";

/// Variables of PostgreSQL's own clients that are read. A variable for the host, user or database is ignored: the URL alone says where
/// the locks are, so that all processes with one URL agree.
const VARIABLES: [(&str, &str); 4] =
    [("PGSSLMODE", "sslmode"), ("PGSSLROOTCERT", "sslrootcert"), ("PGSSLCERT", "sslcert"), ("PGSSLKEY", "sslkey")];

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
    pub(crate) tls: Tls,
    /// Where the password is, if neither the URL nor `PGPASSWORD` has it. It is read again for each connection.
    pub(crate) password_file: Option<PathBuf>,
    /// Without credentials.
    pub(crate) node: Arc<str>,
    /// The knowledge that the sessions of this store share about its hosts.
    pub(crate) hosts: Hosts,
    listens_at: Option<(String, u16)>,
    ports: Vec<u16>,
}

/// How servers and this client prove who they are. The files are read again for each connection.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "without TLS nobody is asked to prove a name"))]
pub(crate) struct Tls {
    /// The trusted authorities, if the URL names them.
    pub(crate) authorities: Option<Authorities>,
    /// Whether a server may have another name than its certificate: `verify-ca`.
    pub(crate) any_name: bool,
    /// The certificate of this client, and its key (PEM).
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Whether the URL says if there is TLS.
    is_said: bool,
}

/// By whom certificates of servers are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Authorities {
    /// By those that this machine trusts.
    System,
    /// By those in a file (PEM) and no others.
    File(PathBuf),
}

impl Settings {
    /// Reads a URL. No error repeats a part of it, which may be a password.
    pub(crate) fn read(url: &str) -> Result<Self> {
        Self::read_with(url, |name| std::env::var(name).ok())
    }

    fn read_with(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // A file ends with a new line.
        let url = url.trim();
        if url.starts_with(['"', '\'']) || url.ends_with(['"', '\'']) {
            return Err(LockError::misconfigured("there are quotes around the URL of PostgreSQL; remove them"));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        if !address.starts_with("postgres://") && !address.starts_with("postgresql://") {
            return Err(bad());
        }
        if query.contains('@') {
            return Err(LockError::misconfigured(
                "there is an @ in the parameters of the URL, as when a password contains ?; percent-encode the password",
            ));
        }
        let mut settings = Self {
            config: address.parse().map_err(|_| bad())?,
            listen: None,
            schema: "lock_core".to_owned(),
            commit: "on",
            migrate: true,
            tls: Tls::default(),
            password_file: None,
            node: "postgres".into(),
            hosts: Hosts::new(1),
            listens_at: None,
            ports: Vec::new(),
        };
        // Another keep-alive may be named below.
        settings.config.keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(10));
        settings.config.ssl_mode(SslMode::Disable);
        for (name, value) in
            query.split('&').filter(|one| !one.is_empty()).map(|one| one.split_once('=').unwrap_or((one, "")))
        {
            if !parameters::apply(&mut settings, name, value)? {
                return Err(LockError::misconfigured(format!(
                    "the URL of PostgreSQL has a parameter that is not known; {SUPPORTED}"
                )));
            }
        }
        settings.take_variables(variable)?;
        settings.complete()?;
        Ok(settings)
    }

    /// Takes from the environment what the URL does not say.
    fn take_variables(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<()> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        for (name, parameter) in VARIABLES {
            let is_said = match parameter {
                "sslmode" => self.tls.is_said || self.tls.authorities == Some(Authorities::System),
                "sslrootcert" => self.tls.authorities.is_some(),
                "sslcert" => self.tls.certificate.is_some(),
                _ => self.tls.key.is_some(),
            };
            // Without TLS there is nothing to check. Neither `prefer` nor `allow` is a wish for TLS.
            let matters = parameter == "sslmode" || self.config.get_ssl_mode() == SslMode::Require;
            let Some(value) = given(name).filter(|value| matters && !is_said && value != "prefer" && value != "allow")
            else {
                continue;
            };
            let encoded = value.replace('%', "%25");
            parameters::apply(self, parameter, &encoded).map_err(|error| {
                LockError::misconfigured(format!("the variable {name}, read as a parameter of the URL: {error}"))
            })?;
        }
        Ok(())
    }

    /// Adds what the parameters together mean, or says why they cannot be honoured together.
    fn complete(&mut self) -> Result<()> {
        let refused = |text: &'static str| Err(LockError::misconfigured(text));
        let config = &mut self.config;
        if config.get_hosts().is_empty() {
            return Err(LockError::misconfigured(format!("the URL of PostgreSQL names no host; {SUPPORTED}")));
        }
        match (config.get_ports().len(), self.ports.len()) {
            (_, 0) => {}
            (0, one) if one == 1 || one == config.get_hosts().len() => {
                for port in &self.ports {
                    config.port(*port);
                }
            }
            _ => {
                return refused("the parameter port= of the URL of PostgreSQL does not fit its hosts; write host:port");
            }
        }
        // As libpq has it, this is a wish for TLS.
        if !self.tls.is_said && self.tls.authorities == Some(Authorities::System) {
            config.ssl_mode(SslMode::Require);
        }
        if parameters::is_local(config.get_hosts()) {
            config.ssl_mode(SslMode::Disable);
        } else if config.get_ssl_mode() == SslMode::Require && !cfg!(feature = "tls") {
            return refused(
                "sslmode= needs TLS, which is not compiled in; enable the cargo feature `tls` of lock-postgres",
            );
        } else if config.get_ssl_mode() == SslMode::Disable {
            if self.tls.authorities.is_some() {
                return refused(
                    "the URL of PostgreSQL names an authority of certificates, and no TLS to check any; add sslmode=verify-full",
                );
            }
            if self.tls.certificate.is_some() || self.tls.key.is_some() {
                return refused("sslcert= and sslkey= of the URL of PostgreSQL need TLS; add sslmode=verify-full");
            }
            if config.get_channel_binding() == ChannelBinding::Require {
                return refused("channel_binding=require of the URL of PostgreSQL needs TLS; add sslmode=verify-full");
            }
        }
        if self.tls.certificate.is_some() != self.tls.key.is_some() {
            return refused(
                "the URL of PostgreSQL has one of sslcert= and sslkey=; a certificate needs its key, so name both",
            );
        }
        if self.tls.any_name && !matches!(self.tls.authorities, Some(Authorities::File(_))) {
            return refused(
                "sslmode=verify-ca trusts any server with a certificate of an authority, so the URL must name your own by ca=FILE; \
                 or write sslmode=verify-full",
            );
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("lock-postgres");
        }
        self.node = node(config);
        self.hosts = Hosts::new(config.get_hosts().len());
        self.listen = self.listens_at.take().map(|(host, port)| elsewhere(&self.config, &host, port));
        Ok(())
    }
}

fn bad() -> LockError {
    LockError::misconfigured(format!("the URL of PostgreSQL cannot be read; {SUPPORTED}"))
}

/// The same user and database on another server.
fn elsewhere(config: &Config, host: &str, port: u16) -> Config {
    let mut other = alone(config, &Host::Tcp(host.to_owned()), Some(port));
    other.application_name("lock-postgres, listening");
    other
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "5432"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
    Some((is_host.then(|| host.to_owned())?, port.parse().ok()?))
}

fn checked_schema(name: &str) -> Result<String> {
    let is_plain = name.len() <= 30
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    // Some clients name the schema of their own tables so.
    if name == "public" || name == "information_schema" {
        return Err(LockError::misconfigured(
            "the parameter schema= of the URL of PostgreSQL names a schema that others use; the lock store needs one of its own, so \
             leave it out, or write another such as schema=lock_core",
        ));
    }
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
mod tests;

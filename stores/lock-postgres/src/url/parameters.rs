//! The parameters of a URL: those of this store, and those of PostgreSQL's own clients, which are honoured or refused by name.
//!
//! An error names a parameter only if the name is in this file. An unknown name may be a part of a password that was not encoded.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio_postgres::config::{ChannelBinding, Host, SslMode};

use crate::url::{Authorities, Settings, bad, checked_schema, host_and_port};

/// The values that a parameter may have, in words.
const NUMBER: &str = "a whole number";
const FILE: &str = "the name of a file, of which any byte may be written as %2F";

/// Applies one parameter. Returns false if its name is not known.
pub(super) fn apply(settings: &mut Settings, name: &str, value: &str) -> Result<bool> {
    let value = &*decoded(value).ok_or_else(bad)?;
    let config = &mut settings.config;
    match name {
        "schema" => settings.schema = checked_schema(value)?,
        "listen" => settings.listens_at = Some(host_and_port(value).ok_or_else(bad)?),
        "commit" => {
            settings.commit = *["on", "remote_apply", "off"]
                .iter()
                .find(|one| **one == value)
                .ok_or_else(|| unknown("commit", "on, remote_apply or off"))?;
        }
        "migrate" => settings.migrate = one_of("migrate", value, &[("auto", true), ("never", false)])?,
        // The other names are what libpq and lockctl call it.
        "ca" | "sslrootcert" if value == "system" => settings.tls.authorities = Some(Authorities::System),
        "ca" | "sslrootcert" => {
            let name = if name == "ca" { "ca" } else { "sslrootcert" };
            settings.tls.authorities = Some(Authorities::File(file(name, value)?));
        }
        "cert" | "sslcert" => settings.tls.certificate = Some(file("sslcert", value)?),
        "cert_key" | "sslkey" => settings.tls.key = Some(file("sslkey", value)?),
        "sslmode" => ssl_mode(settings, value)?,
        "channel_binding" => {
            let modes = [
                ("disable", ChannelBinding::Disable),
                ("prefer", ChannelBinding::Prefer),
                ("require", ChannelBinding::Require),
            ];
            config.channel_binding(one_of("channel_binding", value, &modes)?);
        }
        "user" => {
            config.user(value);
        }
        "password" => {
            config.password(value);
        }
        "passfile" => settings.password_file = Some(file("passfile", value)?),
        "dbname" => {
            config.dbname(value);
        }
        "host" | "hostaddr" => hosts(settings, name, value)?,
        "port" => {
            for port in value.split(',') {
                settings.ports.push(number("port", if port.is_empty() { "5432" } else { port })?);
            }
        }
        "options" => {
            config.options(value);
        }
        "application_name" => {
            config.application_name(value);
        }
        "fallback_application_name" if config.get_application_name().is_none() => {
            config.application_name(value);
        }
        "connect_timeout" => {
            if let Some(time) = seconds("connect_timeout", value)? {
                config.connect_timeout(time);
            }
        }
        // Milliseconds here, as with libpq.
        "tcp_user_timeout" => match number::<u64>("tcp_user_timeout", value)? {
            0 => {}
            millis => {
                config.tcp_user_timeout(Duration::from_millis(millis));
            }
        },
        "keepalives" => {
            config.keepalives(number::<i64>("keepalives", value)? != 0);
        }
        "keepalives_idle" => {
            if let Some(time) = seconds("keepalives_idle", value)? {
                config.keepalives_idle(time);
            }
        }
        "keepalives_interval" => {
            if let Some(time) = seconds("keepalives_interval", value)? {
                config.keepalives_interval(time);
            }
        }
        "keepalives_count" => match number("keepalives_count", value)? {
            0 => {}
            count => {
                config.keepalives_retries(count);
            }
        },
        _ => return beside(name, value),
    }
    Ok(true)
}

/// Judges parameters that set nothing: their value must be what this store does anyway.
fn beside(name: &str, value: &str) -> Result<bool> {
    /// The name, the values that say what this store does, and what is said about any other.
    const SAME: [(&str, &[&str], &str); 13] = [
        (
            "target_session_attrs",
            &["any", "read-write", "primary"],
            "a standby grants no locks, so the store always uses the server that takes writes; write target_session_attrs=read-write",
        ),
        ("fallback_application_name", &[], ""),
        // Statements are never prepared, so any pooler can carry them.
        ("pgbouncer", &["true", "false"], "write pgbouncer=true or leave it out"),
        ("client_encoding", &["UTF8", "utf8", "UTF-8", "utf-8", "auto"], "the store speaks UTF8"),
        ("gssencmode", &["disable", "prefer"], "this store has no GSSAPI; write sslmode=verify-full for TLS"),
        ("sslcompression", &["0"], "this store compresses nothing"),
        ("sslsni", &["1"], "the name of the server is always sent"),
        ("sslnegotiation", &["postgres"], "this store asks the server for TLS first; write sslnegotiation=postgres"),
        ("sslcertmode", &["allow"], "a certificate is sent if the URL names one and the server asks for it"),
        ("ssl_min_protocol_version", &["TLSv1", "TLSv1.1", "TLSv1.2"], "this store speaks TLS 1.2 and 1.3"),
        ("ssl_max_protocol_version", &["TLSv1.3"], "this store speaks TLS 1.2 and 1.3"),
        ("load_balance_hosts", &["disable"], "hosts are tried in their order, and the one that takes writes is used"),
        ("replication", &["false", "off", "no", "0"], "a session for replication grants no locks"),
    ];
    if let Some((name, values, why)) = SAME.iter().find(|(known, ..)| *known == name) {
        // Another default for a name that is given already.
        if values.is_empty() || values.contains(&value) {
            return Ok(true);
        }
        return Err(refused(name, why));
    }
    /// Parameters that cannot be honoured at all, and what to do instead.
    const REFUSED: [(&str, &str); 31] = [
        ("ssl", "write sslmode=verify-full, or sslmode=disable"),
        (
            "sslaccept",
            "certificates are always checked; write sslmode=verify-full, with ca=FILE for an authority of your own",
        ),
        ("sslidentity", "name the certificate and its key by sslcert=FILE&sslkey=FILE (PEM)"),
        ("sslpassword", "a key with a password cannot be read; name a key without one by sslkey="),
        ("sslcrl", "lists of revoked certificates are not read"),
        ("sslcrldir", "lists of revoked certificates are not read"),
        ("sslkeylogfile", "keys of TLS are not written down"),
        ("uselibpqcompat", "leave it out; every sslmode with TLS checks the certificate here"),
        (
            "require_auth",
            "which way of logging in is used is the server's choice; TLS with channel_binding=require admits SCRAM only",
        ),
        ("requirepeer", "the owner of a socket is not checked"),
        ("krbsrvname", "this store has no GSSAPI"),
        ("gsslib", "this store has no GSSAPI"),
        ("gssdelegation", "this store has no GSSAPI"),
        ("service", "service files are not read; write the host, user and database into the URL"),
        ("servicefile", "service files are not read; write the host, user and database into the URL"),
        ("scram_client_key", "write the password into the URL, or into PGPASSWORD or a password file"),
        ("scram_server_key", "write the password into the URL, or into PGPASSWORD or a password file"),
        ("oauth_issuer", "this store has no OAuth"),
        ("oauth_client_id", "this store has no OAuth"),
        ("oauth_client_secret", "this store has no OAuth"),
        ("oauth_scope", "this store has no OAuth"),
        ("min_protocol_version", "the store speaks version 3.0 of the protocol"),
        ("max_protocol_version", "the store speaks version 3.0 of the protocol"),
        ("search_path", "the store names its schema in every statement; name it by schema="),
        ("currentSchema", "the store names its schema in every statement; name it by schema="),
        ("statement_timeout", "set it for the user with ALTER ROLE, or leave it out"),
        ("lock_timeout", "set it for the user with ALTER ROLE, or leave it out"),
        ("connection_limit", "the number of connections is fixed; leave it out"),
        ("pool_timeout", "the store has no pool of connections to wait for; leave it out"),
        ("statement_cache_size", "statements are never prepared; leave it out"),
        ("prepareThreshold", "statements are never prepared; leave it out"),
    ];
    match REFUSED.iter().find(|(known, _)| *known == name) {
        Some((name, instead)) => Err(refused(name, instead)),
        None => Ok(false),
    }
}

fn ssl_mode(settings: &mut Settings, value: &str) -> Result<()> {
    const WEAK: &str = "with this value a server without TLS is sent everything in plain text, and any certificate is believed; \
                        write sslmode=verify-full, or sslmode=disable on a network that you trust";
    let mode = match value {
        "disable" => SslMode::Disable,
        // `require` believes any certificate elsewhere; here each is checked.
        "require" | "verify-full" => SslMode::Require,
        "verify-ca" => {
            settings.tls.any_name = true;
            SslMode::Require
        }
        "prefer" | "allow" | "no-verify" => return Err(refused("sslmode", WEAK)),
        _ => return Err(unknown("sslmode", "verify-full, verify-ca, require or disable")),
    };
    settings.config.ssl_mode(mode);
    settings.tls.is_said = true;
    Ok(())
}

/// Takes hosts that are not in the address: sockets, mostly.
fn hosts(settings: &mut Settings, name: &str, value: &str) -> Result<()> {
    if !settings.config.get_hosts().is_empty() {
        return Err(refused(
            if name == "host" { "host" } else { "hostaddr" },
            "the URL names a host already; keep one of the two",
        ));
    }
    for host in value.split(',').filter(|host| !host.is_empty()) {
        if name == "hostaddr" && host.parse::<IpAddr>().is_err() {
            return Err(unknown("hostaddr", "addresses such as 10.0.0.7"));
        }
        settings.config.host(host);
    }
    Ok(())
}

/// Returns whether all hosts are sockets of this machine, over which nobody speaks TLS.
pub(super) fn is_local(hosts: &[Host]) -> bool {
    hosts.iter().all(|host| match host {
        Host::Tcp(_) => false,
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

fn refused(name: &'static str, why: &str) -> LockError {
    LockError::misconfigured(format!("the parameter {name}= of the URL of PostgreSQL cannot be honoured: {why}"))
}

fn unknown(name: &'static str, choices: &str) -> LockError {
    LockError::misconfigured(format!(
        "the parameter {name}= of the URL of PostgreSQL has a value that is not known; write {choices}"
    ))
}

fn one_of<T: Copy>(name: &'static str, value: &str, choices: &[(&'static str, T)]) -> Result<T> {
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
    let found = choices.iter().find(|(one, _)| *one == value);
    found.map(|(_, meant)| *meant).ok_or_else(|| unknown(name, &names()))
}

fn number<T: std::str::FromStr>(name: &'static str, value: &str) -> Result<T> {
    value.parse().map_err(|_| unknown(name, NUMBER))
}

/// Reads seconds. `None` stands for the default, as 0 and less do with libpq.
fn seconds(name: &'static str, value: &str) -> Result<Option<Duration>> {
    let seconds: i64 = number(name, value)?;
    Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs))
}

fn file(name: &'static str, value: &str) -> Result<PathBuf> {
    let is_name = !value.is_empty() && !value.contains('\0');
    is_name.then(|| PathBuf::from(value)).ok_or_else(|| unknown(name, FILE))
}

/// Reads a value, of which any byte may be written as `%2F`.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

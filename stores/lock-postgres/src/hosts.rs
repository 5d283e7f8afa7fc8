//! The hosts of a URL: which of them is tried first, and how many sessions one of them may have.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// How long connecting to a host may take at first, and each statement before the first call, if the URL has no `connect_timeout`.
const OPENING: Duration = Duration::from_secs(5);

/// How long an attempt at one host or address is alone before the next one starts beside it. The first attempt goes on: a server
/// that is slow is still used if no other takes writes.
const HEAD_START: Duration = Duration::from_millis(500);

/// How many sessions a store has at one host, with those that it gave up and that the server has not ended yet. Without this bound
/// a server whose disk hangs would get new sessions until it refuses everybody.
const SESSIONS: usize = 16;

/// For how long the first of the sessions that were given up counts, if the server does not end it. The second counts twice as long, and so
/// on: while a server stands still, it gets one more session in this time.
const ENDING: Duration = Duration::from_secs(60);

/// The hosts of a store, as its sessions know them.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Arc<State>);

#[derive(Debug)]
struct State {
    last: watch::Sender<usize>,
    room: Vec<Arc<Semaphore>>,
    /// How often in a row a host was given up before it had let in a session.
    late: AtomicU32,
    /// How many sessions were given up that the server has not ended.
    given_up: AtomicU32,
}

impl Hosts {
    pub(crate) fn new(count: usize) -> Self {
        let room = (0..count.max(1)).map(|_| Arc::new(Semaphore::new(SESSIONS))).collect();
        Self(Arc::new(State {
            last: watch::Sender::new(0),
            room,
            late: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
        }))
    }

    /// Follows at which host the last session was opened: it takes writes.
    pub(crate) fn last(&self) -> watch::Receiver<usize> {
        self.0.last.subscribe()
    }

    pub(crate) fn set_last(&self, host: usize) {
        self.0.last.send_if_modified(|last| std::mem::replace(last, host) != host);
    }

    /// Returns how long connecting to this host may take. Without a `connect_timeout` it is longer after each host that was given up: a
    /// machine that is short of time, or a server that is, would never get to the end of what is begun anew each time.
    pub(crate) fn bound(&self, one: &Config) -> Duration {
        let late = self.0.late.load(Ordering::Relaxed).min(2);
        one.get_connect_timeout().copied().unwrap_or(OPENING * (1 << late))
    }

    pub(crate) fn set_late(&self, late: bool) {
        let count = |before: u32| Some(if late { before.saturating_add(1) } else { 0 });
        let _ = self.0.late.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
    }

    /// Counts a session that is given up, until [`ended`](Self::ended). Returns how long it takes up its place at most.
    pub(crate) fn give_up(&self) -> Duration {
        ENDING * (self.0.given_up.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn ended(&self) {
        self.0.given_up.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes the place of one session at a host.
    pub(crate) fn enter(&self, host: usize) -> Result<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.0.room[host % self.0.room.len()]);
        room.try_acquire_owned().map_err(|_| {
            LockError::not_executed(format!(
                "PostgreSQL has not ended {SESSIONS} sessions of this process; look in pg_stat_activity for what they wait for"
            ))
        })
    }
}

/// Returns how many hosts a URL names.
pub(crate) fn count(config: &Config) -> usize {
    config.get_hosts().len()
}

/// Returns the settings for one of the hosts.
pub(crate) fn at(config: &Config, host: usize) -> Config {
    let ports = config.get_ports();
    alone(config, &config.get_hosts()[host], ports.get(host).or(ports.first()).copied())
}

/// Returns the same settings for this host alone.
pub(crate) fn alone(config: &Config, host: &Host, port: Option<u16>) -> Config {
    let mut one = Config::new();
    match host {
        Host::Tcp(name) => one.host(name),
        #[cfg(unix)]
        Host::Unix(path) => one.host_path(path),
    };
    port.map(|port| one.port(port));
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|name| one.dbname(name));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|time| one.connect_timeout(*time));
    config.get_tcp_user_timeout().map(|time| one.tcp_user_timeout(*time));
    config.get_keepalives_interval().map(|time| one.keepalives_interval(time));
    config.get_keepalives_retries().map(|count| one.keepalives_retries(count));
    one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    one.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    one.channel_binding(config.get_channel_binding()).target_session_attrs(config.get_target_session_attrs());
    one
}

/// Returns the settings for each address of the host that this names.
pub(crate) async fn addresses(one: &Config) -> std::io::Result<Vec<Config>> {
    let [Host::Tcp(name)] = one.get_hosts() else { return Ok(vec![one.clone()]) };
    let port = one.get_ports().first().copied().unwrap_or(5432);
    let found: Vec<IpAddr> = tokio::net::lookup_host((name.as_str(), port)).await?.map(|found| found.ip()).collect();
    let with = |address: IpAddr| {
        let mut config = one.clone();
        config.hostaddr(address);
        config
    };
    Ok(found.into_iter().map(with).collect())
}

/// Runs attempts, each a moment after the one before, and returns what the first that succeeds returns. The errors of all, if none does.
pub(crate) async fn race<T: Send + 'static>(
    attempts: Vec<impl Future<Output = Result<T>> + Send + 'static>,
) -> Result<T> {
    let (mut waiting, mut running, mut refused) = (attempts.into_iter(), JoinSet::new(), Vec::new());
    loop {
        let Some(next) = waiting.next() else {
            match running.join_next().await {
                Some(Ok(Ok(first))) => return Ok(first),
                Some(Ok(Err(error))) => refused.push(error),
                Some(Err(_)) => {}
                None => return Err(together(refused)),
            }
            continue;
        };
        running.spawn(next);
        #[expect(clippy::disallowed_methods, reason = "runs on a runtime of this library, which has a timer")]
        let ended = tokio::time::timeout(HEAD_START, running.join_next()).await;
        match ended {
            Ok(Some(Ok(Ok(first)))) => return Ok(first),
            Ok(Some(Ok(Err(error)))) => refused.push(error),
            // The next one starts beside it.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Makes one error of those of several hosts or addresses. An error that a person must fix takes precedence.
fn together(mut refused: Vec<LockError>) -> LockError {
    if let Some(place) = refused.iter().position(|error| error.kind() == LockErrorKind::Misconfigured) {
        return refused.swap_remove(place);
    }
    refused.dedup_by(|one, other| one.to_string() == other.to_string());
    match refused.len() {
        0 => LockError::not_executed("PostgreSQL has no address"),
        1 => refused.remove(0),
        _ => {
            let texts: Vec<String> = refused.iter().map(ToString::to_string).collect();
            LockError::not_executed(texts.join("; and ")).with_source(refused.remove(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Hosts;

    #[test]
    fn a_server_that_stands_still_gets_one_more_session_a_minute() {
        let hosts = Hosts::new(1);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert_eq!([1, 2, 3].map(|_| hosts.give_up()), [1, 2, 3].map(minutes));
        hosts.ended();
        assert_eq!(hosts.give_up(), minutes(3), "of those that are left");
    }
}

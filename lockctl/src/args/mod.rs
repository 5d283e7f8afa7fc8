//! The command line.

pub(crate) mod address;
mod filter;
pub(crate) mod generate;
mod help;
mod lease;
#[cfg(unix)]
mod run;
mod shown;

use std::env::VarError;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use lock_core::store::JobVersion;
use lock_core::{LockError, LockKey, OwnerId};

use crate::args::address::Address;
use crate::args::help::{INCIDENT, LEASES, MORE, RUN};
use crate::args::shown::without_credentials;
use crate::end::End;
use crate::output::Output;
use crate::values;

#[cfg(unix)]
pub(crate) use run::{OnBusy, Run};

pub(crate) use filter::Filter;
pub(crate) use lease::{Acquire, LeaseArgs};

const URL: &str = "LOCK_URL";
const PREFIX: &str = "LOCK_KEY_PREFIX";

/// Shows the holders and waiters of distributed locks in Redis, Valkey or PostgreSQL, across the whole fleet. Also runs commands under
/// a lock.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, before_help = INCIDENT, after_help = MORE)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    /// The store of the locks: `redis://user:password@host:port/db` (only the host is needed) for one server or any node of a
    /// cluster, redis+unix:///path, redis+sentinel://host,…/service, redis+cluster://host,…, redlock://host,host,host for a quorum,
    /// postgres://user:password@host/database for PostgreSQL. Over TLS: rediss://, rediss+sentinel://, rediss+cluster://, redlocks://,
    /// and ?sslmode=verify-full for PostgreSQL, with the authorities of this machine, or of --ca
    /// [env: LOCK_URL]
    // Read from the environment by `url`: clap would name it in the usage of every mistake, as if it were required.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,

    /// Trust only servers whose certificate was signed by an authority in this file (PEM); as ?ca=FILE in the URL
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Present this client certificate, with its chain (PEM); as ?cert=FILE in the URL. It needs --cert-key
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// The key of --cert (PEM); as ?cert_key=FILE in the URL
    #[arg(long, global = true, value_name = "FILE")]
    cert_key: Option<PathBuf>,

    /// Print JSON for programs: complete and exact, where the table is cut for a terminal
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) action: Action,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// List every lock that is held. The locks that hurt most come first
    List(Wanted),
    /// Say who holds a lock, whether that process is alive, who waits, and whether it is safe to take the lock away
    ///
    /// The store is enough for most of it: a lease that is renewed on time has a living process. The live views of
    /// the processes add the caller that has the lock now, its fencing token, the clock, and every caller that waits.
    ///
    /// For a quorum it also shows what each member has and whether its vote counts. If a vote does not count, it says why
    /// and for how long. It says whether locks are granted at all.
    Why {
        /// The key, as in the store, or the name of the lock, as in an alert: then the key of that name that hurts most
        #[arg(value_parser = values::key)]
        key: LockKey,
        /// The live view of a process, such as http://shop-7f:9464; may be repeated, or separated by commas. `{host}` stands
        /// for the host of the holder and of each waiter: http://{host}:9464
        #[arg(
            long = "live-view", value_name = "URL", env = "LOCK_LIVE_VIEW", hide_env_values = true, value_delimiter = ',',
            value_parser = Address::read
        )]
        views: Vec<Address>,
    },
    /// Take a lock away from the owner that `show` or `why` named, or release a lease by the name of its holder
    ///
    /// With --holder, only a lease of that holder is released. With --force, a lock of another holder is taken away after
    /// you have answered `yes`. The next sentences are about --force and about the other forms.
    ///
    /// The comparison and the deletion are one step on the server. A process of this library gets a message with
    /// your name and reason, and reports the loss as `revoked`. A process that does not receive it notices at its
    /// next renewal, at most a third of its lease later. It may go on writing until then: only a resource that
    /// checks fencing tokens is safe in between. Clients of other libraries get no message. An audit event on
    /// standard error says who did it, and why.
    Release {
        /// The key, as in the store
        #[arg(value_parser = values::key)]
        key: LockKey,
        #[command(flatten)]
        expected: Expected,
        /// Why, for the audit events here and at the holder
        #[arg(
            long, value_name = "TEXT", required_unless_present = "holder",
            value_parser = NonEmptyStringValueParser::new()
        )]
        reason: Option<String>,
        /// Take the lock away also from another holder than --holder, if you answer `yes`
        #[arg(long, requires = "holder", requires = "reason")]
        force: bool,
    },
    /// Examine the servers of the store: what works, what is lost, what is refused, and what to set
    ///
    /// Redis and services that speak its protocol: commands, scripts, messages, clock, eviction, persistence, replicas, role, slots.
    /// PostgreSQL: settings, permissions, poolers, standbys. Each server of a cluster and each member of a quorum is examined. The
    /// keys of the examination have an expiry and are deleted: nothing is left behind.
    ///
    /// Exit codes: 0 everything works; 1 there are warnings; 2 no lock can be taken (or the URL is wrong); 3 something could not be
    /// found out, which never counts as healthy.
    ///
    /// For example: lockctl --url redis+sentinel://10.0.0.1,10.0.0.2/mymaster doctor
    Doctor,
    /// Show one lock with its full owner
    Show {
        /// The key, as in the store, or the name of the lock, as in an alert: then the key of that name that hurts most
        #[arg(value_parser = values::key)]
        key: LockKey,
    },
    /// List the holder of a lock and its waiters in the store's queue, first come first
    ///
    /// A quorum does not keep a queue: its members only name the holder.
    Waiters {
        /// The key, as in the store, or the name of the lock, as in an alert: then the key of that name that hurts most
        #[arg(value_parser = values::key)]
        key: LockKey,
    },
    /// Show the list, or one lock, again every second until Ctrl-C
    Watch {
        /// The key, as in the store; without it, every lock
        #[arg(value_parser = values::key)]
        key: Option<LockKey>,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Show the servers behind the URL: masters, replicas, sentinels, members of a quorum, and what is wrong with them
    Topology,
    /// Show what each node of the store says about a lock; in a quorum, each member
    Sync {
        /// The key, as in the store
        #[arg(value_parser = values::key)]
        key: LockKey,
    },
    /// List the jobs that have a period: which are overdue and by how much, and which process ran each last, and when
    ///
    /// A job is overdue when a run that succeeds has been missing for more than a tenth of its period. The store remembers a
    /// job for ten periods after its last run, at most a week longer than one period.
    ///
    /// The work that is done once for a version follows, with the time and the process. `forget` lets it run again.
    Jobs(Scope),
    /// Show who leads an election, what the leader announced, and who stands for it
    ///
    /// A quorum does not know who stands for it.
    Leader {
        /// The name of the election
        #[arg(value_parser = values::key)]
        name: LockKey,
    },
    /// Show who blocked whom on which key: the last contended waits that have ended, as each process remembers them
    ///
    /// A process keeps the last 128 waits of 10 ms and more. Waits of one call site for another on one key are one line.
    /// `why` and the live view show the callers that wait now.
    Contention {
        /// The live view of a process, such as http://shop-7f:9464; may be repeated, or separated by commas. `{host}` stands
        /// for the host of each that has a lock now: http://{host}:9464
        #[arg(
            long = "live-view", value_name = "URL", env = "LOCK_LIVE_VIEW", hide_env_values = true, value_delimiter = ',',
            value_parser = Address::read, required = true
        )]
        views: Vec<Address>,
        #[command(flatten)]
        scope: Scope,
    },
    /// Run a command under a lock: what flock(1) is for one host, for the whole fleet
    #[cfg(unix)]
    #[command(after_help = RUN)]
    Run(Run),
    /// Take a lease: a lock that stays taken when this program ends, for work that several commands do
    ///
    /// Use `run` instead if one command does all of the work. The lease ends when `release` names its holder, or when its
    /// ttl has passed since the last `acquire` or `renew`. A holder that has the lease already renews it, and gets a new
    /// fencing token. While it waits, a line on standard error says who holds the lock.
    #[command(after_help = LEASES)]
    Acquire(Acquire),
    /// Renew a lease by the name of its holder, from any host, and print a fencing token
    Renew(LeaseArgs),
    /// Remove the mark of `run --once-for` that the work under a lock is done for a version, so that it runs again
    ///
    /// A command that runs now is not stopped, and marks the work again when it ends well. An audit event on standard error
    /// says who removed the mark.
    Forget {
        /// The key, as in the store
        #[arg(value_parser = values::key)]
        key: LockKey,
        /// The version
        #[arg(value_parser = values::version)]
        version: JobVersion,
    },
    /// Begin a new quorum: let its members count at once
    Quorum {
        #[command(subcommand)]
        action: QuorumAction,
    },
    /// Write Grafana dashboards, Prometheus alerts with a runbook for each, and recording rules into a folder
    ///
    /// They are for services of the same version as this program. A file that you changed in the folder is overwritten only
    /// with --force. A file of an older version that was not changed is overwritten.
    Dashboards(Dashboards),
    /// Print a completion script for a shell, as in `lockctl completions bash > /etc/bash_completion.d/lockctl`
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for each command into a directory
    Man {
        /// Where to write `lockctl.1`, `lockctl-list.1`, and so on
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Where to write dashboards, and the settings of a fleet.
#[derive(Debug, clap::Args)]
pub(crate) struct Dashboards {
    /// Write into this folder, and create it if it is missing
    #[arg(long, value_name = "DIR", required_unless_present = "settings")]
    pub(crate) to: Option<PathBuf>,

    /// The form: `kubernetes` is a kustomize base, `grafana-operator` the same for Grafana's operator, `mixin` is for jsonnet
    #[arg(long, value_parser = lock_dashboards::Form::ALL.map(|(name, _)| name), default_value = "plain", requires = "to")]
    pub(crate) form: String,

    /// Adapt the files to your fleet; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "to")]
    pub(crate) set: Vec<String>,

    /// Overwrite changed files too
    #[arg(long, requires = "to")]
    pub(crate) force: bool,

    /// Print the names that --set takes, with their defaults, and write nothing
    #[arg(long, conflicts_with = "to")]
    settings: bool,
}

/// The commands for a quorum.
#[derive(Debug, Subcommand)]
pub(crate) enum QuorumAction {
    /// Declare that no member has granted a lock that may still be held, so that all of them count from now on
    ///
    /// For a new quorum, or one whose users are all stopped. Otherwise a member that began with empty data does not
    /// count for the longest possible lease. If locks are held meanwhile, two processes may then hold one lock.
    Init,
}

/// The holder to take a lock from.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Expected {
    /// The owner that `show` printed, all 32 digits
    #[arg(long = "expect-owner", value_name = "OWNER", value_parser = values::owner)]
    pub(crate) owner: Option<OwnerId>,
    /// For a lock of another library: its value, as `show` printed it; `hex:…` if it is not plain text
    #[arg(long = "expect-value", value_name = "VALUE", value_parser = values::value)]
    pub(crate) value: Option<values::Bytes>,
    /// The holder of the lease, as `acquire` named it
    #[arg(long, value_name = "NAME", value_parser = values::holder)]
    pub(crate) holder: Option<String>,
}

/// Which locks to look for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wanted {
    #[command(flatten)]
    pub(crate) scope: Scope,

    #[command(flatten)]
    pub(crate) filter: Filter,

    /// Show owners in full, as `release` needs them
    #[arg(long)]
    pub(crate) owners: bool,
}

/// Where to look.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    /// Only keys that begin with this, after the namespace. Strings of other clients then count as locks too
    #[arg(long, value_name = "P")]
    pub(crate) prefix: Option<String>,

    /// Stop after looking at about this many keys, of all masters together
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_keys: u64,
}

impl Args {
    /// Returns the URL of the store, with the files of the command line, and with the namespace of the environment if it
    /// names none.
    pub(crate) fn url(&self) -> Result<String, LockError> {
        let mut url = match &self.url {
            Some(url) => url.clone(),
            // A default store is not assumed: the locks of a wrong store would look like an answer.
            None => variable(URL)?.ok_or_else(|| {
                let outer = std::env::var_os("LOCK_TOKEN")
                    .map_or("", |_| "; the `lockctl run` around it keeps its own without --pass-url");
                LockError::misconfigured(format!(
                    "no store is named, such as redis://127.0.0.1:6379 for a Redis on this machine{outer}"
                ))
            })?,
        };
        for (name, file) in [("ca", &self.ca), ("cert", &self.cert), ("cert_key", &self.cert_key)] {
            if let Some(file) = file {
                url = with_parameter(&url, name, &encoded(file));
            }
        }
        Ok(match variable(PREFIX)? {
            Some(prefix) if !url.contains("key_prefix=") => {
                // A character that would end the parameter cannot be part of a prefix, so it is refused.
                with_parameter(&url, "key_prefix", &prefix.replace('&', "%26").replace('#', "%23"))
            }
            _ => url,
        })
    }

    /// Reads the command line. Ends the process with usage and status 2 if it is wrong.
    pub(crate) fn parse_or_exit() -> Self {
        Self::try_parse().unwrap_or_else(|error| match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => {
                // A misplaced URL is quoted in the message, with its password.
                let text = without_credentials(&error.to_string());
                if std::env::args_os().any(|argument| argument == "--json") {
                    let _ = Output::new(true).failure(text.lines().next().unwrap_or_default(), End::Usage as u8);
                }
                eprint!("{text}");
                std::process::exit(2);
            }
        })
    }
}

fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{name}={value}")
}

/// Spells a path as a URL takes it.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_~".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes.map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Reads a variable as the library does: one that is empty counts as not set.
fn variable(name: &str) -> Result<Option<String>, LockError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(LockError::misconfigured(format!("{name} is not text"))),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Args;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}

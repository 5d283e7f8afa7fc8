//! The command line.

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use lock_core::{LockKey, OwnerId};

const MORE: &str = "\
Exit codes:
  0  done
  1  the lock is free, or not held by the owner that was named
  2  the command line or the URL makes no sense
  3  the store cannot be reached, refuses us, or gave no answer

Clusters: the URL of any node stands for all of its masters, at the addresses that the cluster announces,
with the same user, password and TLS settings. Replicas are never read.

Owners: 32 hexadecimal digits name one grant, and prove ownership of it: with them a lock can be
released. Lists show the first four, enough to tell holders apart and safe to paste into a chat; `show`
and `list --owners` show all, for `release --expect-owner`. Passwords are never printed.

Examples:
  lockctl list --prefix lock:
  lockctl show lock:user:42
  lockctl release lock:user:42 --expect-owner 5f0e… --reason 'host web-3 is gone, INC-512'
  LOCK_URL=redis://:password@redis.internal lockctl watch --json";

/// Shows who holds and who waits for distributed locks, across the whole fleet, by reading Redis.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, after_help = MORE, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    /// The Redis server, or any node of a cluster: `redis://user:password@host:port/db` (only the host is needed), rediss:// or
    /// redis+unix:///path
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    pub(crate) url: String,

    /// Print JSON for programs, exact where the table is cut or made fit for a terminal
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// List every lock that is held, what hurts most first
    List(Wanted),
    /// Show one lock with its full owner
    Show {
        /// The key, as in Redis
        #[arg(value_parser = key)]
        key: LockKey,
    },
    /// List who waits for a lock in the server's queue, first come first
    Waiters {
        /// The key, as in Redis
        #[arg(value_parser = key)]
        key: LockKey,
    },
    /// Show the list, or one lock, again every second until Ctrl-C
    Watch {
        /// The key, as in Redis; without it, every lock
        #[arg(value_parser = key)]
        key: Option<LockKey>,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Take a lock away from its holder, if it is still the one that you saw
    ///
    /// The comparison and the deletion are one step on the server. The holder learns of it with its
    /// next renewal, a third of its lease later at most, and may go on writing until then: only a
    /// resource that checks fencing tokens is safe in between. An audit event says on standard error
    /// who did it, and why.
    Release {
        /// The key, as in Redis
        #[arg(value_parser = key)]
        key: LockKey,
        /// The owner that `show` printed, all 32 digits
        #[arg(long, value_name = "OWNER", value_parser = owner)]
        expect_owner: OwnerId,
        /// Why, for the audit event
        #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
        reason: String,
    },
}

/// Which locks to look for.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// Only keys that begin with this; then strings of other clients count as locks too
    #[arg(long, value_name = "P")]
    pub(crate) prefix: Option<String>,

    /// Show owners in full, so that they can be quoted to `release`
    #[arg(long)]
    pub(crate) owners: bool,

    /// Stop after looking at about this many keys, of all masters together
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_keys: u64,
}

impl Args {
    /// Reads the command line. Ends the process with usage and status 2 if it makes no sense.
    pub(crate) fn parse_or_exit() -> Self {
        Self::try_parse().unwrap_or_else(|error| match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => {
                // A misplaced URL is quoted in the message, with its password.
                eprint!("{}", without_credentials(&error.to_string()));
                std::process::exit(2);
            }
        })
    }
}

fn key(text: &str) -> Result<LockKey, String> {
    LockKey::new(text).map_err(|error| error.to_string())
}

fn owner(text: &str) -> Result<OwnerId, String> {
    let owner = OwnerId::from_hex(text).filter(|_| text.bytes().any(|digit| digit != b'0'));
    owner.ok_or_else(|| "an owner has 32 hexadecimal digits; copy it from `lockctl show KEY`".to_owned())
}

/// Takes out what stands between the scheme and the host of URLs.
fn without_credentials(text: &str) -> String {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        // A password may itself contain an @.
        rest = match after[..end].rfind('@') {
            Some(at) => {
                clean.push_str("…@");
                &after[at + 1..]
            }
            None => after,
        };
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Args, owner, without_credentials};

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn messages_carry_no_credentials() {
        let text = "unexpected 'redis://u:p@ss@host:1/2' and redis://host and rediss://:x@h";
        assert_eq!(without_credentials(text), "unexpected 'redis://…@host:1/2' and redis://host and rediss://…@h");
    }

    #[test]
    fn owners_are_complete_and_somebody() {
        assert!(owner(&"5f".repeat(16)).is_ok());
        for bad in ["5f0e", &"0".repeat(32), "", &"xy".repeat(16)] {
            assert!(owner(bad).is_err(), "{bad}");
        }
    }
}

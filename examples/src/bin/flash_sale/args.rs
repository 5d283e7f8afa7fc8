//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum, value_parser};

const IN_MEMORY: &str = "memory://";

const MORE: &str = "\
Examples:
  flash_sale                          one process, the store built in, about 10 seconds
  flash_sale --without-lock           the same without the lock, to see what it prevents
  flash_sale --redis --processes 4    four processes that share a Redis on this machine
  flash_sale --store sentinel --failover   servers of its own, whose master is killed in mid-sale
  flash_sale --store quorum --failover  three servers of its own, one of which dies in mid-sale
  flash_sale --serve                  then keep http://127.0.0.1:9464/metrics up until Ctrl-C

It exits with 0 if the ledger agrees with every order, and with 1 if anything is wrong. With
--without-lock it is the other way round: a run that shows no damage proves nothing, and exits with 1.";

/// Sells limited stock to many buyers at once, each purchase under a distributed lock, and then
/// checks that nothing was sold twice.
#[derive(Clone, Debug, Parser)]
#[command(name = "flash_sale", after_help = MORE)]
pub(crate) struct Args {
    /// Take the locks in Redis [without a URL: redis://127.0.0.1:6379]
    #[arg(
        long = "redis",
        value_name = "URL",
        env = "LOCK_URL",
        hide_env_values = true,
        num_args = 0..=1,
        default_value = IN_MEMORY,
        hide_default_value = true,
        default_missing_value = "redis://127.0.0.1:6379"
    )]
    pub(crate) store: String,

    /// Take the locks in servers that are started for this sale, and stopped after it
    #[arg(long = "store", value_name = "KIND", conflicts_with = "store")]
    pub(crate) started: Option<Started>,

    /// Kill one of these servers in mid-sale
    #[arg(long, requires = "started")]
    pub(crate) failover: bool,

    /// How many buyers place orders at the same time, over all processes
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) buyers: u32,

    /// Place only the first N orders
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) orders: Option<u32>,

    /// Share the orders among N processes; needs a store they share
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,

    /// Buy without the lock, and show the damage
    #[arg(long)]
    pub(crate) without_lock: bool,

    /// Serve /metrics during the sale and after it, until Ctrl-C [without an address: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9464")]
    pub(crate) serve: Option<SocketAddr>,

    /// Read orders.csv and stock.csv from this folder instead of the built-in orders and stock
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,

    /// Set by the parent in the processes it starts: which one this is
    #[arg(long, hide = true, requires = "ledger")]
    pub(crate) worker: Option<u32>,

    /// Set by the parent in the processes it starts: where the ledger is
    #[arg(long, hide = true)]
    pub(crate) ledger: Option<PathBuf>,
}

/// Servers that a sale starts for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Started {
    /// A master, two replicas and three sentinels; every replica confirms each lock
    Sentinel,
    /// A Redis Cluster of three masters and three replicas; the newest locks of a master that dies may be lost
    Cluster,
    /// Three independent servers, of which two must agree
    Quorum,
}

impl Args {
    /// Reads the command line. Ends the process with usage and status 2 if it is invalid.
    pub(crate) fn parse_or_exit() -> Self {
        let args = Self::parse();
        if args.processes > 1 && !args.without_lock && args.started.is_none() && args.store.starts_with(IN_MEMORY) {
            refuse(
                "--processes needs a store that the processes share, and memory:// lives in one of them; \
                 add --redis (or set LOCK_URL) with a Redis server running",
            );
        }
        if args.processes > 1 && args.serve.is_some() {
            refuse("--serve shows the metrics of one process; leave out --processes");
        }
        args
    }

    /// Returns whether the store has replicas that do not confirm its locks, as far as its URL says.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        let (scheme, rest) = self.store.split_once("://").unwrap_or_default();
        let is_replicated = scheme.ends_with("+sentinel") || scheme.ends_with("+cluster");
        is_replicated && !rest.contains("acks=") && !rest.contains("fsync=")
    }

    /// Returns the store's URL without the password that it may contain.
    pub(crate) fn store_name(&self) -> String {
        match (self.store.split_once("://"), self.store.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => self.store.clone(),
        }
    }
}

fn refuse(why: &str) -> ! {
    Args::command().error(ErrorKind::ArgumentConflict, why).exit()
}

//! The command line.

use std::net::IpAddr;
use std::time::Duration;

use clap::Parser;

const MORE: &str = "\
Durations are written like 500ms, 40s, 5m, 1h.

Examples:
  stuck                                              until Ctrl-C, at the pace of a real incident
  stuck --stuck-after 5s --stuck-for 40s             all scenes in a minute
  LOCK_URL=redis://10.0.0.5:6379 stuck --port 9500   another Redis, another port";

/// Makes locks that are stuck, lost, orphaned, without a lease, and contended, and prints what to look at.
#[derive(Clone, Debug, Parser)]
#[command(name = "stuck", after_help = MORE)]
pub(crate) struct Args {
    /// Take the locks in this Redis
    #[arg(
        long = "redis",
        value_name = "URL",
        env = "LOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    pub(crate) store: String,

    /// Serve /metrics on this port; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = 9464)]
    pub(crate) port: u16,

    /// Serve /metrics on this address; use another one only inside a container
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) address: IpAddr,

    /// Hold the stuck lock for this long before it is released
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(crate) stuck_for: Duration,

    /// Release the stuck lock when a line arrives on the input, instead of after a time
    #[arg(long)]
    pub(crate) until_told: bool,

    /// The age at which a hold counts as stuck
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) stuck_after: Duration,

    /// Rest for this long between two stuck holds
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) rest: Duration,

    /// Take a lock away from its holder this often
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub(crate) lose_every: Duration,

    /// The lease of the process that is killed while it holds a lock
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub(crate) orphan_ttl: Duration,

    /// Scan Redis this often for orphaned locks and keys without a lease
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) inspect_every: Duration,

    /// Stop after this long instead of at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) run_for: Option<Duration>,

    /// Set by the parent in the process that it kills
    #[arg(long, hide = true)]
    pub(crate) orphan: bool,

    /// Set by the parent: the key to take
    #[arg(long, hide = true, default_value = "")]
    pub(crate) key: String,
}

impl Args {
    /// Reads the command line. Ends the process with usage and status 2 if it is invalid.
    pub(crate) fn parse_or_exit() -> Self {
        Self::parse()
    }

    /// Returns the store's URL without the password that it may contain.
    pub(crate) fn store_name(&self) -> String {
        match (self.store.split_once("://"), self.store.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => self.store.clone(),
        }
    }
}

/// Reads `500ms`, `40s`, `1m30s` or `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    lock_core::store::text::duration(text).map_err(str::to_owned)
}

//! The command line of `lockctl run`.

use std::ffi::OsString;
use std::time::Duration;

use lock_core::store::JobVersion;
use lock_core::{LockKey, Wait};

use crate::values;

/// The command to run, and its lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The key, as in the store
    #[arg(value_parser = values::key)]
    pub(crate) key: LockKey,

    /// How long others wait after this host has died. The lease is renewed while the command runs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::ttl)]
    pub(crate) ttl: Duration,

    /// How long to wait for a lock that is taken: a time such as 90s, `none` or `forever`. The default with `--on-busy skip` is `none`.
    /// After 1 s, 10 s and then each minute, a line on standard error says who holds the lock
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5s",
        default_value_if("on_busy", "skip", "none"),
        value_parser = values::wait
    )]
    pub(crate) wait: Wait,

    /// Do not wait: the same as `--wait none`
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Share the lock with other readers
    #[arg(short = 's', long)]
    pub(crate) shared: bool,

    /// Run the command once for this version. It is done when a command has ended with code 0, on any host; later runs skip it, also
    /// with code 0
    #[arg(long, value_name = "VERSION", value_parser = values::version, conflicts_with_all = ["shared", "min_hold"])]
    pub(crate) once_for: Option<JobVersion>,

    /// If the lock stays taken: `fail` with code 75, or `skip` the command with code 0
    #[arg(long, value_name = "WHAT", default_value = "fail", value_enum)]
    pub(crate) on_busy: OnBusy,

    /// Stop the command after this time, as if the lock had been lost
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock taken for at least this time, however soon the command ends: for jobs whose hosts disagree about the time
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) min_hold: Option<Duration>,

    /// Let alerts call the run stuck when it is older than this. The default is never
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) stuck_after: Option<Duration>,

    /// How long the command may take to end after the first signal, before it is killed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration)]
    pub(crate) grace: Duration,

    /// Leave LOCK_URL in the command's environment, for a command that calls lockctl itself: it may hold a password
    #[arg(long)]
    pub(crate) pass_url: bool,

    /// Leave the command in this process group. Processes that it starts are then not ended with it
    #[arg(long)]
    pub(crate) foreground: bool,

    /// The command with its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The end of the run if the lock stays taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnBusy {
    Fail,
    Skip,
}

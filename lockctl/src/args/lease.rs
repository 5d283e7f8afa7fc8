//! The command lines of leases.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use lock_core::{LockKey, Wait};

use crate::values;

/// The lease to take.
#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// How long to wait for a lock that is taken: a time such as 90s, `none` or `forever`
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::wait)]
    pub(crate) wait: Wait,

    /// The purpose of the lease. Waiters, `show`, `list` and the live view show it, about 80 bytes of it
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: Option<String>,

    /// Refuse, with code 75, if this holder has the lease already. The default is to renew it
    #[arg(long)]
    pub(crate) exclusive_holder: bool,
}

/// A lease, by its key and its holder.
#[derive(Debug, clap::Args)]
pub(crate) struct LeaseArgs {
    /// The key, as in the store
    #[arg(value_parser = values::key)]
    pub(crate) key: LockKey,

    /// The name of the holder, such as the number of a CI job. Every process that gives this name is this holder
    #[arg(long, value_name = "NAME", value_parser = values::holder)]
    pub(crate) holder: String,

    /// How long the lease lasts after this, unless it is renewed or released. A renewal never shortens it
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = values::ttl)]
    pub(crate) ttl: Duration,
}

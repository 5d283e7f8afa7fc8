//! Locks over unlike stores. Processes work under the lock, are killed and stopped meanwhile, and at the end the books are audited.
//!
//! `fenced` is the hybrid of the articles that this library comes from: the lock in Redis, which is fast and may be lost, and
//! `lock_core.admit(resource, token)` in the transaction of PostgreSQL, which refuses every write that comes too late.
//!
//! `unlike` is one lock over a majority of Redis, PostgreSQL and ZooKeeper: it outlives the loss of any one of them.
//!
//! ```sh
//! cargo run -p lock-hybrids -- fenced --redis redis://127.0.0.1:6379 --postgres postgres://postgres@127.0.0.1/postgres
//! cargo run -p lock-hybrids -- unlike --redis redis://127.0.0.1:6379 --postgres postgres://postgres@127.0.0.1/postgres \
//!     --zookeeper zookeeper://127.0.0.1
//! ```

mod fenced;
mod fleet;
mod unlike;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Locks over unlike stores, whose books are audited under kills.
#[derive(Debug, Parser)]
#[command(name = "hybrids")]
struct Command {
    #[command(subcommand)]
    hybrid: Hybrid,
}

#[derive(Debug, Subcommand)]
enum Hybrid {
    /// The lock in Redis, and a fence in PostgreSQL
    Fenced {
        #[command(flatten)]
        fleet: Fleet,
        /// Writes without the fence, to show what the audit finds then
        #[arg(long)]
        without_admit: bool,
    },
    /// One lock over a majority of three stores of different kinds
    Unlike {
        #[command(flatten)]
        fleet: Fleet,
        /// ZooKeeper
        #[arg(long, value_name = "URL", env = "ZOOKEEPER_URL", hide_env_values = true)]
        zookeeper: String,
        /// The file with the books
        #[arg(long, value_name = "FILE", default_value = "books")]
        books: PathBuf,
    },
}

/// The arguments of both hybrids.
#[derive(Clone, Debug, Args)]
struct Fleet {
    /// Redis
    #[arg(long, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    redis: String,
    /// PostgreSQL
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    postgres: String,
    /// How long the processes work; Ctrl-C ends it earlier
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,
    /// How many processes work
    #[arg(long, value_name = "N", default_value_t = 6)]
    processes: usize,
    /// Works until standard input ends, as one of the processes
    #[arg(long, hide = true)]
    worker: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended: Result<()> = match Command::parse().hybrid {
        Hybrid::Fenced { fleet, without_admit } => fenced::run(&fleet, !without_admit).await,
        Hybrid::Unlike { fleet, zookeeper, books } => unlike::run(&fleet, &zookeeper, &books).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

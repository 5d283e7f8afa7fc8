//! Writes dashboards and rules into `dashboards/`, from typed code over the catalogue of metrics.
//!
//! ```sh
//! cargo run -p lock-dashboards                       # writes dashboards/
//! cargo run -p lock-dashboards -- --runbooks URL     # links to your copy of the runbooks
//! cargo run -p lock-dashboards -- --dashboards URL   # links to Grafana from every alert
//! cargo run -p lock-dashboards -- --live-view URL    # with {{ $labels.instance }} in it
//! cargo run -p lock-dashboards -- --to DIR --fast    # a copy for tests, whose delays are seconds
//! cargo run -p lock-dashboards -- --queries          # every query, as JSON
//! ```

mod generate;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Parser;

use crate::generate::{Settings, files, queries};

/// Writes the dashboards, alerts and recording rules.
#[derive(Parser)]
#[command(name = "dashboards")]
struct Args {
    /// Write into this folder
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
    to: PathBuf,

    /// Put this address before the name of a runbook in every alert
    #[arg(long, value_name = "URL", default_value_t = Settings::default().runbooks)]
    runbooks: String,

    /// Link every alert to its dashboard in the Grafana at this address
    #[arg(long, value_name = "URL")]
    dashboards: Option<String>,

    /// Link every alert to the live view of its process at this address
    #[arg(long, value_name = "URL", default_value_t = Settings::default().live_view)]
    live_view: String,

    /// Use seconds instead of the minutes that keep alerts calm, for tests
    #[arg(long)]
    fast: bool,

    /// Print every query as JSON, and write nothing
    #[arg(long)]
    queries: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if args.queries {
        println!("{}", queries());
        return Ok(());
    }
    let settings = Settings {
        runbooks: args.runbooks,
        dashboards: args.dashboards.map(|url| url.trim_end_matches('/').to_owned()),
        live_view: args.live_view,
        fast: args.fast,
    };
    for (name, text) in files(&settings) {
        let file = args.to.join(name);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, text)?;
    }
    Ok(())
}

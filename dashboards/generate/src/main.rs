//! Writes the dashboards into `dashboards/`, and dashboards with rules into another folder.
//!
//! ```sh
//! cargo run -p lock-dashboards                       # writes dashboards/
//! cargo run -p lock-dashboards -- --settings         # what can be set, and what it is by default
//! cargo run -p lock-dashboards -- --to DIR --set runbookUrl=https://wiki.example/locks/ --set scrapeSeconds=15
//! cargo run -p lock-dashboards -- --to DIR --form kubernetes
//! cargo run -p lock-dashboards -- --to DIR --fast    # a copy for tests, whose delays are seconds
//! cargo run -p lock-dashboards -- --queries          # every query, as JSON
//! ```

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Parser;

use lock_dashboards::{Form, Settings, files, queries};

/// Writes the dashboards, alerts and recording rules.
#[derive(Parser)]
#[command(name = "dashboards")]
struct Args {
    /// Write into this folder
    #[arg(long, value_name = "DIR", default_value = env!("CARGO_MANIFEST_DIR"))]
    to: PathBuf,

    /// Write this form: plain, kubernetes, grafana-operator or mixin
    #[arg(long, value_parser = Form::ALL.map(|(name, _)| name), default_value = "plain")]
    form: String,

    /// Set one of the settings that `--settings` lists
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Print the settings with their defaults, and write nothing
    #[arg(long)]
    settings: bool,

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
    if args.settings {
        print!("{}", Settings::list());
        return Ok(());
    }
    let mut settings = Settings::default().fast(args.fast);
    for pair in &args.set {
        settings.set(pair)?;
    }
    let form = Form::named(&args.form).unwrap_or(Form::Plain);
    for (name, text) in files(form, &settings) {
        let file = args.to.join(name);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, text)?;
    }
    Ok(())
}

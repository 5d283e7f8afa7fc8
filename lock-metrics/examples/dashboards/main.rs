//! Writes dashboards and rules into `dashboards/`, from typed code over the catalogue of metrics.
//!
//! ```sh
//! cargo run -p lock-metrics --example dashboards                       # writes dashboards/
//! cargo run -p lock-metrics --example dashboards -- --runbooks URL     # links to your copy of the runbooks
//! cargo run -p lock-metrics --example dashboards -- --dashboards URL   # links to Grafana from every alert
//! cargo run -p lock-metrics --example dashboards -- --live-view URL    # with {{ $labels.instance }} in it
//! cargo run -p lock-metrics --example dashboards -- --to DIR --fast    # a copy for tests, whose delays are seconds
//! cargo run -p lock-metrics --example dashboards -- --queries          # every query, as JSON
//! ```

mod generate;

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use crate::generate::{Settings, files, queries};

fn main() -> Result<(), Box<dyn Error>> {
    let mut folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboards"));
    let mut settings = Settings::default();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--to" => folder = value()?.into(),
            "--runbooks" => settings.runbooks = value()?,
            "--dashboards" => settings.dashboards = Some(value()?.trim_end_matches('/').to_owned()),
            "--live-view" => settings.live_view = value()?,
            "--fast" => settings.fast = true,
            "--queries" => {
                println!("{}", queries());
                return Ok(());
            }
            _ => return Err(format!("{argument} is unknown; see the head of this example").into()),
        }
    }
    for (name, text) in files(&settings) {
        let file = folder.join(name);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, text)?;
    }
    Ok(())
}

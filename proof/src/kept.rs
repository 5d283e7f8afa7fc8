//! The folder of a run, which tells what ran and with which options, so that it can be run again from there.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a run is asked for. It is kept in the folder of the run, so that it can be repeated from there.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    /// Only ours over these stores, if there are any.
    pub(crate) stores: Vec<String>,
    /// Only so many processes of ours, half of which wait for long.
    #[serde(default)]
    pub(crate) crowd: Option<u16>,
    /// Only rows whose names contain one of these, if there are any.
    pub(crate) only: Vec<String>,
    /// Peers of the command line, beside those whose adapters are here.
    pub(crate) peers: Vec<String>,
}

/// What each row came to, beside its verdict.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Ran {
    pub(crate) row: String,
    pub(crate) steps: usize,
    pub(crate) served_ms: Option<u64>,
}

/// A folder of a run: what ran, and with which options.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Kept {
    pub(crate) options: Options,
    pub(crate) commit: String,
    pub(crate) server: String,
    pub(crate) machine: String,
    /// Whether it was a `debug` or a `release` build.
    pub(crate) build: String,
    pub(crate) missing: Vec<String>,
    pub(crate) rows: Vec<Ran>,
    /// How often it was interrupted, and went on.
    #[serde(default)]
    pub(crate) resumed: u32,
    /// Rows whose history is not kept beside it, in a run that is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without_history: Vec<String>,
}

impl Kept {
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join("run.json");
        let no_run = |why: String| format!("{} is no folder of a run: {why}", folder.display());
        let text = std::fs::read_to_string(&path).map_err(|error| no_run(format!("run.json: {error}")))?;
        serde_json::from_str(&text).map_err(|error| no_run(format!("run.json: {error}")))
    }
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

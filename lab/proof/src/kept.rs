//! The folder of a run: what ran, and with which options, so that the run can be repeated.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The options of a run. They are kept in its folder, so that the run can be repeated from there.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    /// If not empty: only this library, over these stores.
    pub(crate) stores: Vec<String>,
    /// If set: only this many processes of this library. Half of them wait for long.
    #[serde(default)]
    pub(crate) crowd: Option<u16>,
    /// If not empty: only rows whose names contain one of these.
    pub(crate) only: Vec<String>,
    /// Peers from the command line, in addition to the ones with adapters here.
    pub(crate) peers: Vec<String>,
}

/// The result of a row, beside its verdict.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Ran {
    pub(crate) row: String,
    pub(crate) steps: usize,
    pub(crate) served_ms: Option<u64>,
}

/// The record of a run: what ran, and with which options.
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
    /// How often the run was interrupted and continued.
    #[serde(default)]
    pub(crate) resumed: u32,
    /// In a published run: what was added to it later.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// In a published run: the rows whose history was left out.
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

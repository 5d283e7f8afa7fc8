//! Writes into the folder of an operator, who may have changed files of an older version.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::generate::{Form, Settings, files};
use crate::runbooks;

/// The file that records, in the folder, which version wrote which text.
const RECORD: &str = "lock-dashboards.json";

/// The state of a file before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The file does not exist.
    New,
    /// The file has the same text.
    Same,
    /// Another version wrote the text, or other settings. It was not changed since.
    Older,
    /// The operator changed the file, or another program wrote it.
    Changed,
}

impl State {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Same => "same",
            Self::Older => "older",
            Self::Changed => "changed",
        }
    }
}

/// The files of this version, compared with those in a folder. The crate has an example.
#[derive(Debug)]
pub struct Installation {
    to: PathBuf,
    files: Vec<(String, String, State)>,
    left_over: Vec<String>,
    recorded: BTreeMap<String, String>,
}

impl Installation {
    /// The version of these dashboards and rules, which is that of `lock-metrics`.
    pub const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    /// Compares the files, and writes nothing.
    ///
    /// # Errors
    ///
    /// The error of the system for a file that exists but cannot be read.
    pub fn plan(to: &Path, form: Form, settings: &Settings) -> io::Result<Self> {
        let recorded = recorded(&to.join(RECORD))?;
        // The list of exceptions for Grafana's linter is only for this project's own test.
        let mut all: Vec<_> = files(form, settings).into_iter().filter(|(name, _)| !name.ends_with(".lint")).collect();
        if form == Form::Plain {
            all.extend(runbooks::files());
            // Templates for the operator's own configuration.
            all.push(("alertmanager.yml".to_owned(), include_str!("../../alertmanager.yml").to_owned()));
            all.push(("prometheus.yml".to_owned(), include_str!("../../prometheus.yml").to_owned()));
        }
        let mut planned = Vec::new();
        for (name, text) in all {
            let state = match read(&to.join(&name))? {
                None => State::New,
                Some(there) if there == text.as_bytes() => State::Same,
                Some(there) if recorded.get(&name) == Some(&digest(&there)) => State::Older,
                Some(_) => State::Changed,
            };
            planned.push((name, text, state));
        }
        planned.sort();
        let is_left_over = |name: &&String| planned.iter().all(|(known, ..)| known != *name) && to.join(name).exists();
        let left_over = recorded.keys().filter(is_left_over).cloned().collect();
        Ok(Self { to: to.to_owned(), files: planned, left_over, recorded })
    }

    /// Returns every file with its path below the folder, and its state.
    pub fn files(&self) -> impl Iterator<Item = (&str, State)> {
        self.files.iter().map(|(name, _, state)| (name.as_str(), *state))
    }

    /// Returns the files that the operator changed. Writing would undo these changes.
    pub fn changed(&self) -> impl Iterator<Item = &str> {
        self.files().filter(|(_, state)| *state == State::Changed).map(|(name, _)| name)
    }

    /// Returns the files that another version wrote and this one does not.
    #[must_use]
    pub fn left_over(&self) -> &[String] {
        &self.left_over
    }

    /// Writes every missing or different file, including those that were [changed](Self::changed).
    ///
    /// # Errors
    ///
    /// The error of the system for a file that cannot be written. The files before it are then already written, and are
    /// [the same](State::Same) next time.
    pub fn write(&self) -> io::Result<()> {
        for (name, text, state) in &self.files {
            let file = self.to.join(name);
            if *state != State::Same {
                file.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&file, text).map_err(|error| about(&file, &error))?;
            }
        }
        let written = self.files.iter().map(|(name, text, _)| (name.clone(), digest(text.as_bytes())));
        let kept = self.recorded.iter().filter(|(name, _)| self.left_over.contains(name));
        let all: BTreeMap<String, String> =
            kept.map(|(name, digest)| (name.clone(), digest.clone())).chain(written).collect();
        let record = json!({ "version": Self::VERSION, "files": all });
        let file = self.to.join(RECORD);
        fs::write(&file, format!("{record:#}\n")).map_err(|error| about(&file, &error))
    }
}

/// Returns the last written text of each file, as a digest. An unreadable record counts as missing: each differing file
/// is then changed.
fn recorded(file: &Path) -> io::Result<BTreeMap<String, String>> {
    let record: Value = read(file)?.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let files = record["files"].as_object().into_iter().flatten();
    Ok(files.filter_map(|(name, digest)| Some((name.clone(), digest.as_str()?.to_owned()))).collect())
}

fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(about(file, &error)),
    }
}

fn about(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

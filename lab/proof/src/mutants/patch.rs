//! The patches, and what must catch each bug.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The test or run that must catch a bug.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Judge {
    /// `cargo test` with these arguments: the smallest test that catches the bug.
    Test(String),
    /// This program with these arguments.
    Run(String),
}

impl fmt::Display for Judge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(words) => write!(out, "cargo test {words}"),
            Self::Run(words) => write!(out, "lock-proof {words}"),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) judge: Judge,
}

/// Reads the named patches, or all, sorted by name.
pub(super) fn chosen(folder: &Path, names: &[String]) -> Result<Vec<Patch>, String> {
    let cannot = |error| format!("cannot read {}: {error}", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        files.extend(Some(path).filter(|path| path.extension().is_some_and(|end| end == "patch")));
    }
    files.sort();
    let patches = files.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = names.iter().find(|name| !patches.iter().any(|patch| patch.name == **name)) {
        let known: Vec<&str> = patches.iter().map(|patch| &*patch.name).collect();
        return Err(format!("there is no seeded bug {name:?}; there are {}", known.join(", ")));
    }
    Ok(patches.into_iter().filter(|patch| names.is_empty() || names.contains(&patch.name)).collect())
}

fn read(path: PathBuf) -> Result<Patch, String> {
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let first = text.lines().next().unwrap_or_default();
    let judge = match first.split_once(": ") {
        Some(("Test", words)) => Judge::Test(words.to_owned()),
        Some(("Run", words)) => Judge::Run(words.to_owned()),
        _ => return Err(format!("{} does not begin with `Test: ` or `Run: `", path.display())),
    };
    Ok(Patch { name, path, judge })
}

//! Plants bugs in our own code, one after the other, and shows by what each is noticed.
//!
//! A bug is a patch in `proof/mutants/`. Its first line says what is to notice it: `Test:` and words for `cargo test`, or `Run:` and words
//! for this program. The same words run without any bug first, and must find nothing.

mod patch;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::mutants::patch::Judge;
use crate::mutants::tree::{Ended, Tree};

/// How faults strike where this program is to notice.
pub(crate) struct Faults<'a> {
    pub(crate) minutes: &'a str,
    pub(crate) seed: &'a str,
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Plants what is named, or all. Returns whether each was noticed, and nothing was found where nothing was planted.
pub(crate) fn run(names: &[String], faults: &Faults<'_>) -> Result<bool, String> {
    let patches = patch::chosen(&home().join("mutants"), names)?;
    let tree = Tree::of_head(home().parent().unwrap_or(home()))?;
    let mut wrong = 0;
    let judges: BTreeSet<&Judge> = patches.iter().map(|patch| &patch.judge).collect();
    for judge in judges {
        let (right, verdict) = match tree.run(judge, faults, "nothing")? {
            Ended::Silent => (true, "nothing found".to_owned()),
            Ended::Noticed(by) => (false, format!("FOUND: {by}")),
            Ended::Broken(why) => (false, format!("SHOWS NOTHING: {why}")),
        };
        println!("| nothing planted | {judge} | {verdict} |");
        wrong += usize::from(!right);
    }
    let mut caught = 0;
    for patch in &patches {
        tree.apply(&patch.path)?;
        let ended = tree.run(&patch.judge, faults, &patch.name)?;
        tree.restore()?;
        let verdict = match ended {
            Ended::Noticed(by) => {
                caught += 1;
                format!("caught by {by}")
            }
            Ended::Silent => "NOT CAUGHT".to_owned(),
            Ended::Broken(why) => format!("SHOWS NOTHING: {why}"),
        };
        println!("| {} | {} | {verdict} |", patch.name, patch.judge);
    }
    println!("figure: seeded bugs that were caught: {caught} of {}", patches.len());
    Ok(caught == patches.len() && wrong == 0)
}

/// Where the output of each run is kept.
fn logs() -> PathBuf {
    home().with_file_name("target").join("mutants")
}

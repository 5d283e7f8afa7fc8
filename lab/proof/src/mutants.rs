//! Plants bugs in this library, one after the other, and shows what catches each.
//!
//! A bug is a patch in `lab/proof/mutants/`. The first line of the patch names what must catch it: `Test:` with arguments
//! for `cargo test`, or `Run:` with arguments for this program. The same tests and runs come first without a bug, and
//! must find nothing.

mod patch;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::mutants::patch::Judge;
use crate::mutants::tree::{Ended, Tree};
use crate::peers::below;

/// The faults in a run of this program that must catch a bug.
pub(crate) struct Faults<'a> {
    pub(crate) minutes: &'a str,
    pub(crate) seed: &'a str,
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Plants the named bugs, or all. Returns whether each was caught, and whether nothing was found without a bug.
pub(crate) fn run(names: &[String], faults: &Faults<'_>) -> Result<bool, String> {
    let patches = patch::chosen(&home().join("mutants"), names)?;
    let tree = Tree::of_head(&below("."))?;
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

/// The folder with the output of each run.
fn logs() -> PathBuf {
    below("target/mutants")
}

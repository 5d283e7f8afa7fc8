//! The specification, the page of the protocol and the code name the same things by the same names.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use lock_testing::limit;

use crate::{complained, crate_file, proof, said};

pub(crate) fn read(name: &str) -> String {
    let path = crate_file("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the first table behind a heading, by cells.
pub(crate) fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| *line != heading).skip_while(|line| !line.starts_with('|')).skip(2);
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn words(cell: &str) -> impl Iterator<Item = String> {
    cell.split(", ").map(str::to_owned)
}

/// The names of the actions in `Next`.
pub(crate) fn actions(module: &str) -> BTreeSet<String> {
    let lines = module.lines().skip_while(|line| !line.starts_with("Next ==")).skip(1);
    let next = lines.take_while(|line| line.starts_with(' ')).collect::<Vec<_>>().join(" ");
    let names = next.split(['/', ':']).filter_map(|part| part.trim().split(['(', ' ']).next().map(str::to_owned));
    names.filter(|name| name.starts_with(char::is_uppercase)).collect()
}

/// Whether a cell `file: words` names what is there.
fn assert_is_there(cell: &str) {
    let Some((file, what)) = cell.strip_prefix('`').and_then(|cell| cell.split_once("`: `")) else { return };
    let what = what.trim_end_matches('`');
    assert!(read(file).contains(what), "{file} has no `{what}`, which lab/proof/spec/README.md names");
}

#[test]
#[limit]
fn each_action_of_the_specification_has_its_place_in_the_protocol_and_in_the_code() {
    let (page, protocol) = (read("lab/proof/spec/README.md"), read("docs/protocol.md"));
    let rows = table(&page, "## Actions");
    let named: BTreeSet<String> = rows.iter().flat_map(|row| words(&row[0])).collect();
    let declared: BTreeSet<String> =
        ["Lock", "Quorum"].iter().flat_map(|module| actions(&read(&format!("lab/proof/spec/{module}.tla")))).collect();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(named, declared, "in lab/proof/spec/README.md, and in Next of the modules");
    for row in &rows {
        let heading = |line: &str| line.trim_start_matches('#').trim() == row[1];
        assert!(row[1] == "–" || protocol.lines().any(heading), "docs/protocol.md has no heading `{}`", row[1]);
        assert_is_there(&row[2]);
    }
}

#[test]
#[limit]
fn each_step_of_the_protocol_is_in_the_specification_or_is_said_not_to_be() {
    let (page, protocol) = (read("lab/proof/spec/README.md"), read("docs/protocol.md"));
    let steps = protocol.lines().skip_while(|line| *line != "## The steps").skip(1);
    let steps = steps.take_while(|line| !line.starts_with("## ")).filter_map(|line| line.strip_prefix("### "));
    let places: Vec<String> = table(&page, "## Actions").into_iter().map(|row| row[1].clone()).collect();
    let (mut count, prose) = (0, page.to_lowercase());
    for step in steps {
        let said = prose.contains(&step.to_lowercase())
            || step == "Several locks at once" && prose.contains("several locks in one step");
        assert!(places.iter().any(|place| place == step) || said, "lab/proof/spec/README.md says nothing of `{step}`");
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

#[test]
#[limit]
fn states_and_constants_have_the_same_names_in_the_protocol_and_in_the_specification() {
    let (page, protocol, lock) =
        (read("lab/proof/spec/README.md"), read("docs/protocol.md"), read("lab/proof/spec/Lock.tla"));
    let states = |rows: Vec<Vec<String>>| -> BTreeSet<String> {
        rows.iter().flat_map(|row| words(&row[0])).filter(|name| !name.is_empty()).collect()
    };
    assert_eq!(states(table(&page, "## States of a lock")), states(table(&protocol, "## States of a lock")));
    let quorum = read("lab/proof/spec/Quorum.tla");
    for row in table(&page, "## Constants") {
        let declared = |module: &str| {
            let lines = module.lines().skip_while(|line| *line != "CONSTANTS").take_while(|line| *line != "VARIABLES");
            lines
                .flat_map(|line| words(line.split("\\*").next().unwrap().trim()))
                .any(|name| name.trim_end_matches(',') == row[0])
        };
        assert!(declared(&lock) || declared(&quorum), "no module declares the constant {}", row[0]);
        assert_is_there(&row[2]);
    }
}

/// A rule that is taken out is one that the specification asks for, and each that it asks for can be taken out.
#[test]
#[limit]
fn each_rule_of_the_specification_is_taken_out_by_some_configuration() {
    let (mut asked, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for file in fs::read_dir(crate_file("spec")).unwrap() {
        let path: PathBuf = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let keeps = text.split("Keeps(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        if path.extension().is_some_and(|ending| ending == "tla") {
            asked.extend(keeps);
        }
        taken.extend(
            text.lines()
                .filter_map(|line| line.strip_prefix("\\* Without: "))
                .flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>()),
        );
    }
    assert!(asked.remove("Rule"), "the comment that says what Keeps is");
    assert_eq!(asked, taken);
}

/// The name of a claim of the specification in the model's reports.
const CLAIMS: [(&str, &str); 6] = [
    ("Exclusion", "NoTwoHolders"),
    ("LateEntry", "NoTwoHolders"),
    ("OverLimit", "NoTwoHolders"),
    ("OrphanKey", "ReleasedStaysReleased"),
    ("TokenOrder", "TokensGrow"),
    ("Starvation", "WhoWaitsIsServed"),
];

/// The same rule taken out breaks the same claim in the model, which is Rust, and in the specification.
#[test]
#[limit]
fn a_rule_of_the_specification_and_of_the_model_breaks_the_same_claim_when_it_is_taken_out() {
    let model = format!("{}{}", read("lab/proof/tests/model/removed.rs"), read("lab/proof/tests/model/modes.rs"));
    let page = read("lab/proof/spec/README.md");
    let mut both = 0;
    for file in fs::read_dir(crate_file("spec")).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let config = fs::read_to_string(&path).unwrap();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("Lock-") || path.extension().unwrap() != "cfg" {
            continue;
        }
        for rule in
            config.lines().filter_map(|line| line.strip_prefix("\\* Without: ")).flat_map(|line| line.split(' '))
        {
            let Some((_, case)) = model.split_once(&format!("Rule::{rule},")) else {
                assert!(
                    page.contains(&format!("`{rule}`")),
                    "the model has no rule {rule}, and README.md does not say so"
                );
                continue;
            };
            let wrong =
                case.split_once("Wrong::").unwrap().1.split(|sign: char| !sign.is_alphanumeric()).next().unwrap();
            let (_, claim) =
                CLAIMS.iter().find(|(name, _)| *name == wrong).unwrap_or_else(|| panic!("{rule}: {wrong}"));
            let claims = config.lines().filter(|line| line.starts_with("INVARIANTS") || line.starts_with("PROPERTY"));
            assert!(
                claims.into_iter().any(|line| line.contains(claim)),
                "without {rule} the model has {wrong}; {path:?} does not claim {claim}"
            );
            both += 1;
        }
    }
    assert!(both >= 15, "{both}");
}

#[test]
#[limit]
fn without_java_it_says_what_to_install_and_a_name_that_is_none_is_one_sentence() {
    let nothing = proof().arg("spec").env("PATH", "/nowhere").output().unwrap();
    assert!(complained(&nothing).contains("install Java"), "{}", complained(&nothing));
    assert_eq!((nothing.status.code(), said(&nothing).as_str()), (Some(2), ""));
    let unknown = proof().args(["spec", "Nonsense"]).output().unwrap();
    assert!(
        complained(&unknown).contains("the specification has no `Nonsense`; it has Lock-"),
        "{}",
        complained(&unknown)
    );
    assert_eq!(complained(&unknown).lines().count(), 1);
}

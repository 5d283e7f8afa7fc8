//! The house rules that a program can check.

use lock_core::testing::limit;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which floor each module of lock-core stands on, and in which wing. A file imports only from its
/// own floor and wing, or from a lower floor.
const FLOORS: [(&str, &str); 38] = [
    ("key", "0"),
    ("owner", "0"),
    ("call_site", "0"),
    ("sync", "0"),
    ("inline_task", "0"),
    ("fencing", "0"),
    ("fenced_write", "0"),
    ("options", "0"),
    ("prefix", "0"),
    ("error", "0"),
    ("clock", "0"),
    ("site", "0"),
    ("event", "1"),
    ("backend", "1"),
    ("memory", "2 stores"),
    ("redis", "2 stores"),
    ("gate", "2 machinery"),
    ("hold", "2 machinery"),
    ("lease", "2 machinery"),
    ("claim", "2 machinery"),
    ("acquire", "2 machinery"),
    ("keeper", "2 machinery"),
    ("context", "2 machinery"),
    ("trace", "2 machinery"),
    ("connect", "3"),
    ("manager", "3"),
    ("lock", "3"),
    ("multi", "3"),
    ("guard", "3"),
    ("global", "3"),
    ("blocking", "3"),
    ("outcome", "3"),
    ("protect", "3"),
    ("web", "3"),
    ("lib", "4"),
    ("__private", "4"),
    ("conformance", "4"),
    ("testing", "4"),
];

/// Imports against the rule, each with its reason.
const EXCEPTIONS: [(&str, &str); 1] = [
    // The gate of a resource tells the process-wide observers of the tokens it refuses.
    ("fencing", "event"),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

pub(crate) fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

fn module_of(file: &Path) -> String {
    let first = file.strip_prefix(source()).unwrap().iter().next().unwrap().to_str().unwrap().to_owned();
    first.trim_end_matches(".rs").to_owned()
}

fn is_test(file: &Path) -> bool {
    file.iter().any(|part| part == "tests" || part == "tests.rs")
}

#[test]
#[limit]
fn nothing_imports_from_a_floor_above_or_from_the_other_wing() {
    let floors: BTreeMap<&str, &str> = FLOORS.into_iter().collect();
    let mut sources = Vec::new();
    files(&source(), "rs", &mut sources);
    for file in sources.iter().filter(|file| !is_test(file)) {
        let module = module_of(file);
        let home = floors.get(module.as_str()).unwrap_or_else(|| panic!("{module} has no floor: add it to the table"));
        let text = fs::read_to_string(file).unwrap();
        for line in text.lines().take_while(|line| !line.contains("#[cfg(test)]")) {
            let code = line.split("//").next().unwrap();
            // `$crate` is where a macro is used, and no import.
            for (at, _) in code.match_indices("crate::").filter(|(at, _)| !code[..*at].ends_with('$')) {
                let target: String = code[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let Some(there) = floors.get(target.as_str()) else { continue };
                let allowed = there == home
                    || there.chars().next() < home.chars().next()
                    || EXCEPTIONS.contains(&(module.as_str(), target.as_str()));
                assert!(allowed, "{} (floor {home}) imports {target} (floor {there}): {line}", file.display());
            }
        }
    }
}

#[test]
#[limit]
fn every_script_says_what_it_takes_gives_and_why_it_is_atomic() {
    let mut scripts = Vec::new();
    files(&source(), "lua", &mut scripts);
    assert!(!scripts.is_empty());
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap();
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
        for word in ["KEYS", "Returns", "Atomic"] {
            assert!(header.iter().any(|line| line.contains(word)), "{}: {word} is missing", script.display());
        }
    }
}

#[test]
#[limit]
fn only_one_file_spells_redis_keys() {
    let mut sources = Vec::new();
    files(&source().join("redis"), "rs", &mut sources);
    for file in sources.iter().filter(|file| !file.ends_with("keys.rs") && !is_test(file)) {
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for spelled in ["@queue", "@waiters", "lock:inbox", "lock:clock"] {
            assert!(!text.contains(spelled), "{} spells {spelled}", file.display());
        }
    }
}

#[test]
#[limit]
fn the_lines_for_cargo_on_the_page_about_testing_name_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/testing.md")).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let lines: toml::Table = page.split("```toml").nth(1).unwrap().split("```").next().unwrap().parse().unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let features = |table: &toml::Value| -> Vec<String> {
        let named = table.get("features").and_then(toml::Value::as_array).into_iter().flatten();
        named.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let asked = &lines["dev-dependencies"];
    assert_eq!(features(&asked["lock-core"]), ["test-util"]);
    assert!(manifest["features"].get("test-util").is_some());
    // What the examples of the page run with is in our own dev-dependencies, where the doctests find it.
    let ours = features(&manifest["dev-dependencies"]["tokio"]);
    for feature in features(&asked["tokio"]).iter().filter(|name| !["macros", "rt"].contains(&name.as_str())) {
        assert!(ours.contains(feature), "{feature} is not in {ours:?}");
    }
    let version = env!("CARGO_PKG_VERSION");
    for said in [&lines["dependencies"]["lock-core"], &asked["lock-core"]["version"]] {
        assert!(version.starts_with(said.as_str().unwrap()), "{said} is not {version}");
    }
}

//! How large each crate may be. A change raises a budget only here, with a reason that its reviewer accepts.

use std::fs;
use std::path::PathBuf;

use lock_testing::limit;

use super::{files, is_test, source_of};

/// The folder of each crate, and its lines of Rust, Lua, SQL, shell and Python outside of tests.
const BUDGETS: [(&str, usize); 16] = [
    ("lock-core", 15_363),
    ("lock-macros", 3_200),
    ("lock-metrics", 6_600),
    ("lockctl", 5_400),
    ("stores/lock-store", 7_223),
    ("stores/lock-redis", 16_000),
    ("stores/lock-quorum", 3_000),
    ("stores/lock-postgres", 6_920),
    ("stores/lock-redisson", 1_200),
    ("stores/lock-zookeeper", 3_300),
    ("stores/lock-kubernetes", 2_878),
    ("testing/lock-testing", 5_107),
    ("dashboards", 2_500),
    ("examples", 3_700),
    ("lab/benches", 5_340),
    ("lab/proof", 7_771),
];

/// How many names users find at `lock_core::`.
const NAMES: usize = 85;

fn lines_of(folder: &str) -> usize {
    let mut sources: Vec<PathBuf> = Vec::new();
    for ending in ["rs", "lua", "sql", "sh", "py"] {
        files(&source_of("..").join(folder), ending, &mut sources);
    }
    // Rust calls the folder of tests `tests`, and fixtures lie in it.
    sources.retain(|file| !is_test(file) && !file.iter().any(|part| part == "target"));
    assert!(!sources.is_empty(), "{folder} has no source");
    let lines = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        // Tests at the end of a file do not count as source either.
        text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count()
    };
    sources.iter().map(lines).sum()
}

#[test]
#[limit]
fn no_crate_is_larger_than_its_budget() {
    let wrong: Vec<String> = BUDGETS
        .iter()
        .map(|(folder, budget)| (folder, budget, lines_of(folder)))
        .filter(|(_, budget, lines)| lines > budget)
        .map(|(folder, budget, lines)| format!("{folder} has {lines} lines, and its budget is {budget}"))
        .collect();
    assert!(wrong.is_empty(), "delete or merge first:\n{}", wrong.join("\n"));
}

#[test]
#[limit]
fn users_find_few_names_at_the_root() {
    let root = fs::read_to_string(source_of("src/lib.rs")).unwrap();
    let code: String = root.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let exported = code.split(';').filter_map(|item| item.split_once("pub use ")).map(|(_, path)| path);
    let count = |path: &str| {
        path.rsplit("::")
            .next()
            .map_or(1, |list| list.matches(',').count() + usize::from(!list.trim_end().ends_with(",}")))
    };
    let names: usize = exported.map(count).sum();
    assert!((60..=NAMES).contains(&names), "{names} names stand at lock_core::, and at most {NAMES} may");
}

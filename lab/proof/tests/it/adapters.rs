//! Adapters of others are what their authors would sign: short, and all of them named.

use std::fs;

use lock_testing::limit;

use crate::crate_file;

/// The code that speaks lines and runs the loop of a benchmark, for all adapters of a language.
const SHARED: [&str; 6] =
    ["lines.py", "lines.js", "go/lines/lines.go", "go/lines/load.go", "java/Lines.java", "java/Load.java"];

#[test]
#[limit]
fn each_adapter_has_at_most_eighty_lines_and_is_named_by_the_page() {
    let (page, mut folders, mut adapters) =
        (fs::read_to_string(crate_file("peers/README.md")).unwrap(), vec![String::new()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(crate_file(&format!("peers/{folder}"))).unwrap().map(Result::unwrap) {
            let name = format!("{folder}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(format!("{name}/"));
            } else if [".py", ".js", ".go", ".java", ".rs"].iter().any(|end| name.ends_with(end))
                && !SHARED.contains(&&*name)
            {
                let lines = fs::read_to_string(entry.path()).unwrap().lines().count();
                assert!(lines <= 80, "{name} has {lines} lines");
                let known = name.trim_end_matches("/main.go").trim_end_matches("/main.rs");
                assert!(page.contains(&format!("`{known}`")), "the page does not name {known}");
                adapters += 1;
            }
        }
    }
    assert_eq!(adapters, 14);
}

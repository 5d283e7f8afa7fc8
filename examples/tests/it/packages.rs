//! Tests the packages that would be published.

use lock_testing::limit;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PUBLISHED: [&str; 5] = ["lock-macros", "lock-core", "lock-metrics", "lock-dashboards", "lock-postgres"];

/// How many crates a program has to link to hold locks on Redis, including lock-core itself; and with all
/// default features, which include signal handling. Beside them the compiler runs a dozen, `syn` and its kin.
const BUDGETS: [(&str, usize); 2] = [("redis,macros", 58), ("default", 60)];

/// Packages for other platforms need not have been downloaded.
const FILTER: &str = "--filter-platform";
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(env!("CARGO")).current_dir(root).args(arguments).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[limit(180)]
fn a_package_has_its_licences_and_no_secret_and_no_program_of_the_tests() {
    for name in PUBLISHED {
        let listed = cargo(&["package", "--list", "--allow-dirty", "--locked", "--offline", "-p", name]);
        let files: Vec<&str> = listed.lines().collect();
        for wanted in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"] {
            let wanted =
                if name == "lock-dashboards" { wanted.replace("src", "generate/src") } else { wanted.to_owned() };
            assert!(files.contains(&&*wanted), "{name} lacks {wanted}: {files:?}");
        }
        assert!(name != "lock-core" || files.contains(&"docs/tutorial.md"), "docs.rs would have no pages: {files:?}");
        for file in files {
            let ending = Path::new(file).extension().unwrap_or_default().to_string_lossy().to_lowercase();
            let bad = ["pem", "key", "crt", "p12", "png"].contains(&ending.as_str());
            assert!(!bad && !file.starts_with("tests/") && !file.contains("worker"), "{name} has {file}");
        }
    }
}

#[test]
#[limit(180)]
fn a_package_says_what_a_registry_and_docs_rs_want_to_know() {
    let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    for name in PUBLISHED {
        let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == name).unwrap();
        for field in ["description", "license", "repository", "documentation", "readme", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name}: {field}");
        }
        for field in ["keywords", "categories"] {
            let words = package[field].as_array().unwrap();
            assert!((1..=5).contains(&words.len()), "{name}: {field}");
        }
        let docs = &package["metadata"]["docs"]["rs"];
        assert_eq!(docs["all-features"], true, "{name}");
        assert_eq!(docs["rustdoc-args"], serde_json::json!(["--cfg", "docsrs"]), "{name}");
    }
}

/// `cargo deny` holds it too, where it is installed.
#[test]
#[limit(180)]
fn every_dependency_has_a_licence_that_deny_toml_allows() {
    let rules = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml")).unwrap();
    let allowed = rules.lines().find(|line| line.starts_with("allow = [")).unwrap();
    let allowed: Vec<&str> = allowed.split('"').skip(1).step_by(2).collect();
    let is_allowed = |name: &str| allowed.contains(&name.trim().trim_matches(['(', ')']));
    // Parentheses, if any, are around what OR joins.
    let suffices = |expression: &str| match expression.contains('(') {
        true => expression.split(" AND ").all(|part| part.split(" OR ").any(is_allowed)),
        false => expression.split(" OR ").any(|part| part.split(" AND ").all(is_allowed)),
    };
    assert!(suffices("(MIT OR GPL-2.0) AND Unicode-3.0") && !suffices("MIT AND GPL-2.0"), "{allowed:?}");
    let metadata =
        cargo(&["metadata", "--format-version", "1", "--locked", "--offline", "--all-features", FILTER, PLATFORM]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let licence = |package: &Value| package["license"].as_str().unwrap_or("none").replace('/', " OR ");
    let bad: Vec<_> = packages
        .iter()
        .map(|package| (package["name"].as_str().unwrap(), licence(package)))
        .filter(|(_, licence)| !suffices(licence))
        .collect();
    assert!(packages.len() > 100 && bad.is_empty(), "{bad:?}");
}

/// A compiler of that age is not installed everywhere, but each dependency states its own minimum. For the functions of std, clippy
/// checks it (`incompatible_msrv`).
#[test]
#[limit(180)]
fn no_dependency_asks_for_a_newer_compiler_than_we_do() {
    let metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--offline", FILTER, PLATFORM]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let minor = |version: &Value| -> u32 { version.as_str().unwrap().split('.').nth(1).unwrap().parse().unwrap() };
    let packages = metadata["packages"].as_array().unwrap();
    let ours = packages.iter().find(|package| package["name"] == "lock-core").unwrap();
    let with_a_version = packages.iter().filter(|package| package["rust_version"].is_string());
    let (fine, newer): (Vec<_>, Vec<_>) =
        with_a_version.partition(|package| minor(&package["rust_version"]) <= minor(&ours["rust_version"]));
    assert!(fine.len() > 100, "only {} say a version", fine.len());
    assert!(newer.is_empty(), "{:?}", newer.iter().map(|package| &package["id"]).collect::<Vec<_>>());
}

#[test]
#[limit(180)]
fn the_defaults_of_lock_core_stay_small() {
    for (features, budget) in BUDGETS {
        let mut arguments =
            vec!["tree", "--locked", "--offline", "-p", "lock-core", "--no-default-features", "-F", features];
        arguments.extend(["-e", "normal,no-proc-macro", "--prefix", "none", "--target", PLATFORM]);
        let tree = cargo(&arguments);
        let mut crates: Vec<&str> =
            tree.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
        // Ours are parts of one library.
        crates.retain(|name| !name.starts_with("lock-"));
        crates.sort_unstable();
        crates.dedup();
        assert!(crates.contains(&"redis"), "{crates:?}");
        // Others come by features of their own.
        assert!(!["rustls", "serde", "axum-core", "fastrand"].iter().any(|name| crates.contains(name)), "{crates:?}");
        assert!(crates.len() <= budget, "{features}: {} crates, and the budget is {budget}: {crates:?}", crates.len());
    }
}

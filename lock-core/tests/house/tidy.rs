//! The house rules that a program can check.

mod budgets;
mod limits;
mod prose;
mod tables;

use lock_testing::limit;
use std::fs;
use std::path::{Path, PathBuf};

use tables::{
    BENCH, CORE, GENERATE, KUBERNETES, LOCKCTL, Layers, MACROS, METRICS, POSTGRES, PROOF, QUORUM, REDIS, REDISSON,
    STORE, TABLES, TESTING, ZOOKEEPER,
};

/// The crates.
const MEMBERS: [&str; 16] = [
    "lock-core",
    "lock-macros",
    "lock-metrics",
    "lockctl",
    "stores/lock-store",
    "stores/lock-redis",
    "stores/lock-quorum",
    "stores/lock-postgres",
    "stores/lock-redisson",
    "stores/lock-zookeeper",
    "stores/lock-kubernetes",
    "testing/lock-testing",
    "dashboards/generate",
    "examples",
    "benches",
    "proof",
];

/// The modules that make stores, or show parts of one kind only. No other module above the stores names one.
const STORE_MAKERS: [&str; 5] = ["lib", "api::connect", "api::inspect", "api::manager", "testing"];

impl Layers {
    fn of(&self, module: &str) -> Option<usize> {
        self.modules.iter().position(|layer| layer.iter().any(|line| line.split(' ').any(|name| name == module)))
    }

    fn share_a_line(&self, one: &str, other: &str) -> bool {
        let mut lines = self.modules.iter().flat_map(|layer| layer.iter());
        lines.any(|line| [one, other].iter().all(|name| line.split(' ').any(|part| part == *name)))
    }

    /// Returns which module of this folder a path leads through, if it leads into it.
    fn through<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = if self.within.is_empty() { path } else { path.strip_prefix(self.within)?.strip_prefix("::")? };
        rest.split("::").next().filter(|name| !name.is_empty())
    }

    /// Returns what is wrong with the imports of the file of a module.
    fn upward(&self, module: &str, text: &str) -> Vec<String> {
        let Some(home) = self.through(module) else { return Vec::new() };
        let Some(layer) = self.of(home) else { return vec![format!("{module} has no layer: add it to the table")] };
        let mut wrong = Vec::new();
        for path in imports(text, module) {
            let Some(target) = self.through(&path).filter(|target| *target != home) else { continue };
            if self.of(target).is_some_and(|there| there >= layer && !self.share_a_line(home, target)) {
                wrong.push(format!("{module} imports {path}, which is no layer below"));
            }
        }
        wrong
    }
}

/// Returns the module that a file of a source is.
fn module_of(source: &Path, file: &Path) -> String {
    let path = file.strip_prefix(source).unwrap().with_extension("");
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != "mod").collect();
    parts.join("::")
}

fn source() -> PathBuf {
    source_of(CORE)
}

fn source_of(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(source)
}

/// Adds the files below a folder, if there is one.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    if !folder.exists() {
        return;
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

fn is_test(file: &Path) -> bool {
    file.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// Returns the paths below the root of the crate that the source text of a module names: from the root or from
/// `super`, alone or in nested braces.
fn imports(text: &str, module: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .take_while(|line| !line.contains("#[cfg(test)]"))
        .map(|line| format!("{}\n", line.split("//").next().unwrap()))
        .collect();
    let mut found = Vec::new();
    // `$crate` is where a macro is used, and no import.
    let is_start = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c));
    for (at, root) in code.match_indices("crate::").filter(|(at, _)| is_start(*at)) {
        paths(&code[at + root.len()..], "", &mut found);
    }
    for (at, _) in code.match_indices("super::").filter(|(at, _)| is_start(*at)) {
        let (mut rest, mut above) = (&code[at..], module);
        while let Some(shorter) = rest.strip_prefix("super::") {
            rest = shorter;
            above = above.rsplit_once("::").map_or("", |(above, _)| above);
        }
        paths(rest, above, &mut found);
    }
    found
}

/// Reads a path that begins below `above`, or each path of a list in braces.
fn paths(text: &str, above: &str, found: &mut Vec<String>) {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if !name.is_empty() {
        let path = if above.is_empty() { name.clone() } else { format!("{above}::{name}") };
        match text[name.len()..].strip_prefix("::") {
            Some(rest) if !rest.starts_with(['<', '*']) => paths(rest, &path, found),
            _ => found.push(path),
        }
        return;
    }
    let Some(list) = text.trim_start().strip_prefix('{') else {
        assert!(!text.starts_with('*'), "a glob hides what is imported");
        return;
    };
    let (mut depth, mut start) = (0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                start = false;
                paths(&list[at..], above, found);
            }
            _ => {}
        }
    }
}

#[test]
#[limit]
fn every_import_leads_to_a_layer_below() {
    let mut wrong = Vec::new();
    for name in [
        CORE, STORE, REDIS, QUORUM, POSTGRES, REDISSON, ZOOKEEPER, KUBERNETES, TESTING, MACROS, METRICS, LOCKCTL,
        GENERATE, BENCH, PROOF,
    ] {
        let source = source_of(name);
        let mut sources = Vec::new();
        files(&source, "rs", &mut sources);
        assert!(sources.len() > 3, "{name}");
        // Programs have no part in the layers of a library.
        for file in sources.iter().filter(|file| !is_test(file) && !file.iter().any(|part| part == "bin")) {
            let (module, text) = (module_of(&source, file), fs::read_to_string(file).unwrap());
            wrong.extend(
                TABLES.iter().filter(|table| table.source == name).flat_map(|table| table.upward(&module, &text)),
            );
            let makes_stores = STORE_MAKERS.iter().any(|maker| module.starts_with(maker));
            if name == CORE && !makes_stores && !module.starts_with("memory") {
                let memory = imports(&text, &module).into_iter().filter(|path| path.starts_with("memory"));
                wrong.extend(memory.map(|path| format!("{module} names a store: {path}")));
                let others =
                    ["lock_redis", "lock_quorum"].into_iter().filter(|store| text.contains(&format!("use {store}")));
                wrong.extend(others.map(|store| format!("{module} names a store: {store}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How long a file may be that a person is to read.
const LINES: usize = 400;

#[test]
#[limit]
fn no_source_is_longer_than_can_be_read_at_once() {
    let mut sources = Vec::new();
    for member in MEMBERS {
        for ending in ["rs", "lua"] {
            files(&source_of("..").join(member).join("src"), ending, &mut sources);
        }
    }
    assert!(sources.len() > 400, "only {} files were found", sources.len());
    let lines = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count();
    let long: Vec<String> =
        sources.iter().filter(|file| lines(file) > LINES).map(|file| file.display().to_string()).collect();
    assert!(long.is_empty(), "longer than {LINES} lines:\n{}", long.join("\n"));
}

#[test]
#[limit]
fn no_way_to_write_an_import_is_overlooked() {
    let table = |within: &str| TABLES.iter().find(|table| table.source == CORE && table.within == within).unwrap();
    let (root, engine) = (table(""), table("engine"));
    let ways = [
        "use crate::engine::keeper;",
        "use crate::{api::lock::LockRequest, engine::keeper::{self, hear}};",
        "use crate::engine::{\n    gate::{Gate, Turn},\n    keeper::hear,\n};",
        "pub(crate) use crate::engine::keeper::start as begin;",
        "fn f() { crate::engine::keeper::start() }",
        "use super::keeper::start;",
        "use super::{timer::Timer, keeper};",
    ];
    for way in ways {
        assert!(!engine.upward("engine::lease", way).is_empty(), "{way}");
    }
    assert_eq!(engine.upward("engine::lease::state", "use super::super::keeper;").len(), 1, "from a file one deeper");
    let fine = [
        "use crate::engine::{gate::Gate, timer::AlarmId};",
        "// use crate::engine::keeper;",
        "use super::timer::AlarmId;",
    ];
    for fine in fine {
        assert_eq!(engine.upward("engine::lease", fine), [] as [String; 0], "{fine}");
    }
    assert_eq!(engine.upward("engine::timer", "use crate::engine::gate;").len(), 1, "its own layer");
    assert_eq!(root.upward("engine::keeper", "use crate::memory::MemoryStore;").len(), 1, "a store");
    assert_eq!(root.upward("engine::lease", "use crate::api::lock::LockRequest;").len(), 1, "from above");
}

#[test]
#[limit]
fn every_script_says_what_it_takes_gives_and_why_it_is_atomic() {
    let mut scripts = Vec::new();
    files(&source(), "lua", &mut scripts);
    files(&source_of(REDIS), "lua", &mut scripts);
    files(&source_of(REDISSON), "lua", &mut scripts);
    assert!(!scripts.is_empty());
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap();
        let header: String = text.lines().take_while(|line| line.starts_with("--")).collect();
        let body = text.lines().skip_while(|line| line.starts_with("--")).collect::<String>();
        for word in ["KEYS", "Returns ", "Atomic"] {
            assert!(header.contains(word), "{}: {word} is missing", script.display());
        }
        assert_eq!(header.contains("ARGV["), body.contains("ARGV"), "{}: ARGV", script.display());
    }
}

/// Types that need no example: only expansions, bounds and the crate itself name them.
const WITHOUT_EXAMPLE: &[&str] = &[
    "Draw",
    "Drive",
    "Eval",
    "Fallible",
    "Keys",
    "Parts",
    "Scheme",
    "Script",
    "Sealed",
    "ServerTime",
    "Skip",
    "Step",
    "Unread",
];

/// Returns the public types of a file whose documentation has no example, and does not say which other has one.
fn without_example(text: &str) -> Vec<String> {
    let (mut doc, mut without) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        let declared = ["pub struct ", "pub enum ", "pub trait "].iter().find_map(|start| line.strip_prefix(start));
        if let Some(rest) = declared
            && !["```", "example of [`", "example of `", "include_str!"].iter().any(|sign| doc.contains(sign))
        {
            without.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
        // Attributes may stand between a type and its documentation, also over several lines.
        match line.chars().next() {
            Some('/' | '#') => doc.push_str(line),
            _ if line.ends_with('}') || line.ends_with(';') || line.is_empty() => doc.clear(),
            _ => {}
        }
    }
    without
}

#[test]
#[limit]
fn every_public_type_has_an_example() {
    let mut wrong = Vec::new();
    for source in [CORE, STORE, REDIS, QUORUM, METRICS, POSTGRES, REDISSON, ZOOKEEPER, KUBERNETES] {
        let mut sources = Vec::new();
        files(&source_of(source), "rs", &mut sources);
        // Items that only expansions name need no documentation, and programs do not export any.
        let is_hidden = |file: &Path| file.iter().any(|part| part == "bin" || part == "attribute");
        for file in sources.iter().filter(|file| !is_hidden(file) && !is_test(file)) {
            let without = without_example(&fs::read_to_string(file).unwrap());
            wrong.extend(without.into_iter().map(|name| format!("{}: {name}", file.display())));
        }
    }
    // lock-store has its modules in the open for the engine and the stores. Its users see what its root exports.
    let root = fs::read_to_string(source_of(STORE).join("lib.rs")).unwrap();
    let is_exported = |one: &str| {
        let name = one.rsplit(' ').next().unwrap();
        root.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
    };
    wrong.retain(|one| !one.contains("lock-store") || is_exported(one));
    wrong.retain(|one| !WITHOUT_EXAMPLE.iter().any(|name| one.ends_with(&format!(": {name}"))));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(without_example("/// A.\n#[derive(Debug)]\npub struct A;\n"), ["A"]);
    assert_eq!(without_example("/// ```\n/// ```\n#[a(\n    b,\n)]\npub struct A;\n"), [] as [String; 0]);
}

#[test]
#[limit]
fn only_one_file_spells_redis_keys() {
    let mut sources = Vec::new();
    files(&source_of(REDIS), "rs", &mut sources);
    assert!(sources.len() > 50);
    for file in sources.iter().filter(|file| !file.ends_with("keys/mod.rs") && !is_test(file)) {
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
    // The features that the examples of the page need are in our own dev-dependencies, where the
    // doctests find them.
    let ours = features(&manifest["dev-dependencies"]["tokio"]);
    for feature in features(&asked["tokio"]).iter().filter(|name| !["macros", "rt"].contains(&name.as_str())) {
        assert!(ours.contains(feature), "{feature} is not in {ours:?}");
    }
    let version = env!("CARGO_PKG_VERSION");
    for said in [&lines["dependencies"]["lock-core"], &asked["lock-core"]["version"]] {
        assert!(version.starts_with(said.as_str().unwrap()), "{said} is not {version}");
    }
}

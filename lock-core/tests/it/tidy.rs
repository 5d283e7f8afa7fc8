//! The house rules that a program can check.

mod limits;

use lock_core::testing::limit;
use std::fs;
use std::path::{Path, PathBuf};

/// Files in layers, from the ground up. A file imports only from layers below its own: nothing from its own,
/// nothing from above. Two modules that make each other share a line.
struct Layers {
    /// The folder, seen from the crate of this test.
    folder: &'static str,
    modules: &'static [&'static [&'static str]],
}

/// `lock` and `manager` make each other.
const CORE: Layers = Layers {
    folder: "src",
    modules: &[
        // Words.
        &["random"],
        &["clock", "fencing", "fork", "key", "site", "spread", "sync"],
        &["call_site", "order", "owner"],
        &["error mode"],
        &["naming", "options", "outcome", "prefix"],
        &["stripe"],
        // Contracts.
        &["event"],
        &["backend", "fenced_write", "fencing_gate"],
        // The stores, of which the machinery knows nothing.
        STORES,
        // The machinery.
        &["event_context", "gate", "grants", "timer"],
        &["lease", "trace"],
        &["engine"],
        &["following", "free", "spec", "watchdog"],
        &["claim"],
        &["hold"],
        &["context", "handle"],
        &["deadlock", "release"],
        &["owned_hold"],
        &["acquire"],
        &["keeper"],
        // The API.
        &["blocking"],
        &["guard"],
        &["protect"],
        &["lock manager"],
        &["connect", "election", "global", "job", "overriding", "shutdown", "striped"],
        // The facade, and what stands beside it.
        &["__private", "testing", "web"],
        &["conformance"],
        &["lib"],
    ],
};

const MACROS: Layers = Layers {
    folder: "../lock-macros/src",
    modules: &[
        &["duration", "expr", "limit", "suggest"],
        &["template"],
        &["args", "returned"],
        &["function", "key"],
        &["expand"],
        &["lib"],
    ],
};

/// Within a module, the files of its folder, which name each other from `super`.
const EXPAND: Layers = Layers {
    folder: "../lock-macros/src/expand",
    modules: &[&["parts"], &["docs", "refusal"], &["enter"], &["asynchronous", "synchronous"], &["future"]],
};

const METRICS: Layers = Layers {
    folder: "../lock-metrics/src",
    modules: &[
        // Words.
        &["access", "catalog", "checked", "labels", "names", "openmetrics", "text", "time"],
        // Numbers.
        &["fleet", "histogram", "trace", "uses"],
        &["settings"],
        &["counts", "sink"],
        &["table"],
        &["recovered"],
        &["state"],
        // What is made of them.
        &["collect", "live", "observer", "sampler"],
        &["export", "view"],
        // The ways out.
        &["shared"],
        &["listener"],
        &["handle"],
        &["install_error"],
        &["install"],
        &["inspector"],
        &["lib"],
    ],
};

const STORES: &[&str] = &["memory", "quorum", "redis"];

/// The only modules above the stores that name a store, in order to make one.
const STORE_MAKERS: [&str; 5] = ["connect", "lib", "manager", "testing", "conformance"];

impl Layers {
    fn of(&self, module: &str) -> Option<usize> {
        self.modules.iter().position(|layer| layer.iter().any(|line| line.split(' ').any(|name| name == module)))
    }

    fn share_a_line(&self, one: &str, other: &str) -> bool {
        let mut lines = self.modules.iter().flat_map(|layer| layer.iter());
        lines.any(|line| [one, other].iter().all(|name| line.split(' ').any(|part| part == *name)))
    }

    fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.folder)
    }

    /// Returns the module that a file is part of, and how deep the file stands below the folder.
    fn module_of(&self, file: &Path) -> (String, usize) {
        let path = file.strip_prefix(self.source()).unwrap().with_extension("");
        let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != "mod").collect();
        (parts[0].to_owned(), if parts[0] == "lib" { 0 } else { parts.len() })
    }

    /// Returns what is wrong with the imports of one file.
    fn upward(&self, module: &str, depth: usize, text: &str) -> Vec<String> {
        let home = self.of(module).unwrap_or_else(|| panic!("{module} has no layer: add it to the table"));
        let mut wrong = Vec::new();
        for target in imports(text, depth).into_iter().filter(|target| target != module) {
            let Some(there) = self.of(&target) else { continue };
            let to_a_store = STORES.contains(&target.as_str()) && !STORE_MAKERS.contains(&module);
            if to_a_store || (there >= home && !self.share_a_line(module, &target)) {
                wrong.push(format!("{module} (layer {home}) imports {target} (layer {there})"));
            }
        }
        wrong
    }
}

fn source() -> PathBuf {
    CORE.source()
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
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

/// Returns the modules of the crate that a source text names, in paths and in nested imports, from the
/// root or from `super`. `depth` is how deep below the root the text stands.
fn imports(text: &str, depth: usize) -> Vec<String> {
    let code: String = text
        .lines()
        .take_while(|line| !line.contains("#[cfg(test)]"))
        .map(|line| format!("{}\n", line.split("//").next().unwrap()))
        .collect();
    let mut found = Vec::new();
    // `$crate` is where a macro is used, and no import.
    let is_start = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c));
    for (at, root) in code.match_indices("crate::").filter(|(at, _)| is_start(*at)) {
        heads(&code[at + root.len()..], &mut found);
    }
    let up = "super::".repeat(depth);
    if depth > 0 {
        for (at, _) in code.match_indices(&up).filter(|(at, _)| is_start(*at)) {
            heads(&code[at + up.len()..], &mut found);
        }
    }
    found
}

/// Reads the first name of a path, or of each path of a list in braces.
fn heads(path: &str, found: &mut Vec<String>) {
    let name: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if !name.is_empty() {
        found.push(name);
        return;
    }
    let Some(list) = path.trim_start().strip_prefix('{') else {
        assert!(!path.starts_with('*'), "a glob hides what is imported");
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
                heads(&list[at..], found);
            }
            _ => {}
        }
    }
}

#[test]
#[limit]
fn every_import_leads_to_a_layer_below() {
    let mut wrong = Vec::new();
    for layers in [CORE, MACROS, EXPAND, METRICS] {
        let mut sources = Vec::new();
        files(&layers.source(), "rs", &mut sources);
        assert!(sources.len() > 3, "{}", layers.folder);
        // Programs have no part in the layers of a library.
        for file in sources.iter().filter(|file| !is_test(file) && !file.iter().any(|part| part == "bin")) {
            let (module, depth) = layers.module_of(file);
            let found = layers.upward(&module, depth, &fs::read_to_string(file).unwrap());
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[limit]
fn no_way_to_write_an_import_is_overlooked() {
    let ways = [
        "use crate::keeper;",
        "use crate::{clock::Clock, keeper::{self, hear}};",
        "use crate::{\n    clock::{Clock, Timestamp},\n    keeper::hear,\n};",
        "pub(crate) use crate::keeper::start as begin;",
        "fn f() { crate::keeper::start() }",
        "use super::keeper::start;",
        "use super::{clock::Clock, keeper};",
    ];
    for way in ways {
        assert_eq!(CORE.upward("lease", 1, way).len(), 1, "{way}");
    }
    assert_eq!(CORE.upward("lease", 2, "use super::super::keeper;").len(), 1, "from a file one deeper");
    for fine in ["use crate::{clock::Clock, timer::AlarmId};", "// use crate::keeper;", "use super::clock::Clock;"] {
        assert_eq!(CORE.upward("lease", 1, fine), [] as [String; 0], "{fine}");
    }
    assert_eq!(CORE.upward("lease", 1, "use crate::trace;").len(), 1, "its own layer");
    assert_eq!(CORE.upward("keeper", 1, "use crate::redis::RedisStore;").len(), 1, "a store");
}

#[test]
#[limit]
fn every_script_says_what_it_takes_gives_and_why_it_is_atomic() {
    let mut scripts = Vec::new();
    files(&source(), "lua", &mut scripts);
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
const WITHOUT_EXAMPLE: &[&str] = &["Drive", "Fallible", "Sealed", "Skip"];

/// Returns the public types of a file whose documentation has no example, and does not say which other has one.
fn without_example(text: &str) -> Vec<String> {
    let (mut doc, mut without) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        let declared = ["pub struct ", "pub enum ", "pub trait "].iter().find_map(|start| line.strip_prefix(start));
        if let Some(rest) = declared
            && !["```", "example of [`", "include_str!"].iter().any(|sign| doc.contains(sign))
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
    for layers in [CORE, METRICS] {
        let mut sources = Vec::new();
        files(&layers.source(), "rs", &mut sources);
        // What only expansions name is documented for nobody, and programs export nothing.
        let is_hidden = |file: &Path| file.iter().any(|part| part == "bin" || part == "__private");
        for file in sources.iter().filter(|file| !is_hidden(file) && !is_test(file)) {
            let without = without_example(&fs::read_to_string(file).unwrap());
            wrong.extend(without.into_iter().map(|name| format!("{}: {name}", file.display())));
        }
    }
    wrong.retain(|one| !WITHOUT_EXAMPLE.iter().any(|name| one.ends_with(&format!(": {name}"))));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(without_example("/// A.\n#[derive(Debug)]\npub struct A;\n"), ["A"]);
    assert_eq!(without_example("/// ```\n/// ```\n#[a(\n    b,\n)]\npub struct A;\n"), [] as [String; 0]);
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

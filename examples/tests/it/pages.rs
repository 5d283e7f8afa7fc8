//! The pages of this repository, which must agree with each other.

use lock_testing::limit;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

pub(crate) fn page(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code blocks of a page: their kinds and contents.
pub(crate) fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), code.join("\n")));
        }
    }
    blocks
}

/// The text of a page without its code.
fn prose(page: &str) -> String {
    let mut inside = false;
    let outside = page.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

/// Pages in two languages.
const TWINS: [(&str, &str); 4] = [
    ("README.md", "README.zh-CN.md"),
    ("docs/choosing-a-ttl.md", "docs/zh-CN/choosing-a-ttl.md"),
    ("docs/which-lock.md", "docs/zh-CN/which-lock.md"),
    ("docs/operations.md", "docs/zh-CN/operations.md"),
];

#[test]
#[limit]
fn the_pages_that_everybody_reads_are_short() {
    for (name, most) in [("README.md", 134), ("ARCHITECTURE.md", 165)] {
        let lines = page(name).lines().count();
        assert!(lines <= most, "{name}: {lines} lines");
    }
    let page = page("ARCHITECTURE.md");
    for row in page.lines().filter(|line| line.starts_with('|')) {
        for cell in row.split('|') {
            assert!(cell.chars().count() <= 360, "a cell of more than three lines: {cell}");
        }
    }
}

#[test]
#[limit]
fn a_page_says_the_same_in_both_languages() {
    for (name, twin) in TWINS {
        let (english, chinese) = (page(name), page(twin));
        assert_eq!(blocks(&english), blocks(&chinese), "{name}: the code of both must be the same");
        let levels = |page: &str| -> Vec<usize> {
            let headings = prose(page);
            headings
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(mark, _)| mark)
                .filter(|mark| !mark.is_empty() && mark.bytes().all(|byte| byte == b'#'))
                .map(str::len)
                .collect()
        };
        assert_eq!(levels(&english), levels(&chinese), "{name}: the sections of both must be the same");
        // Figures, names and links too, in any order within a section.
        for (english, chinese) in prose(&english).split("\n## ").zip(prose(&chinese).split("\n## ")) {
            assert_eq!(facts(english), facts(chinese), "{name}, in {:?}", english.lines().next());
        }
    }
}

/// A recipe is read at a glance. Hidden lines do not count.
#[test]
#[limit]
fn each_recipe_of_the_cookbook_is_short() {
    let page = page("docs/cookbook.md");
    let recipes: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert_eq!(recipes.len(), 12);
    for recipe in recipes {
        let blocks = blocks(recipe);
        let lines = blocks.iter().flat_map(|(_, code)| code.lines()).filter(|line| !line.starts_with("# ")).count();
        assert!((1..=15).contains(&lines), "{lines} lines of code in {:?}", recipe.lines().next());
    }
}

/// Where the project lives is set in one place; until it is published, pages say what holds until then.
#[test]
#[limit]
fn every_page_names_the_repository_that_cargo_toml_names() {
    let manifest = page("Cargo.toml");
    let set = manifest.lines().find_map(|line| line.strip_prefix("repository = ")).unwrap().trim_matches('"');
    for name in ["README.md", "README.zh-CN.md", "docs/tutorial.md"] {
        let text = page(name);
        let named: Vec<&str> = text.split("git = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!named.is_empty() && named.iter().all(|address| *address == set), "{name}: {named:?} instead of {set}");
        assert!(!set.contains("example.org") || text.contains("published"), "{name}: no version is published");
    }
}

#[test]
#[limit]
fn chinese_pages_have_full_width_punctuation_and_one_word_for_a_token() {
    let han = |letter: char| ('\u{4e00}'..='\u{9fff}').contains(&letter);
    for (_, twin) in TWINS {
        let text = prose(&page(twin));
        // Code and link targets stay as they are.
        let words: String = text.split('`').step_by(2).collect::<Vec<_>>().join("~");
        let words: String = words.split("](").enumerate().fold(String::new(), |whole, (at, part)| {
            whole + if at == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) }
        });
        let letters: Vec<char> = words.chars().collect();
        for pair in letters.windows(2) {
            let half = |letter: char| ",:;!?()".contains(letter);
            assert!(!(han(pair[0]) && half(pair[1]) || half(pair[0]) && han(pair[1])), "{twin}: {pair:?}");
        }
        assert!(!text.contains("隔离令牌"), "{twin}: 防护令牌");
        if let Some(first) = text.find("防护令牌") {
            assert!(text[first..].starts_with("防护令牌（fencing token）"), "{twin}: the first use names the English");
        }
    }
}

/// The parts that do not change with the language: code, link targets and table cells with numbers.
fn facts(section: &str) -> Vec<String> {
    let mut facts: Vec<String> = section.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    // The same page in either language, by its name: sections are called otherwise.
    let names =
        links(section).into_iter().filter_map(|link| link.rsplit('/').next()?.split('#').next().map(str::to_owned));
    facts.extend(names.filter(|name| !name.is_empty()));
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').skip(2)).map(|cell| cell.trim().to_owned());
    facts.extend(
        cells.filter(|cell| !cell.is_empty() && cell.bytes().all(|byte| b"0123456789.,-x/ ms".contains(&byte))),
    );
    facts.sort();
    facts
}

fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let local = targets.filter(|target| !target.contains("://"));
    // The links between the two READMEs differ on purpose.
    local.filter(|target| !target.starts_with("README.")).map(str::to_owned).collect()
}

/// The names that headings have in links.
fn sections(page: &str) -> Vec<String> {
    let headings = prose(page);
    let headings = headings
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let name = |heading: &str| -> String {
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
    };
    headings.map(name).collect()
}

fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let pages = files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.chain(folders.iter().flat_map(|folder| pages_below(folder))).collect()
}

#[test]
#[limit]
fn every_link_leads_somewhere() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
            .map(|name| root().join(name))
            .to_vec();
    pages.extend(
        [
            "examples/README.md",
            "lab/benches/README.md",
            "lab/benches/RESULTS.md",
            "lab/benches/HISTORY.md",
            "lab/servers.md",
            "lab/sources.md",
            "dashboards/README.md",
            "lab/proof/README.md",
            "stores/README.md",
            "stores/leader-election-on-kubernetes.md",
            "stores/which-store.md",
        ]
        .map(|name| root().join(name)),
    );
    pages.extend(pages_below(&root().join("docs")));
    pages.extend(pages_below(&root().join("dashboards/runbooks")));
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&prose(&text)) {
            let (file, section) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{} links to {link}", page.display());
            if !section.is_empty() {
                let sections = sections(&std::fs::read_to_string(&target).unwrap());
                assert!(sections.contains(&section.to_owned()), "{} links to {link}: {sections:?}", page.display());
            }
        }
    }
}

/// The sources below a folder, with texts that go over several lines put together.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push_str(&sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "sql") {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().map(str::trim) {
                match line.strip_suffix('\\') {
                    Some(beginning) => all.push_str(beginning),
                    None => all.push_str(&format!("{line}\n")),
                }
            }
        }
    }
    all
}

/// The sources of the crates that programs link.
fn source_of_the_library() -> String {
    let crates = ["lock-core", "lock-macros", "lock-metrics"];
    let stores = [
        "lock-store",
        "lock-redis",
        "lock-quorum",
        "lock-postgres",
        "lock-redisson",
        "lock-zookeeper",
        "lock-kubernetes",
    ]
    .map(|name| format!("stores/{name}"));
    let folders =
        crates.iter().map(|name| format!("{name}/src")).chain(stores.iter().map(|name| format!("{name}/src")));
    let folders = folders.chain(["stores/lock-postgres/sql".to_owned()]);
    folders.map(|folder| sources(&root().join(folder))).collect()
}

#[test]
#[limit]
fn the_texts_under_troubleshooting_are_those_of_the_source() {
    let sources = source_of_the_library();
    // Texts of the compiler and of PostgreSQL.
    let others =
        ["implementation of Send is not general enough", "borrow of moved value", "could not serialize access"];
    let page = page("docs/troubleshooting.md");
    let with_texts = page.split("## No message at all").next().unwrap();
    let cells = with_texts.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let texts: Vec<&str> =
        cells.flat_map(|cell| cell.split('`').step_by(2)).filter(|text| !others.contains(text)).collect();
    assert!(texts.len() > 40, "{texts:?}");
    for text in texts {
        // The compiler's messages put a type of the caller between backticks.
        let found = sources.contains(text) || text.split("LockError").all(|part| sources.contains(part.trim()));
        assert!(found, "{text:?} is nowhere in the source");
    }
}

/// The manifest of the tutorial names our crates as they are.
#[test]
#[limit]
fn the_manifest_of_the_tutorial_fits_the_crates() {
    let manifests: Vec<String> = blocks(&page("docs/tutorial.md"))
        .into_iter()
        .filter(|(kind, _)| kind == "toml")
        .map(|(_, text)| text)
        .collect();
    assert!(manifests[0].starts_with("[package]\nname = \"orders\"\n"), "{manifests:?}");
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
    for name in ["lock-core", "lock-metrics"] {
        let line = manifests.iter().flat_map(|text| text.lines()).find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line, format!("{name} = {version:?}"));
    }
    assert!(manifests[0].contains("edition = \"2024\"") && manifests[0].contains("\"rt-multi-thread\""));
}

/// The bounds on one page are the constants of the source.
#[test]
#[limit]
fn the_limits_on_the_page_are_those_of_the_source() {
    let (sources, page) = (source_of_the_library(), page("docs/limits.md"));
    for (row, constant) in [
        ("| a key, with its prefix | 512 bytes |", "MAX_KEY_BYTES: usize = 512;"),
        ("| ttl, renewed | 1 s to 30 days |", "MIN_RENEWED_TTL: Duration = Duration::from_secs(1);"),
        ("| ttl with `renew = false` | 50 ms to 30 days |", "MIN_FIXED_TTL: Duration = Duration::from_millis(50);"),
        ("| time between renewals | 10 ms to half", "MIN_RENEW_INTERVAL: Duration = Duration::from_millis(10);"),
        ("| `min_hold` | 30 days |", "MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);"),
        ("| permits of a semaphore | 1,000,000 |", "MAX_PERMITS: u32 = 1_000_000;"),
        ("| stripes of a name | 4,096 |", "MAX_STRIPES: u32 = 4096;"),
        ("| stripe names in a process | 10,000 |", "MAX_NAMES: usize = 10_000;"),
        ("| period of a job | 1 s to 30 days |", "MIN_PERIOD: Duration = Duration::from_secs(1);"),
        ("| version of `once_for` | 1,024 bytes |", "MAX_VERSION_BYTES: usize = 1024;"),
        ("| announcement of a leader | 150 bytes", "MAX_ANNOUNCEMENT: usize = 150;"),
        ("| releases in the background | 4,096 for each lock manager |", "LIMIT: usize = 4096;"),
        ("| hand-offs inside a process | 127 in a row", "MOST: u32 = 127;"),
        ("| locks of a cycle that the deadlock detector follows | 8 |", "MAX_HOPS: usize = 8;"),
        ("| requests of waiters in one script | 32 |", "AT_MOST: usize = 32;"),
        ("| lock names in metrics | 200 for each store |", "MAX_LOCKS: usize = 200;"),
        ("| call sites of a lock | 32 |", "MAX_SITES: usize = 32;"),
        ("| stores in a process | 16 |", "MAX_STORES: usize = 16;"),
        ("| lock names of the fleet inspector | 2,000 |", "MAX_FLEET_LOCKS: usize = 2_000;"),
        ("| waiters that `lockctl waiters` lists | 1,000 |", "MAX_LISTED: isize = 1000;"),
        ("| rows of the live view | 500 |", "MAX_SHOWN: usize = 500;"),
    ] {
        assert!(page.contains(row), "docs/limits.md has no {row:?}");
        assert!(sources.contains(constant), "{row:?} is not {constant:?}");
    }
}

#[test]
#[limit]
fn each_kind_of_error_has_its_section() {
    let page = page("docs/troubleshooting.md");
    let sections = sections(&page);
    for kind in lock_core::LockErrorKind::ALL {
        let (file, section) = kind.help_url().split_once('#').unwrap();
        assert!(file.ends_with("/docs/troubleshooting.md"), "{file}");
        assert_eq!(section, format!("{kind:?}").to_lowercase());
        assert!(sections.contains(&section.to_owned()), "docs/troubleshooting.md has no section {kind:?}");
        let words = page.split(&format!("### {kind:?}\n")).nth(1).unwrap().split("\n#").next().unwrap();
        assert!(words.contains("HTTP ") && words.len() > 80, "{kind:?}: {words}");
    }
}

/// docs.rs shows these pages: the crate has symbolic links to them, and a package has what the links lead to.
#[test]
#[limit]
fn the_crate_carries_the_pages_that_its_guide_names() {
    let source = page("lock-core/src/lib.rs");
    let guide = source.split("    pages! {\n").nth(1).unwrap().split("    }\n").next().unwrap();
    let words: Vec<&str> = guide.split_whitespace().collect();
    let mut named: Vec<String> = words.chunks(2).map(|pair| pair.join(" ")).collect();
    named.sort_unstable();
    let files = std::fs::read_dir(root().join("lock-core/docs")).unwrap();
    let mut carried: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    carried.sort_unstable();
    let module = |file: &String| format!("{} {file:?}", file.trim_end_matches(".md").replace('-', "_"));
    assert_eq!(named, carried.iter().map(module).collect::<Vec<_>>());
    assert!(carried.len() > 10, "{carried:?}");
    for file in carried {
        assert_eq!(page(&format!("lock-core/docs/{file}")), page(&format!("docs/{file}")), "{file}");
    }
    assert!(source.contains("\"/blob/main/docs/README.md\"") && !page("docs/README.md").is_empty());
}

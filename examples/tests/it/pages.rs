//! The pages of this repository, which must agree with each other.

use lock_core::testing::limit;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn page(name: &str) -> String {
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

#[test]
#[limit]
fn the_readme_is_short_and_says_the_same_in_both_languages() {
    let (english, chinese) = (page("README.md"), page("README.zh-CN.md"));
    assert!(english.lines().count() < 120, "{} lines", english.lines().count());
    assert_eq!(blocks(&english), blocks(&chinese), "the code of both must be the same");
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
    assert_eq!(levels(&english), levels(&chinese), "the sections of both must be the same");
    // Figures, names and links too, in any order within a section.
    for (english, chinese) in prose(&english).split("\n## ").zip(prose(&chinese).split("\n## ")) {
        assert_eq!(facts(english), facts(chinese), "in {:?}", english.lines().next());
    }
}

/// The parts that do not change with the language: code, link targets and table cells with numbers.
fn facts(section: &str) -> Vec<String> {
    let mut facts: Vec<String> = section.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    facts.extend(links(section));
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').skip(2)).map(|cell| cell.trim().to_owned());
    facts
        .extend(cells.filter(|cell| !cell.is_empty() && cell.bytes().all(|byte| b"0123456789.,-x ms".contains(&byte))));
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
    pages.extend(["examples/README.md", "benches/README.md", "dashboards/README.md"].map(|name| root().join(name)));
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

//! The rules of plain English that a program can count: documentation, comments and Markdown.
//!
//! A sentence starts with its subject, so it does not start with `Who`, `What` or `Those`. It says `is not a` instead of
//! `is no`, avoids `whoever`, and has at most 40 words outside tables.

use std::fs;
use std::path::{Path, PathBuf};

use lock_testing::limit;

use super::files;

/// How many sentences in 1,000 may break a rule.
const MOST: f64 = 3.0;

/// Where prose stands, from the root of the workspace.
const PLACES: [&str; 13] = [
    "lock-core",
    "lock-macros",
    "lock-metrics",
    "lockctl",
    "stores",
    "testing",
    "dashboards",
    "examples",
    "lab",
    "docs",
    "scripts",
    ".ci",
    ".github",
];

/// The first words of a sentence that hides its subject.
const HIDDEN_SUBJECT: [&str; 13] = [
    "Who",
    "Whoever",
    "Whose",
    "Whom",
    "What",
    "Whatever",
    "Whichever",
    "Those",
    "Nobody",
    "Nothing",
    "Somebody",
    "Of",
    "One that",
];

const LONGEST: usize = 40;

/// A paragraph: the line that it starts on, its text, and whether it is a cell of a table.
struct Paragraph {
    line: usize,
    text: String,
    is_cell: bool,
}

/// Returns the paragraphs of a file: of its comments, or of the whole file if it is Markdown.
fn paragraphs(file: &Path, text: &str) -> Vec<Paragraph> {
    let mark = match file.extension().and_then(|ending| ending.to_str()) {
        Some("rs") => "//",
        Some("lua" | "sql") => "--",
        Some("sh" | "py") => "#",
        _ => "",
    };
    let (mut found, mut open): (Vec<Paragraph>, Option<Paragraph>) = (Vec::new(), None);
    let mut is_code = false;
    for (number, line) in text.lines().map(str::trim).chain([""]).enumerate() {
        let prose = match line.strip_prefix(mark).filter(|_| !line.starts_with("#!")) {
            Some(comment) if mark == "//" => comment.trim_start_matches(['/', '!']).trim(),
            Some(comment) => comment.trim(),
            None => {
                is_code = false;
                ""
            }
        };
        let is_fence = prose.starts_with("```");
        is_code ^= is_fence;
        let begins_item = ["- ", "* ", "> ", "1. ", "2. ", "3. "].iter().any(|start| prose.starts_with(start));
        if is_code || is_fence || prose.is_empty() || prose.starts_with(['#', '|']) || begins_item {
            found.extend(open.take());
        }
        if is_code || is_fence || prose.is_empty() || prose.starts_with('#') {
            continue;
        }
        if prose.starts_with('|') {
            let cells = prose.split('|').map(|cell| Paragraph { line: number + 1, text: cell.into(), is_cell: true });
            found.extend(cells);
            continue;
        }
        let paragraph = open.get_or_insert_with(|| Paragraph { line: number + 1, text: String::new(), is_cell: false });
        paragraph.text.push_str(prose.trim_start_matches(['-', '*', '>', ' ']));
        paragraph.text.push(' ');
    }
    found.extend(open);
    found
}

/// Returns the sentences of a paragraph that have four words or more. A code span counts as one word.
fn sentences(text: &str) -> Vec<String> {
    let outside_code: Vec<&str> = text.split('`').step_by(2).collect();
    let plain = outside_code.join("X").replace(['*', '_', '[', ']', '('], "");
    let mut found = vec![String::new()];
    for word in plain.split_whitespace() {
        let sentence = found.last_mut().expect("there is always a sentence");
        sentence.push_str(word);
        sentence.push(' ');
        if word.ends_with(['.', ':', ';', '!', '?']) {
            found.push(String::new());
        }
    }
    found.retain(|sentence| sentence.split_whitespace().count() >= 4);
    found
}

/// Returns the rule that a sentence breaks, if it breaks one.
fn broken_rule(sentence: &str, is_cell: bool) -> Option<&'static str> {
    let starts = |word: &str| sentence.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '));
    let says_no = |verb: &str| {
        let after = sentence.split(verb).skip(1);
        after
            .map(|rest| rest.split([' ', ',', '.']).next())
            .any(|next| !matches!(next, Some("longer" | "more" | "later" | "one")))
    };
    if HIDDEN_SUBJECT.iter().any(|word| starts(word)) && !sentence.trim_end().ends_with('?') {
        return Some("hides its subject");
    }
    if [" is no ", " are no ", " was no ", " were no "].into_iter().any(says_no) {
        return Some("says \"is no\"; write \"is not a\"");
    }
    if sentence.split(' ').any(|word| matches!(word.to_lowercase().as_str(), "whoever" | "whosoever" | "whomever")) {
        return Some("says \"whoever\"; name the actor");
    }
    (!is_cell && sentence.split_whitespace().count() > LONGEST).then_some("has more than 40 words")
}

#[test]
#[limit]
fn prose_starts_with_its_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut texts: Vec<PathBuf> = Vec::new();
    for ending in ["md", "rs", "lua", "sql", "sh", "py"] {
        PLACES.iter().for_each(|place| files(&root.join(place), ending, &mut texts));
    }
    for entry in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        texts.extend(Some(entry).filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    // Other languages have other rules. A build or a package manager writes its own files, and fixtures are old versions.
    let left_out = ["zh-CN", "target", "node_modules", "fixtures"];
    texts.retain(|file| {
        let name = file.to_string_lossy();
        !name.contains("zh-CN") && !file.iter().any(|part| left_out.iter().any(|other| part == *other))
    });
    assert!(texts.len() > 800, "only {} files were found", texts.len());
    let (mut count, mut wrong) = (0, Vec::new());
    for file in &texts {
        let name = file.strip_prefix(root).unwrap();
        for paragraph in paragraphs(file, &fs::read_to_string(file).unwrap()) {
            for sentence in sentences(&paragraph.text) {
                count += 1;
                if let Some(rule) = broken_rule(&sentence, paragraph.is_cell) {
                    wrong.push(format!("{}:{}: {rule}: {sentence}", name.display(), paragraph.line));
                }
            }
        }
    }
    let rate = 1000.0 * wrong.len() as f64 / f64::from(count.max(1));
    println!("{count} sentences, {rate:.1} in 1,000 break a rule; at most {MOST}");
    wrong.truncate(40);
    assert!(rate <= MOST, "{rate:.1} in 1,000 sentences break a rule of plain English:\n{}", wrong.join("\n"));
}

#[test]
#[limit]
fn each_rule_of_plain_english_is_noticed() {
    let broken = |text: &str| {
        let all = paragraphs(Path::new("a.rs"), text).into_iter().flat_map(|paragraph| sentences(&paragraph.text));
        all.filter_map(|sentence| broken_rule(&sentence, false)).count()
    };
    assert_eq!(broken("/// Who does not wait keeps nobody waiting.\nfn f() {}"), 1);
    assert_eq!(broken("// A wrong token is no reason\n// to stop the holder."), 1);
    assert_eq!(broken("-- Whoever it is may go on."), 0, "a comment of another language");
    assert_eq!(broken("/// The lock goes to whoever asks first."), 1);
    assert_eq!(broken("/// The holder is no longer alive. What happens to the lock then?"), 0);
    assert_eq!(broken("/// ```\n/// // Who does not wait is refused.\n/// ```"), 0);
    assert_eq!(broken("let url = 1; // Who reads the end of a line?"), 0);
    assert_eq!(broken(&format!("/// {}", "word ".repeat(41))), 1);
}

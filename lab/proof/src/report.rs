//! `report.html`: the table, and for each row a time line of the key with the most violations. Three time lines also
//! become pictures.

pub(crate) mod page;
pub(crate) mod table;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use crate::check::Verdict;
use crate::kept::{self, Kept};
use crate::record::{Grant, Mode, Record};

const SECOND: u64 = 1_000_000_000;
/// How much time of a row a time line shows, and its width.
const SHOWN: u64 = 12 * SECOND;
const WIDTH: u64 = 1_000;

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;border-bottom:1px solid #8884;text-align:right}td:first-child,th:first-child{text-align:left}
svg{width:100%;height:auto;margin:.5em 0}text{fill:currentColor}.bad{color:#d33;font-weight:600}pre{overflow:auto}";

/// The style of a time line, on the page and in a picture.
const LINE_STYLE: &str =
    "text{font:12px system-ui,sans-serif}.hold{fill:#3b82c4}.over{fill:#d33}.fault{fill:#e8a33d;opacity:.28}";

/// A picture may be shown on a page with unknown colours.
const PICTURE_TEXT: &str = "text{fill:#59636e}";

/// One hold in a time line.
struct Bar<'a> {
    grant: &'a Grant,
    until: u64,
    meets: Option<&'a Grant>,
}

pub(crate) fn write(folder: &Path, kept: &Kept, verdicts: &[Verdict], history: &str) -> Result<(), String> {
    let lines: Vec<String> = rows(history).iter().map(|row| time_line(row)).collect();
    let line = |row: usize| lines.get(row).map_or("", String::as_str);
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>lock-proof, seed {}</title><style>{STYLE}{LINE_STYLE}</style><h1>Locks under faults</h1>
<p>Seed {}, {} minutes, {}, {}, commit {}.</p><p>Faults that happened: {}.</p>",
        kept.options.seed,
        kept.options.seed,
        kept.options.minutes,
        text(&kept.server),
        text(&kept.machine),
        text(&kept.commit),
        text(&table::faults(history)),
    );
    for missing in &kept.missing {
        let _ = write!(page, "<p>Not installed, so not run: {}.</p>", text(missing));
    }
    page.push_str("<table><tr>");
    for head in [
        "subject, assumption",
        "",
        "sections",
        "overlaps",
        "stale arrived",
        "stale passed",
        "older tokens",
        "left",
        "unserved",
    ] {
        let _ = write!(page, "<th>{head}");
    }
    for (number, verdict) in verdicts.iter().enumerate() {
        let (word, over) = (table::word(verdict), verdict.overlaps - verdict.overlaps_excused);
        let class = if matches!(word, "fails" | "FAILED") { " class=bad" } else { "" };
        let excused = verdict.overlaps_excused;
        let note = if excused == 0 { String::new() } else { format!(" (+{excused} after data loss)") };
        let _ = write!(
            page,
            "<tr><td><a href=#row{number}>{}</a><td{class}>{word}<td>{}<td>{over}{note}<td>{}<td>{}<td>{}<td>{}<td>{}",
            text(&verdict.row),
            verdict.sections,
            verdict.stale_arrived,
            verdict.stale_passed,
            verdict.inversions - verdict.inversions_excused,
            verdict.left,
            verdict.unserved,
        );
    }
    page.push_str("</table>");
    for (number, verdict) in verdicts.iter().enumerate() {
        let _ = write!(page, "<h2 id=row{number}>{}</h2>", text(&verdict.row));
        page.push_str(line(number));
    }
    for (name, number) in pictures(verdicts) {
        kept::write(&folder.join(name), &picture(line(number)))?;
    }
    kept::write(&folder.join("report.html"), &page)
}

/// The rows that become pictures, with their files. They are the first row of this library, and the first two with an
/// overlap: one of another lock, and one with a broken assumption.
fn pictures(verdicts: &[Verdict]) -> Vec<(&'static str, usize)> {
    let first = |word: &str, meets: bool| {
        verdicts.iter().position(|verdict| table::word(verdict) == word && (verdict.overlaps > 0 || !meets))
    };
    [
        ("ours.svg", first("holds", false)),
        ("another.svg", first("fails", true)),
        ("broken.svg", first("shows it", true)),
    ]
    .into_iter()
    .filter_map(|(name, row)| Some((name, row?)))
    .collect()
}

/// Turns a time line of the page into a file of its own.
fn picture(line: &str) -> String {
    let titled = format!("<style>{LINE_STYLE}{PICTURE_TEXT}</style><title>");
    line.replacen("<svg ", "<svg xmlns='http://www.w3.org/2000/svg' ", 1).replacen("<title>", &titled, 1)
}

/// The records of each row.
fn rows(history: &str) -> Vec<Vec<Record>> {
    let mut rows = Vec::new();
    for record in history.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok()) {
        if matches!(record, Record::Run { .. }) {
            rows.push(Vec::new());
        }
        if let Some(row) = rows.last_mut() {
            row.push(record);
        }
    }
    rows
}

/// The exclusive holds of each key in order, each with the hold that it overlaps.
fn bars(records: &[Record]) -> BTreeMap<&str, Vec<Bar<'_>>> {
    let (mut ends, mut killed) = (HashMap::new(), HashMap::new());
    for record in records {
        match record {
            Record::End { process, hold, at, .. } => _ = ends.insert((*process, *hold), *at),
            Record::Killed { process, at } => _ = killed.insert(*process, *at),
            _ => {}
        }
    }
    let mut keys = BTreeMap::<&str, Vec<Bar<'_>>>::new();
    for record in records {
        let Record::Grant(grant) = record else { continue };
        if grant.mode == Mode::Write {
            let died = killed.get(&grant.process).map(|at| grant.deadline.unwrap_or(u64::MAX).min(*at));
            let until = ends.get(&(grant.process, grant.hold)).copied().or(died).unwrap_or(grant.at);
            keys.entry(&grant.key).or_default().push(Bar { grant, until: until.max(grant.at), meets: None });
        }
    }
    for bars in keys.values_mut() {
        bars.sort_by_key(|bar| bar.grant.at);
        let mut last: Option<(&Grant, u64)> = None;
        for bar in bars {
            bar.meets = last.filter(|(_, until)| *until > bar.grant.at).map(|(grant, _)| grant);
            if last.is_none_or(|(_, until)| until < bar.until) {
                last = Some((bar.grant, bar.until));
            }
        }
    }
    keys
}

fn time_line(records: &[Record]) -> String {
    let keys = bars(records);
    let wrong = |bars: &Vec<Bar<'_>>| bars.iter().filter(|bar| bar.meets.is_some()).count();
    let Some((key, bars)) = keys.iter().max_by_key(|(_, bars)| (wrong(bars), bars.len())) else {
        return "<p>Nobody held a lock alone.</p>".to_owned();
    };
    let Some(shown) = bars.iter().find(|bar| bar.meets.is_some()).or(bars.first()) else { return String::new() };
    let from = shown.grant.at.saturating_sub(2 * SECOND);
    let until = from + SHOWN;
    let x = |at: u64| 130 + at.clamp(from, until).saturating_sub(from) * (WIDTH - 140) / SHOWN;
    let mut processes: Vec<u32> = Vec::new();
    for bar in bars.iter().filter(|bar| bar.until >= from && bar.grant.at <= until) {
        if !processes.contains(&bar.grant.process) {
            processes.push(bar.grant.process);
        }
    }
    let height = 30 + 26 * processes.len();
    let mut picture = format!("<svg viewBox='0 0 {WIDTH} {height}' role='img'><title>who held {}</title>", text(key));
    for record in records {
        if let Record::Fault { what, from: began, until: ended, .. } = record
            && *began < until
            && *ended > from
        {
            let (left, width) = (x(*began), (x(*ended) - x(*began)).max(2));
            let title = text(what);
            let _ = write!(
                picture,
                "<rect class='fault' x='{left}' y='0' width='{width}' height='{height}'><title>{title}</title></rect>"
            );
        }
    }
    for (row, process) in processes.iter().enumerate() {
        let y = 22 + 26 * row;
        let _ = write!(picture, "<text x='4' y='{}'>process {process}</text>", y + 14);
        for bar in bars.iter().filter(|bar| bar.grant.process == *process && bar.until >= from && bar.grant.at <= until)
        {
            let (left, width) = (x(bar.grant.at), (x(bar.until) - x(bar.grant.at)).max(1));
            let class = if bar.meets.is_some() { "over" } else { "hold" };
            let token = bar.grant.token.map_or("no token".to_owned(), |token| format!("token {token}"));
            let mut title = format!("{} by {}, {token}", bar.grant.site, bar.grant.process);
            if let Some(other) = bar.meets {
                let _ = write!(title, ", while {} by {} still held it", other.site, other.process);
            }
            let title = text(&title);
            let _ = write!(
                picture,
                "<rect class='{class}' x='{left}' y='{y}' width='{width}' height='18'><title>{title}</title></rect>"
            );
        }
    }
    let _ = write!(picture, "<text x='130' y='14'>{} seconds of {}</text></svg>", SHOWN / SECOND, text(key));
    picture
}

fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

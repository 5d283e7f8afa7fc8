//! Where results go: a table for people or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::{Value, json};

use crate::screen;

use lock_core::store::text::visible;

/// Standard output, in the requested form.
pub(crate) struct Output {
    json: bool,
    out: io::Stdout,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, out: io::stdout() }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.out.is_terminal()
    }

    pub(crate) fn size(&self) -> Option<screen::Size> {
        screen::size(&self.out)
    }

    /// Writes a table, as wide as the terminal.
    pub(crate) fn table(&mut self, text: &str) -> io::Result<()> {
        match self.size() {
            Some((_, columns)) => self.line(&screen::fitted(text, columns)),
            None => self.line(text),
        }
    }

    /// Writes a line as it is: the caller has made it safe for a terminal.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        let mut out = self.out.lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Writes a JSON document, indented so that people can read it too.
    pub(crate) fn document(&mut self, document: &Value) -> io::Result<()> {
        self.line(&safe(&format!("{document:#}")))
    }

    /// Writes a document, or a line that says the same to people.
    pub(crate) fn either(&mut self, document: &Value, line: &str) -> io::Result<()> {
        if self.json { self.document(document) } else { self.line(&visible(line)) }
    }

    /// Writes why the result is missing, and the exit code.
    pub(crate) fn failure(&mut self, error: &str, exit_code: u8) -> io::Result<()> {
        self.document(&json!({ "error": error, "exit_code": exit_code }))
    }

    /// Writes a document on one line, for a stream of documents.
    pub(crate) fn record(&mut self, document: &Value) -> io::Result<()> {
        self.line(&safe(&document.to_string()))
    }
}

/// Escapes the control characters that JSON itself allows, but a terminal may obey.
fn safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            safe.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Rows of text under headings, in columns as wide as they need to be.
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(|heading| (*heading).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; the contents of its cells are made safe for a terminal.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into_iter().map(|cell| visible(&cell)).collect());
    }

    pub(crate) fn render(&self) -> String {
        let all = || std::iter::once(&self.headings).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        all().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The output, in the requested form.
pub(crate) enum Look {
    Json(Value),
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::{Table, safe};

    #[test]
    fn columns_line_up_and_stay_on_their_line() {
        let mut table = Table::new(&["KEY", "STATE"]);
        table.row(["é\n\u{1b}[2J".to_owned(), "held".to_owned()]);
        table.row(["a".to_owned(), "kept".to_owned()]);
        assert_eq!(table.render(), "KEY           STATE\né\\n\\u{1b}[2J  held\na             kept");
    }

    #[test]
    fn json_is_safe_and_means_the_same() {
        let text = "a\u{9b}b\u{7f}\u{202e}\u{1b}é";
        let json = safe(&serde_json::Value::from(text).to_string());
        assert!(json.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}

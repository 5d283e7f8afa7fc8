//! Text that fits a terminal.

use std::io::{self, Write as _};

/// Rows and columns.
pub(crate) type Size = (usize, usize);

/// Returns how much room a terminal has. `None` if the output is not a terminal, or one that does not know its size.
#[cfg(unix)]
pub(crate) fn size(of: &(impl io::IsTerminal + rustix::fd::AsFd)) -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(of).ok().filter(|_| of.is_terminal())?;
    (size.ws_row > 0 && size.ws_col > 0).then(|| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

#[cfg(not(unix))]
pub(crate) fn size(of: &impl io::IsTerminal) -> Option<Size> {
    of.is_terminal().then_some((24, 80))
}

/// The second screen of the terminal, until it is dropped: what was there before comes back.
pub(crate) struct Screen;

impl Screen {
    pub(crate) fn enter() -> Self {
        print("\u{1b}[?1049h\u{1b}[?25l");
        Self
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print("\u{1b}[?25h\u{1b}[?1049l");
    }
}

fn print(text: &str) {
    let mut out = io::stdout().lock();
    // A terminal that is gone shows nothing.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns as much of a text as one screen has room for: its first lines, and its last one. Rows of stuck locks are red.
pub(crate) fn frame(text: &str, (rows, columns): Size) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // Below them stand how it ends, and the cursor.
    let room = rows.saturating_sub(2).max(3);
    let mut shown: Vec<String> = if lines.len() <= room {
        lines.iter().map(|line| (*line).to_owned()).collect()
    } else {
        let more =
            format!("… {} more lines; --lock, --site, --older, --stuck and --limit choose", lines.len() - room + 1);
        lines[..room - 2]
            .iter()
            .map(|line| (*line).to_owned())
            .chain([more, lines[lines.len() - 1].to_owned()])
            .collect()
    };
    shown.push("Ctrl-C ends".to_owned());
    let one = |line: &String| {
        let is_stuck = line.contains("  stuck  ");
        let line = clipped(line, columns);
        // The rest of the line may be of the frame before.
        if is_stuck { format!("\u{1b}[31m{line}\u{1b}[0m\u{1b}[K") } else { format!("{line}\u{1b}[K") }
    };
    shown.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Returns each line of a text as far as it fits.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    text.lines().map(|line| clipped(line, columns)).collect::<Vec<_>>().join("\n")
}

fn clipped(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::{fitted, frame};

    #[test]
    fn ten_thousand_rows_become_one_screen() {
        let rows: Vec<String> = (0..10_000).map(|row| format!("lock:{row}  held   {}", "x".repeat(200))).collect();
        let text = format!("KEY  STATE\n{}\n10000 locks", rows.join("\n"));
        let shown = frame(&text, (24, 80));
        let lines: Vec<&str> = shown.split('\n').collect();
        assert_eq!(lines.len(), 23, "and the cursor below");
        assert!(lines.iter().all(|line| line.trim_end_matches("\u{1b}[K").chars().count() <= 80));
        assert!(
            lines[0].starts_with("KEY")
                && lines[20].starts_with("… 9981 more lines")
                && lines[21].starts_with("10000 locks")
        );
    }

    #[test]
    fn what_fits_stays_whole_and_stuck_rows_are_red() {
        let shown = frame("KEY  STATE  X\na    stuck  1\nb    held   2", (24, 80));
        let plain = shown.replace("\u{1b}[K", "");
        assert_eq!(plain, "KEY  STATE  X\n\u{1b}[31ma    stuck  1\u{1b}[0m\nb    held   2\nCtrl-C ends");
        assert_eq!(fitted("short\na long line", 6), "short\na lon…");
    }
}

//! Text for people: foreign text, made safe to show, and durations.
//!
//! Keys and call sites come from users and from Redis. When they are shown, they must not move a cursor, end an
//! attribute, or change the direction of the text around them.
//!
//! ```
//! use lock_store::text::{human, visible};
//!
//! assert_eq!(visible("lock:é\u{1b}[2J"), r"lock:é\u{1b}[2J");
//! assert_eq!(human(std::time::Duration::from_secs(61)), "1 min 01 s");
//! assert_eq!(lock_store::text::duration("1m30s"), Ok(std::time::Duration::from_secs(90)));
//! ```

use std::fmt::Write as _;
use std::time::Duration;

/// Escapes characters that would act on a terminal, or be invisible on a page.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns whether a character is a control character, has no width, changes the direction of text, or is blank.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Writes a duration so that its size is clear at a glance.
#[must_use]
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{seconds}.{} s", duration.subsec_millis() / 100),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The units of a duration in milliseconds, from large to small.
pub const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration such as `10s`, `250ms` or `1m30s`. Options, URLs, the environment and command lines write it this
/// way. The attribute reads the same form with a parser of its own, because a macro cannot use the crate that it is a
/// part of.
///
/// # Errors
///
/// The description of the mistake, without repeating the text.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let (mut rest, mut total, mut units) = (text, 0_u64, UNITS.as_slice());
    if rest.is_empty() {
        return Err("it is empty");
    }
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        if unit.is_empty() {
            return Err("a unit is missing");
        }
        let Some(found) = units.iter().position(|(name, _)| *name == unit) else {
            return Err("it takes whole numbers of d, h, m, s and ms, each once, from large to small");
        };
        let number: u64 = number.parse().map_err(|_| "a number is missing, or too large")?;
        let sum = number.checked_mul(units[found].1).and_then(|part| total.checked_add(part));
        total = sum.ok_or("it is too long a time to count in milliseconds")?;
        (rest, units) = (after, &units[found + 1..]);
    }
    Ok(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{human, visible};

    #[test]
    fn what_acts_on_a_terminal_is_spelled_out() {
        assert_eq!(visible("lock:é:日本"), "lock:é:日本");
        assert_eq!(visible("a\u{1b}[2Jb\r\n\u{9b}c"), "a\\u{1b}[2Jb\\r\\n\\u{9b}c");
        assert_eq!(visible("a\u{202e}b\u{200b}"), "a\\u{202e}b\\u{200b}");
    }

    #[test]
    fn sizes_of_durations() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (59_999, "59.9 s"),
            (61_000, "1 min 01 s"),
            (3_660_000, "1 h 01 min"),
            (90_000_000, "1 d 01 h"),
        ] {
            assert_eq!(human(Duration::from_millis(millis)), text);
        }
    }
}

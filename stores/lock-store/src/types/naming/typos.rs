//! Characters of a key that people do not see, of which each makes another lock.

use std::collections::BTreeSet;

use crate::types::key::LockKey;
use crate::types::system::sync::Mutex;

/// Returns whether a character leaves no trace on a screen.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    // Not the joiners of scripts and of emoji, which change what is seen.
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        )
        || matches!(c, '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{feff}')
}

/// Returns whether a text begins or ends with a character that people do not see.
#[must_use]
pub fn has_hidden_end(text: &str) -> bool {
    let hidden = |c: char| c.is_whitespace() || is_invisible(c) || matches!(c, '\u{200c}' | '\u{200d}');
    text.starts_with(hidden) || text.ends_with(hidden)
}

/// Checks a key that is asked for at a place of the program. A key of a template was checked when it was rendered.
pub fn check(key: &LockKey, prefix: &str, place: &str) {
    let text = key.as_str().strip_prefix(prefix).unwrap_or(key.as_str());
    let is_plain = || text.bytes().all(|byte| byte.is_ascii_graphic());
    if key.label().is_none() && !is_plain() && (has_hidden_end(text) || text.contains(is_invisible)) {
        warn_of(text, place);
    }
}

/// After how many places nothing more is logged.
const MOST_PLACES: usize = 64;

/// Logs once for each place in the program that a key there has a character which people do not see.
pub fn warn_of(key: &str, place: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut warned = WARNED.lock();
    if warned.len() < MOST_PLACES && !warned.contains(place) {
        warned.insert(place.to_owned());
        drop(warned);
        // Without what a terminal would act on.
        let escaped: String =
            key.chars().flat_map(|c| if c.is_ascii() { c.escape_debug().collect() } else { shown(c) }).collect();
        tracing::warn!(
            target: "lock_core",
            key = %format_args!("\"{escaped}\""),
            place,
            "a key begins or ends with a blank, or has an invisible character, so it is another lock than the key \
             without it; trim the values in the key",
        );
    }
}

fn shown(c: char) -> Vec<char> {
    if c.is_alphanumeric() { vec![c] } else { c.escape_unicode().collect() }
}

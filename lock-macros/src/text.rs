//! The user's text inside a message. Invisible characters are shown, and long text is cut.

/// The longest piece of text that a message repeats.
const MOST_SHOWN: usize = 80;

/// Shows text as it was typed. Invisible characters are escaped, and long text is cut.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == MOST_SHOWN {
            shown.push('…');
            break;
        }
        if is_visible(c) { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    shown
}

/// Shows several names, and how many more there are.
pub(crate) fn list(names: &[&str]) -> String {
    const MOST: usize = 12;
    let mut shown: Vec<String> = names.iter().take(MOST).map(|name| visible(name)).collect();
    if names.len() > MOST {
        shown.push(format!("and {} more", names.len() - MOST));
    }
    shown.join(", ")
}

fn is_visible(c: char) -> bool {
    // These are printed as nothing or as a space, although `Debug` treats them as letters or accents.
    let blank = matches!(
        c,
        '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    );
    // Accents are escaped only at the start of a text.
    !blank && format!("a{c}").escape_debug().eq(['a', c]) || matches!(c, '"' | '\'' | '\\')
}

#[cfg(test)]
mod tests {
    use super::{list, visible};

    #[test]
    fn what_nobody_would_see_is_escaped() {
        for (text, shown) in [
            ("user:<id>", "user:<id>"),
            ("ünï 用户 e\u{301} \"'\\", "ünï 用户 e\u{301} \"'\\"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("a\u{202e}b\u{feff}", "a\\u{202e}b\\u{feff}"),
            ("a\u{a0}b\n\t", "a\\u{a0}b\\u{a}\\u{9}"),
            ("\u{3164}\u{fe0f}\u{e0100}", "\\u{3164}\\u{fe0f}\\u{e0100}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(visible(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(visible(&"x".repeat(100_000)), "x".repeat(80) + "…");
        assert_eq!(list(&["a", "b"]), "a, b");
        assert!(list(&["x"; 5_000]).ends_with("x, and 4988 more"));
    }
}

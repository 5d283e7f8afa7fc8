//! Maps a rendered key to the lock name in metrics.

use crate::state::OTHER;

/// The names of an inspector, with the rules that assign keys to them.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    names: Vec<String>,
    /// The most specific pattern comes first.
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    /// The number of its name.
    name: usize,
    shape: Shape,
    /// The number of its literal bytes. A pattern with more of them is more specific.
    literal: usize,
}

#[derive(Clone, Debug)]
enum Shape {
    Prefix(String),
    Template(Template),
}

#[derive(Clone, Debug)]
struct Template {
    pieces: Vec<Piece>,
    /// The characters that are encoded in values, besides those that are always encoded.
    delimiters: Vec<char>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// One or more characters that are allowed in an encoded value.
    Value,
    /// One or more characters.
    Raw,
}

impl Classes {
    /// Starts with the name for keys that match no pattern.
    pub(super) fn new() -> Self {
        Self { names: vec![OTHER.to_owned()], patterns: Vec::new() }
    }

    /// Counts keys that were rendered from a template under this name.
    pub(super) fn add_template(&mut self, template: &str, name: &str) {
        self.add(name, Shape::Template(Template::new(template)));
    }

    /// Counts keys with this prefix under this name.
    pub(super) fn add_prefix(&mut self, prefix: &str, name: &str) {
        self.add(name, Shape::Prefix(prefix.to_owned()));
    }

    fn add(&mut self, name: &str, shape: Shape) {
        let number = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        let literal = match &shape {
            Shape::Prefix(prefix) => prefix.len(),
            Shape::Template(template) => template.pieces.iter().map(Piece::literal).sum(),
        };
        let at = self.patterns.partition_point(|known| known.literal >= literal);
        self.patterns.insert(at, Pattern { name: number, shape, literal });
    }

    /// Returns every name. The name for unmatched keys comes first.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of a key's name.
    pub(super) fn of(&self, key: &str) -> usize {
        self.patterns.iter().find(|pattern| pattern.shape.fits(key)).map_or(0, |pattern| pattern.name)
    }
}

impl Shape {
    fn fits(&self, key: &str) -> bool {
        match self {
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::Template(template) => template.fits(key) || base(key).is_some_and(|base| template.fits(base)),
        }
    }
}

/// Returns the key without the number of a stripe, or the time of a job's run.
fn base(key: &str) -> Option<&str> {
    let (base, number) = key.rsplit_once('#')?;
    let number = number.strip_prefix('@').unwrap_or(number);
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(base)
}

impl Piece {
    fn literal(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

impl Template {
    /// Uses the delimiters by which `lock_core::KeyBuilder` encodes values.
    fn new(template: &str) -> Self {
        let pieces = pieces(template);
        let mut delimiters = Vec::new();
        let is_value = |at: Option<usize>| at.and_then(|at| pieces.get(at)).is_some_and(|piece| piece.literal() == 0);
        for (at, piece) in pieces.iter().enumerate() {
            let Piece::Text(text) = piece else { continue };
            let (after, before) = (is_value(at.checked_sub(1)), is_value(Some(at + 1)));
            let last = text.chars().count() - 1;
            delimiters.extend(text.chars().enumerate().filter_map(|(i, c)| {
                let touches = i == 0 && after || i == last && before;
                (!c.is_alphanumeric() && (touches || !matches!(c, '-' | '_' | '.'))).then_some(c)
            }));
            // The character that separates two values never appears in them.
            let ends = |c: &char| !matches!(c, '%' | '0'..='9' | 'A'..='F');
            if after && before && !text.chars().any(|c| ends(&c) && delimiters.contains(&c)) {
                delimiters.extend(text.chars().find(ends));
            }
        }
        Self { pieces, delimiters }
    }

    /// Follows every path through the pieces at once, so that no key takes long with any template.
    fn fits(&self, key: &str) -> bool {
        let mut ends = vec![false; key.len() + 1];
        ends[0] = true;
        for piece in &self.pieces {
            let mut next = vec![false; key.len() + 1];
            if let Piece::Text(text) = piece {
                for start in (0..key.len()).filter(|start| ends[*start]) {
                    if key.as_bytes()[start..].starts_with(text.as_bytes()) {
                        next[start + text.len()] = true;
                    }
                }
            } else {
                let mut inside = false;
                for (at, c) in key.char_indices() {
                    inside = (inside || ends[at]) && (*piece == Piece::Raw || self.may_be_in_a_value(c));
                    next[at + c.len_utf8()] = inside;
                }
            }
            ends = next;
        }
        ends[key.len()]
    }

    /// Returns whether an encoded value may contain a character. `%` begins an encoded character.
    fn may_be_in_a_value(&self, c: char) -> bool {
        c == '%' || !(c.is_control() || matches!(c, '{' | '}' | '#') || self.delimiters.contains(&c))
    }
}

/// Parses a template: `<…>` is a value, `<<` and `>>` are brackets.
fn pieces(template: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '<' | '>' if chars.peek() == Some(&c) => {
                chars.next();
                text.push(c);
            }
            '<' => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                let (mut depth, mut inside) = (1, String::new());
                // An expression may itself contain brackets.
                while depth > 0 {
                    let Some(c) = chars.next() else { break };
                    match c {
                        '<' => depth += 1,
                        '>' => depth -= 1,
                        _ => {}
                    }
                    inside.push(c);
                }
                let raw = inside.ends_with(":raw>") && !inside.ends_with("::raw>");
                pieces.push(if raw { Piece::Raw } else { Piece::Value });
            }
            c => text.push(c),
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use lock_core::KeyBuilder;

    use super::{Classes, Piece, pieces};

    #[test]
    fn templates_are_taken_apart_as_the_attribute_does() {
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(pieces("lock:user:<user_id>"), [text("lock:user:"), Piece::Value]);
        assert_eq!(
            pieces("a<<b>>:<x:05>:{<y.get::<u8>()>}"),
            [text("a<b>:"), Piece::Value, text(":{"), Piece::Value, text("}")]
        );
        assert_eq!(pieces("plain"), [text("plain")]);
    }

    #[test]
    fn the_most_specific_name_wins() {
        let mut classes = Classes::new();
        classes.add_prefix("lock:", "rest");
        classes.add_template("lock:user:<id>", "user");
        classes.add_template("lock:<kind>:<id>", "any");
        classes.add_template("lock:user:<id>:mail", "mail");
        classes.add_prefix("legacy:", "rest");
        let name = |key: &str| classes.names()[classes.of(key)].as_str();
        assert_eq!(name("lock:user:42"), "user");
        assert_eq!(name("lock:user:a%3Ab"), "user");
        assert_eq!(name("lock:user:42:mail"), "mail");
        assert_eq!(name("lock:order:42"), "any");
        assert_eq!(name("lock:user:"), "rest");
        assert_eq!(name("lock:user:4 2"), "user");
        assert_eq!(name("lock:user:4{2"), "rest");
        assert_eq!(name("legacy:x"), "rest");
        assert_eq!(name("elsewhere"), "other");
        assert_eq!(classes.names().len(), 5);
    }

    #[test]
    fn every_key_that_a_template_renders_is_its_own() {
        let values = ["42", "ann@example.org", "a b", "a/b", "ünï", "x:y", "7-b", "a{b}", "50%", "a#1", "_", "·", "\n"];
        let render = |template, text: [&str; 3], one, two: Option<&str>| {
            let key = KeyBuilder::new(template).text(text[0]).segment("one", one).text(text[1]);
            two.map_or(key, |two| {
                KeyBuilder::new(template).text(text[0]).segment("one", one).text(text[1]).segment("two", two)
            })
            .text(text[2])
            .finish()
            .unwrap()
        };
        for one in values {
            for (template, text) in [
                ("cart:<one>", ["cart:", "", ""]),
                ("order-<one>", ["order-", "", ""]),
                ("nightly-report:<one>.txt", ["nightly-report:", ".txt", ""]),
                ("{<one>}:x", ["{", "}:x", ""]),
                ("s·<one>", ["s·", "", ""]),
            ] {
                let mut classes = Classes::new();
                classes.add_template(template, "it");
                let key = render(template, text, one, None);
                for key in [key.as_str(), &format!("{key}#7"), &format!("{key}#@1763776800")] {
                    assert_eq!(classes.of(key), 1, "{template} {key}");
                }
            }
            for two in values {
                for (template, text) in [
                    ("a:<one>:<two>", ["a:", ":", ""]),
                    ("<one>x<two>", ["", "x", ""]),
                    ("<one>-<two>!", ["", "-", "!"]),
                ] {
                    let mut classes = Classes::new();
                    classes.add_template(template, "it");
                    let key = render(template, text, one, Some(two));
                    assert_eq!(classes.of(key.as_str()), 1, "{template} {key}");
                }
            }
        }
        let mut classes = Classes::new();
        classes.add_template("cart:<name:raw>", "it");
        assert_eq!((classes.of("cart:x:y"), classes.of("cart:")), (1, 0));
        classes.add_template("{<tenant>}:x", "that");
        assert_eq!((classes.of("{a}b}:x"), classes.of("{a%7D}:x")), (0, 2));
    }

    #[test]
    fn no_template_takes_long() {
        let mut classes = Classes::new();
        classes.add_template(&"<a>".repeat(40), "many");
        let key = "x".repeat(511) + "{";
        assert_eq!(classes.of(&key), 0);
        assert_eq!(classes.of(&"x".repeat(512)), 1);
    }
}

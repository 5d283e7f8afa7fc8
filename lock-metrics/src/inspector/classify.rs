//! Maps a rendered key back to the name that metrics show.

use crate::state::OTHER;

/// The names of an inspector, and the rules that say which keys belong to them.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    names: Vec<String>,
    /// The most specific first.
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    /// The number of its name.
    name: usize,
    shape: Shape,
    /// The number of its literal bytes: the more, the more specific.
    literal: usize,
}

#[derive(Clone, Debug)]
enum Shape {
    Prefix(String),
    Template(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// One or more characters that are allowed in an encoded value.
    Value,
}

impl Classes {
    /// Starts with the name for all keys that match nothing.
    pub(super) fn new() -> Self {
        Self { names: vec![OTHER.to_owned()], patterns: Vec::new() }
    }

    /// Counts keys that were rendered from a template under this name.
    pub(super) fn add_template(&mut self, template: &str, name: &str) {
        self.add(name, Shape::Template(pieces(template)));
    }

    /// Counts keys that begin with this prefix under this name.
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
            Shape::Template(pieces) => pieces.iter().map(Piece::literal).sum(),
        };
        let at = self.patterns.partition_point(|known| known.literal >= literal);
        self.patterns.insert(at, Pattern { name: number, shape, literal });
    }

    /// Returns every name, the one for unmatched keys first.
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
            Self::Template(pieces) => fits(pieces, key.as_bytes()),
        }
    }
}

impl Piece {
    fn literal(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

/// Follows every path through the pieces at once, so that no key takes long, whatever the template.
fn fits(pieces: &[Piece], key: &[u8]) -> bool {
    let mut ends = vec![false; key.len() + 1];
    ends[0] = true;
    for piece in pieces {
        let mut next = vec![false; key.len() + 1];
        match piece {
            Piece::Text(text) => {
                for start in (0..key.len()).filter(|start| ends[*start]) {
                    if key[start..].starts_with(text.as_bytes()) {
                        next[start + text.len()] = true;
                    }
                }
            }
            Piece::Value => {
                let mut inside = false;
                for at in 0..key.len() {
                    inside = (inside || ends[at]) && is_of_value(key[at]);
                    next[at + 1] = inside;
                }
            }
        }
        ends = next;
    }
    ends[key.len()]
}

/// The characters that an encoded value may contain.
fn is_of_value(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'-' | b'%')
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
                pieces.push(Piece::Value);
                let mut depth = 1;
                // An expression may contain brackets itself.
                while depth > 0 {
                    match chars.next() {
                        Some('<') => depth += 1,
                        Some('>') => depth -= 1,
                        Some(_) => {}
                        None => break,
                    }
                }
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
        assert_eq!(name("lock:user:4 2"), "rest");
        assert_eq!(name("legacy:x"), "rest");
        assert_eq!(name("elsewhere"), "other");
        assert_eq!(classes.names().len(), 5);
    }

    #[test]
    fn no_template_takes_long() {
        let mut classes = Classes::new();
        classes.add_template(&"<a>".repeat(40), "many");
        let key = "x".repeat(511) + ":";
        assert_eq!(classes.of(&key), 0);
        assert_eq!(classes.of(&"x".repeat(512)), 1);
    }
}

//! Renders a key from a template, so that different values never give the same key.

use std::fmt::{Display, Write as _};
use std::ops::Range;

use crate::types::error::{LockError, Result};
use crate::types::key::{LockKey, LockLabel};
use crate::types::naming::typos;

/// Renders a key from a template. Its text stays as written. In values, the characters that could change the key's
/// meaning are encoded.
///
/// In a value, these characters are percent-encoded, as the bytes of their UTF-8:
///
/// | character | because a value could otherwise |
/// |---|---|
/// | `%` | imitate an encoded character |
/// | `{` `}` | move the lock to another slot of a cluster |
/// | `#` | imitate a stripe of `Striped`, or a run of `Job` |
/// | control characters | garble logs and terminals |
/// | delimiters of the template's text | imitate another key of the template: `("a:b")` and `("a", "b")` |
///
/// A delimiter is every character of the template's text except letters and digits. `-`, `_` and `.` join words, so
/// they are delimiters only if they stand next to a value. For example, `nightly-report:<day>` leaves `2026-11-22`
/// unchanged, but `report-<day>` does not. Everything else stays as it is: `cart:<email>` locks the same key that other
/// clients would write.
///
/// | template | value | key |
/// |---|---|---|
/// | `cart:<email>` | `ann@example.org` | `cart:ann@example.org` |
/// | `cart:<name>` | `a b`, `a/b`, `ünï` | `cart:a b`, `cart:a/b`, `cart:ünï` |
/// | `cart:<name>` | `x:y` | `cart:x%3Ay` |
/// | `cart:<name:raw>` | `x:y` | `cart:x:y` |
/// | `order-<id>` | `7-b` | `order-7%2Db` |
/// | `{<tenant>}:x` | `a{b}` | `{a%7Bb%7D}:x` |
///
/// ```
/// use lock_core::KeyBuilder;
///
/// let key = KeyBuilder::new("lock:<kind>:<id>")
///     .text("lock:")
///     .segment("kind", "a:b")
///     .text(":")
///     .segment("id", "ann@example.org")
///     .finish()?;
/// assert_eq!(key.as_str(), "lock:a%3Ab:ann@example.org");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Debug)]
pub struct KeyBuilder {
    /// Text and values in their order, not encoded yet.
    plain: String,
    values: Vec<Value>,
    label: LockLabel,
}

/// One value of a key.
#[derive(Debug)]
struct Value {
    /// The name of the value in the template.
    name: &'static str,
    /// Its place in the plain key.
    at: Range<usize>,
    raw: bool,
}

impl KeyBuilder {
    /// Starts a key of the given template, which becomes its metric label.
    #[must_use]
    pub fn new(template: &'static str) -> Self {
        Self {
            plain: String::with_capacity(template.len() + 16),
            values: Vec::new(),
            label: LockLabel::from_static(template),
        }
    }

    /// Appends literal text of the template, unchanged.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.plain.push_str(text);
        self
    }

    /// Appends a value. Characters that could change the key's meaning are encoded.
    ///
    /// `name` is the name of the value in the template. It appears in the error for an empty value.
    #[must_use]
    pub fn segment(self, name: &'static str, value: impl Display) -> Self {
        self.value(name, value, false)
    }

    /// Appends a value unchanged, like `<name:raw>` in a template.
    ///
    /// For values that are themselves part of a key. They can imitate other keys and move the lock to another slot, so
    /// never take them from outside.
    #[must_use]
    pub fn raw(self, name: &'static str, value: impl Display) -> Self {
        self.value(name, value, true)
    }

    fn value(mut self, name: &'static str, value: impl Display, raw: bool) -> Self {
        let start = self.plain.len();
        // Writing to a string cannot fail. If a `Display` reports an error, the text that it wrote so far stays.
        let _ = write!(self.plain, "{value}");
        self.values.push(Value { name, at: start..self.plain.len(), raw });
        self
    }

    /// Encodes the values and checks the key.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey) if a value rendered to an empty text: one lock
    /// per user would silently become one lock for all users. The same error if no text separates two values, or as in
    /// [`LockKey::new`].
    pub fn finish(self) -> Result<LockKey> {
        if let Some(Value { name, .. }) = self.values.iter().find(|value| value.at.is_empty()) {
            return Err(LockError::invalid_key(format!(
                "<{name}> in the key template {:?} is empty, so unrelated callers would share one lock; \
                 refuse the empty value before locking",
                self.label.as_str(),
            )));
        }
        if self.is_misleading() {
            typos::warn_of(&self.plain, self.label.as_str());
        }
        let delimiters = self.delimiters()?;
        let changes = |value: &Value| !value.raw && self.plain[value.at.clone()].contains(|c| delimiters.encodes(c));
        let key = if self.values.iter().any(changes) {
            LockKey::new(self.encode(&delimiters))?
        } else {
            LockKey::new(&self.plain)?
        };
        Ok(key.with_label(self.label))
    }

    /// Returns whether the text of the template, or an end of a value, has a character that people do not see.
    fn is_misleading(&self) -> bool {
        let mut start = 0;
        let hides = |value: &Value| {
            let text = &self.plain[start..value.at.start];
            start = value.at.end;
            text.contains(typos::is_invisible) || typos::has_hidden_end(&self.plain[value.at.clone()])
        };
        self.values.iter().any(hides)
            || self.plain[start..].contains(typos::is_invisible)
            || typos::has_hidden_end(&self.plain)
    }

    /// Collects the characters that values must not contain.
    fn delimiters(&self) -> Result<Delimiters> {
        let mut found = Delimiters::default();
        let ends = self.values.iter().map(|value| value.at.start).chain([self.plain.len()]);
        let mut start = 0;
        for (i, end) in ends.enumerate() {
            let text = &self.plain[start..end];
            found.add_all(text, i > 0, i < self.values.len());
            start = self.values.get(i).map_or(end, |value| value.at.end);
        }
        for pair in self.values.windows(2) {
            let [left, right] = pair else { continue };
            let between = &self.plain[left.at.end..right.at.start];
            if !left.raw && !right.raw && !found.separate(between) {
                return Err(LockError::invalid_key(format!(
                    "nothing separates <{}> from <{}> in the key template {:?}, so (\"1\", \"23\") and (\"12\", \"3\") would \
                     share one lock; put a delimiter such as \":\" between them",
                    left.name,
                    right.name,
                    self.label.as_str(),
                )));
            }
        }
        Ok(found)
    }

    fn encode(&self, delimiters: &Delimiters) -> String {
        let mut key = String::with_capacity(self.plain.len() + 16);
        let mut start = 0;
        for value in &self.values {
            key.push_str(&self.plain[start..value.at.start]);
            start = value.at.end;
            let text = &self.plain[value.at.clone()];
            if value.raw {
                key.push_str(text);
                continue;
            }
            for c in text.chars() {
                if delimiters.encodes(c) {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        // Writing to a string cannot fail.
                        let _ = write!(key, "%{byte:02X}");
                    }
                } else {
                    key.push(c);
                }
            }
        }
        key.push_str(&self.plain[start..]);
        key
    }
}

/// The characters that are encoded in values, besides those that are always encoded.
#[derive(Debug, Default)]
struct Delimiters {
    /// One bit for each ASCII character.
    ascii: u128,
    others: String,
}

impl Delimiters {
    /// Adds the delimiters of a piece of text. The flags say whether a value stands before and after the text.
    fn add_all(&mut self, text: &str, after_value: bool, before_value: bool) {
        let last = text.chars().count().saturating_sub(1);
        for (i, c) in text.chars().enumerate() {
            let touches = (i == 0 && after_value) || (i == last && before_value);
            if !c.is_alphanumeric() && (touches || !matches!(c, '-' | '_' | '.')) {
                self.add(c);
            }
        }
    }

    fn add(&mut self, c: char) {
        if c.is_ascii() {
            self.ascii |= 1 << u32::from(c);
        } else if !self.others.contains(c) {
            self.others.push(c);
        }
    }

    fn encodes(&self, c: char) -> bool {
        if c.is_ascii() {
            self.ascii & (1 << u32::from(c)) != 0 || matches!(c, '%' | '{' | '}' | '#') || c.is_ascii_control()
        } else {
            c.is_control() || self.others.contains(c)
        }
    }

    /// Checks that the text between two values shows where the first value ends. It must have a character that never
    /// appears in an encoded value. An encoding consists of `%` and hexadecimal digits, so these do not count.
    fn separate(&mut self, between: &str) -> bool {
        let ends = |c: &char| !matches!(c, '%' | '0'..='9' | 'A'..='F');
        if between.chars().any(|c| ends(&c) && self.encodes(c)) {
            return true;
        }
        let first = between.chars().find(ends);
        first.map(|c| self.add(c)).is_some()
    }
}

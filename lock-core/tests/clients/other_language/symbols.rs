//! Times and tokens of a vector, which differ from run to run, by names that do not.
//!
//! `<us>` and `<ms>` are the server's time at the call, `<us-3s>` and `<ms+60s>` so long before and after it, and of two equal
//! ones the second is later. `<token 1>`, `<token 2>` are draws, in the order in which they are met. `<history>` is the number of
//! the server's history.

use std::collections::HashMap;

use serde_json::Value;

/// Ages are exact to ten seconds: the machine may stand still for so long.
const STEP: i64 = 10;

/// From names to numbers, at one moment, and back.
pub(crate) struct Symbols {
    /// The server's time, µs.
    now: u64,
    history: u64,
    names: HashMap<String, String>,
    tokens: u64,
    newest: (u64, u64),
    written: u64,
}

impl Symbols {
    pub(crate) fn at(now: u64, history: u64) -> Self {
        let names = HashMap::from([(history.to_string(), "<history>".to_owned())]);
        Self { now, history, names, tokens: 0, newest: (0, 0), written: 0 }
    }

    /// Puts numbers in the place of names.
    pub(crate) fn numbers(&mut self, text: &str) -> String {
        replace_names(text, |name| {
            if name == "history" {
                return self.history.to_string();
            }
            let number = match name.strip_prefix("token ") {
                Some(token) => {
                    let token = token.parse().unwrap();
                    self.tokens = self.tokens.max(token);
                    let drawn = (self.now / 1000 - 1000 + token, 0);
                    self.newest = self.newest.max(drawn);
                    format!("{}-0", drawn.0)
                }
                None => self.instant(name).to_string(),
            };
            self.names.insert(number.clone(), format!("<{name}>"));
            number
        })
    }

    fn instant(&mut self, name: &str) -> u64 {
        let (unit, after) = unit_and_seconds(name);
        if unit == "ms" {
            return (self.now / 1000).checked_add_signed(after * 1000).unwrap();
        }
        self.written += 1;
        self.now.checked_add_signed(after * 1_000_000).unwrap() + self.written
    }

    /// Puts names in the place of numbers.
    pub(crate) fn names(&mut self, text: &str) -> String {
        let (mut named, mut rest) = (String::new(), text);
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let digits = rest[start..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| start + end);
            let mut end = digits;
            if digits - start == 13 && rest[digits..].starts_with('-') {
                let seq = &rest[digits + 1..];
                end = digits + 1 + seq.find(|c: char| !c.is_ascii_digit()).unwrap_or(seq.len());
            }
            named.push_str(&rest[..start]);
            named.push_str(&self.name_of(&rest[start..end]));
            rest = &rest[end..];
        }
        named + rest
    }

    fn name_of(&mut self, number: &str) -> String {
        if let Some(name) = self.names.get(number) {
            return name.clone();
        }
        let name = if let Some((ms, seq)) = number.split_once('-') {
            let drawn = (ms.parse().unwrap(), seq.parse().unwrap());
            assert!(drawn > self.newest, "{number} is no greater than a token before it");
            self.newest = drawn;
            self.tokens += 1;
            format!("<token {}>", self.tokens)
        } else {
            let (unit, per_second) = match number.len() {
                13 => ("ms", 1000),
                16 => ("us", 1_000_000),
                _ => return number.to_owned(),
            };
            let now = i64::try_from(self.now / (1_000_000 / per_second)).unwrap();
            let after = number.parse::<i64>().unwrap() - now;
            instant(unit, after.div_euclid(STEP * i64::try_from(per_second).unwrap()) * STEP)
        };
        self.names.insert(number.to_owned(), name.clone());
        name
    }

    /// Says that a token must be exceeded.
    pub(crate) fn exceed(&mut self, token: (u64, u64)) {
        self.newest = self.newest.max(token);
    }
}

fn replace_names(text: &str, mut number: impl FnMut(&str) -> String) -> String {
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some((before, (name, after))) =
        rest.split_once('<').and_then(|(before, rest)| Some((before, rest.split_once('>')?)))
    {
        replaced.push_str(before);
        replaced.push_str(&number(name));
        rest = after;
    }
    replaced + rest
}

fn unit_and_seconds(name: &str) -> (&str, i64) {
    let (unit, after) = name.split_at(2);
    (unit, if after.is_empty() { 0 } else { after.strip_suffix('s').unwrap().parse().unwrap() })
}

fn instant(unit: &str, seconds: i64) -> String {
    if seconds == 0 { format!("<{unit}>") } else { format!("<{unit}{seconds:+}s>") }
}

/// The same keys a second later.
pub(crate) fn a_second_later(keys: &Value) -> Value {
    match keys {
        Value::String(text) => Value::String(replace_names(text, |name| {
            if name.starts_with("token") || name == "history" {
                return format!("<{name}>");
            }
            let (unit, seconds) = unit_and_seconds(name);
            instant(unit, seconds - 1)
        })),
        Value::Array(parts) => parts.iter().map(a_second_later).collect(),
        Value::Object(parts) => {
            let later = |(name, value): (&String, &Value)| match value.as_i64() {
                Some(left) => (name.clone(), (left - 1000).into()),
                None => (name.clone(), a_second_later(value)),
            };
            Value::Object(parts.iter().map(later).collect())
        }
        other => other.clone(),
    }
}

//! Scripts: text and hash, computed once; and how one is called.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// A piece of a script's text.
pub(crate) type Part = &'static str;

/// A script and the SHA-1 by which the server remembers it.
#[derive(Debug)]
pub struct Script {
    /// The Lua text, sent when the server does not know the hash.
    pub(crate) text: String,
    /// Its SHA-1, in 40 hexadecimal digits.
    sha: String,
}

impl Script {
    /// Puts a script together. Constant text: data reaches a script only as a key or an argument. Lines of comments are for
    /// those who read the files, and are not sent.
    #[must_use]
    pub fn new(parts: &[&[Part]]) -> Self {
        let lines = parts.concat().into_iter().flat_map(str::lines);
        let code = lines.filter(|line| !line.trim_start().starts_with("--")).flat_map(|line| [line, "\n"]);
        let text = with_constants(&code.collect::<String>());
        Self { sha: redis::Script::new(&text).get_hash().to_owned(), text }
    }
}

/// The constants of all scripts, each on a line of its own.
static CONSTANTS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = include_str!("lib/layout.lua").lines();
    lines.filter_map(|line| line.strip_prefix("local ")?.split_once(" = ")).collect()
});

/// Puts constants in the place of their names.
fn with_constants(text: &str) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut whole, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(is_of_name) {
        let length = rest[start..].find(|c| !is_of_name(c)).unwrap_or(rest.len() - start);
        let name = &rest[start..start + length];
        whole.push_str(&rest[..start]);
        whole.push_str(CONSTANTS.get(name).unwrap_or(&name));
        rest = &rest[start + length..];
    }
    whole + rest
}

/// One call of a script: keys, then arguments.
#[derive(Debug)]
pub struct Eval {
    script: &'static Script,
    command: Cmd,
}

impl Eval {
    /// Begins a call with its keys. The arguments are added to the command after them.
    pub fn new<'a>(
        script: &'static Script,
        keys: impl IntoIterator<Item = &'a str, IntoIter: ExactSizeIterator>,
    ) -> Self {
        let keys = keys.into_iter();
        Self::of(script, keys.len()).with(|command| {
            for key in keys {
                command.arg(key);
            }
        })
    }

    /// Begins a call with so many keys, which are added to the command next.
    pub(crate) fn of(script: &'static Script, keys: usize) -> Self {
        // Enough words and bytes for most calls, so that the command need not grow.
        let mut command = Cmd::with_capacity(8 + 4 * keys, 192 + 96 * keys);
        command.arg("EVALSHA").arg(&script.sha).arg(keys);
        Self { script, command }
    }

    /// Adds a word.
    #[must_use]
    pub fn arg(mut self, word: impl ToRedisArgs) -> Self {
        self.command.arg(word);
        self
    }

    /// Adds words.
    pub(crate) fn with(mut self, add: impl FnOnce(&mut Cmd)) -> Self {
        add(&mut self.command);
        self
    }

    /// Its keys, and then its arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().skip(3).filter_map(|word| if let Arg::Simple(word) = word { Some(word) } else { None })
    }

    /// The call by hash.
    pub(crate) fn by_hash(&self) -> &Cmd {
        &self.command
    }

    /// The same call with the text, for a server that does not know the hash.
    ///
    /// The text goes along with the call, instead of being loaded first, so that nothing can flush
    /// it in between and no permission for SCRIPT LOAD is needed.
    pub(crate) fn by_text(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(&self.script.text);
        for word in self.command.args_iter().skip(2) {
            if let Arg::Simple(word) = word {
                command.arg(word);
            }
        }
        command
    }
}

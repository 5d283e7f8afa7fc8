//! The table of scripts: text and hash, computed once.

use std::borrow::Cow;
use std::sync::LazyLock;

/// A script and the SHA-1 by which the server remembers it.
#[derive(Debug)]
pub(super) struct Script {
    /// The Lua text, sent when the server does not know the hash.
    pub(super) text: Cow<'static, str>,
    /// 40 hexadecimal digits.
    pub(super) sha: String,
}

impl Script {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha }
    }
}

/// Every script of the store.
#[derive(Debug)]
pub(super) struct Scripts {
    /// Takes, frees and passes on locks.
    pub(super) calls: Script,
    /// Takes several locks or none.
    pub(super) acquire_all: Script,
    pub(super) renew: Script,
    pub(super) holder: Script,
    /// Deletes a lock of another library.
    pub(super) release_foreign: Script,
}

/// Constant text: data reaches a script only as a key or an argument.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    calls: Script::new(concat!(
        // Made only if it is needed.
        "local function library()\n",
        include_str!("lua/queue.lua"),
        include_str!("lua/acquire.lua"),
        include_str!("lua/requeue.lua"),
        include_str!("lua/release.lua"),
        "return turn_to, STEPS\nend\n",
        include_str!("lua/calls.lua"),
    )),
    acquire_all: Script::new(concat!(include_str!("lua/queue.lua"), include_str!("lua/acquire_all.lua"))),
    renew: Script::new(include_str!("lua/renew.lua")),
    holder: Script::new(include_str!("lua/holder.lua")),
    release_foreign: Script::new(include_str!("lua/release_foreign.lua")),
});

#[cfg(test)]
mod tests {
    use super::SCRIPTS;

    #[test]
    fn no_script_is_refused_for_want_of_memory() {
        for script in [&SCRIPTS.calls, &SCRIPTS.acquire_all, &SCRIPTS.renew, &SCRIPTS.holder] {
            assert_eq!(script.sha.len(), 40);
            // With a shebang the server would refuse the whole script when memory is full.
            assert!(!script.text.starts_with("#!"));
        }
    }
}

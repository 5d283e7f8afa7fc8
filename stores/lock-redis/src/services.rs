//! Services that speak the protocol of Redis: the texts by which they refuse what this library needs, and what to set there.

/// The advice for a service that reads scripts before it runs them, as a Tair cluster does.
const CHECKED: &str = "this service checks the text of scripts, and refuses those of this library, which pass keys in variables; \
                       set its parameter script_check_enable to 0";

const UNDECLARED: &str = "this service lets a script use only the keys that it declares; start Dragonfly with \
                          --default_lua_flags=allow-undeclared-keys";

/// The text of scripts over several slots, in the words of a Tair cluster.
pub(crate) const CROSSES: &str = "eval/evalsha command keys must";

/// A part of each refusal, and the advice. Each of them comes before the script runs, or before the command in it.
const REFUSALS: [(&str, &str); 6] = [
    ("bad lua script", CHECKED),
    ("must be a single literal string", CHECKED),
    ("eval not support", CHECKED),
    (ZERO_KEYS, CHECKED),
    (
        CROSSES,
        "the keys lie in different slots of a cluster; write redis+cluster:// in the URL, and if the service is Tair, set its \
         parameter script_check_enable to 0",
    ),
    ("undeclared key", UNDECLARED),
];

/// The refusal of a script without keys, which is not one of other scripts.
const ZERO_KEYS: &str = "number of keys can't be negative or zero";

/// Returns what to set on the service whose refusal this is.
pub(crate) fn advice(refusal: &str) -> Option<&'static str> {
    REFUSALS.iter().find(|(part, _)| refusal.contains(part)).map(|(_, advice)| *advice)
}

/// Returns whether a service refuses every script of this library, by its answer to one of them. If that one has no keys, a service
/// that checks texts may refuse it for that reason.
pub(crate) fn refuses_scripts(refusal: &str, has_keys: bool) -> bool {
    let is_certain = advice(refusal).is_some_and(|advice| has_keys || advice != CHECKED);
    is_certain && !refusal.contains(CROSSES) && !refusal.contains(ZERO_KEYS)
}

/// Returns what is missing, if a refusal says that a command is unknown. From Redis 6.2 on nothing of it is.
pub(crate) fn missing(refusal: &str) -> Option<&'static str> {
    let text = refusal.to_ascii_lowercase();
    if !(text.contains("unknown command")
        || text.contains("unknown subcommand")
        || text.contains("unknown redis command"))
    {
        return None;
    }
    let name = text.split(['\'', '`']).nth(1).unwrap_or_default();
    Some(match name {
        "eval" | "evalsha" | "script" => {
            "this service has no scripts (EVAL), or they are disabled; take one that has them, such as Tair in memory"
        }
        "" => "a command of locks is missing, such as streams (XADD) or scripts (EVAL); `lockctl doctor` names it",
        name if name.starts_with('x') => {
            "this service has no streams (XADD), which fencing tokens need; take one that has them, such as Tair in memory"
        }
        _ => "it does not know a command of locks; use Redis 6.2 or later, or have the command enabled",
    })
}

//! Services that speak the protocol of Redis, as their documentation describes them. None of these profiles was run on the
//! service.

use crate::servers::relative::resp::slot;

/// A service that [`FaultProxy::start_as`](crate::FaultProxy::start_as) imitates in front of a real server: it refuses the
/// commands that the documentation of the service refuses. Only the service itself can prove that a profile is right.
///
/// ```no_run
/// use lock_testing::{FaultProxy, RedisRelative, RedisServer};
///
/// let server = RedisServer::start();
/// let tair = FaultProxy::start_as(RedisRelative::TairCluster, server.port());
/// println!("{}", tair.url());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisRelative {
    /// Tair (DRAM), cluster architecture through its proxy, with the script check that is on by default.
    TairCluster,
    /// The same with `script_check_enable` set to 0.
    TairClusterUnchecked,
    /// Tair on disk (ESSD, SSD): no streams.
    TairDisk,
    /// Dragonfly: a script may use only the keys that it declares.
    Dragonfly,
    /// Garnet: no streams, no tracking, no `WAIT`, no sharded channels.
    Garnet,
    /// ElastiCache Serverless: no `CONFIG`, no `WAIT`; `PUBLISH` reaches only those who subscribed to the shard's channel.
    ElastiCacheServerless,
    /// MemoryDB: no `CONFIG` and no commands of operators.
    MemoryDb,
    /// KeyDB with `active-replica yes`: each of two masters grants locks of its own.
    KeyDbActive,
}

/// The fate of a request.
pub(super) enum Verdict {
    Passed,
    /// The error that the client receives.
    Refused(String),
    /// The reply that the client receives.
    Answered(&'static str),
    /// The command that the server executes instead.
    Renamed(&'static str),
    /// The server's reply, with changes.
    Edited(fn(&str) -> String),
}

impl RedisRelative {
    /// All of them, for tests of each.
    pub const ALL: [Self; 8] = [
        Self::TairCluster,
        Self::TairClusterUnchecked,
        Self::TairDisk,
        Self::Dragonfly,
        Self::Garnet,
        Self::ElastiCacheServerless,
        Self::MemoryDb,
        Self::KeyDbActive,
    ];

    /// Returns whether the keys of a transaction must lie in one slot.
    pub(super) fn keeps_to_a_slot(self) -> bool {
        matches!(self, Self::TairCluster | Self::TairClusterUnchecked | Self::ElastiCacheServerless)
    }

    pub(super) fn judge(self, name: &str, words: &[Vec<u8>]) -> Verdict {
        let word = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        let second = word(1).unwrap_or_default();
        let unknown = || Verdict::Refused(format!("ERR unknown command '{name}', with args beginning with: "));
        let part = || Verdict::Refused(format!("ERR unknown subcommand '{second}'. Try {name} HELP."));
        let is_script = matches!(name, "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "SCRIPT");
        let is_stream = name.starts_with('X') && name.len() > 3;
        let of_operators = || {
            matches!(name, "DEBUG" | "MODULE" | "REPLICAOF" | "SLAVEOF" | "SAVE" | "BGSAVE" | "SHUTDOWN" | "MIGRATE")
                .then(unknown)
        };
        match self {
            Self::TairCluster | Self::TairClusterUnchecked => match (name, second.as_str()) {
                ("CLIENT", "ID" | "INFO" | "TRACKING" | "CACHING" | "KILL") => part(),
                ("WAIT", _) => unknown(),
                ("CONFIG", "SET") => Verdict::Answered("+OK\r\n"),
                _ if is_script => self.of_tair(name, words).map_or(Verdict::Passed, Verdict::Refused),
                _ => Verdict::Passed,
            },
            Self::TairDisk => match name {
                _ if is_stream || is_script => unknown(),
                "OBJECT" | "SORT" => unknown(),
                _ => Verdict::Passed,
            },
            Self::Dragonfly => match (name, second.as_str()) {
                ("EVAL" | "EVALSHA", _) => match undeclared(words) {
                    true => Verdict::Refused("ERR script tried accessing undeclared key".to_owned()),
                    false => Verdict::Passed,
                },
                ("INFO", _) => Verdict::Edited(|text| format!("dragonfly_version:df-v1.30.0\r\n{text}")),
                ("CLIENT", "TRACKING") if words.len() > 3 && word(3).as_deref() != Some("NOLOOP") => part(),
                _ => Verdict::Passed,
            },
            // Garnet does not name the command.
            Self::Garnet if is_stream || matches!(name, "WAIT" | "SPUBLISH" | "SSUBSCRIBE") => {
                Verdict::Refused("ERR unknown command".to_owned())
            }
            Self::Garnet if name == "CLIENT" && matches!(second.as_str(), "TRACKING" | "CACHING") => part(),
            Self::ElastiCacheServerless => match name {
                "WAIT" | "WAITAOF" | "CONFIG" => unknown(),
                "PUBLISH" => Verdict::Renamed("SPUBLISH"),
                _ => of_operators().unwrap_or(Verdict::Passed),
            },
            Self::MemoryDb => match (name, second.as_str()) {
                ("CONFIG", _) | ("ACL", "SETUSER" | "LOAD" | "SAVE") => unknown(),
                _ => of_operators().unwrap_or(Verdict::Passed),
            },
            Self::KeyDbActive => match (name, second.as_str()) {
                ("INFO", _) => Verdict::Edited(|text| text.replace("role:master\r\n", "role:active-replica\r\n")),
                _ => Verdict::Passed,
            },
            Self::Garnet => Verdict::Passed,
        }
    }

    /// The rules of a Tair cluster for scripts: at least one key, keys of one slot, and if they are checked, keys that are
    /// written as `KEYS[i]`.
    fn of_tair(self, name: &str, words: &[Vec<u8>]) -> Option<String> {
        let text = words.get(if name == "SCRIPT" { 2 } else { 1 }).map(|text| String::from_utf8_lossy(text))?;
        if name != "SCRIPT" {
            let keys = keys(words);
            if keys.is_empty() {
                let why = "ERR for redis cluster, eval/evalsha number of keys can't be negative or zero";
                return Some(why.to_owned());
            }
            if keys.iter().any(|key| slot(key) != slot(keys[0])) {
                return Some("ERR eval/evalsha command keys must be in same slot".to_owned());
            }
        }
        let is_text = name == "EVAL" || name == "SCRIPT" && words.len() == 3;
        if self == Self::TairClusterUnchecked || !is_text { None } else { check(&text) }
    }
}

/// The keys that a script declares.
fn keys(words: &[Vec<u8>]) -> Vec<&[u8]> {
    let count = words.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0);
    words.iter().skip(3).take(count).map(Vec::as_slice).collect()
}

/// Says what the script check of Tair finds in the text of a script.
fn check(text: &str) -> Option<String> {
    let keys = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array, \
                and KEYS should not be in expression";
    let literal = "ERR bad lua script for redis cluster, first parameter of redis.call/redis.pcall must be a single literal string";
    if ["unpack(", "PUBLISH", "PUBSUB"].iter().any(|word| text.contains(word)) {
        return Some(keys.to_owned());
    }
    let calls = text
        .split("redis.")
        .skip(1)
        .filter_map(|rest| rest.strip_prefix("call").or_else(|| rest.strip_prefix("pcall")).map(str::trim_start));
    for call in calls {
        // Another name for the function hides what it is called with.
        let Some(arguments) = call.strip_prefix('(').map(str::trim_start) else { return Some(keys.to_owned()) };
        let Some(command) = arguments.strip_prefix(['\'', '"']) else { return Some(literal.to_owned()) };
        let after = command.split_once(['\'', '"']).map_or("", |(_, after)| after).trim_start();
        let key = after.strip_prefix(',').map(str::trim_start);
        if key
            .is_some_and(|key| !key.starts_with("KEYS[") || !key[5..].starts_with(|first: char| first.is_ascii_digit()))
        {
            return Some(keys.to_owned());
        }
    }
    None
}

/// Returns whether a script of this library uses keys that it does not declare: a name that it makes of another, and one that
/// comes as an argument.
fn undeclared(words: &[Vec<u8>]) -> bool {
    let declared = keys(words);
    let arguments = words.iter().skip(3 + declared.len());
    let is_below = |word: &Vec<u8>, key: &[u8]| word.len() > key.len() && word.starts_with(key);
    let names_a_key =
        |word: &Vec<u8>| is_below(word, b"distributed-lock:clock") || declared.iter().any(|key| is_below(word, key));
    arguments.into_iter().any(names_a_key)
}

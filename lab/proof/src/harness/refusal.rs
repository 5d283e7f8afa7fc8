//! A server that answers, but refuses every change for longer than a lease lasts.

use std::fs;

use fastrand::Rng;
use lock_testing::{RedisServer, Reply};

use crate::harness::servers::{eventually, ok, without_snapshot};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// Too few replicas are connected.
    NoReplicas,
    /// The server could not save its data.
    NotSaved,
    Full,
    /// The server follows another one, which does not exist.
    Demoted,
    /// The user lacks the permission.
    Denied(&'static str),
}

/// The permissions that may be taken away.
const DENIED: [&str; 18] = [
    "-multi",
    "-xadd",
    "-evalsha",
    "-@scripting",
    "-publish",
    "-subscribe",
    "-mget",
    "-client|tracking",
    "-set",
    "-pexpire",
    "-zrem",
    "-zadd",
    "-zrange",
    "-hset",
    "-hdel",
    "-hget",
    "-del",
    "-get",
];

impl Refusal {
    pub(crate) fn any(random: &mut Rng, may_be_demoted: bool) -> Self {
        match random.u8(0..if may_be_demoted { 8 } else { 7 }) {
            0 => Self::NoReplicas,
            1 => Self::NotSaved,
            2 => Self::Full,
            3..7 => Self::Denied(DENIED[random.usize(..DENIED.len())]),
            _ => Self::Demoted,
        }
    }

    pub(crate) fn begin(self, server: &RedisServer) {
        match self {
            Self::NoReplicas => ok(server, &["CONFIG", "SET", "min-replicas-to-write", "9"]),
            Self::NotSaved => {
                without_snapshot(server);
                // Redis cannot rename its snapshot over a directory, so the save fails.
                fs::create_dir_all(server.directory().join("dump.rdb/in-the-way")).unwrap();
                ok(server, &["CONFIG", "SET", "save", "3600 1000000000"]);
                let failed = || {
                    server.command(&["BGSAVE"]);
                    server.command(&["INFO", "persistence"]).text().contains("rdb_last_bgsave_status:err")
                };
                eventually("a save fails", failed);
            }
            Self::Full => ok(server, &["CONFIG", "SET", "maxmemory", "1"]),
            Self::Demoted => ok(server, &["REPLICAOF", "127.0.0.1", "1"]),
            Self::Denied(what) => ok(server, &["ACL", "SETUSER", "default", what]),
        }
    }

    pub(crate) fn end(self, server: &RedisServer) {
        match self {
            Self::NoReplicas => ok(server, &["CONFIG", "SET", "min-replicas-to-write", "0"]),
            Self::NotSaved => {
                ok(server, &["CONFIG", "SET", "save", ""]);
                fs::remove_dir_all(server.directory().join("dump.rdb")).unwrap();
            }
            Self::Full => ok(server, &["CONFIG", "SET", "maxmemory", "0"]),
            Self::Demoted => ok(server, &["REPLICAOF", "NO", "ONE"]),
            Self::Denied(_) => ok(server, &["ACL", "SETUSER", "default", "+@all"]),
        }
    }
}

/// Checks that the refusing server still answers other clients: a script of this library must not run on and on there.
pub(crate) fn assert_answers(server: &RedisServer, meanwhile: &str) {
    // TIME and not PING: a server that could not save its data refuses PING.
    let time = server.command(&["TIME"]);
    assert!(matches!(time, Reply::List(_)), "{meanwhile}: the whole server hangs in a script: {time:?}");
}

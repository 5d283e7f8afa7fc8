//! Locks of other libraries: how their adapters are started, and which are not installed here.

use std::path::{Path, PathBuf};

/// The lock of Curator, for Java and ZooKeeper.
pub(crate) const CURATOR: &str = "Curator InterProcessMutex";

/// A lock of another library.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// Where its locks are: `one` Redis, `postgres`, PostgreSQL behind a pooler (`pooled`), or `zookeeper`.
    pub(crate) store: &'static str,
    /// The command with its words separated by tabs, or the reason why it cannot run here.
    pub(crate) command: Result<String, String>,
}

/// Returns a path below the folder of the repository.
pub(crate) fn below(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// An adapter that needs installed files.
fn needs(name: &str, store: &'static str, installed: &[&Path], script: &str, command: &[&str]) -> Peer {
    let is_there = installed.iter().all(|path| path.exists());
    let command = if is_there { Ok(command.join("\t")) } else { Err(format!("run sh scripts/{script}")) };
    Peer { name: name.to_owned(), store, command }
}

/// All libraries whose adapters are programs in `lab/proof/peers`.
pub(crate) fn all() -> Vec<Peer> {
    let clients = |name: &str, file: &str| {
        let (python, file) = (below("target/foreign-clients/bin/python"), below("lab/proof/peers").join(file));
        needs(name, "one", &[&python], "need-foreign-clients.sh", &[&text(&python), "-B", &text(&file)])
    };
    let (modules, node) = (below("target/foreign-clients/node_modules"), below("lab/proof/peers/node_redlock.js"));
    let modules_path = format!("NODE_PATH={}", text(&modules));
    let node = ["env", &modules_path, "node", &text(&node)];
    let built = |name: &str, store: &'static str, file: &str, word: &[&str]| {
        let file = below("target/peers").join(file);
        needs(name, store, &[&file], "need-peers.sh", &[&[&*text(&file)], word].concat())
    };
    let (jars, classes) = (below("target/peers/java/lib"), below("target/peers/java/classes"));
    let class_path = format!("{}:{}/*", text(&classes), text(&jars));
    let redisson = |kind: &str| {
        let command = ["java", "-cp", &class_path, "RedissonPeer", kind];
        needs(&format!("Redisson {kind}"), "one", &[&jars, &classes], "need-peers.sh", &command)
    };
    let (jars, classes) = (below("target/peers/curator/lib"), below("target/peers/curator/classes"));
    let curator = ["java", "-cp", &format!("{}:{}/*", text(&classes), text(&jars)), "CuratorPeer"];
    let curator = needs(CURATOR, "zookeeper", &[&jars, &classes], "need-peers.sh", &curator);
    vec![
        clients("SET NX, bare DEL", "set_nx.py"),
        clients("SET NX PX, owned DEL", "set_nx_px.py"),
        clients("redis-py Lock", "redis_py.py"),
        needs("node-redlock", "one", &[&modules.join("redlock")], "need-foreign-clients.sh", &node),
        built("redsync", "one", "redsync", &[]),
        built("redislock", "one", "redislock", &[]),
        built("rueidislock", "one", "rueidislock", &[]),
        redisson("RLock"),
        redisson("RFairLock"),
        redisson("RFencedLock"),
        built("advisory lock of a session, pooled", "pooled", "advisory", &["session"]),
        built("advisory lock of a transaction, pooled", "pooled", "advisory", &["transaction"]),
        built("pg_lease", "postgres", "pg_lease", &[]),
        curator,
    ]
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

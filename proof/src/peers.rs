//! Other people's locks: how their adapters are started, and which of them are missing here.

use std::path::{Path, PathBuf};

/// A lock of others.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// Its words, separated by tabs, or what is missing.
    pub(crate) command: Result<String, String>,
}

fn below(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn words(words: &[&Path]) -> String {
    words.iter().map(|word| word.display().to_string()).collect::<Vec<_>>().join("\t")
}

/// An adapter that something must be installed for.
fn needs(name: &str, installed: &Path, script: &str, command: &[&Path]) -> Peer {
    let command = if installed.exists() { Ok(words(command)) } else { Err(format!("run sh scripts/{script}")) };
    Peer { name: name.to_owned(), command }
}

/// All whose adapters are in `peers/`.
pub(crate) fn all() -> Vec<Peer> {
    let clients = "need-foreign-clients.sh";
    let (python, modules) =
        (below("../target/foreign-clients/bin/python"), below("../target/foreign-clients/node_modules"));
    let python_peer = |name, file: &str| {
        let file = below("peers").join(file);
        needs(name, &python, clients, &[&python, Path::new("-B"), &file])
    };
    let this = std::env::current_exe().unwrap_or_default();
    let node_path = format!("NODE_PATH={}", modules.display());
    let node = [Path::new("env"), Path::new(&node_path), Path::new("node"), &below("peers/node_redlock.js")];
    let mut peers = vec![
        python_peer("SET NX, bare DEL", "set_nx.py"),
        python_peer("SET NX PX, owned DEL", "set_nx_px.py"),
        python_peer("redis-py Lock", "redis_py.py"),
        Peer { name: "rslock".to_owned(), command: Ok(words(&[&this, Path::new("peer"), Path::new("rslock")])) },
        needs("node-redlock", &modules.join("redlock"), clients, &node),
    ];
    for name in ["redsync", "redislock"] {
        let built = below("../target/peers").join(name);
        peers.push(needs(name, &built, "need-peers.sh", &[&built]));
    }
    peers
}

/// Another, as `NAME=COMMAND WORDS` on the command line.
pub(crate) fn named(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, command)) if !command.trim().is_empty() => {
            let command = command.split_whitespace().collect::<Vec<_>>().join("\t");
            Ok(Peer { name: name.to_owned(), command: Ok(command) })
        }
        _ => Err(format!("--peer {text:?} is not NAME=COMMAND")),
    }
}

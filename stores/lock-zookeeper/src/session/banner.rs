//! The versions that the servers tell. This module refuses those on which locks are not safe.

use std::time::Duration;

use lock_store::types::system::together::all;
use lock_store::{LockError, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::session::within;

/// How long a server may take to say its version.
const PATIENCE: Duration = Duration::from_millis(500);

/// The oldest version. It reads many nodes in one request.
const OLDEST: (u32, u32) = (3, 6);

/// Refuses servers that are not ZooKeeper, or too old. A server that says nothing may be down, or forbid this question.
pub(crate) async fn check(hosts: &str) -> Result<()> {
    let answers = all(hosts.split(',').map(version)).await;
    for (host, answer) in hosts.split(',').zip(answers) {
        let Some(answer) = answer else { continue };
        if answer.contains("ClickHouse") {
            return Err(LockError::misconfigured(format!(
                "{host} is ClickHouse Keeper, whose followers answer for a leader that may have ended the session, so two processes could \
                 hold one lock; use Apache ZooKeeper"
            )));
        }
        if let Some(found) = read(&answer)
            && found < OLDEST
        {
            let (major, minor) = found;
            return Err(LockError::misconfigured(format!(
                "{host} is ZooKeeper {major}.{minor}; use Apache ZooKeeper {}.{} or later",
                OLDEST.0, OLDEST.1
            )));
        }
    }
    Ok(())
}

/// Asks a server for its version, which is the first line of the answer to `srvr`.
pub(crate) async fn version(host: &str) -> Option<String> {
    let ask = async {
        let mut stream = TcpStream::connect(host).await.ok()?;
        stream.write_all(b"srvr").await.ok()?;
        let mut answer = Vec::new();
        // The server closes the connection after its answer.
        stream.take(4096).read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.contains("version").then_some(answer)
    };
    within(PATIENCE, ask).await.flatten()
}

/// Returns the number in `Zookeeper version: 3.9.5-…`.
pub(crate) fn number(answer: &str) -> Option<&str> {
    let (_, version) = answer.lines().next()?.split_once("version: ")?;
    version.split(['-', ',']).next()
}

fn read(answer: &str) -> Option<(u32, u32)> {
    let mut numbers = number(answer)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn versions_are_read() {
        for (text, version) in [
            ("Zookeeper version: 3.9.5-a3b57bb, built on 2026-01-02\nLatency", Some((3, 9))),
            ("Zookeeper version: 3.5.10--1, built", Some((3, 5))),
            ("srvr is not executed because it is not in the whitelist.", None),
            ("ClickHouse Keeper version: v24.3.1", None),
        ] {
            assert_eq!(read(text), version, "{text}");
        }
    }
}

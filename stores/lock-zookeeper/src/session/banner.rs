//! The versions that the servers tell. This module refuses those on which locks are not safe.

use std::time::Duration;

use lock_store::types::system::together::all;
use lock_store::{LockError, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::session::tls::{self, Tls};
use crate::session::within;
use crate::url::Settings;

/// How long a server may take to say its version, and three times as long with TLS.
const PATIENCE: Duration = Duration::from_millis(500);

/// The oldest version. It reads many nodes in one request.
const OLDEST: (u32, u32) = (3, 6);

/// Refuses servers that are not ZooKeeper, or too old. A server that says nothing may be down, or forbid this question. One server that
/// proves its name is enough for TLS: the client passes over the others.
pub(crate) async fn check(hosts: &str, tls: Option<&Tls>) -> Result<()> {
    let answers = all(hosts.split(',').map(|host| ask(host, tls))).await;
    if !answers.iter().any(|answer| matches!(answer, Ok(Some(_))))
        && let Some(refused) = answers.iter().find_map(|answer| answer.as_ref().err())
    {
        return Err(refused.clone());
    }
    for (host, answer) in hosts.split(',').zip(answers) {
        let Ok(Some(answer)) = answer else { continue };
        if answer.contains("ClickHouse") {
            return Err(LockError::misconfigured(format!(
                "{host} is ClickHouse Keeper, whose followers answer for a leader that may have ended the session, so two processes could \
                 hold one lock; use Apache ZooKeeper"
            )));
        }
        if let Some((major, minor)) = read(&answer).filter(|found| *found < OLDEST) {
            let text = format!("{host} is ZooKeeper {major}.{minor}; use Apache ZooKeeper 3.6 or later");
            return Err(LockError::misconfigured(text));
        }
    }
    Ok(())
}

/// Asks each server for its version. Returns nothing if the certificates cannot be read.
pub(crate) async fn versions(settings: &Settings) -> Vec<Option<String>> {
    let Ok(tls) = tls::read(settings).await else { return Vec::new() };
    let answers = all(settings.hosts.split(',').map(|host| ask(host, tls.as_ref()))).await;
    answers.into_iter().map(|answer| answer.ok().flatten().filter(|answer| answer.contains("version"))).collect()
}

/// Asks a server for its version, which begins the answer to `srvr`. `None` if it does not answer. An error says why TLS fails.
async fn ask(host: &str, tls: Option<&Tls>) -> Result<Option<String>> {
    let ask = async {
        let Ok(stream) = TcpStream::connect(host).await else { return Ok(None) };
        match tls {
            #[cfg(feature = "tls")]
            Some(tls) => {
                let asked = async { read_from(tls.connector.connect(tls::name(host)?, stream).await?).await };
                asked.await.map(Some).map_err(|error| tls::refused(host, error))
            }
            _ => Ok(read_from(stream).await.ok()),
        }
    };
    within(if tls.is_some() { 3 * PATIENCE } else { PATIENCE }, ask).await.unwrap_or(Ok(None))
}

async fn read_from(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<String> {
    stream.write_all(b"srvr").await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    // The server closes the connection after its answer, and does not say so before.
    match stream.take(4096).read_to_end(&mut answer).await {
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
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

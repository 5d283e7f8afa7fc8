//! Three Redis servers for one sale, started on loopback and stopped at its end.

use std::future::pending;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::progress::Progress;

const MEMBERS: usize = 3;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The members of a quorum.
#[derive(Debug)]
pub(crate) struct Quorum {
    members: Vec<Member>,
    /// Removed after the servers have ended.
    _folder: TempDir,
}

#[derive(Debug)]
struct Member {
    port: u16,
    folder: PathBuf,
    /// Killed on drop.
    process: Child,
}

impl Quorum {
    /// Starts the servers, and begins a quorum of them.
    pub(crate) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("flash-sale-quorum-").tempdir()?;
        let mut members = Vec::new();
        for _ in 0..MEMBERS {
            // The port is free now. Another process could take it before the server does, but that is unlikely.
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            members.push(Member::start(port, folder.path().to_owned()).await?);
        }
        let quorum = Self { members, _folder: folder };
        // The servers are new, so none has granted a lock.
        lock_core::Quorum::new(&quorum.url())?.init().await?;
        Ok(quorum)
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("redlock://{}", hosts.join(","))
    }

    /// Kills a member after a third of the orders, and restarts it, empty, after another third. Then never ends.
    pub(crate) async fn lose_a_member(&mut self, orders: usize, progress: &Progress) -> Result<()> {
        let Some(member) = self.members.first_mut() else { bail!("the quorum has no members") };
        let answered = async |share: usize| {
            while progress.get() < share * orders / 3 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        answered(1).await;
        member.process.kill().await.context("cannot kill a member")?;
        eprintln!("\nmember 127.0.0.1:{} is killed, with its data", member.port);
        answered(2).await;
        *member = Member::start(member.port, member.folder.clone()).await?;
        eprintln!("\nmember 127.0.0.1:{} is back, empty: it does not count, in case it gave a lock away", member.port);
        pending().await
    }
}

impl Member {
    async fn start(port: u16, folder: PathBuf) -> Result<Self> {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let process = command.spawn().context("cannot start redis-server; install it, or name servers with --redis")?;
        let answers = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answers).await.context("redis-server does not start")?;
        Ok(Self { port, folder, process })
    }
}

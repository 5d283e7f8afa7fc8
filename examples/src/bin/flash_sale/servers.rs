//! Servers of its own for one sale, on loopback. They are stopped at its end.

use std::future::pending;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer};
use tokio::time::sleep;

use crate::args::Started;
use crate::progress::Progress;

/// How long a server may be silent until the others count it as dead, in milliseconds.
const SILENCE: u32 = 1_000;

pub(crate) enum Servers {
    Sentinel(RedisSentinels),
    Cluster { masters: RedisCluster, _replicas: Vec<RedisServer> },
    Quorum(Vec<RedisServer>),
}

impl Servers {
    pub(crate) async fn start(kind: Started) -> Result<Self> {
        let mut version = Command::new("redis-server");
        let found = version.arg("--version").stdout(Stdio::null()).status();
        found.context("cannot start redis-server; install it, or name a server with --redis")?;
        // Servers start one after the other, which takes seconds.
        let servers = tokio::task::spawn_blocking(move || Self::started(kind)).await?;
        let url = servers.url();
        if let Self::Quorum(_) = servers {
            // The servers are new, so none has granted a lock.
            lock_core::Quorum::new(&url)?.init().await?;
        }
        eprintln!("ready: LOCK_URL={url}");
        Ok(servers)
    }

    fn started(kind: Started) -> Self {
        match kind {
            Started::Sentinel => {
                eprintln!("starting a master, two replicas and three sentinels, which takes some seconds");
                let servers = RedisSentinels::builder().with_replicas(2).start();
                servers.notice_within(SILENCE);
                Self::Sentinel(servers)
            }
            Started::Cluster => {
                eprintln!("starting three masters and three replicas, which takes some seconds");
                let masters = RedisCluster::start(3);
                let replicas: Vec<_> = (0..3).map(|master| masters.start_replica_of(master)).collect();
                for server in masters.masters().iter().chain(&replicas) {
                    server.command(&["CONFIG", "SET", "cluster-node-timeout", &SILENCE.to_string()]);
                }
                Self::Cluster { masters, _replicas: replicas }
            }
            Started::Quorum => {
                eprintln!("starting three servers");
                Self::Quorum(std::iter::repeat_with(RedisServer::start).take(3).collect())
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            // Every replica confirms each lock, so a failover loses none.
            Self::Sentinel(servers) => format!("{}?acks=all", servers.url()),
            Self::Cluster { masters, .. } => masters.url(),
            Self::Quorum(members) => {
                let hosts: Vec<_> = members.iter().map(|member| format!("127.0.0.1:{}", member.port())).collect();
                format!("redlock://{}", hosts.join(","))
            }
        }
    }

    /// Kills the first server after a third of the orders. A member of a quorum comes back, empty, after another third.
    /// Then never ends.
    pub(crate) async fn lose_one(&mut self, orders: usize, progress: &Progress) {
        let answered = async |share: usize| {
            while progress.get() < share * orders / 3 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        answered(1).await;
        match self {
            Self::Sentinel(servers) => servers.kill(0),
            Self::Cluster { masters, .. } => masters.kill(0),
            Self::Quorum(members) => members[0].kill(),
        }
        eprintln!("\na server was killed, with its data");
        if let Self::Quorum(members) = self {
            answered(2).await;
            members[0].restart();
            eprintln!("\nthe server is back, empty: it does not count, in case it gave a lock away");
        }
        pending::<()>().await;
    }
}

//! A process that starts servers and stops them when the benchmark ends for any reason.

use std::io::Read;
use std::process::{Command, Stdio};

use lock_testing::{RedisCluster, RedisSentinels, RedisServer};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::child::Child;

/// The servers to start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Formation {
    Alone,
    /// A master, its replica, and three sentinels.
    Watched,
    /// A cluster of this many masters.
    Cluster(usize),
}

/// A started server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) port: u16,
    pub(crate) process: u32,
}

impl From<&RedisServer> for Running {
    fn from(server: &RedisServer) -> Self {
        Self { port: server.port(), process: server.pid() }
    }
}

/// The process. It stops its servers on drop, and when the benchmark is killed.
#[derive(Debug)]
pub(crate) struct Keeper(Child);

/// The orders for the keeper of a single server. It restarts on its old port, empty, and answers before the keeper does.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Order {
    Kill,
    Restart,
}

impl Keeper {
    /// Starts servers on free ports. Returns them in a fixed order.
    pub(crate) fn start(program: &str, formation: Formation) -> Result<(Self, Vec<Running>)> {
        let found = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        if let Err(error) = found {
            return Err(format!(
                "cannot run {program:?}: {error}; install Redis 6.2 or newer (most systems call the package \
                 redis-server or redis), or name the program with --redis-server"
            )
            .into());
        }
        let formation = serde_json::to_string(&formation)?;
        let mut process = Child::part(&["keep-servers", "--program", program, "--formation", &formation])?;
        let running = serde_json::from_str(&process.line()?).map_err(|_| "no server could be started, see above")?;
        Ok((Self(process), running))
    }

    /// Sends an order to the keeper, and waits until it is done.
    pub(crate) fn tell(&mut self, what: Order) -> Result<()> {
        self.0.tell(&what)?;
        self.0.answer()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs servers until the input ends. Prints their ports and ids.
pub(crate) fn run(program: &str, formation: &str) -> Result<()> {
    let server = RedisServer::builder().with_program(program);
    let sentinel = server.clone();
    let settings =
        server.with("maxmemory-policy", "noeviction").with("slowlog-log-slower-than", "-1").with("loglevel", "warning");
    match serde_json::from_str(formation)? {
        Formation::Alone => obey(settings.start()),
        Formation::Watched => {
            let all = RedisSentinels::builder().with_servers(settings).with_sentinels(sentinel).start();
            until_the_end(all.servers().iter().chain(all.sentinels()))
        }
        Formation::Cluster(masters) => until_the_end(RedisCluster::with(settings, masters).masters().iter()),
    }
}

/// Runs a server, and obeys the orders in the input until it ends.
fn obey(mut server: RedisServer) -> Result<()> {
    println!("{}", serde_json::to_string(&[Running::from(&server)])?);
    for line in std::io::stdin().lines() {
        match serde_json::from_str(&line?)? {
            Order::Kill => server.kill(),
            Order::Restart => server.restart(),
        }
        println!("null");
    }
    Ok(())
}

fn until_the_end<'a>(servers: impl Iterator<Item = &'a RedisServer>) -> Result<()> {
    println!("{}", serde_json::to_string(&servers.map(Running::from).collect::<Vec<_>>())?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

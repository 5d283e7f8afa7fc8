//! A process that starts servers and stops them when the benchmark ends for any reason.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use lock_testing::{RedisCluster, RedisSentinels, RedisServer};
use serde::{Deserialize, Serialize};

use crate::Result;

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
pub(crate) struct Keeper {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// The orders for the keeper of a single server.
const KILL: &str = "kill";
const RESTART: &str = "restart";

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
        let mut process = Command::new(std::env::current_exe()?)
            .args(["keep-servers", "--program", program, "--formation", &serde_json::to_string(&formation)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("the servers' keeper has no output")?);
        let mut keeper = Self { process, output };
        let running = serde_json::from_str(&keeper.line()?).map_err(|_| "no server could be started, see above")?;
        Ok((keeper, running))
    }

    /// Kills the only server.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.tell(KILL)
    }

    /// Restarts the only server on its old port, empty, and waits until it answers.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.tell(RESTART)
    }

    /// Sends an order to the keeper, and waits until it is done.
    fn tell(&mut self, what: &str) -> Result<()> {
        let input = self.process.stdin.as_mut().ok_or("the servers' keeper has no input")?;
        writeln!(input, "{what}")?;
        if self.line()?.trim_end() == what { Ok(()) } else { Err("the server's keeper failed, see above".into()) }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The keeper ends when its input is closed.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
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
        let line = line?;
        match line.as_str() {
            KILL => server.kill(),
            RESTART => server.restart(),
            _ => return Err(format!("the keeper of a server does not know {line:?}").into()),
        }
        println!("{line}");
    }
    Ok(())
}

fn until_the_end<'a>(servers: impl Iterator<Item = &'a RedisServer>) -> Result<()> {
    println!("{}", serde_json::to_string(&servers.map(Running::from).collect::<Vec<_>>())?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

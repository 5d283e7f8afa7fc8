//! The redis-server of a run, and its own statistics.

use std::sync::Arc;
use std::time::Duration;

use redis::Connection;

use crate::servers::keeper::{Formation, Keeper, Running};
use crate::{Result, clock, stats};

/// A server of this benchmark: on loopback, without persistence, and stopped on drop.
pub(crate) struct Server {
    /// Stops the server at the end, with the others of the same keeper.
    _keeper: Arc<Keeper>,
    port: u16,
    /// The process id of the server itself.
    process: String,
    control: Connection,
}

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start(program: impl AsRef<str>) -> Result<Self> {
        let (keeper, running) = Keeper::start(program.as_ref(), Formation::Alone)?;
        Self::at(&Arc::new(keeper), *running.first().ok_or("no server could be started, see above")?)
    }

    /// Connects to a running server.
    pub(crate) fn at(keeper: &Arc<Keeper>, running: Running) -> Result<Self> {
        let Running { port, process } = running;
        let control = redis::Client::open(("127.0.0.1", port))?.get_connection()?;
        Ok(Self { _keeper: Arc::clone(keeper), port, process: process.to_string(), control })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    /// Shuts the server down cleanly.
    pub(crate) fn shut_down(&mut self) {
        // The server closes the connection instead of answering.
        let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut self.control);
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&mut self) -> Result<u64> {
        Ok(redis::cmd("DBSIZE").query(&mut self.control)?)
    }

    /// Returns the name and version of the server.
    pub(crate) fn version(&mut self) -> Result<String> {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.control)?;
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        Ok(match field("valkey_version:") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field("redis_version:").unwrap_or_else(|| "of unknown version".to_owned())),
        })
    }

    /// Measures how long a command and its reply take.
    pub(crate) fn round_trip(&mut self) -> Result<Duration> {
        round_trip(&mut self.control)
    }

    /// Deletes every key.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("ASYNC").query(&mut self.control)?)
    }

    /// Deletes every key of a lock, and keeps the birth of a quorum member: without it, the member would not vote for a minute.
    pub(crate) fn flush_locks(&mut self) -> Result<()> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.control)?;
        keys.retain(|key| !key.starts_with("distributed-lock:"));
        if keys.is_empty() { Ok(()) } else { Ok(redis::cmd("UNLINK").arg(keys).exec(&mut self.control)?) }
    }

    /// Returns the time that the server has spent in scripts so far, µs.
    fn scripts(&mut self) -> Result<f64> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.control)?;
        Ok(time_of_scripts(&stats) as f64)
    }

    /// Returns the number of connected clients, including this one.
    pub(crate) fn clients(&mut self) -> Result<usize> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut self.control)?;
        Ok(list.lines().count())
    }

    /// Returns the number of claims in the given queues.
    pub(crate) fn waiting(&mut self, queues: &[String]) -> Result<u64> {
        let mut all = redis::pipe();
        for queue in queues {
            all.cmd("ZCARD").arg(queue);
        }
        Ok(all.query::<Vec<u64>>(&mut self.control)?.iter().sum())
    }

    /// Returns the processor time that the server has used so far, µs.
    pub(crate) fn cpu(&mut self) -> Result<f64> {
        let info: String = redis::cmd("INFO").arg("cpu").query(&mut self.control)?;
        let mut seconds = 0.0;
        for line in info.lines() {
            if let Some(used) = line.strip_prefix("used_cpu_sys:").or_else(|| line.strip_prefix("used_cpu_user:")) {
                seconds += used.trim().parse::<f64>()?;
            }
        }
        Ok(seconds * 1e6)
    }
}

/// Measures how long a command and its reply take: the median.
pub(crate) fn round_trip(connection: &mut Connection) -> Result<Duration> {
    let mut trips = Vec::new();
    for _ in 0..15 {
        let sent = clock::now();
        redis::cmd("PING").exec(connection)?;
        trips.push(clock::now() - sent);
    }
    trips.sort_unstable();
    Ok(Duration::from_nanos(stats::percentile(&trips, 500)))
}

/// Sums up the time of all scripts in `INFO commandstats`, µs. It includes the commands that the scripts call.
fn time_of_scripts(stats: &str) -> u64 {
    let micros = |line: &str| {
        let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let is_script = ["eval", "evalsha", "fcall"].contains(&name);
        let micros = fields.split(',').find_map(|field| field.strip_prefix("usec="))?;
        micros.parse::<u64>().ok().filter(|_| is_script)
    };
    stats.lines().filter_map(micros).sum()
}

/// Returns the time that several servers together have spent in scripts so far, µs.
pub(crate) fn scripts(servers: &mut [Server]) -> Result<f64> {
    servers.iter_mut().map(Server::scripts).sum()
}

/// Returns the processor time that several servers together have used so far, µs.
pub(crate) fn cpu(servers: &mut [Server]) -> Result<f64> {
    servers.iter_mut().map(Server::cpu).sum()
}

#[cfg(test)]
mod tests {
    use super::time_of_scripts;

    #[test]
    fn the_time_of_scripts_alone_is_added_up() {
        let stats = "# Commandstats\r\ncmdstat_evalsha:calls=2,usec=70,usec_per_call=35.00,rejected_calls=0\r\n\
                     cmdstat_get:calls=9,usec=900,usec_per_call=100.00\r\ncmdstat_eval:calls=1,usec=5,usec_per_call=5.00\r\n\
                     cmdstat_evalsha_ro:calls=1,usec=1000,usec_per_call=1000.00\r\n";
        assert_eq!(time_of_scripts(stats), 75);
        assert_eq!(time_of_scripts("# Commandstats\r\n"), 0);
    }
}

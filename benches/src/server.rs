//! The redis-server of one run, and its own statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Connection;

use crate::keeper::{Formation, Keeper, Running};
use crate::{Result, clock, stats};

/// Commands that are never called inside a script, so each of them came from a client.
const ALWAYS_TOP_LEVEL: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// How long a script must take to be recorded, µs.
const NOTICED_US: i64 = 50;

/// Our own server: on loopback, without persistence, stopped when this value is dropped.
pub(crate) struct Server {
    /// Stops the server at the end, with others that it keeps.
    _keeper: Arc<Keeper>,
    port: u16,
    /// The process id of the server itself.
    process: String,
    control: Connection,
}

/// The work that the server had done at one time.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Processor time, µs.
    pub(crate) cpu: f64,
    /// How long it was ready to run while another process had the processor, µs. 0 if the system does
    /// not report it.
    pub(crate) kept_waiting: f64,
    calls: BTreeMap<String, u64>,
    /// How long scripts that are called by their hash have run, µs.
    script_us: f64,
}

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start(program: impl AsRef<str>) -> Result<Self> {
        let (keeper, running) = Keeper::start(program.as_ref(), Formation::Alone)?;
        Self::at(&Arc::new(keeper), *running.first().ok_or("no server could be started, see above")?)
    }

    /// Connects to a server that runs.
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

    /// Ends the server in an orderly way.
    pub(crate) fn shut_down(&mut self) {
        // It closes the connection instead of an answer.
        let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut self.control);
    }

    /// Returns how many keys there are.
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

    /// Measures how long a command and its answer take.
    pub(crate) fn round_trip(&mut self) -> Result<Duration> {
        let mut trips = Vec::new();
        for _ in 0..15 {
            let sent = clock::now();
            redis::cmd("PING").exec(&mut self.control)?;
            trips.push(clock::now() - sent);
        }
        trips.sort_unstable();
        Ok(Duration::from_nanos(stats::percentile(&trips, 500)))
    }

    /// Deletes every key.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("ASYNC").query(&mut self.control)?)
    }

    /// Deletes every key of a lock, and keeps what a member of a quorum knows of itself: without it, it would not
    /// count for a minute.
    pub(crate) fn flush_locks(&mut self) -> Result<()> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.control)?;
        keys.retain(|key| !key.starts_with("distributed-lock:"));
        if keys.is_empty() { Ok(()) } else { Ok(redis::cmd("UNLINK").arg(keys).exec(&mut self.control)?) }
    }

    /// Returns the work that the server has done so far.
    pub(crate) fn sample(&mut self) -> Result<Sample> {
        let (cpu, stats): (String, String) =
            redis::pipe().cmd("INFO").arg("cpu").cmd("INFO").arg("commandstats").query(&mut self.control)?;
        let mut sample = Sample { kept_waiting: self.kept_waiting().unwrap_or(0.0), ..Sample::default() };
        for line in cpu.lines() {
            if let Some(seconds) = line.strip_prefix("used_cpu_sys:").or_else(|| line.strip_prefix("used_cpu_user:")) {
                sample.cpu += seconds.trim().parse::<f64>()? * 1e6;
            }
        }
        for line in stats.lines() {
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) else {
                continue;
            };
            let mut fields = rest.split(',');
            let calls = fields.next().unwrap_or_default().parse()?;
            if name == "evalsha" {
                sample.script_us = fields.find_map(|field| field.strip_prefix("usec=")).unwrap_or("0").parse()?;
            }
            sample.calls.insert(name.to_owned(), calls);
        }
        Ok(sample)
    }

    fn kept_waiting(&self) -> Option<f64> {
        let times = std::fs::read_to_string(format!("/proc/{}/schedstat", self.process)).ok()?;
        Some(times.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1e3)
    }

    /// Records, from now on, every script that is slow enough to be one: commands inside scripts
    /// are recorded too, and there are a hundred times more of them.
    pub(crate) fn watch_scripts(&mut self) -> Result<()> {
        let set = |name: &str, value: i64| redis::cmd("CONFIG").arg("SET").arg(name).arg(value).to_owned();
        set("slowlog-max-len", 100_000).exec(&mut self.control)?;
        set("slowlog-log-slower-than", NOTICED_US).exec(&mut self.control)?;
        Ok(redis::cmd("SLOWLOG").arg("RESET").query(&mut self.control)?)
    }

    /// Returns the durations of the recorded scripts, in µs, and stops recording.
    pub(crate) fn slow_scripts(&mut self) -> Result<Vec<u64>> {
        redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(-1).exec(&mut self.control)?;
        let entries: Vec<redis::Value> = redis::cmd("SLOWLOG").arg("GET").arg(100_000).query(&mut self.control)?;
        let mut durations = Vec::new();
        for entry in entries {
            let redis::Value::Array(fields) = entry else { continue };
            let [_, _, redis::Value::Int(micros), redis::Value::Array(words), ..] = fields.as_slice() else { continue };
            let Some(redis::Value::BulkString(name)) = words.first() else { continue };
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            if ALWAYS_TOP_LEVEL.contains(&name.as_str()) {
                durations.push(u64::try_from(*micros).unwrap_or(0));
            }
        }
        Ok(durations)
    }
}

/// Returns the work that several servers have done so far, together.
pub(crate) fn sample(servers: &mut [Server]) -> Result<Sample> {
    let mut all = Sample::default();
    for server in servers {
        let one = server.sample()?;
        all.cpu += one.cpu;
        all.kept_waiting += one.kept_waiting;
        all.script_us += one.script_us;
        one.calls.into_iter().for_each(|(name, calls)| *all.calls.entry(name).or_default() += calls);
    }
    Ok(all)
}

impl Sample {
    /// Returns how long scripts ran since an earlier sample, µs.
    pub(crate) fn script_us_since(&self, earlier: &Self) -> f64 {
        self.script_us - earlier.script_us
    }

    /// Counts the scripts that ran since an earlier sample.
    pub(crate) fn scripts_since(&self, earlier: &Self) -> u64 {
        self.commands_since(earlier, &BTreeSet::new())
    }

    /// Counts the commands that clients sent since an earlier sample. INFO also counts the commands
    /// that scripts call; `seen` has the names of those that came from clients.
    pub(crate) fn commands_since(&self, earlier: &Self, seen: &BTreeSet<String>) -> u64 {
        let from_clients = |name: &str| ALWAYS_TOP_LEVEL.contains(&name) || seen.contains(name);
        let counted = self.calls.iter().filter(|(name, _)| from_clients(name));
        counted.map(|(name, calls)| calls - earlier.calls.get(name).copied().unwrap_or(0)).sum()
    }
}

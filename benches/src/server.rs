//! The redis-server of one run, and what it tells of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::Connection;

use crate::{Result, clock};

/// How long a server may take to start.
const START_WITHIN: Duration = Duration::from_secs(10);

/// Commands that are never called inside of a script, so that each of them came from a client.
const ALWAYS_TOP_LEVEL: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// How long a script must take to be remembered, µs.
const NOTICED_US: i64 = 50;

/// A server of our own: loopback, no persistence, gone with this value.
pub(crate) struct Server {
    /// The process that keeps the server, see [`keep`].
    keeper: Child,
    port: u16,
    /// The number of the server's own process.
    process: String,
    control: Connection,
}

/// What the server had done at one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Processor time, µs.
    pub(crate) cpu: f64,
    /// How long it was ready to run and another had the processor, µs. 0 where the system does not tell.
    pub(crate) kept_waiting: f64,
    calls: BTreeMap<String, u64>,
}

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start(program: &str) -> Result<Self> {
        let found = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        if let Err(error) = found {
            return Err(format!(
                "cannot run {program:?}: {error}; install Redis 6.2 or newer (most systems call the package \
                 redis-server or redis), or name the program with --redis-server"
            )
            .into());
        }
        // Somebody else may take the port before the server does; then the server ends at once.
        (0..3).find_map(|_| Self::start_on(program, free_port().ok()?).transpose()).unwrap_or_else(|| {
            Err("no redis-server could be started on a free port of 127.0.0.1; start it by hand to see why".into())
        })
    }

    /// Starts a server on a port, `None` if it does not run or another one answers there.
    fn start_on(program: &str, port: u16) -> Result<Option<Self>> {
        let mut keeper = Command::new(std::env::current_exe()?)
            .args(["keep-server", "--program", program, "--port", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = keeper.stdout.take().ok_or("the server's keeper has no output")?;
        let mut starting = Starting(Some(keeper));
        let mut process = String::new();
        BufReader::new(output).read_line(&mut process)?;
        // Everything that is stored will be deleted: make sure that it is our own server.
        let process = process.trim().to_owned();
        let Some(control) = connect(port, &process)? else { return Ok(None) };
        let keeper = starting.0.take().ok_or("the server's keeper is gone")?;
        Ok(Some(Self { keeper, port, process, control }))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
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

    /// Forgets every key.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("ASYNC").query(&mut self.control)?)
    }

    /// Returns what the server has done so far.
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
            let calls = rest.split(',').next().unwrap_or_default().parse()?;
            sample.calls.insert(name.to_owned(), calls);
        }
        Ok(sample)
    }

    fn kept_waiting(&self) -> Option<f64> {
        let times = std::fs::read_to_string(format!("/proc/{}/schedstat", self.process)).ok()?;
        Some(times.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1e3)
    }

    /// Remembers every script from now on that is slow enough to be one: commands inside of scripts
    /// are remembered too, and there are a hundred times more of them.
    pub(crate) fn watch_scripts(&mut self) -> Result<()> {
        let set = |name: &str, value: i64| redis::cmd("CONFIG").arg("SET").arg(name).arg(value).to_owned();
        set("slowlog-max-len", 100_000).exec(&mut self.control)?;
        set("slowlog-log-slower-than", NOTICED_US).exec(&mut self.control)?;
        Ok(redis::cmd("SLOWLOG").arg("RESET").query(&mut self.control)?)
    }

    /// Returns the durations of the scripts that were remembered, in µs, and stops to remember.
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

impl Drop for Server {
    fn drop(&mut self) {
        // Its keeper stops the server at the end of its input.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

impl Sample {
    /// Counts the scripts that ran since an earlier sample.
    pub(crate) fn scripts_since(&self, earlier: &Self) -> u64 {
        self.commands_since(earlier, &BTreeSet::new())
    }

    /// Counts the commands that clients sent since an earlier sample. INFO counts what scripts call
    /// too; `seen` are the names that were seen to come from clients.
    pub(crate) fn commands_since(&self, earlier: &Self, seen: &BTreeSet<String>) -> u64 {
        let from_clients = |name: &str| ALWAYS_TOP_LEVEL.contains(&name) || seen.contains(name);
        let counted = self.calls.iter().filter(|(name, _)| from_clients(name));
        counted.map(|(name, calls)| calls - earlier.calls.get(name).copied().unwrap_or(0)).sum()
    }
}

/// Stops the keeper of a server that never answered.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.0.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

/// Runs a server until the input ends: also when the benchmark was killed.
pub(crate) fn keep(program: &str, port: u16) -> Result<()> {
    let mut server = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--daemonize", "no", "--loglevel", "warning", "--maxmemory-policy", "noeviction"])
        .args(["--slowlog-log-slower-than", "-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot run {program:?}: {error}"))?;
    println!("{}", server.id());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    server.kill()?;
    server.wait()?;
    Ok(())
}

/// Connects to a server that starts, `None` if another process answers at its port.
fn connect(port: u16, process: &str) -> Result<Option<Connection>> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    let give_up_at = clock::now() + clock::as_nanos(START_WITHIN);
    loop {
        let failure = match client.get_connection() {
            Ok(mut connection) => {
                let info: String = redis::cmd("INFO").arg("server").query(&mut connection)?;
                let is_ours = info.lines().any(|line| line.strip_prefix("process_id:") == Some(process));
                return Ok(is_ours.then_some(connection));
            }
            Err(error) => error,
        };
        if clock::now() > give_up_at {
            return Err(format!("the redis-server did not start within {START_WITHIN:?}: {failure}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Finds a port that is free now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

//! A network with a round trip: a proxy that delays all data, in both directions and in order.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lock_testing::{Direction, FaultProxy};

use crate::{Result, stats};

/// A proxy in its own process, so that its work counts for neither side.
pub(crate) struct Proxy {
    process: Child,
    pub(crate) port: u16,
    /// The median of the round trips measured through it.
    pub(crate) round_trip: Duration,
}

impl Proxy {
    /// Starts a proxy in front of a server.
    pub(crate) fn start(upstream: u16, one_way: Duration) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["delay", "--upstream", &upstream.to_string(), "--micros", &one_way.as_micros().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("the proxy has no output")?).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|_| "the proxy did not start")?;
        let mut proxy = Self { process, port, round_trip: Duration::ZERO };
        proxy.round_trip = round_trip(port)?;
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn round_trip(port: u16) -> Result<Duration> {
    let mut connection = redis::Client::open(("127.0.0.1", port))?.get_connection()?;
    let mut trips = Vec::new();
    for _ in 0..20 {
        let sent = std::time::Instant::now();
        redis::cmd("PING").exec(&mut connection)?;
        trips.push(sent.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(stats::median(trips).unwrap_or(0.0)))
}

/// Runs the proxy until the input ends. Prints its port.
pub(crate) fn run(upstream: u16, one_way: Duration) -> Result<()> {
    let proxy = FaultProxy::start(upstream);
    proxy.delay(Direction::ToServer, one_way);
    proxy.delay(Direction::ToClient, one_way);
    println!("{}", proxy.port());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

//! A network with a round trip: a proxy that delays all data, in both directions and in order.

use std::io::Read;
use std::time::Duration;

use lock_testing::{Direction, FaultProxy};

use crate::Result;
use crate::child::Child;
use crate::servers::server::round_trip;

/// A proxy in its own process, so that its work counts for neither side.
pub(crate) struct Proxy {
    _process: Child,
    pub(crate) port: u16,
    /// The median of the round trips measured through it.
    pub(crate) round_trip: Duration,
}

impl Proxy {
    /// Starts a proxy in front of a server.
    pub(crate) fn start(upstream: u16, one_way: Duration) -> Result<Self> {
        let (upstream, micros) = (upstream.to_string(), one_way.as_micros().to_string());
        let mut process = Child::part(&["delay", "--upstream", &upstream, "--micros", &micros])?;
        let port = process.line()?.trim().parse().map_err(|_| "the proxy did not start")?;
        let round_trip = round_trip(&mut redis::Client::open(("127.0.0.1", port))?.get_connection()?)?;
        Ok(Self { _process: process, port, round_trip })
    }
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

//! Counts the commands that clients send. `INFO commandstats` counts those inside scripts too.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Result;

/// Commands that open a connection, or that the benchmark itself sends.
const GREETINGS: [&str; 8] = ["auth", "client", "config", "hello", "info", "monitor", "select", "time"];

/// A connection in MONITOR mode. It slows the server, so nothing else is measured meanwhile.
pub(crate) struct Spy(BufReader<TcpStream>);

impl Spy {
    pub(crate) fn open(port: u16) -> Result<Self> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        socket.write_all(b"MONITOR\r\n")?;
        Ok(Self(BufReader::with_capacity(1 << 20, socket)))
    }

    /// Counts the commands that clients send between two times.
    pub(crate) fn count(mut self, from: u64, to: u64) -> u64 {
        let (mut count, mut line) = (0, Vec::new());
        while crate::clock::now() < to {
            // A time-out leaves what it has read in `line`; the next call continues from there.
            if self.0.read_until(b'\n', &mut line).is_err() {
                continue;
            }
            if line.is_empty() {
                break;
            }
            let counts = is_of_client(&String::from_utf8_lossy(&line));
            count += u64::from(counts && crate::clock::now() >= from);
            line.clear();
        }
        count
    }
}

/// Reads a line like `+1700000000.123 [0 127.0.0.1:5000] "SET" "key" …`, or `[0 lua]`.
fn is_of_client(line: &str) -> bool {
    let name = || {
        let (_, rest) = line.split_once('[')?;
        let (origin, rest) = rest.split_once("] \"")?;
        let (name, _) = rest.split_once('"')?;
        (!origin.ends_with(" lua")).then(|| name.to_ascii_lowercase())
    };
    name().is_some_and(|name| !GREETINGS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::is_of_client;

    #[test]
    fn only_commands_of_clients_count() {
        assert!(is_of_client("+1700000000.1 [0 127.0.0.1:5000] \"SET\" \"k\"\r\n"));
        assert!(!is_of_client("+1700000000.1 [0 127.0.0.1:5000] \"INFO\" \"cpu\"\r\n"));
        assert!(!is_of_client("+1700000000.1 [0 lua] \"get\" \"k\"\r\n"));
        assert!(!is_of_client("+OK\r\n"));
    }
}

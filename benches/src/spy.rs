//! Finds out which commands come from clients, and which only from inside scripts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Result;

/// Commands that open a connection, or that the benchmark itself sends.
const GREETINGS: [&str; 8] = ["auth", "client", "config", "hello", "info", "monitor", "select", "time"];

/// A connection in MONITOR mode. It slows the server, so it is closed before a measurement begins.
pub(crate) struct Spy(BufReader<TcpStream>);

/// The names of the commands that were seen.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// Sent by clients.
    pub(crate) top_level: BTreeSet<String>,
    /// Sent by clients and called by scripts too: INFO does not tell them apart.
    pub(crate) ambiguous: BTreeSet<String>,
}

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
            if self.0.read_until(b'\n', &mut line).is_err() {
                continue;
            }
            if line.is_empty() {
                break;
            }
            let is_command = read(&String::from_utf8_lossy(&line))
                .is_some_and(|(script, name)| !script && !GREETINGS.contains(&name.as_str()));
            count += u64::from(is_command && crate::clock::now() >= from);
            line.clear();
        }
        count
    }

    /// Listens until a given time.
    pub(crate) fn listen(mut self, until: u64) -> Seen {
        let (mut top_level, mut in_scripts) = (BTreeSet::new(), BTreeSet::new());
        let mut line = Vec::new();
        while crate::clock::now() < until {
            // A time-out leaves what it has read in `line`; the next call continues from there.
            if self.0.read_until(b'\n', &mut line).is_err() {
                continue;
            }
            if line.is_empty() {
                break;
            }
            if let Some((script, name)) = read(&String::from_utf8_lossy(&line)) {
                if script {
                    in_scripts.insert(name)
                } else {
                    top_level.insert(name)
                };
            }
            line.clear();
        }
        top_level.retain(|name| !GREETINGS.contains(&name.as_str()));
        let ambiguous: BTreeSet<String> = top_level.intersection(&in_scripts).cloned().collect();
        Seen { top_level: top_level.difference(&ambiguous).cloned().collect(), ambiguous }
    }
}

/// Reads a line like `+1700000000.123 [0 127.0.0.1:5000] "SET" "key" …`, or `[0 lua]`.
fn read(line: &str) -> Option<(bool, String)> {
    let (_, rest) = line.split_once('[')?;
    let (origin, rest) = rest.split_once("] \"")?;
    let (name, _) = rest.split_once('"')?;
    Some((origin.ends_with(" lua"), name.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn lines_of_monitor() {
        assert_eq!(read("+OK\r\n"), None);
        assert_eq!(read("+1700000000.1 [0 127.0.0.1:5000] \"SET\" \"k\"\r\n"), Some((false, "set".to_owned())));
        assert_eq!(read("+1700000000.1 [0 lua] \"get\" \"k\"\r\n"), Some((true, "get".to_owned())));
    }
}

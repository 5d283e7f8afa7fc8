//! A resource that the test guards by fencing tokens, reached over TCP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;

pub(crate) struct Resource(Mutex<BufReader<TcpStream>>);

impl Resource {
    pub(crate) fn at(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(Mutex::new(BufReader::new(stream)))
    }

    /// Writes with a token. Returns whether the resource admitted it.
    pub(crate) fn write(&self, name: &str, token: u64) -> bool {
        let mut stream = self.0.lock().unwrap();
        stream.get_mut().write_all(format!("{token} {name}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        match answer.trim_end() {
            "ok" => true,
            "stale" => false,
            other => panic!("the resource answered {other:?}"),
        }
    }
}

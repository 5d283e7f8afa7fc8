//! The resource that the locks protect, reached over TCP.

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

    /// Writes as part of a hold, with a token if there is one. Returns whether the resource admitted the write.
    pub(crate) fn write(&self, hold: u64, token: Option<u64>, key: &str) -> bool {
        let mut stream = self.0.lock().unwrap();
        let token = token.map_or("-".to_owned(), |token| token.to_string());
        let line = format!("{} {hold} {token} {key}\n", std::process::id());
        stream.get_mut().write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        match answer.trim_end() {
            "ok" => true,
            "stale" => false,
            other => panic!("the resource answered {other:?}"),
        }
    }
}

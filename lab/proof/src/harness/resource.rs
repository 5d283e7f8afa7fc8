//! A resource that admits writes by their fencing tokens, or admits every write if it does not check them.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use lock_core::{FencingGate, FencingToken};

use crate::record::{Record, Recorder, now};

/// Serves every process that connects, for as long as this process lives. It records each write under the lock that
/// orders the writes, so the records are in their order.
pub(crate) struct Resource {
    address: SocketAddr,
}

struct Gates {
    by_key: Mutex<HashMap<String, FencingGate>>,
    checks: bool,
    recorder: Recorder,
}

impl Resource {
    pub(crate) fn start(history: &Path, checks: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gates = Gates { by_key: Mutex::default(), checks, recorder: Recorder::append_to(history) };
        let gates = Arc::new(gates);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let gates = Arc::clone(&gates);
                std::thread::spawn(move || serve(stream, &gates));
            }
        });
        Self { address }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Gates {
    fn write(&self, process: u32, hold: u64, token: Option<u64>, key: &str) -> bool {
        let mut gates = self.by_key.lock().unwrap();
        let gate = gates.entry(key.to_owned()).or_default();
        // A write without a token cannot be told from a late one, so it is admitted.
        let fits = token.is_none_or(|token| gate.admit(FencingToken::new(token)).is_ok());
        let (key, accepted) = (key.to_owned(), fits || !self.checks);
        self.recorder.record(&Record::Write { process, hold, key, token, at: now(), accepted });
        accepted
    }
}

fn serve(mut stream: TcpStream, gates: &Gates) {
    stream.set_nodelay(true).unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let &[process, hold, token, key] = words.as_slice() else { return };
        let accepted = gates.write(process.parse().unwrap(), hold.parse().unwrap(), token.parse().ok(), key);
        if stream.write_all(if accepted { b"ok\n" } else { b"stale\n" }).is_err() {
            return;
        }
    }
}

//! A resource that admits writes by their fencing tokens.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use lock_core::{FencingGate, FencingToken};
use lock_testing::Recorder;

/// Serves every worker that connects, for as long as the test process lives. It records each write
/// while no other write can happen, so that the records are in the order of the writes.
pub(crate) struct Resource {
    address: SocketAddr,
    gates: Arc<Gates>,
}

struct Gates {
    by_name: Mutex<HashMap<String, FencingGate>>,
    recorder: Recorder,
}

impl Resource {
    pub(crate) fn start(history: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gates = Arc::new(Gates { by_name: Mutex::default(), recorder: Recorder::append_to(history) });
        let shared = Arc::clone(&gates);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let gates = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &gates));
            }
        });
        Self { address, gates }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Writes as any client does. Returns whether the write was admitted.
    pub(crate) fn write(&self, name: &str, token: FencingToken) -> bool {
        self.gates.write(name, token)
    }
}

impl Gates {
    fn write(&self, name: &str, token: FencingToken) -> bool {
        let mut gates = self.by_name.lock().unwrap();
        let accepted = gates.entry(name.to_owned()).or_default().admit(token).is_ok();
        self.recorder.write(name, token, accepted);
        accepted
    }
}

fn serve(mut stream: TcpStream, gates: &Gates) {
    stream.set_nodelay(true).unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let (token, name) = line.split_once(' ').unwrap();
        let accepted = gates.write(name, FencingToken::new(token.parse().unwrap()));
        if stream.write_all(if accepted { b"ok\n" } else { b"stale\n" }).is_err() {
            return;
        }
    }
}

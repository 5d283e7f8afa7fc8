//! A server whose scripts lack a rule: a proxy that changes their text on the way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use redis::Script;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A text in a script, and the text that is sent instead.
pub(super) type Swaps = &'static [(&'static str, &'static str)];

pub(super) struct Rewriter {
    port: u16,
    task: AbortHandle,
}

impl Rewriter {
    pub(super) async fn start(server: u16, swaps: Swaps) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hashes = Arc::new(Mutex::new(HashMap::new()));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let hashes = Arc::clone(&hashes);
                tokio::spawn(async move { pass(client, server, swaps, &hashes).await });
            }
        });
        Self { port, task: task.abort_handle() }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Rewriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The hash of each changed script, by that of the original.
type Hashes = Mutex<HashMap<Vec<u8>, String>>;

/// Passes the bytes of one connection on, until either side ends it.
async fn pass(client: TcpStream, server: u16, swaps: Swaps, hashes: &Hashes) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let ((from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
    let requests = async {
        let mut from_client = BufReader::new(from_client);
        while let Some(mut words) = read(&mut from_client).await {
            rewrite(&mut words, swaps, hashes);
            let mut message = format!("*{}\r\n", words.len()).into_bytes();
            for word in words {
                message.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                message.extend_from_slice(&word);
                message.extend_from_slice(b"\r\n");
            }
            if to_server.write_all(&message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

fn rewrite(words: &mut [Vec<u8>], swaps: Swaps, hashes: &Hashes) {
    let [command, script, ..] = words else { return };
    if command == b"EVALSHA" {
        if let Some(hash) = hashes.lock().unwrap().get(script) {
            *script = hash.clone().into_bytes();
        }
    } else if command == b"EVAL" {
        let text = String::from_utf8(script.clone()).unwrap();
        let changed = swaps.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
        let hash = |text: &str| Script::new(text).get_hash().to_owned();
        hashes.lock().unwrap().insert(hash(&text).into_bytes(), hash(&changed));
        *script = changed.into_bytes();
    }
}

/// Reads one command. `None` if the connection has ended.
async fn read(from: &mut BufReader<OwnedReadHalf>) -> Option<Vec<Vec<u8>>> {
    let count = number(from).await?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; number(from).await? + 2];
        from.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

/// Reads a line like `*3` or `$12`.
async fn number(from: &mut BufReader<OwnedReadHalf>) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

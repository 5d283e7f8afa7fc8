//! Servers that refuse what a plain server allows, as managed services do: real servers behind a connection that turns
//! some commands into others, which are answered by the error of the service.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use lock_testing::{RedisCluster, RedisServer};

/// The words of a command.
type Words = [Vec<u8>];

/// Says with which error a server of that number refuses a command, if it does.
type Refuses = Arc<dyn Fn(usize, &Words) -> Option<&'static str> + Send + Sync>;

/// The proxy before one server.
pub(super) struct Service {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    number: usize,
    refuses: Refuses,
    refused: AtomicUsize,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Service {
    fn start(number: usize, server: u16, refuses: Refuses) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            number,
            refuses,
            refused: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            open: Mutex::default(),
        });
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming() {
                    if shared.over.load(Ordering::SeqCst) {
                        return;
                    }
                    let (Ok(client), Ok(server)) = (client, TcpStream::connect((Ipv4Addr::LOCALHOST, server))) else {
                        continue;
                    };
                    shared.clone().join(&client, &server);
                }
            }
        });
        Self { port, shared }
    }

    /// Returns how many commands were refused.
    pub(super) fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn join(self: Arc<Self>, client: &TcpStream, server: &TcpStream) {
        self.open.lock().unwrap().extend([client, server].map(|stream| stream.try_clone().unwrap()));
        let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut to_client);
            let _ = to_client.shutdown(Shutdown::Both);
        });
        let (mut requests, mut to_server) = (BufReader::new(client.try_clone().unwrap()), server.try_clone().unwrap());
        thread::spawn(move || {
            while let Some(mut words) = command(&mut requests) {
                if let Some(error) = (self.refuses)(self.number, &words) {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    words = ["EVAL", "return redis.error_reply(ARGV[1])", "0", error].map(Into::into).into();
                }
                if to_server.write_all(&packed(&words)).is_err() {
                    break;
                }
            }
            let _ = to_server.shutdown(Shutdown::Both);
        });
    }
}

/// Reads a command.
fn command(from: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let number = |mark: char, from: &mut dyn BufRead| {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(mark)?.parse::<usize>().ok()
    };
    let count = number('*', from)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; number('$', from)? + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

fn packed(words: &Words) -> Vec<u8> {
    let mut message = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        message.extend(format!("${}\r\n", word.len()).into_bytes());
        message.extend_from_slice(word);
        message.extend(b"\r\n");
    }
    message
}

/// Puts a service before every master, and returns them with the URL that leads through them.
pub(super) fn services(
    cluster: &RedisCluster,
    refuses: impl Fn(usize, &Words) -> Option<&'static str> + Send + Sync + 'static,
) -> (Vec<Service>, String) {
    let refuses: Refuses = Arc::new(refuses);
    let start = |(number, master): (usize, &RedisServer)| Service::start(number, master.port(), Arc::clone(&refuses));
    let services: Vec<Service> = cluster.masters().iter().enumerate().map(start).collect();
    let pair =
        |(service, master): (&Service, &RedisServer)| format!("127.0.0.1:{}>127.0.0.1:{}", master.port(), service.port);
    let nat: Vec<String> = services.iter().zip(cluster.masters()).map(pair).collect();
    let url = format!("redis+cluster://127.0.0.1:{}?nat={}", services[0].port, nat.join(","));
    (services, url)
}

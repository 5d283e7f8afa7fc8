//! A name server that does not answer, and a name that gets another address.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_testing::{PostgresServer, RedisServer, Stopwatch, limit};

/// Binds the port of name servers at an address of its own, has the program find no other name server, and runs it.
#[test]
#[limit(120)]
fn a_name_that_is_looked_up_for_minutes_keeps_no_command() {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let silent = UdpSocket::bind("127.0.0.77:53");
    if silent.is_err() || !unshare("true").status().is_ok_and(|status| status.success()) {
        println!("left out: port 53 or unshare --mount is not permitted here");
        return;
    }
    let settings = std::env::temp_dir().join(format!("resolv-{}.conf", std::process::id()));
    std::fs::write(&settings, "nameserver 127.0.0.77\noptions timeout:30 attempts:3\n").unwrap();
    let script = "mount --bind \"$SETTINGS\" /etc/resolv.conf && exec $LOCKCTL";
    let commands = ["list", "doctor", "show k", "why k", "run --wait 2s k -- true"];
    let urls = ["redis://db.example.com", "redis+cluster://db.example.com", "postgres://app@db.example.com/shop"];
    let watch = Stopwatch::start();
    let started = commands.iter().flat_map(|command| urls.map(|url| (command, url))).map(|(command, url)| {
        let program = format!("{} {command}", env!("CARGO_BIN_EXE_lockctl"));
        let child = unshare(script).env("SETTINGS", &settings).env("LOCKCTL", program).env("LOCK_URL", url).spawn();
        (command, url, child.unwrap())
    });
    for (command, url, child) in started.collect::<Vec<_>>() {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{command} at {url}: {:?}: {said}", output.status.code());
        assert!(!output.status.success() && !said.contains("mount:"), "{command} at {url}: {said}");
    }
    watch.assert_within(Duration::from_secs(40), "the end of every command");
    std::fs::remove_file(settings).unwrap();
}

/// Another address of a server, until it is closed.
struct Address {
    name: String,
    closed: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Address {
    fn open(host: &str, port: u16) -> Self {
        let address = Self { name: format!("{host}:{port}"), closed: Arc::default(), streams: Arc::default() };
        let listener = TcpListener::bind(&address.name).unwrap();
        let (closed, streams) = (Arc::clone(&address.closed), Arc::clone(&address.streams));
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                streams.lock().unwrap().extend([client, server]);
            }
        });
        address
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.streams.lock().unwrap().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        // The listener sees it with its next client.
        let _ = TcpStream::connect(&self.name);
    }
}

/// A held lock goes on at the new address: each connection looks the name up again.
#[test]
#[limit(120)]
fn a_name_that_gets_another_address_is_looked_up_again() {
    let unshared = Command::new("unshare").args(["--mount", "true"]).status();
    if !unshared.is_ok_and(|status| status.success()) {
        println!("left out: unshare --mount is not permitted here");
        return;
    }
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let redis_left = || redis.command(&["PTTL", "k"]).int();
    let postgres_left = || {
        let left = "SELECT coalesce(max(floor(extract(epoch FROM until - clock_timestamp()) * 1000)), -1) FROM lock_core.lock WHERE key = 'k'";
        postgres.try_run(left).ok().and_then(|left| left.parse().ok()).unwrap_or(-1)
    };
    let servers: [(&str, u16, &dyn Fn() -> i64); 2] = [
        ("redis://db.example.com", redis.port(), &redis_left),
        ("postgres://test@db.example.com", postgres.port(), &postgres_left),
    ];
    for (url, port, left) in servers {
        let hosts = std::env::temp_dir().join(format!("hosts-{}", std::process::id()));
        let lead_to = |host: &str| std::fs::write(&hosts, format!("{host} db.example.com\n")).unwrap();
        lead_to("127.0.0.9");
        let first = Address::open("127.0.0.9", port);
        let script = "mount --bind \"$HOSTS\" /etc/hosts && exec \"$LOCKCTL\" run --ttl 6s k -- sleep 600";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).env("HOSTS", &hosts).stdin(Stdio::null());
        command
            .env("LOCKCTL", env!("CARGO_BIN_EXE_lockctl"))
            .env("LOCK_URL", format!("{url}:{port}/{}", if url.starts_with("redis") { "" } else { "postgres" }));
        let mut run = command.spawn().unwrap();
        let watch = Stopwatch::start();
        while left() <= 0 {
            assert!(watch.elapsed() < Duration::from_secs(60), "{url}: the lock is not taken");
        }
        let second = Address::open("127.0.0.10", port);
        lead_to("127.0.0.10");
        first.close();
        // Two leases later it is held still.
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_secs(12) {
            assert!(left() > 0 && run.try_wait().unwrap().is_none(), "{url}: the lock was lost");
        }
        assert!(!second.streams.lock().unwrap().is_empty(), "{url}: it is at the new address");
        assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
        run.wait().unwrap();
        second.close();
        std::fs::remove_file(&hosts).unwrap();
    }
}

//! The fault proxy itself: a wrong tool would make every other test worthless.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lock_testing::{Direction, FaultProxy, RedisServer, limit};

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.url().strip_prefix("redis://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream
}

/// Sends a PING. `Ok(true)` is an answer, `Ok(false)` the end of the connection, `Err` silence.
fn ping(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut answer = [0; 7];
    if stream.write_all(b"PING\r\n").is_err() {
        return Ok(false);
    }
    match stream.read_exact(&mut answer) {
        Ok(()) => Ok(&answer == b"+PONG\r\n"),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err(error)
        }
        Err(_) => Ok(false),
    }
}

#[test]
#[limit]
fn passes_counts_and_delays() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let mut stream = connect(&proxy);
    assert!(ping(&mut stream).unwrap());
    assert_eq!((proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient)), (6, 7));
    proxy.delay(Direction::ToServer, Duration::from_millis(60));
    proxy.delay(Direction::ToClient, Duration::from_millis(60));
    let start = Instant::now();
    assert!(ping(&mut stream).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[test]
#[limit]
fn a_black_hole_holds_back_and_loses_nothing() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    for direction in [Direction::ToServer, Direction::ToClient] {
        let mut stream = connect(&proxy);
        assert!(ping(&mut stream).unwrap());
        proxy.black_hole(direction);
        ping(&mut stream).unwrap_err();
        proxy.resume();
        let mut late = [0; 7];
        stream.read_exact(&mut late).unwrap();
        assert!(ping(&mut stream).unwrap());
    }
}

#[test]
#[limit]
fn cuts_swallows_kills_and_refuses() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let mut stream = connect(&proxy);
    proxy.cut_after(Direction::ToClient, 3);
    assert!(!ping(&mut stream).unwrap());
    assert_eq!(proxy.bytes(Direction::ToClient), 3);

    let (mut stream, mut other) = (connect(&proxy), connect(&proxy));
    proxy.drop_replies(1);
    assert!(!ping(&mut stream).unwrap());
    assert!(ping(&mut other).unwrap(), "only one reply was to be lost");

    proxy.kill_connections();
    assert!(!ping(&mut other).unwrap());
    assert!(ping(&mut connect(&proxy)).unwrap());

    let mut stranded = connect(&proxy);
    assert!(ping(&mut stranded).unwrap());
    proxy.strand_connections();
    ping(&mut stranded).unwrap_err();
    assert!(ping(&mut connect(&proxy)).unwrap());

    proxy.refuse(true);
    assert!(!ping(&mut connect(&proxy)).unwrap());
    proxy.resume();
    assert!(ping(&mut connect(&proxy)).unwrap());
}

#[test]
#[limit]
fn nothing_passes_once_connections_are_killed() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    for _ in 0..300 {
        let mut stream = connect(&proxy);
        assert!(ping(&mut stream).unwrap());
        proxy.kill_connections();
        let passed = proxy.bytes(Direction::ToServer);
        assert!(!ping(&mut stream).unwrap());
        assert_eq!(proxy.bytes(Direction::ToServer), passed);
    }
}

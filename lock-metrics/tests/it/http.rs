//! Tests the listener as an unknown client would use it.

use lock_core::testing::limit;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lock_metrics::{InstallError, LIVE_VIEW_CSP, MetricsHandle, builder};

use crate::support::{Acquire, Scrape, eventually};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn serve() -> (MetricsHandle, SocketAddr) {
    let metrics = builder().with_listener(LOOPBACK).build().unwrap();
    let address = metrics.listener().unwrap();
    (metrics, address)
}

/// Sends bytes and reads until the other side closes.
fn talk(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ask(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    ask_as(address, method, path, "localhost")
}

fn ask_as(address: SocketAddr, method: &str, path: &str, host: &str) -> (String, String) {
    let answer = talk(address, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
#[limit]
fn serves_metrics_and_nothing_else() {
    let (_metrics, address) = serve();
    assert!(address.ip().is_loopback());
    let (head, body) = ask(address, "GET", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(head.to_lowercase().contains("connection: close"), "{head}");
    assert_eq!(Scrape::read(&body).get("build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert!(ask(address, "GET", "/metrics?name[]=x").0.starts_with("HTTP/1.1 200"));
    let (head, body) = ask(address, "HEAD", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = ask(address, "POST", "/metrics");
    assert!(head.starts_with("HTTP/1.1 405") && head.to_lowercase().contains("allow: get, head"), "{head}");
    for path in ["/", "/health", "/metrics/", "/locks/", "/locks.html"] {
        let (head, body) = ask(address, "GET", path);
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        assert!(!body.contains("distributed_lock"), "{path}");
    }
}

#[test]
#[limit]
fn serves_the_live_view_and_lets_it_load_nothing() {
    let (metrics, address) = serve();
    let observer = metrics.observer();
    Acquire::new(&observer, 1, "lock:user:<id>", "lock:user:1").take();
    let (head, body) = ask(address, "GET", "/locks");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("data-key=\"lock:user:1\""), "{head} {body}");
    let head = head.to_lowercase();
    for header in [
        "content-type: text/html; charset=utf-8",
        &format!("content-security-policy: {}", LIVE_VIEW_CSP.to_lowercase()),
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    let (head, body) = ask(address, "GET", "/locks.json");
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["locks"][0]["key"], "lock:user:1");
    assert!(ask(address, "POST", "/locks").0.starts_with("HTTP/1.1 405"));
    assert!(ask(address, "HEAD", "/locks").1.is_empty());
}

#[test]
#[limit]
fn answers_are_packed_for_who_can_unpack_them() {
    let (_metrics, address) = serve();
    let ask = |coding: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {coding}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        (String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase(), answer[end..].to_vec())
    };
    for coding in ["gzip", "deflate, GZIP;q=0.5", "br,gzip"] {
        let (head, body) = ask(coding);
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{coding}: {head}");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert!(Scrape::read(&text).names().len() > 20 && text.len() > 2 * body.len(), "{coding}");
    }
    for coding in ["identity", "gzip;q=0", "gzip; q=0.0", "gzipped", ""] {
        assert!(!ask(coding).0.contains("content-encoding"), "{coding}");
    }
}

#[test]
#[limit]
fn a_foreign_host_name_sees_nothing() {
    let (metrics, address) = serve();
    let observer = metrics.observer();
    Acquire::new(&observer, 1, "lock:user:<id>", "lock:user:1").take();
    for path in ["/locks", "/locks.json", "/metrics"] {
        for host in ["evil.example", &format!("evil.example:{}", address.port()), "localhost.evil.example", ""] {
            let (head, body) = ask_as(address, "GET", path, host);
            assert!(head.starts_with("HTTP/1.1 403") && !body.contains("lock:"), "{host}{path}: {head} {body}");
        }
        for host in ["LocalHost", "127.0.0.1", "[::1]:80", &address.to_string()] {
            assert!(ask_as(address, "GET", path, host).0.starts_with("HTTP/1.1 200"), "{host}{path}");
        }
        let nobody = talk(address, &format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert!(nobody.contains(" 403 "), "{nobody}");
        let twice = talk(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"));
        assert!(!twice.contains(" 200 "), "{twice}");
    }
}

#[test]
#[limit]
fn a_listener_for_the_network_gives_metrics_under_any_name() {
    let metrics = builder().with_listener(([0, 0, 0, 0], 0)).build().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], metrics.listener().unwrap().port()));
    assert!(ask_as(address, "GET", "/metrics", "web-1").0.starts_with("HTTP/1.1 200"));
    assert!(ask_as(address, "GET", "/locks", "web-1").0.starts_with("HTTP/1.1 403"));
    assert!(ask_as(address, "GET", "/locks", "localhost").0.starts_with("HTTP/1.1 200"));
}

#[test]
#[limit]
fn rubbish_and_silence_do_not_stop_it() {
    let (_metrics, address) = serve();
    assert!(!talk(address, "\0\u{1}rubbish\r\n\r\n").contains(" 200 "));
    assert!(!talk(address, &format!("GET /metrics HTTP/1.1\r\nX: {}", "a".repeat(40_000))).contains(" 200 "));
    // More silent clients than there are places: they are disconnected and the next client is
    // served.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (head, _) = ask(address, "GET", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    drop(silent);
}

#[test]
#[limit]
fn closes_with_the_last_handle() {
    let (metrics, address) = serve();
    let clone = metrics.clone();
    drop(metrics);
    assert!(ask(address, "GET", "/metrics").0.starts_with("HTTP/1.1 200"));
    drop(clone);
    // The thread closes the socket a little later.
    eventually("closing the listener", || TcpStream::connect(address).is_err().then_some(()));
}

#[test]
#[limit]
fn an_address_in_use_is_a_typed_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    match builder().with_listener(address).build() {
        Err(InstallError::Listener { address: refused, source, .. }) => {
            assert_eq!((refused, source.kind()), (address, std::io::ErrorKind::AddrInUse));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[limit]
fn outlives_the_runtime_it_was_started_on() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (_metrics, address) = runtime.block_on(async { serve() });
    drop(runtime);
    assert!(ask(address, "GET", "/metrics").0.starts_with("HTTP/1.1 200"));
}

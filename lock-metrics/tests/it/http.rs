//! Tests the listener as an unknown client would use it.

use lock_core::LockEventKind;
use lock_testing::{Stopwatch, limit};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use lock_metrics::{InstallError, LIVE_VIEW_CSP, MetricsHandle, builder};

use crate::support::{Acquire, Scrape, eventually};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// How many connections the listener keeps.
const PLACES: usize = 64;

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
        assert!(
            head.contains("content-encoding: gzip") && head.contains("vary: accept, accept-encoding"),
            "{coding}: {head}"
        );
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

/// An address of this host that other hosts could reach, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

#[test]
#[limit]
fn the_live_view_is_reached_by_an_address_of_this_host() {
    let Some(own) = own_address() else {
        eprintln!("skipped: this host has only loopback addresses");
        return;
    };
    // For all addresses, and bound to the one that dashboards link to.
    for bound in [IpAddr::from([0, 0, 0, 0]), own] {
        let metrics = builder().with_listener((bound, 0)).build().unwrap();
        let address = SocketAddr::from((own, metrics.listener().unwrap().port()));
        for path in ["/locks", "/locks.json", "/metrics"] {
            let (head, _) = ask_as(address, "GET", path, &address.to_string());
            assert!(head.starts_with("HTTP/1.1 200"), "{bound} {path}: {head}");
        }
        // By a name only if that was allowed, whatever it resolves to.
        assert!(ask_as(address, "GET", "/locks", "shop-7f.internal").0.starts_with("HTTP/1.1 403"));
    }
    let metrics = builder().with_listener((own, 0)).with_live_view_name("shop-7f.internal").build().unwrap();
    let address = metrics.listener().unwrap();
    assert!(ask_as(address, "GET", "/locks", "shop-7f.internal:9464").0.starts_with("HTTP/1.1 200"));
}

#[test]
#[limit]
fn a_scrape_overtakes_views_that_take_long() {
    let (metrics, address) = serve();
    let observer = metrics.observer();
    // Every key is waited for, which is what makes a view slow.
    for attempt in 0..50_000 {
        Acquire::new(&observer, attempt, "job", &format!("job:{attempt}")).send(LockEventKind::WaitStarted);
    }
    let views: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    assert!(ask(address, "GET", "/metrics").0.starts_with("HTTP/1.1 200"));
    let unanswered = views.iter().filter(|view| {
        view.set_nonblocking(true).unwrap();
        view.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    assert!(unanswered.count() > 0, "the scrape waited for all the views that were asked for before it");
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
fn connections_that_never_ask_keep_nobody_out() {
    let (_metrics, address) = serve();
    let mut kept = Vec::new();
    let watch = Stopwatch::start();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may have had to make room for another already.
        let _ = stream.write_all(b"GET");
        kept.push(stream);
        if kept.len() % 50 == 0 {
            let (head, _) = ask(address, "GET", "/metrics");
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        }
    }
    // Each of them may stay for three seconds.
    watch.assert_within(Duration::from_secs(1), "four scrapes");
    for stream in &kept {
        stream.set_nonblocking(true).unwrap();
    }
    let is_open =
        |stream: &mut TcpStream| matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    // Well before the three seconds, which would close them all.
    let watch = Stopwatch::start();
    while kept.iter_mut().filter_map(|stream| is_open(stream).then_some(())).count() > PLACES {
        assert!(watch.elapsed() < Duration::from_secs(2), "more are open than there is room for");
        std::thread::yield_now();
    }
}

#[test]
#[limit]
fn a_proxy_on_this_machine_shows_the_live_view_to_nobody() {
    let (_metrics, address) = serve();
    let ask = |path: &str, version: &str, more: &str| {
        talk(address, &format!("GET {path} HTTP/{version}\r\nHost: localhost\r\n{more}\r\n"))
    };
    for path in ["/locks", "/locks.json"] {
        for (version, more) in [
            ("1.1", "X-Forwarded-For: 203.0.113.7\r\n"),
            ("1.1", "Forwarded: for=203.0.113.7\r\n"),
            ("1.1", "Via: 1.1 web-1\r\n"),
            ("1.0", ""),
        ] {
            let answer = ask(path, version, more);
            assert!(answer.contains(" 403 ") && answer.contains("without a proxy"), "{path} {more}: {answer}");
        }
        assert!(ask(path, "1.1", "").contains(" 200 "));
    }
    assert!(ask("/metrics", "1.1", "X-Forwarded-For: 203.0.113.7\r\n").contains(" 200 "), "it has no keys");
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
            assert_eq!((refused, source.kind()), (address, ErrorKind::AddrInUse));
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

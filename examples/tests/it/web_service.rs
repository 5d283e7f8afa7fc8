use lock_testing::limit;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use crate::program::{Program, eventually, http, start};

/// Starts the service on a port that the system chooses, and returns its address.
pub(crate) fn serve(store: &[(&str, &str)]) -> (Program, String) {
    let environment: Vec<_> = store.iter().copied().chain([("LISTEN", "127.0.0.1:0")]).collect();
    let mut program = start(env!("CARGO_BIN_EXE_web_service"), &[], &environment);
    let server = program.wait_for_line("listening on ");
    (program, server)
}

/// Sends many charges of one user at once: some are made, and requests that arrive during one are
/// refused. Another user is not affected.
pub(crate) fn charge_at_once(server: &str) {
    let (mut made, mut refused) = (0, 0);
    let charges = || {
        let charge = |user: u32| {
            let server = server.to_owned();
            thread::spawn(move || http(&server, "POST", &format!("/users/{user}/charge")))
        };
        let (other, same) = (charge(7), [42; 4].map(charge));
        let (status, answer) = other.join().unwrap();
        assert_eq!(status, 200, "{answer}");
        made += 1;
        for (status, answer) in same.map(|request| request.join().unwrap()) {
            match status {
                200 => made += 1,
                409 => refused += 1,
                _ => panic!("{answer}"),
            }
            let problem = ["retry-after: 1", "content-type: application/problem+json", r#""code":"locked""#];
            assert!(status == 200 || problem.iter().all(|part| answer.to_lowercase().contains(part)), "{answer}");
        }
        // On a machine that runs them one after the other, all are made.
        (refused > 0).then_some(())
    };
    eventually("a charge is refused", charges);

    let (status, metrics) = http(server, "GET", "/metrics");
    assert_eq!(status, 200);
    for (outcome, count) in [("acquired", made), ("timeout", refused)] {
        let lock = r#"distributed_lock_acquisitions_total{lock="charge:user:<user_id>",store="#;
        let rest = format!("outcome=\"{outcome}\",mode=\"write\"}} {count}");
        let is_there = metrics.lines().any(|line| line.starts_with(lock) && line.ends_with(&rest));
        assert!(is_there, "{lock}…{rest} is not in {metrics}");
    }
}

#[test]
#[limit]
fn charges_one_request_at_a_time_and_stops_cleanly() {
    let (mut program, server) = serve(&[("LOCK_URL", "memory://")]);
    charge_at_once(&server);
    assert_eq!(http(&server, "POST", "/users/nobody/charge").0, 400);
    let (status, answer) = http(&server, "PUT", "/carts/7");
    assert!(status == 200 && answer.contains("cart 7 is changed"), "{answer}");
    let (_, metrics) = http(&server, "GET", "/metrics");
    assert!(
        metrics.contains(
            r#"distributed_lock_acquisitions_total{lock="request:<path>",store="memory",outcome="acquired",mode="write"} 1"#
        ),
        "{metrics}"
    );

    // So is one that was sent only in part when the service is told to stop: it asks for its lock while that stops.
    let address = server.strip_prefix("http://").unwrap();
    let mut slow = TcpStream::connect(address).unwrap();
    write!(slow, "POST /users/2/charge HTTP/1.1\r\nHost: {address}\r\n").unwrap();
    // Connections are accepted in order.
    assert_eq!(http(&server, "GET", "/locks").0, 200);

    // A request in progress is answered before the service ends.
    let metrics = || http(&server, "GET", "/metrics").1;
    let held = r#"distributed_lock_held{lock="charge:user:<user_id>",store="memory",mode="write"} "#;
    eventually("no charge is made", || metrics().contains(&format!("{held}0\n")).then_some(()));
    let service = server.clone();
    let last = thread::spawn(move || http(&service, "POST", "/users/1/charge"));
    // Or the service has already ended.
    eventually("it is under way", || (last.is_finished() || metrics().contains(&format!("{held}1\n"))).then_some(()));
    let (status, page) = http(&server, "GET", "/locks");
    assert!(status == 200 && page.contains("content-security-policy"), "{page}");
    assert!(page.contains("charge:user:1") || last.is_finished(), "{page}");
    let (status, view) = http(&server, "GET", "/locks.json");
    assert!(status == 200 && view.contains("application/json") && view.contains("\"locks\":["), "{view}");
    program.interrupt();
    eventually("it takes no more requests", || TcpStream::connect(address).is_err().then_some(()));
    slow.write_all(b"Connection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(last.join().unwrap().0, 200);
    let ended = program.end();
    ended.assert_success();
    assert!(ended.stdout.contains("every lock given back: true"), "{ended:#?}");
}

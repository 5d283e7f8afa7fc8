use std::thread;
use std::time::Duration;

use crate::program::{Program, http, start};

/// Starts the service on a port that the system chooses, and returns its address.
pub(crate) fn serve(store: &[(&str, &str)]) -> (Program, String) {
    let environment: Vec<_> = store.iter().copied().chain([("LISTEN", "127.0.0.1:0")]).collect();
    let mut program = start(env!("CARGO_BIN_EXE_web_service"), &[], &environment);
    let server = program.wait_for_line("listening on ");
    (program, server)
}

/// Two charges of one user at once: one is made, the other is refused. Another user is not concerned.
pub(crate) fn charge_twice_at_once(server: &str) {
    let charge = |user: u32, delay: u64| {
        let server = server.to_owned();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(delay));
            http(&server, "POST", &format!("/users/{user}/charge"))
        })
    };
    let answers = [charge(42, 0), charge(42, 100), charge(7, 100)].map(|request| request.join().unwrap());
    let [first, second, other] = &answers;
    assert_eq!((first.0, second.0, other.0), (200, 409, 200), "{answers:#?}");
    assert!(second.1.to_lowercase().contains("retry-after: 1"), "{second:?}");

    let (status, metrics) = http(server, "GET", "/metrics");
    assert_eq!(status, 200);
    for series in [
        r#"distributed_lock_acquisitions_total{lock="charge:user:<user_id>",outcome="acquired"} 2"#,
        r#"distributed_lock_acquisitions_total{lock="charge:user:<user_id>",outcome="timeout"} 1"#,
    ] {
        assert!(metrics.contains(series), "{series} is not in {metrics}");
    }
}

#[test]
fn charges_one_request_at_a_time_and_stops_cleanly() {
    let (program, server) = serve(&[]);
    charge_twice_at_once(&server);
    assert_eq!(http(&server, "POST", "/users/nobody/charge").0, 400);

    // A request that is under way is answered before the service ends.
    let last = thread::spawn(move || http(&server, "POST", "/users/1/charge"));
    thread::sleep(Duration::from_millis(200));
    program.interrupt();
    assert_eq!(last.join().unwrap().0, 200);
    let ended = program.end();
    ended.assert_success();
    assert!(ended.stdout.contains("every lock given back: true"), "{ended:#?}");
}

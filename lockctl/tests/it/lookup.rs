//! A name server that does not answer.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_testing::{Stopwatch, limit};

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

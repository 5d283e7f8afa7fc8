//! The scripts that start servers stop them again, however they end.

use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use lock_core::testing::limit;

use crate::program::{Ended, Program};

/// Runs shell commands under a script, as the leader of a process group.
fn under(script: &str, commands: &str) -> Program {
    let path = format!("{}/../scripts/with-{script}.sh", env!("CARGO_MANIFEST_DIR"));
    Program::start(Command::new("sh").args([&path, "sh", "-c", commands]).process_group(0))
}

/// Returns the ports of all servers of a script, of which its URL names at least half.
fn ports(url: &str) -> Vec<u16> {
    let hosts = url.split(['/', '?']).nth(2).unwrap().split(',');
    let named: Vec<u16> = hosts.map(|host| host.rsplit(':').next().unwrap().parse().unwrap()).collect();
    // They follow each other, and those of sentinels are the last.
    let last = *named.iter().max().unwrap();
    (last - 5..=last).collect()
}

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Checks how a script ended, and that nothing is left of its servers.
fn assert_stopped(ended: &Ended, code: i32, ports: &[u16]) {
    assert_eq!((ended.code, ended.litter.len()), (Some(code), 0), "{ended:#?}");
    assert!(!ports.iter().copied().any(answers), "{ports:?} {ended:#?}");
}

#[test]
#[limit]
fn a_script_ends_as_its_command_does_and_stops_its_servers() {
    for script in ["sentinel", "cluster"] {
        let mut program = under(script, "echo url $LOCK_URL; exit 7");
        let ports = ports(&program.wait_for_line("url "));
        assert_stopped(&program.end(), 7, &ports);
    }
}

/// Ctrl-C, a shutdown, a terminal that is closed: each reaches the script, its command and the servers.
#[test]
#[limit]
fn a_script_that_is_interrupted_stops_its_servers() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut program = under("sentinel", "echo url $LOCK_URL; exec sleep 600");
        let ports = ports(&program.wait_for_line("url "));
        assert!(ports.iter().copied().all(answers), "{ports:?}");
        program.signal_all(signal);
        assert_stopped(&program.end(), code, &ports);
    }
}

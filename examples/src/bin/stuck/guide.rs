//! Lists the locks, and prints what to look at.

use std::net::SocketAddr;
use std::process;

use crate::args::Args;

/// The keys of one run. They contain the process id: two runs share no lock, and each run deletes only its own keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) run: u32,
}

impl Keys {
    pub(crate) fn of_this_process() -> Self {
        Self { run: process::id() }
    }

    pub(crate) fn stuck(&self) -> String {
        format!("demo:stuck:books:{}", self.run)
    }

    pub(crate) fn lost(&self) -> String {
        format!("demo:lost:import:{}", self.run)
    }

    pub(crate) fn orphaned(&self) -> String {
        format!("demo:orphaned:export:{}", self.run)
    }

    pub(crate) fn eternal(&self) -> String {
        format!("demo:eternal:migration:{}", self.run)
    }

    pub(crate) fn job(&self) -> String {
        format!("demo:job:report:{}", self.run)
    }

    /// A key made from user input without escaping. Views must show it as plain text.
    pub(crate) fn hostile(&self) -> String {
        format!("demo:typed:<img src=x onerror=\"document.title='pwned'\">:{}", self.run)
    }

    fn contended(&self) -> String {
        format!("demo:contended:stock:{}", self.run)
    }
}

/// Prints what to look at.
pub(crate) fn print(args: &Args, keys: &Keys, address: SocketAddr) {
    let stuck = keys.stuck();
    println!("serving http://{address}/metrics");
    println!("locks are in {}\n", args.store_name());
    row("what goes wrong", "key", "alerts");
    row(
        &format!("stuck: held for {:.0?}", args.stuck_for),
        &stuck,
        &format!("LockStuck, LockStuckWithWaiters (from {:.0?} on)", args.stuck_after),
    );
    row(&format!("lost: taken away every {:.0?}", args.lose_every), &keys.lost(), "LockLost");
    row("orphaned: its process was killed", &keys.orphaned(), "LockOrphanedHold");
    row("eternal: set without an expiry", &keys.eternal(), "LockKeyWithoutTtl, LockOrphanedHold");
    row("contended: six callers, one slow", &keys.contended(), "none; see \"Who makes them wait\"");
    row("nested: two locks, in both orders", "demo:nested:…", "LockDeadlock, LockOrderInverted");
    row("typed: its key contains HTML", "demo:typed:<img src=x onerror=…>:…", "none; see that it stays text");
    row("permits, striped, leader, job", "demo:permits:… and so on", "none: they work as they should");
    println!("\nwhere to look");
    look(&format!("http://{address}/locks"), "every hold and wait of this process, with its key");
    look("http://127.0.0.1:9090/alerts", "Prometheus, if it runs as dashboards/README.md says");
    look("http://127.0.0.1:3000", "Grafana, dashboard \"Locks: on call\"");
    look("lockctl list", "every lock in the store");
    look(
        &format!("lockctl why {stuck} --live-view http://{address}"),
        "its holder, who waits, and whether to force it",
    );
    look(&format!("lockctl waiters {stuck}"), "who waits for it");
    println!("\nCtrl-C ends it and gives every lock back.");
}

fn row(what: &str, key: &str, alerts: &str) {
    println!("  {what:<34}{key:<36}{alerts}");
}

fn look(place: &str, what: &str) {
    println!("  {place:<45} {what}");
}

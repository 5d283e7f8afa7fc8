//! One process of the run, with any process that it started.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a process may stay silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// A caller, killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program as a caller.
    pub(crate) fn start(workload: &str, args: &[(&str, String)]) -> Self {
        let mut program =
            Command::new(std::env::var_os("LOCK_PROOF").map_or_else(|| std::env::current_exe().unwrap(), Into::into));
        program.arg("caller").arg(workload).args(args.iter().map(|(name, value)| format!("{name}={value}")));
        // A process group: an adapter is stopped and killed together with its caller.
        program.process_group(0);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, says }
    }

    /// Waits for the next line.
    pub(crate) async fn next(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.says.next_line()).await;
        line.expect("a caller is silent").unwrap().expect("a caller has ended")
    }

    /// Sends an order, and waits for the answer.
    pub(crate) async fn order(&mut self, order: &str) -> String {
        self.send(order).await;
        self.next().await
    }

    pub(crate) async fn send(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the caller runs")
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process with SIGKILL, as the kernel does when memory runs out, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().await.unwrap();
    }

    /// Waits until the process ends by itself, without an error.
    pub(crate) async fn ended(mut self) {
        drop(self.orders);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("a caller goes on and on").unwrap();
        assert!(status.success(), "{status}");
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process_group(pid, signal).unwrap();
    }
}

//! The signals that would end this process.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Receives signals from the moment it is created. What this process was started to ignore, as `nohup` does with HUP,
/// stays ignored, by the command too.
pub(super) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

/// Returns the set of signals that are ignored, the first in the lowest bit. It is known on Linux only, without unsafe
/// code.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let all = [
            (Signal::HUP, SignalKind::hangup()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        let ignored = ignored();
        let heard = all.into_iter().filter(|(name, _)| ignored >> (name.as_raw() - 1) & 1 == 0);
        heard.map(|(name, kind)| Ok((name, signal(kind)?))).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let ready = self.0.iter_mut().find_map(|(name, stream)| stream.poll_recv(cx).is_ready().then_some(*name));
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

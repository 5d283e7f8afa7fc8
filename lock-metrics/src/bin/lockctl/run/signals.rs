//! The signals that would end this process.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Receives signals from the moment it is created.
pub(super) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

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
        all.into_iter().map(|(name, kind)| Ok((name, signal(kind)?))).collect::<io::Result<_>>().map(Self)
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

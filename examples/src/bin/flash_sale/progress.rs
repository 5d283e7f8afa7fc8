//! Shows the progress of the sale on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts answered orders. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<AtomicUsize>);

impl Progress {
    pub(crate) fn add(&self, answered: usize) {
        self.0.fetch_add(answered, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Awaits `work` and shows its progress meanwhile: one line that changes on a terminal, a new
    /// line now and then elsewhere, and a final one at the end.
    pub(crate) async fn show_while<T>(&self, orders: usize, work: impl Future<Output = T>) -> T {
        let terminal = std::io::stderr().is_terminal();
        let every = Duration::from_millis(if terminal { 100 } else { 2_000 });
        let started = Instant::now();
        let ticks = async {
            loop {
                tokio::time::sleep(every).await;
                self.line(orders, started, terminal);
            }
        };
        let outcome = tokio::select! {
            outcome = work => outcome,
            () = ticks => unreachable!("ticks never end"),
        };
        self.line(orders, started, terminal);
        if terminal {
            eprintln!();
        }
        outcome
    }

    fn line(&self, orders: usize, started: Instant, terminal: bool) {
        let (answered, seconds) = (self.get(), started.elapsed().as_secs_f64());
        let text = format!("{answered:>6} of {orders} orders answered, {seconds:.1} s");
        let mut stderr = std::io::stderr().lock();
        // Progress is optional: a closed standard error must not stop the sale.
        let _ = if terminal { write!(stderr, "\r{text} ") } else { writeln!(stderr, "{text}") };
        let _ = stderr.flush();
    }
}

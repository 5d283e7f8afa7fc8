//! The result, for people and for the exit code.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use crate::check::Audit;
use crate::stopwatch::Times;

/// How many problems are printed in full.
const SHOWN: usize = 8;

/// A hint for problems of a sale on replicated servers.
const OVERLAP: &str = "the locks were not confirmed by replicas: a master that dies takes the last ones with it, its \
    successor grants them again, and two buyers are then served at once. Where this must not happen, add acks=all to the \
    URL of the store (as --store sentinel does), or have the ledger refuse tokens that are older than the newest it has seen";

/// The complete result of a sale.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) orders: usize,
    pub(crate) elapsed: Duration,
    pub(crate) times: Times,
    pub(crate) audit: Audit,
    pub(crate) locked: bool,
    /// Whether a failover may lose locks, which could explain the problems.
    pub(crate) unconfirmed: bool,
}

impl Report {
    /// Prints the figures to standard output, followed by the verdict; problems go to standard error.
    pub(crate) fn print(mut self) -> ExitCode {
        self.print_figures();
        if self.locked { self.verdict_with_lock() } else { self.verdict_without_lock() }
    }

    fn print_figures(&mut self) {
        let Self { orders, elapsed, ref mut times, ref audit, .. } = *self;
        row("orders", orders);
        row("sold", format_args!("{} ({} pieces)", audit.sold, audit.pieces));
        row("refused", format_args!("{} (sold out)", audit.refused));
        if audit.failed > 0 {
            row("failed", audit.failed);
        }
        row("oversold", format_args!("{} pieces", audit.oversold));
        row("lost updates", audit.lost_updates);
        if times.grants() > 0 {
            row("wait", format_args!("p50 {}, p99 {}", Millis(times.wait(50)), Millis(times.wait(99))));
            row("hold", format_args!("p50 {}, p99 {}", Millis(times.hold(50)), Millis(times.hold(99))));
            row("contention", format_args!("{:.1} % of the grants had to wait", times.contention()));
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = orders as f64 / elapsed.as_secs_f64().max(0.001);
        row("throughput", format_args!("{rate:.0} orders/s over {:.1} s", elapsed.as_secs_f64()));
        row("grants", times.grants());
    }

    fn verdict_with_lock(self) -> ExitCode {
        let mut problems = self.audit.problems;
        if self.times.grants() != self.orders {
            problems.push(format!("{} orders, but {} grants of the lock", self.orders, self.times.grants()));
        }
        if self.times.lost > 0 {
            problems.push(format!("{} purchases lost their lock on the way", self.times.lost));
        }
        if problems.is_empty() {
            row("ledger", "agrees with every order");
            return ExitCode::SUCCESS;
        }
        row("ledger", "NOT PASSED, see standard error");
        print_problems(&problems);
        if self.unconfirmed {
            eprintln!("{OVERLAP}");
        }
        ExitCode::FAILURE
    }

    fn verdict_without_lock(self) -> ExitCode {
        let audit = self.audit;
        if audit.oversold == 0 && audit.lost_updates == 0 {
            row("ledger", "no damage");
            eprintln!(
                "flash_sale: no damage without the lock, so this run proves nothing; use more --buyers or --orders"
            );
            return ExitCode::FAILURE;
        }
        row("ledger", "damaged, as was to be expected without the lock");
        print_problems(&audit.problems);
        ExitCode::SUCCESS
    }
}

fn row(name: &str, value: impl fmt::Display) {
    println!("{name:<13} {value}");
}

fn print_problems(problems: &[String]) {
    for problem in problems.iter().take(SHOWN) {
        eprintln!("  {problem}");
    }
    if problems.len() > SHOWN {
        eprintln!("  and {} more", problems.len() - SHOWN);
    }
}

/// Prints a duration in milliseconds.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ms", self.0.as_secs_f64() * 1_000.0)
    }
}

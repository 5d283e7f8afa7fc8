//! Tests that cannot run on a machine are named.

use std::io::Write as _;

/// Names a test that cannot run here, past the harness, which shows nothing of a test that passes. Say what to install.
///
/// ```no_run
/// lock_testing::not_run("java is missing; install it, then run sh scripts/need-redisson.sh");
/// ```
pub fn not_run(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {why}");
}

//! Time and memory as the operating system counts them, comparable between processes.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::Result;

/// Returns the machine's monotonic time in nanoseconds. All processes see the same.
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Returns the processor time that this process has used, all threads and both modes, in
/// nanoseconds.
pub(crate) fn cpu() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns the duration from now to a given time, zero if it has passed.
pub(crate) fn until(at: u64) -> Duration {
    Duration::from_nanos(at.saturating_sub(now()))
}

/// Returns a duration in nanoseconds.
pub(crate) fn as_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| format!("cannot read the memory of this process, which needs Linux: {error}"))?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib * 1024).ok_or_else(|| "the system does not tell the memory of this process".into())
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

//! The records of a history, written by the recorder of `lock-testing`. `schema.md` defines each.

pub(crate) use lock_testing::Recorder;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One event. Times are nanoseconds of one clock that all processes of a machine share.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Record {
    Run { row: String, subject: String, assumption: String, expect: Expect, seed: u64 },
    Start { process: u32, attempt: u64, at: u64 },
    Over { process: u32, attempt: u64, at: u64 },
    Grant(Grant),
    End { process: u32, hold: u64, at: u64, downgraded: bool },
    Write { process: u32, hold: u64, key: String, token: Option<u64>, at: u64, accepted: bool },
    Add { process: u32, hold: u64, key: String, element: u64, at: u64 },
    Set { key: String, elements: Vec<u64>, at: u64 },
    Job { what: Told, name: String, within: Option<u64>, asked: u64, at: u64 },
    Killed { process: u32, at: u64 },
    Forgot { from: u64, until: u64 },
    Renamed { from: u64, until: u64 },
    Fault { name: String, what: String, from: u64, until: u64 },
    Served { took: Option<u64>, bound: u64 },
    Left { key: String, counter: Option<bool> },
    Done { at: u64 },
}

/// A lock that was granted, or one key of a lock on several.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Grant {
    pub(crate) process: u32,
    pub(crate) hold: u64,
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) units: u64,
    pub(crate) limit: u64,
    pub(crate) token: Option<u64>,
    pub(crate) asked: u64,
    pub(crate) at: u64,
    pub(crate) deadline: Option<u64>,
    pub(crate) site: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Write,
    Read,
    Permit,
}

/// The result that a row must show; otherwise the run fails.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expect {
    /// No violation.
    Nothing,
    /// At least once two holders that exclude each other: an assumption is broken on purpose.
    Overlaps,
    /// At least one late write that the resource admits.
    Stale,
    /// At least one added element that the set lacks.
    Lost,
    /// Any result.
    Anything,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Told {
    Began,
    Told,
}

/// Returns the time on the clock of the records.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

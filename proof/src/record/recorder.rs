//! Writes a history down while it happens.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use crate::record::Record;

/// Appends to a history that other processes append to as well.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: File,
}

impl Recorder {
    pub(crate) fn append_to(path: &Path) -> Result<Self, String> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { file })
    }

    /// Writes one record: in one write, which is kept whole unless the process is killed in the middle of it. So every
    /// line begins a new one.
    #[expect(clippy::expect_used, reason = "a history with holes proves nothing")]
    pub(crate) fn record(&self, record: &Record) {
        let line = serde_json::to_string(record).expect("a record is JSON");
        (&self.file).write_all(format!("\n{line}\n").as_bytes()).expect("the history can be written");
    }
}

/// Returns the time as records state it.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

//! Writes a history while it happens.

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

    /// Writes one record in one write, which stays whole unless the process is killed in the middle. Each record
    /// therefore starts with a line break.
    #[expect(clippy::expect_used, reason = "a history with holes proves nothing")]
    pub(crate) fn record(&self, record: &Record) {
        let line = serde_json::to_string(record).expect("a record is JSON");
        (&self.file).write_all(format!("\n{line}\n").as_bytes()).expect("the history can be written");
    }
}

/// Returns the time on the clock of the records.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

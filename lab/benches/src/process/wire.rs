//! How the processes of one run communicate: one line of JSON at a time.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Result, clock};

/// The times at which the measurement starts and ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Go {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Go {
    /// For a run with a fixed number of acquisitions: the window never ends.
    pub(crate) fn unhurried() -> Self {
        let from = clock::now();
        Self { from, to: from + clock::as_nanos(Duration::from_secs(600)) }
    }
}

/// Reads one line of the input.
pub(crate) fn hear<T: DeserializeOwned>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes one line.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

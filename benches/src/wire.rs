//! How the processes of one run communicate: one line of JSON at a time.

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Result;

/// The times at which the measurement starts and ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Go {
    pub(crate) from: u64,
    pub(crate) to: u64,
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

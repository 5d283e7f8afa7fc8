//! The stock ledger: one plain text file for each product.
//!
//! A file is read, changed in memory and written back, without a lock, a version check or an atomic rename. This is
//! correct only if one buyer at a time touches a product. The distributed lock ensures that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::data::Stock;

/// A folder with a file for each product.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
}

/// The ledger's entry for one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Pieces left.
    pub(crate) remaining: u32,
    /// Sales so far.
    pub(crate) sales: u32,
}

/// The reason why the ledger could not be used.
#[derive(Debug, thiserror::Error)]
#[error("the ledger of {product:?}: {source}")]
pub(crate) struct LedgerError {
    product: String,
    source: io::Error,
}

impl Ledger {
    /// Opens a ledger that exists.
    pub(crate) fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Writes the opening stock.
    pub(crate) fn create(folder: &Path, stock: &Stock) -> Result<Self, LedgerError> {
        let ledger = Self::open(folder);
        for (product, &remaining) in stock {
            ledger.write(product, Entry { remaining, sales: 0 })?;
        }
        Ok(ledger)
    }

    // These calls block on purpose: the files have 30 bytes. A write by `tokio::fs` would continue in its thread after
    // its future was dropped, and a body is dropped when its lock is lost.
    pub(crate) fn read(&self, product: &str) -> Result<Entry, LedgerError> {
        let text = fs::read_to_string(self.file(product)).map_err(|source| error(product, source))?;
        Entry::parse(&text).ok_or_else(|| {
            let what = format!("unreadable, somebody is in the middle of writing it: {text:?}");
            error(product, io::Error::new(io::ErrorKind::InvalidData, what))
        })
    }

    pub(crate) fn write(&self, product: &str, entry: Entry) -> Result<(), LedgerError> {
        fs::write(self.file(product), entry.to_text()).map_err(|source| error(product, source))
    }

    fn file(&self, product: &str) -> PathBuf {
        self.folder.join(format!("{product}.stock"))
    }
}

impl Entry {
    /// Returns the entry after a sale, or nothing if there is not enough left.
    pub(crate) fn sell(self, quantity: u32) -> Option<Self> {
        let remaining = self.remaining.checked_sub(quantity)?;
        Some(Self { remaining, sales: self.sales + 1 })
    }

    fn to_text(self) -> String {
        format!("remaining {}, sales {}\n", self.remaining, self.sales)
    }

    fn parse(text: &str) -> Option<Self> {
        let (remaining, sales) = text.lines().next()?.strip_prefix("remaining ")?.split_once(", sales ")?;
        Some(Self { remaining: remaining.parse().ok()?, sales: sales.parse().ok()? })
    }
}

fn error(product: &str, source: io::Error) -> LedgerError {
    LedgerError { product: product.to_owned(), source }
}

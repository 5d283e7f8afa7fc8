//! The books: a plain file for each segment with its remaining pieces.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The books of one sale.
pub(crate) struct Books {
    folder: PathBuf,
    /// The opening stock of each segment.
    began: Vec<u32>,
}

impl Books {
    /// Splits the stock over the segments.
    pub(crate) fn open(folder: &Path, segments: u32, stock: u32) -> Result<Self> {
        let began: Vec<u32> =
            (0..segments).map(|segment| stock / segments + u32::from(segment < stock % segments)).collect();
        let books = Self { folder: folder.to_owned(), began };
        for (segment, pieces) in (0..).zip(&books.began) {
            books.write(segment, *pieces)?;
        }
        Ok(books)
    }

    /// Opens books that another process has created.
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), began: Vec::new() }
    }

    /// Reads the remaining pieces of a segment. Call it under the segment's lock.
    pub(crate) fn read(&self, segment: u32) -> Result<u32> {
        let file = self.file(segment);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        text.parse().with_context(|| format!("{} is garbled: {text:?}", file.display()))
    }

    /// Writes the remaining pieces of a segment. Call it under the segment's lock.
    pub(crate) fn write(&self, segment: u32, pieces: u32) -> Result<()> {
        let file = self.file(segment);
        fs::write(&file, pieces.to_string()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Checks that remaining and sold pieces add up to the opening stock.
    pub(crate) fn check(&self, sold: &[u32]) -> Result<()> {
        for ((segment, began), sold) in (0..).zip(&self.began).zip(sold) {
            let left = self.read(segment)?;
            ensure!(left + sold == *began, "segment {segment} had {began}, sold {sold}, and has {left} left");
        }
        Ok(())
    }

    fn file(&self, segment: u32) -> PathBuf {
        self.folder.join(format!("segment-{segment}"))
    }
}

//! What a task asks for.

use serde::{Deserialize, Serialize};

/// What the tasks of one run want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wants {
    /// The lock for themselves.
    Alone,
    /// To read, this many times in a hundred, else to write.
    Reads(u32),
    /// One of so many permits.
    Permits(u32),
    /// Any of so many segments, for themselves.
    Segments(u32),
}

impl Wants {
    /// Returns what the next acquire asks for.
    pub(crate) fn next(self) -> Access {
        match self {
            Self::Reads(percent) if fastrand::u32(0..100) < percent => Access::Read,
            Self::Alone | Self::Reads(_) => Access::Alone,
            Self::Permits(of) => Access::Permit(of),
            Self::Segments(of) => Access::Segment(of),
        }
    }
}

/// What one acquire asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Alone,
    Read,
    /// One of so many permits.
    Permit(u32),
    /// Any of so many segments.
    Segment(u32),
}

impl Access {
    /// Returns how many may be inside at a time.
    pub(crate) fn inside(self) -> u32 {
        match self {
            Self::Alone | Self::Segment(_) => 1,
            Self::Read => u32::MAX,
            Self::Permit(of) => of,
        }
    }
}

//! The kinds of access that a task may request.

use serde::{Deserialize, Serialize};

/// The access that the tasks of one run request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wants {
    /// Exclusive access.
    Alone,
    /// Read access this many times in a hundred, otherwise write access.
    Reads(u32),
    /// One of this many permits.
    Permits(u32),
    /// Exclusive access to any one of this many segments.
    Segments(u32),
}

impl Wants {
    /// Returns the access for the next acquire.
    pub(crate) fn next(self) -> Access {
        match self {
            Self::Reads(percent) if fastrand::u32(0..100) < percent => Access::Read,
            Self::Alone | Self::Reads(_) => Access::Alone,
            Self::Permits(of) => Access::Permit(of),
            Self::Segments(of) => Access::Segment(of),
        }
    }
}

/// The access of one acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Alone,
    Read,
    /// One of this many permits.
    Permit(u32),
    /// Any one of this many segments.
    Segment(u32),
}

impl Access {
    /// Returns how many tasks may be inside at once.
    pub(crate) fn inside(self) -> u32 {
        match self {
            Self::Alone | Self::Segment(_) => 1,
            Self::Read => u32::MAX,
            Self::Permit(of) => of,
        }
    }
}

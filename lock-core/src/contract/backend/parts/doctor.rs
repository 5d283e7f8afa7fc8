//! What a store finds out about the servers behind it.

use std::borrow::Cow;
use std::future::Future;

/// The part of a store that examines what is behind it: servers, settings, permissions. `lockctl doctor` asks it, for whoever sets up or
/// mends. Without it the store tells nothing, which is a finding too.
///
/// See the example of [`Finding`]. How a store returns a part is in the example of [`LockBackend`](crate::LockBackend).
pub trait Doctor: Send + Sync {
    /// Looks at everything that the store depends on. What is as it should be is a finding, and so is what could not be found out: an
    /// error leaves nothing out, and nothing of it counts as healthy. Leaves nothing behind.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send;
}

/// One thing that a store depends on, and how it was found.
///
/// ```
/// use lock_core::{Finding, FindingGrade};
///
/// let finding = Finding::warning("clock", "it is 3 minutes ahead of this machine's").with_remedy("let both follow NTP");
/// assert_eq!((finding.grade, finding.grade.as_str()), (FindingGrade::Warning, "warning"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in one or two words that stay the same: the name of a setting, if it is one.
    pub subject: Cow<'static, str>,
    /// How it is.
    pub grade: FindingGrade,
    /// What works, or what is lost, in a sentence.
    pub says: String,
    /// What to set or to run. `None` where nothing is to be done.
    pub remedy: Option<String>,
}

impl Finding {
    /// Says what works.
    #[must_use]
    pub fn works(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { subject: subject.into(), grade: FindingGrade::Works, says: says.into(), remedy: None }
    }

    /// Says what is lost, or may be, while locks are taken all the same.
    #[must_use]
    pub fn warning(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { grade: FindingGrade::Warning, ..Self::works(subject, says) }
    }

    /// Says why no lock can be taken.
    #[must_use]
    pub fn refused(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { grade: FindingGrade::Refused, ..Self::works(subject, says) }
    }

    /// Says why it could not be found out.
    #[must_use]
    pub fn unknown(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { grade: FindingGrade::Unknown, ..Self::works(subject, says) }
    }

    /// Says what to set or to run.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// How a [`Finding`] is. See the example of [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingGrade {
    /// As it should be.
    Works,
    /// Locks are taken, and something is lost or may be.
    Warning,
    /// No lock can be taken.
    Refused,
    /// It could not be found out.
    Unknown,
}

impl FindingGrade {
    /// Returns its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Warning => "warning",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

//! Findings of a store about the servers behind it.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

/// The part of a store that examines its servers, settings and permissions. `lockctl doctor` asks it, for operators who
/// set up or repair a store. A store without this part reports that it examines nothing, which is a finding too.
///
/// See the example of [`Finding`]. The example of [`LockBackend`](crate::LockBackend) shows how a store returns a part.
pub trait Doctor: Send + Sync {
    /// Examines everything that the store depends on. Each healthy thing is a finding, and so is each thing that could
    /// not be examined. An error therefore hides no finding, and an unexamined thing never counts as healthy. Changes
    /// nothing on the servers.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send;
}

/// One thing that a store depends on, and its condition.
///
/// ```
/// use lock_store::{Finding, FindingGrade};
///
/// let finding = Finding::warning("clock", "it is 3 minutes ahead of this machine's").with_remedy("let both follow NTP");
/// assert_eq!((finding.grade, finding.grade.as_str()), (FindingGrade::Warning, "warning"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The examined thing, in one or two words that stay the same. For a setting, this is its name.
    pub subject: Cow<'static, str>,
    /// The condition.
    pub grade: FindingGrade,
    /// One sentence: what works, or what is lost.
    pub says: String,
    /// The remedy: what to set or to run. `None` if no action is needed.
    pub remedy: Option<String>,
    /// The member of a quorum that was examined.
    pub node: Option<Arc<str>>,
}

impl Finding {
    /// Reports that something works.
    #[must_use]
    pub fn works(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { subject: subject.into(), grade: FindingGrade::Works, says: says.into(), remedy: None, node: None }
    }

    /// Reports that something is lost or may be lost, although locks can be taken.
    #[must_use]
    pub fn warning(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { grade: FindingGrade::Warning, ..Self::works(subject, says) }
    }

    /// Reports why no lock can be taken.
    #[must_use]
    pub fn refused(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { grade: FindingGrade::Refused, ..Self::works(subject, says) }
    }

    /// Reports why the condition is unknown.
    #[must_use]
    pub fn unknown(subject: impl Into<Cow<'static, str>>, says: impl Into<String>) -> Self {
        Self { grade: FindingGrade::Unknown, ..Self::works(subject, says) }
    }

    /// Adds what to set or to run.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The condition in a [`Finding`]. See the example of [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingGrade {
    /// As it should be.
    Works,
    /// Locks can be taken, but something is lost or may be lost.
    Warning,
    /// No lock can be taken.
    Refused,
    /// The condition is unknown.
    Unknown,
}

impl FindingGrade {
    /// Returns the name of the grade.
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

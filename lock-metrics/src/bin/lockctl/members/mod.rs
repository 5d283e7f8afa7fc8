//! The locks of a quorum: what each member has, and whether so many have it that it is held.

mod page;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use lock_core::{LockError, LockKey};
use tokio::task::JoinSet;

use crate::args::Wanted;
use crate::listing::Listing;
use crate::output::Output;
use crate::watch::Look;
use crate::{End, Failure, listing};

/// How long a member may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// The members of a quorum.
pub(crate) struct Members(Vec<Arc<FleetReader>>);

/// What to ask each of them.
#[derive(Clone)]
pub(crate) enum Question {
    Every(Wanted),
    One { key: LockKey, owners: bool },
}

/// What they said, in the order of the URL.
struct View {
    nodes: Vec<String>,
    said: Vec<Result<Listing, LockError>>,
    /// How many of them must have a lock.
    majority: usize,
}

/// One lock.
struct Joint<'a> {
    /// What each member has, in the order of the URL.
    at: Vec<Option<&'a LockEntry>>,
    /// What most of them have.
    entry: &'a LockEntry,
    /// How many have that.
    count: usize,
    verdict: Verdict,
}

/// Whether a lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Majority,
    /// So few members have it that nobody holds it.
    Minority,
    /// Members that gave no answer may have it too.
    Unknown,
}

impl Members {
    pub(crate) fn of(members: Vec<FleetReader>) -> Self {
        Self(members.into_iter().map(Arc::new).collect())
    }

    /// Asks every member at once. One that gives no answer is part of the view.
    async fn ask(&self, question: &Question) -> View {
        let mut asking = JoinSet::new();
        for (at, member) in self.0.iter().enumerate() {
            let (member, question) = (Arc::clone(member), question.clone());
            asking.spawn(async move { (at, question.put(&member).await) });
        }
        let mut said = asking.join_all().await;
        said.sort_by_key(|(at, _)| *at);
        View {
            nodes: self.0.iter().map(|member| member.node().to_owned()).collect(),
            said: said.into_iter().map(|(_, said)| said).collect(),
            majority: self.0.len() / 2 + 1,
        }
    }

    /// Shows what is asked for, and says how a command ends that found it.
    pub(crate) async fn look(&self, question: &Question, as_json: bool) -> (Look, End) {
        let view = self.ask(question).await;
        match question {
            Question::Every(wanted) if as_json => (Look::Json(view.list_json(wanted.owners)), view.end_of_list()),
            Question::Every(wanted) => {
                (Look::Text(view.list(wanted.owners, self.0[0].key_prefix())), view.end_of_list())
            }
            Question::One { key, owners } => {
                let joint = view.joints().pop();
                let look = match as_json {
                    true => Look::Json(view.show_json(key, joint.as_ref(), *owners)),
                    false => Look::Text(view.show(key, joint.as_ref(), *owners)),
                };
                (look, view.end_of(joint.as_ref()))
            }
        }
    }
}

/// Shows it once.
pub(crate) async fn once(members: &Members, question: &Question, out: &mut Output) -> Result<End, Failure> {
    let (look, end) = members.look(question, out.is_json()).await;
    match look {
        Look::Json(document) => out.document(&document)?,
        Look::Text(text) => out.line(&text)?,
    }
    Ok(end)
}

impl Question {
    async fn put(&self, member: &FleetReader) -> Result<Listing, LockError> {
        // The others are shown soon, also if this one hangs.
        #[expect(clippy::disallowed_methods, reason = "this runtime belongs to the program")]
        let answers = tokio::time::timeout(PATIENCE, member.ping()).await;
        answers.unwrap_or_else(|_| Err(LockError::unavailable(format!("it did not answer within {PATIENCE:?}"))))?;
        match self {
            Self::Every(wanted) => listing::scan(member, &wanted.scope).await,
            Self::One { key, .. } => Ok(member.entry(key).await?.into_iter().collect()),
        }
    }
}

impl View {
    fn answered(&self) -> usize {
        self.said.iter().filter(|said| said.is_ok()).count()
    }

    fn is_truncated(&self) -> bool {
        self.said.iter().flatten().any(|listing| listing.truncated)
    }

    /// Puts together what the members have, the worst first.
    fn joints(&self) -> Vec<Joint<'_>> {
        let mut by_key: BTreeMap<&LockKey, Vec<Option<&LockEntry>>> = BTreeMap::new();
        for (at, listing) in self.said.iter().enumerate() {
            for entry in listing.iter().flat_map(|listing| &listing.entries) {
                by_key.entry(&entry.key).or_insert_with(|| vec![None; self.said.len()])[at] = Some(entry);
            }
        }
        let mut joints: Vec<Joint<'_>> = by_key.into_values().filter_map(|at| self.joint(at)).collect();
        joints.sort_by_key(|joint| {
            let age = joint.entry.held_for.unwrap_or_default();
            (joint.lease_left().is_some(), joint.verdict == Verdict::Minority, Reverse(age))
        });
        joints
    }

    fn joint<'a>(&self, at: Vec<Option<&'a LockEntry>>) -> Option<Joint<'a>> {
        let count_of = |one: &LockEntry| at.iter().flatten().filter(|other| is_same(one, other)).count();
        let entry = at.iter().flatten().copied().max_by_key(|entry| count_of(entry))?;
        let (count, silent) = (count_of(entry), self.said.len() - self.answered());
        let verdict = match () {
            () if count >= self.majority => Verdict::Majority,
            () if count + silent >= self.majority => Verdict::Unknown,
            () => Verdict::Minority,
        };
        Some(Joint { at, entry, count, verdict })
    }

    fn end_of_list(&self) -> End {
        if self.answered() >= self.majority { End::Ok } else { End::Unavailable }
    }

    fn end_of(&self, joint: Option<&Joint<'_>>) -> End {
        match joint.map(|joint| joint.verdict) {
            Some(Verdict::Majority) => End::Ok,
            Some(Verdict::Unknown) => End::Unavailable,
            None if self.answered() < self.majority => End::Unavailable,
            Some(Verdict::Minority) | None => End::NotFound,
        }
    }
}

impl Joint<'_> {
    fn state(&self) -> &'static str {
        match self.verdict {
            Verdict::Majority => self.entry.state.as_str(),
            Verdict::Minority => "minority",
            Verdict::Unknown => "unknown",
        }
    }

    /// Returns for how much longer so many members have it: until then it is held, or left over. `None` for ever.
    fn lease_left(&self) -> Option<Duration> {
        let same = self.at.iter().flatten().filter(|other| is_same(self.entry, other));
        let mut left: Vec<Duration> = same.map(|entry| entry.holder.ttl_left.unwrap_or(Duration::MAX)).collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        let decides = left.len().min(self.at.len() / 2 + 1);
        left.get(decides.checked_sub(1)?).copied().filter(|left| *left != Duration::MAX)
    }
}

/// Returns whether two members have a lock of the same holder.
fn is_same(one: &LockEntry, other: &LockEntry) -> bool {
    let foreign = |entry: &LockEntry| entry.state == EntryState::Foreign;
    one.holder.owner == other.holder.owner && foreign(one) == foreign(other) && one.foreign_value == other.foreign_value
}

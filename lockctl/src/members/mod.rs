//! The locks of a quorum: what each member has, and whether so many have it that it is held.

mod joint;
mod page;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use lock_core::store::{DoneMark, JobRecord, JobVersion};
use lock_core::{LockError, LockKey};
use tokio::task::JoinSet;

use crate::args::Wanted;
use crate::end::{End, Failure};
use crate::listing;
use crate::listing::Listing;
use crate::output::Look;
use crate::output::Output;

pub(crate) use joint::{Joint, Verdict, is_same};

/// How long a member may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the waiters of a quorum are.
pub(crate) const NO_QUEUE: &str = "a quorum keeps no queue: who waits polls, and stands in the live view /locks of its \
     own process; `lockctl why KEY --live-view URL` reads them";

/// The members of a quorum.
pub(crate) struct Members(Vec<Arc<FleetReader>>);

/// A question to each member.
#[derive(Clone)]
pub(crate) enum Question {
    Every(Wanted),
    One { key: LockKey, owners: bool },
}

/// The answers, in the order of the URL.
pub(crate) struct View {
    pub(crate) nodes: Vec<String>,
    pub(crate) said: Vec<Result<Listing, LockError>>,
    /// How many of them must have a lock.
    pub(crate) majority: usize,
}

impl Members {
    pub(crate) fn of(members: Vec<FleetReader>) -> Self {
        Self(members.into_iter().map(Arc::new).collect())
    }

    /// Asks every member at once. A member that does not answer is part of the view.
    pub(crate) async fn ask(&self, question: &Question) -> View {
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
                let joint = view.joint();
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
            Self::Every(wanted) => {
                let mut listing = listing::scan(member, &wanted.scope).await?;
                listing.keep(&wanted.filter);
                Ok(listing)
            }
            Self::One { key, .. } => {
                let entries = member.entry(key).await?.into_iter().collect();
                let jobs = member.job(key).await?.map(|record| (key.clone(), record)).into_iter().collect();
                Ok(Listing { entries, jobs, ..Listing::default() })
            }
        }
    }
}

impl View {
    pub(crate) fn answered(&self) -> usize {
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
        let silent = self.said.len() - self.answered();
        let mut joints: Vec<Joint<'_>> =
            by_key.into_values().filter_map(|at| Joint::of(at, silent, self.majority)).collect();
        joints.sort_by_key(|joint| {
            let age = joint.entry.held_for.unwrap_or_default();
            (joint.lease_left().is_some(), joint.verdict == Verdict::Minority, Reverse(age))
        });
        joints
    }

    /// Puts together what the members have of the one key that they were asked for.
    pub(crate) fn joint(&self) -> Option<Joint<'_>> {
        self.joints().pop()
    }

    /// Puts together what the members know: the locks that a majority has, and the newest run of each job. A run that a
    /// majority has noted is known to one of any majority.
    pub(crate) fn together(&self) -> Listing {
        let mut jobs: BTreeMap<&LockKey, &JobRecord> = BTreeMap::new();
        for (key, record) in self.said.iter().flatten().flat_map(|listing| &listing.jobs) {
            let newest = jobs.entry(key).or_insert(record);
            if record.started_ago < newest.started_ago {
                *newest = record;
            }
        }
        // One member that has a mark is enough, as in `LockManager::done`.
        let mut done: BTreeMap<(&LockKey, &JobVersion), &DoneMark> = BTreeMap::new();
        for (key, mark) in self.said.iter().flatten().flat_map(|listing| &listing.done) {
            let oldest = done.entry((key, &mark.version)).or_insert(mark);
            if mark.ago > oldest.ago {
                *oldest = mark;
            }
        }
        let held = self.joints().into_iter().filter(|joint| joint.verdict == Verdict::Majority);
        let mut listing = Listing {
            entries: held.map(|joint| joint.whole()).collect(),
            jobs: jobs.into_iter().map(|(key, record)| (key.clone(), record.clone())).collect(),
            done: done.into_iter().map(|((key, _), mark)| (key.clone(), mark.clone())).collect(),
            truncated: self.is_truncated(),
            ..Listing::default()
        };
        listing.sort_jobs();
        listing
    }

    /// Returns who leads or works under the one key that was asked for, if that is known.
    pub(crate) fn holder(&self) -> Option<LockEntry> {
        self.together().entries.pop().filter(|entry| entry.state == EntryState::Held)
    }

    pub(crate) fn end_of_list(&self) -> End {
        if self.answered() >= self.majority { End::Ok } else { End::Unavailable }
    }

    pub(crate) fn end_of(&self, joint: Option<&Joint<'_>>) -> End {
        match joint.map(|joint| joint.verdict) {
            Some(Verdict::Majority) => End::Ok,
            Some(Verdict::Unknown) => End::Unavailable,
            None if self.answered() < self.majority => End::Unavailable,
            Some(Verdict::Minority) | None => End::NotFound,
        }
    }
}

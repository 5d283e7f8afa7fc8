//! A walk through the locks of all members, which are read at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::inspect::{entries, joint};
use crate::queries::{MAJORITY, READ, asked, in_time, named, together};
use crate::round::ask::PendingAnswers;
use crate::shared::Shared;
use lock_store::contract::backend::{
    DoneMark, EntryState, JobRecord, JobVersion, LockEntry, ScanPage, ScanPosition, SyncReport,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::system::sync::Mutex;

/// How many locks without a majority are read again at a time.
const AGAIN: usize = 100;

/// Everything that is known so far. A member lists its keys in an order of its own, so a lock is decided when all of them have ended.
struct Walk {
    /// By member.
    steps: Vec<Step>,
    /// By member, what it has.
    found: BTreeMap<LockKey, Vec<Option<LockEntry>>>,
    jobs: BTreeMap<LockKey, Vec<JobRecord>>,
    done: BTreeMap<(LockKey, JobVersion), DoneMark>,
    /// The locks that no majority had when it was read. Most were taken or freed meanwhile.
    doubtful: Vec<LockKey>,
}

/// The walk at one member.
#[derive(Clone)]
struct Step {
    /// Where it continues.
    after: Option<ScanPosition>,
    has_ended: bool,
    failed: Option<LockError>,
    jobs: u64,
}

/// Reads the next page.
pub(super) async fn page(
    shared: &Arc<Shared>,
    (prefix, foreign): (&str, &[String]),
    limit: u32,
    after: Option<&ScanPosition>,
) -> Result<ScanPage> {
    let position = after.cloned().unwrap_or_else(|| ScanPosition::new(Mutex::new(Walk::new(shared.members.len()))));
    let walk = position.get::<Mutex<Walk>>();
    let walk = walk.ok_or_else(|| LockError::misconfigured("this position is of a walk through another store"))?;
    let steps = walk.lock().steps.clone();
    let failed: Vec<Option<LockError>> = steps.iter().map(|step| step.failed.clone()).collect();
    let doubtful: Vec<LockKey> = walk.lock().doubtful.iter().take(AGAIN).cloned().collect();
    let mut page = ScanPage::new(&*shared.name);
    if !doubtful.is_empty() {
        page.entries = read_again(shared, &doubtful, &failed).await;
        walk.lock().doubtful.drain(..doubtful.len());
    } else if limit > 0 && !steps.iter().all(|step| step.has_ended) {
        let within = if after.is_none() { READ } else { MAJORITY };
        let ask = |member: usize| {
            let step = &steps[member];
            let scan = || shared.members[member].backend().scan(prefix.to_owned(), limit, step.after.clone());
            (!step.has_ended).then(scan)
        };
        let (answers, _) = asked(shared, within, ask, |_| false).await;
        walk.lock().add(answers, foreign, &mut page);
    } else {
        walk.lock().decide(shared, &mut page);
    }
    let known = walk.lock();
    let is_over = known.found.is_empty() && known.doubtful.is_empty() && known.jobs.is_empty() && known.done.is_empty();
    let is_read = limit == 0 || known.steps.iter().all(|step| step.has_ended);
    page.members = Some(known.members(shared));
    drop(known);
    page.next = (!is_over || !is_read).then_some(position);
    Ok(page)
}

/// Reads locks again, each at all members at once. A lock that all members have freed meanwhile is left out.
async fn read_again(shared: &Arc<Shared>, keys: &[LockKey], failed: &[Option<LockError>]) -> Vec<LockEntry> {
    let mut asked = PendingAnswers::of(keys.iter().cloned().map(|key| {
        let (shared, failed) = (Arc::clone(shared), failed.to_vec());
        Some(Box::pin(async move { entries(&shared, &key, &failed).await }) as _)
    }));
    let mut found = Vec::new();
    while let Some((_, entries)) = asked.next().await {
        found.extend(joint::entry(&Arc::new(entries)));
    }
    found
}

impl Walk {
    fn new(members: usize) -> Self {
        let step = Step { after: None, has_ended: false, failed: None, jobs: 0 };
        Self {
            steps: vec![step; members],
            found: BTreeMap::new(),
            jobs: BTreeMap::new(),
            done: BTreeMap::new(),
            doubtful: Vec::new(),
        }
    }

    /// Adds a page of each member that was asked. Strings of other clients that are not asked for may be many, so they are
    /// returned at once, as the first member has them.
    fn add(&mut self, answers: Vec<Option<Result<ScanPage>>>, foreign: &[String], joint: &mut ScanPage) {
        let members = answers.len();
        let mut first = None;
        for (member, answer) in answers.into_iter().enumerate() {
            let step = &mut self.steps[member];
            if step.has_ended {
                if step.failed.is_none() {
                    first = first.or(Some(member));
                }
                continue;
            }
            let page = match in_time(answer) {
                Ok(page) => page,
                Err(error) => {
                    (step.has_ended, step.failed) = (true, Some(error));
                    continue;
                }
            };
            let first = *first.get_or_insert(member);
            (step.has_ended, step.after) = (page.next.is_none(), page.next);
            step.jobs += page.jobs.len() as u64;
            joint.visited = joint.visited.max(page.visited);
            for entry in page.entries {
                let is_below = |prefix: &String| entry.key.as_str().starts_with(prefix);
                if entry.state != EntryState::Foreign || foreign.iter().any(is_below) {
                    let at = self.found.entry(entry.key.clone()).or_insert_with(|| vec![None; members]);
                    at[member] = Some(entry);
                } else if member == first {
                    joint.entries.push(entry);
                }
            }
            for (key, record) in page.jobs {
                self.jobs.entry(key).or_default().push(record);
            }
            // One member that has a mark is enough. The oldest copy was written first.
            for (key, mark) in page.done {
                let oldest = self.done.entry((key, mark.version.clone())).or_insert_with(|| mark.clone());
                if mark.ago > oldest.ago {
                    *oldest = mark;
                }
            }
        }
    }

    /// Gives everything that is known. The other locks are read again in later pages.
    fn decide(&mut self, shared: &Shared, page: &mut ScanPage) {
        for (key, had) in std::mem::take(&mut self.found) {
            let answer = |(entry, step): (Option<LockEntry>, &Step)| match (entry, &step.failed) {
                (None, Some(error)) => Some(Err(error.clone())),
                (entry, _) => Some(Ok(entry)),
            };
            let answers = had.into_iter().zip(&self.steps).map(answer);
            match joint::entry(&Arc::new(named(shared, answers.collect()))) {
                Some(entry) if !matches!(entry.state, EntryState::Minority | EntryState::Unknown) => {
                    page.entries.push(entry);
                }
                _ => self.doubtful.push(key),
            }
        }
        let jobs = std::mem::take(&mut self.jobs).into_iter();
        page.jobs = jobs.filter_map(|(key, records)| Some((key, together(records)?))).collect();
        page.done = std::mem::take(&mut self.done).into_iter().map(|((key, _), mark)| (key, mark)).collect();
    }

    fn members(&self, shared: &Shared) -> SyncReport<u64> {
        let answer = |step: &Step| Some(step.failed.clone().map_or(Ok(step.jobs), Err));
        named(shared, self.steps.iter().map(answer).collect())
    }
}

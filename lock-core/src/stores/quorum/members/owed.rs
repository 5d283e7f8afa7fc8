//! The releases that one member has not confirmed: bounded in number, and at rest while it is away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::contract::backend::{DynBackend, Freed, Release};
use crate::stores::quorum::round::ask::PendingAnswers;
use crate::stores::quorum::session::Releasing;
use crate::types::error::{LockError, Result};
use crate::types::system::backoff::Backoff;
use crate::types::system::clock::{Clock, Timestamp};
use crate::types::system::sync::{Mutex, MutexGuard};

/// How many are kept. Beyond that the oldest is forgotten: what the member has of its claim ends with its lease there.
pub(crate) const MOST: usize = 4096;

/// How many are on their way to the member at once, while it answers. While it does not, one asks whether it is back.
const AT_ONCE: usize = 64;

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the member is left alone after it has not answered: at first, and at most.
const REST: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// How long a release that was not answered may still be executed: longer than a silent connection is kept.
const LINGERS: Duration = Duration::from_secs(15);

/// A release that a member has not confirmed.
#[derive(Debug)]
pub(crate) struct Debt {
    pub(crate) release: Release,
    /// Until when the key stays taken.
    pub(crate) keep_until: Timestamp,
    /// When what the member has of the claim ends by itself.
    pub(crate) ends: Timestamp,
    /// Until when the member may execute a vote, which then takes the lock again. Only a release sent later counts.
    pub(crate) unsettled: Timestamp,
    /// When a try was sent last that was not answered. It may still be executed.
    pub(crate) lingers: Option<Timestamp>,
    /// Keeps the member from being asked for the lock of the claim.
    pub(crate) guard: Option<Releasing>,
}

/// The releases that one member has not received yet.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    state: Mutex<DebtState>,
    news: Notify,
}

#[derive(Debug, Default)]
struct DebtState {
    debts: VecDeque<Debt>,
    /// Guards of releases that are over, but for a try that may still be executed, and until when.
    lingering: VecDeque<(Timestamp, Releasing)>,
    /// Whether somebody sends them.
    is_settling: bool,
    /// Whether the member has not answered the last try.
    is_resting: bool,
}

/// The next action.
enum Next {
    Nothing,
    Wait(Timestamp),
    Send(Vec<Debt>),
}

impl Owed {
    /// Returns whether the member has not answered when it was last told of a release.
    pub(crate) fn is_resting(&self) -> bool {
        self.state().is_resting
    }

    /// Returns how many releases are over, but for a try that may still be executed.
    pub(crate) fn lingering(&self) -> usize {
        self.state().lingering.len()
    }

    /// Adds a release. The caller must [`settle`](Self::settle) if this returns true: nobody else does.
    #[must_use]
    pub(crate) fn add(&self, debt: Debt) -> bool {
        let mut state = self.state();
        if state.debts.len() >= MOST
            && let Some(oldest) = state.debts.pop_front()
        {
            state.forget(oldest);
        }
        state.debts.push_back(debt);
        self.news.notify_one();
        !std::mem::replace(&mut state.is_settling, true)
    }

    /// Tells the member until it has confirmed each release, or its lease is over there.
    pub(crate) async fn settle(self: Arc<Self>, backend: Arc<dyn DynBackend>, clock: Clock) {
        let _settling = Settling(&self);
        let mut backoff = REST;
        loop {
            let debts = match self.next(clock.now()) {
                Next::Nothing => return,
                Next::Wait(until) => {
                    tokio::select! {
                        () = clock.sleep_until(until) => {}
                        () = self.news.notified() => {}
                    }
                    continue;
                }
                Next::Send(debts) => debts,
            };
            let sent = clock.now();
            let answers = tell(&debts, &backend, &clock).await;
            let is_away = !answers.iter().any(|answer| matches!(answer, Some(Ok(_))));
            let failed = answers.iter().any(|answer| !matches!(answer, Some(Ok(_))));
            {
                let mut state = self.state();
                state.is_resting = is_away;
                for (mut debt, answer) in debts.into_iter().zip(answers).rev() {
                    if answer.as_ref().is_none_or(|answer| answer.as_ref().is_err_and(LockError::is_ambiguous)) {
                        debt.lingers = Some(sent);
                    }
                    match answer {
                        Some(Ok(_)) => state.forget(debt),
                        _ => state.debts.push_front(debt),
                    }
                }
            }
            if !is_away {
                backoff.reset();
            }
            if failed {
                clock.sleep_until(clock.now().after(backoff.long_pause())).await;
            }
        }
    }

    fn next(&self, now: Timestamp) -> Next {
        let mut state = self.state();
        while let Some(place) = state.debts.iter().position(|debt| debt.ends <= now) {
            if let Some(over) = state.debts.remove(place) {
                state.forget(over);
            }
        }
        state.lingering.retain(|(until, _)| *until > now);
        let most = if state.is_resting { 1 } else { AT_ONCE };
        let mut due = Vec::new();
        while let Some(place) = state.debts.iter().position(|debt| debt.unsettled <= now)
            && due.len() < most
        {
            due.extend(state.debts.remove(place));
        }
        if !due.is_empty() {
            return Next::Send(due);
        }
        let debts = state.debts.iter().map(|debt| debt.unsettled.min(debt.ends));
        let Some(until) = debts.chain(state.lingering.iter().map(|(until, _)| *until)).min() else {
            // A task that adds a release from now on settles it.
            (state.is_settling, state.is_resting) = (false, false);
            return Next::Nothing;
        };
        Next::Wait(until)
    }

    fn state(&self) -> MutexGuard<'_, DebtState> {
        self.state.lock()
    }
}

impl DebtState {
    /// Ends a release. The member is not asked for its lock while a try of it may still be executed.
    fn forget(&mut self, debt: Debt) {
        if let (Some(sent), Some(guard)) = (debt.lingers, debt.guard) {
            self.lingering.push_back((sent.after(LINGERS), guard));
        }
    }
}

/// Sends releases to a member, side by side.
async fn tell(debts: &[Debt], backend: &Arc<dyn DynBackend>, clock: &Clock) -> Vec<Option<Result<Freed>>> {
    let sent = clock.now();
    let mut asked = PendingAnswers::of(debts.iter().map(|debt| {
        let mut release = debt.release.clone();
        release.keep_for = debt.keep_until.since(sent);
        Some(Arc::clone(backend).release(release))
    }));
    let mut answers: Vec<Option<Result<Freed>>> = vec![None; debts.len()];
    let all = async {
        while let Some((place, answer)) = asked.next().await {
            answers[place] = Some(answer);
        }
    };
    tokio::select! {
        () = all => {}
        () = clock.sleep_until(sent.after(PATIENCE)) => {}
    }
    answers
}

/// Says that somebody sends releases, until it is dropped.
struct Settling<'a>(&'a Owed);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_settling, state.is_resting) = (false, false);
    }
}

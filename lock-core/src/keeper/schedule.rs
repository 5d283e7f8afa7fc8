//! The alarms that the keeper sleeps to: one queue for every time-out and every tenure.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::keeper::wheel::Wheel;
use crate::tenure::Tenure;

pub(crate) use crate::keeper::wheel::Ticket;

/// A queue of alarms. Any thread sets and cancels them; the keeper sleeps to the first.
///
/// It is what makes time-outs independent of the caller's runtime, which may have no timer, may
/// be blocked, or may not be a tokio runtime at all.
pub(crate) struct Schedule {
    pub(crate) clock: Clock,
    queue: Mutex<Queue>,
    /// Wakes the keeper when an alarm is set that comes before the one it sleeps to.
    earlier: Notify,
}

struct Queue {
    alarms: Wheel<Alarm>,
    /// The moment the keeper sleeps to.
    armed_for: Timestamp,
    /// The tenures whose alarm rang and that the keeper has not finished serving.
    serving: Vec<Arc<Tenure>>,
}

/// What an alarm wakes.
pub(crate) enum Alarm {
    /// A future that sleeps.
    Sleeper(Arc<Sleeper>),
    /// A tenure that must be renewed, or that ends.
    Tenure(Arc<Tenure>),
}

impl Alarm {
    fn tenure(&self) -> Option<&Arc<Tenure>> {
        match self {
            Self::Tenure(tenure) => Some(tenure),
            Self::Sleeper(_) => None,
        }
    }
}

impl Schedule {
    pub(crate) fn new(clock: Clock) -> Self {
        let queue = Queue { alarms: Wheel::new(clock.now()), armed_for: Timestamp::NEVER, serving: Vec::new() };
        Self { clock, queue: Mutex::new(queue), earlier: Notify::new() }
    }

    /// Sets an alarm, which rings to the millisecond.
    pub(crate) fn set(&self, at: Timestamp, alarm: Alarm) -> Ticket {
        self.insert(self.queue(), at, alarm, false)
    }

    /// Sets the alarm of a renewal, a little earlier if it then leaves with others. Returns when.
    pub(crate) fn set_renewal(&self, at: Timestamp, early: Duration, tenure: Arc<Tenure>) -> (Ticket, Timestamp) {
        let queue = self.queue();
        let chosen = queue.alarms.choose(at, early);
        (self.insert(queue, chosen, Alarm::Tenure(tenure), true), chosen)
    }

    fn insert(&self, mut queue: MutexGuard<'_, Queue>, at: Timestamp, alarm: Alarm, is_renewal: bool) -> Ticket {
        let (ticket, look_at) = queue.alarms.insert(at, alarm, is_renewal);
        let wake = look_at < queue.armed_for;
        if wake {
            queue.armed_for = look_at;
        }
        drop(queue);
        if wake {
            self.earlier.notify_one();
        }
        ticket
    }

    /// Cancels an alarm, if there is one that has not rung yet.
    pub(crate) fn cancel(&self, ticket: Option<Ticket>) {
        // Dropped outside of the lock.
        let cancelled = ticket.and_then(|ticket| self.queue().alarms.remove(ticket));
        drop(cancelled);
    }

    /// Takes the alarms that are due out of the queue, to be [`served`](Self::served).
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Alarm> {
        let mut queue = self.queue();
        let due = queue.alarms.take_due(now);
        queue.serving = due.iter().filter_map(Alarm::tenure).cloned().collect();
        due
    }

    /// Notes that every tenure that was due has an alarm again, or is over.
    pub(crate) fn served(&self) {
        let served = std::mem::take(&mut self.queue().serving);
        drop(served);
    }

    /// Sleeps until there is something to look at. Only for the keeper.
    pub(crate) async fn first_alarm(&self) {
        let first = {
            let now = self.clock.now();
            let mut queue = self.queue();
            let next = queue.alarms.next_look();
            // What it was woken for is cancelled by now, nearly always, and the next of its kind soon set. So
            // it looks then all the same, once, and need not be woken for each of them.
            queue.armed_for = if queue.armed_for > now { queue.armed_for.min(next) } else { next };
            queue.armed_for
        };
        tokio::select! {
            () = self.clock.sleep_until(first) => {}
            () = self.earlier.notified() => {}
        }
    }

    /// Returns every tenure, each once: while it lasts it has an alarm set, or is being served.
    pub(crate) fn tenures(&self) -> Vec<Arc<Tenure>> {
        let (queue, mut seen) = (self.queue(), HashSet::new());
        let tenures = queue.alarms.items().filter_map(Alarm::tenure).chain(&queue.serving);
        let mut tenures: Vec<_> = tenures.filter(|tenure| seen.insert(Arc::as_ptr(tenure))).cloned().collect();
        drop(queue);
        tenures.retain(|tenure| tenure.state().over.is_none());
        tenures
    }

    /// Sleeps until a moment, on any executor.
    pub(crate) fn sleep_until(self: &Arc<Self>, at: Timestamp) -> Sleep {
        Sleep { schedule: Arc::clone(self), at, registered: None }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("alarms", &self.queue().alarms.len()).finish_non_exhaustive()
    }
}

/// The meeting point of a [`Sleep`] and the keeper.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Sleeper {
    /// Wakes the future that sleeps here.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A sleep that needs no timer of the caller's runtime. Cancelled when dropped.
#[derive(Debug)]
pub(crate) struct Sleep {
    schedule: Arc<Schedule>,
    at: Timestamp,
    registered: Option<(Ticket, Arc<Sleeper>)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at == Timestamp::NEVER {
            return Poll::Pending;
        }
        let Some((_, sleeper)) = &self.registered else {
            if self.schedule.clock.now() >= self.at {
                return Poll::Ready(());
            }
            let sleeper = Arc::new(Sleeper { waker: Mutex::new(Some(cx.waker().clone())), ..Sleeper::default() });
            let ticket = self.schedule.set(self.at, Alarm::Sleeper(Arc::clone(&sleeper)));
            self.registered = Some((ticket, sleeper));
            return Poll::Pending;
        };
        let mut waker = sleeper.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if sleeper.rung.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.schedule.cancel(self.registered.take().map(|(ticket, _)| ticket));
    }
}

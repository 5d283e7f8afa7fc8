//! The alarms that the keeper sleeps to: one queue for every time-out and every tenure.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::tenure::Tenure;

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
    alarms: BTreeMap<Ticket, Alarm>,
    next_serial: u64,
    /// The moment the keeper sleeps to.
    armed_for: Timestamp,
}

/// Names one alarm, so that it can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    at: Timestamp,
    serial: u64,
}

/// What an alarm wakes.
pub(crate) enum Alarm {
    /// A future that sleeps.
    Sleeper(Arc<Sleeper>),
    /// A tenure that must be renewed, or that ends.
    Tenure(Arc<Tenure>),
}

impl Schedule {
    pub(crate) fn new(clock: Clock) -> Self {
        let queue = Queue { alarms: BTreeMap::new(), next_serial: 0, armed_for: Timestamp::NEVER };
        Self { clock, queue: Mutex::new(queue), earlier: Notify::new() }
    }

    /// Sets an alarm.
    pub(crate) fn set(&self, at: Timestamp, alarm: Alarm) -> Ticket {
        let mut queue = self.queue();
        let ticket = Ticket { at, serial: queue.next_serial };
        queue.next_serial += 1;
        queue.alarms.insert(ticket, alarm);
        let wake = at < queue.armed_for;
        if wake {
            queue.armed_for = at;
        }
        drop(queue);
        if wake {
            self.earlier.notify_one();
        }
        ticket
    }

    /// Cancels an alarm, if it has not rung yet.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.queue().alarms.remove(&ticket);
    }

    /// Takes the alarms that are due out of the queue.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Alarm> {
        let mut queue = self.queue();
        let mut due = Vec::new();
        while let Some(first) = queue.alarms.first_entry() {
            if first.key().at > now {
                break;
            }
            due.push(first.remove());
        }
        due
    }

    /// Sleeps to the first alarm. Only for the keeper.
    pub(crate) async fn first_alarm(&self) {
        let first = {
            let mut queue = self.queue();
            let first = queue.alarms.keys().next().map_or(Timestamp::NEVER, |ticket| ticket.at);
            queue.armed_for = first;
            first
        };
        tokio::select! {
            () = self.clock.sleep_until(first) => {}
            () = self.earlier.notified() => {}
        }
    }

    /// Returns every tenure: while it lasts it always has an alarm set.
    pub(crate) fn tenures(&self) -> Vec<Arc<Tenure>> {
        let queue = self.queue();
        let tenures = queue.alarms.values().filter_map(|alarm| match alarm {
            Alarm::Tenure(tenure) => Some(Arc::clone(tenure)),
            Alarm::Sleeper(_) => None,
        });
        tenures.collect()
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
        if let Some((ticket, _)) = self.registered.take() {
            self.schedule.cancel(ticket);
        }
    }
}

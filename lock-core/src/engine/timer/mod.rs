//! The alarms that wake the keeper: one queue for every timeout and every item to serve.
//!
//! Items are the things that the keeper serves. In this crate they are leases. The timer does not depend on that.

mod slow;
mod wheel;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::timer::slow::Slow;
use crate::engine::timer::wheel::Wheel;
use lock_store::types::system::clock::{Clock, Timestamp, WakeUp};
use lock_store::types::system::sync::{Mutex, MutexGuard};

pub(crate) use crate::engine::timer::slow::SLOW;
pub(crate) use crate::engine::timer::wheel::AlarmId;

/// A queue of alarms. Any thread sets and cancels them. The keeper sleeps until the first one.
///
/// It makes timeouts independent of the caller's runtime. That runtime may have no timer, may be blocked, or may not be
/// a tokio runtime at all.
pub(crate) struct Timer<T> {
    pub(crate) clock: Clock,
    queue: Mutex<AlarmQueue<T>>,
    /// Wakes the keeper when an alarm is set that rings before the time to which it sleeps.
    earlier: Notify,
    slow: Slow,
}

struct AlarmQueue<T> {
    alarms: Wheel<Alarm<T>>,
    /// The time until which the keeper sleeps.
    armed_for: Timestamp,
    /// The items that the keeper is serving, after their alarms rang.
    serving: Vec<Arc<T>>,
}

/// The target of an alarm.
pub(crate) enum Alarm<T> {
    /// A future that sleeps.
    Sleeper(Arc<Sleeper>),
    /// An item that must be served.
    Item(Arc<T>),
    /// A short function that runs on the keeper.
    Call(Box<dyn FnOnce() + Send>),
}

impl<T> Alarm<T> {
    fn item(&self) -> Option<&Arc<T>> {
        match self {
            Self::Item(item) => Some(item),
            Self::Sleeper(_) | Self::Call(_) => None,
        }
    }
}

impl<T> Timer<T> {
    /// Makes a timer that groups renewals into commands of at most `batch` items.
    pub(crate) fn new(clock: Clock, batch: usize) -> Self {
        let queue =
            AlarmQueue { alarms: Wheel::new(clock.now(), batch), armed_for: Timestamp::NEVER, serving: Vec::new() };
        Self { clock, queue: Mutex::new(queue), earlier: Notify::new(), slow: Slow::default() }
    }

    /// Sets an alarm, which rings to the millisecond.
    pub(crate) fn set(&self, at: Timestamp, alarm: Alarm<T>) -> AlarmId {
        self.insert(self.queue(), at, alarm, false)
    }

    /// Sets the alarm of a renewal, a little earlier if it can then share a command. Returns the chosen time.
    pub(crate) fn set_renewal(&self, at: Timestamp, early: Duration, item: Arc<T>) -> (AlarmId, Timestamp) {
        let queue = self.queue();
        let chosen = queue.alarms.choose(at, early);
        (self.insert(queue, chosen, Alarm::Item(item), true), chosen)
    }

    fn insert(
        &self,
        mut queue: MutexGuard<'_, AlarmQueue<T>>,
        at: Timestamp,
        alarm: Alarm<T>,
        is_renewal: bool,
    ) -> AlarmId {
        let (id, look_at) = queue.alarms.insert(at, alarm, is_renewal);
        let wake = look_at < queue.armed_for;
        if wake {
            queue.armed_for = look_at;
        }
        drop(queue);
        if wake {
            self.earlier.notify_one();
        }
        id
    }

    /// Cancels an alarm, if it exists and has not rung yet.
    pub(crate) fn cancel(&self, id: Option<AlarmId>) {
        // Dropped after the queue is unlocked, because dropping it may run other code.
        let cancelled = id.and_then(|id| self.queue().alarms.remove(id));
        drop(cancelled);
    }

    /// Takes the due alarms out of the queue. The caller must then call [`served`](Self::served).
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Alarm<T>> {
        let mut queue = self.queue();
        let due = queue.alarms.take_due(now);
        queue.serving = due.iter().filter_map(Alarm::item).cloned().collect();
        due
    }

    /// Notes that every due item has a new alarm or needs none.
    pub(crate) fn served(&self) {
        let served = std::mem::take(&mut self.queue().serving);
        drop(served);
    }

    /// Sleeps until an alarm may be due. Only the keeper calls this.
    pub(crate) async fn first_alarm(&self, wake_up: &mut WakeUp) {
        let first = {
            let now = self.clock.now();
            let mut queue = self.queue();
            let next = queue.alarms.next_look();
            // The alarm that it was woken for is nearly always cancelled by now, and the next one of its kind will be
            // set soon. So it still wakes up at that time, once. Otherwise each such alarm would have to wake it.
            queue.armed_for = if queue.armed_for > now { queue.armed_for.min(next) } else { next };
            queue.armed_for
        };
        tokio::select! {
            () = wake_up.at(first) => {}
            () = self.earlier.notified() => {}
        }
    }

    /// Returns every item that has an alarm set or is being served, each once.
    pub(crate) fn items(&self) -> Vec<Arc<T>> {
        let (queue, mut seen) = (self.queue(), HashSet::new());
        let items = queue.alarms.items().filter_map(Alarm::item).chain(&queue.serving);
        items.filter(|item| seen.insert(Arc::as_ptr(item))).cloned().collect()
    }

    /// Sleeps until a time, on any executor.
    pub(crate) fn sleep_until(self: &Arc<Self>, at: Timestamp) -> Sleep<T> {
        Sleep { timer: Arc::clone(self), at, registered: None }
    }

    /// Returns how many alarms are set.
    #[cfg(test)]
    pub(crate) fn alarms(&self) -> usize {
        self.queue().alarms.len()
    }

    fn queue(&self) -> MutexGuard<'_, AlarmQueue<T>> {
        self.queue.lock()
    }
}

impl<T> fmt::Debug for Timer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("alarms", &self.queue().alarms.len()).finish_non_exhaustive()
    }
}

/// Connects a [`Sleep`] with the keeper.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Sleeper {
    /// Wakes the future that sleeps here.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A sleep that needs no timer of the caller's runtime. Dropping it cancels its alarm.
pub(crate) struct Sleep<T> {
    timer: Arc<Timer<T>>,
    at: Timestamp,
    registered: Option<(AlarmId, Arc<Sleeper>)>,
}

impl<T> Future for Sleep<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at == Timestamp::NEVER {
            return Poll::Pending;
        }
        let Some((_, sleeper)) = &self.registered else {
            if self.timer.clock.now() >= self.at {
                return Poll::Ready(());
            }
            let sleeper = Arc::new(Sleeper { waker: Mutex::new(Some(cx.waker().clone())), ..Sleeper::default() });
            let id = self.timer.set(self.at, Alarm::Sleeper(Arc::clone(&sleeper)));
            self.registered = Some((id, sleeper));
            return Poll::Pending;
        };
        let mut waker = sleeper.waker.lock();
        if sleeper.rung.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for Sleep<T> {
    fn drop(&mut self) {
        self.timer.cancel(self.registered.take().map(|(id, _)| id));
    }
}

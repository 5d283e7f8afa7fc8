//! A sleep that a suspended machine does not delay.

use std::future::pending;

use crate::types::system::clock::{Clock, Source, Timestamp};

/// Sleeps by a clock.
///
/// The timers of a runtime stop while the machine is suspended. A sleep that was due in that time would end late, by
/// the part of it that was left. The clock since boot therefore has a timer of its own.
#[derive(Debug)]
pub struct WakeUp {
    clock: Clock,
    boot: Option<boot::Timer>,
}

impl WakeUp {
    /// Prepares for sleeping on the current runtime: the keeper's, or the runtime of the clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let boot = if matches!(clock.0, Source::Boot) { boot::Timer::new() } else { None };
        Self { clock, boot }
    }

    /// Sleeps until a time.
    pub async fn at(&mut self, moment: Timestamp) {
        if moment == Timestamp::NEVER {
            return pending().await;
        }
        if let Some(timer) = &mut self.boot
            && timer.sleep_until(moment).await.is_ok()
        {
            return;
        }
        self.clock.sleep_until(moment).await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot {
    use std::io;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    use crate::types::system::clock::Timestamp;

    /// A kernel timer that counts CLOCK_BOOTTIME, see `timerfd_create(2)`.
    #[derive(Debug)]
    pub(super) struct Timer {
        /// It is read like a pipe, and becomes readable when it rings.
        timer: Receiver,
        /// When it rings, so that it is set only when this changes.
        set_for: Timestamp,
    }

    impl Timer {
        pub(super) fn new() -> Option<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags).ok()?;
            Some(Self { timer: Receiver::from_owned_fd_unchecked(timer).ok()?, set_for: Timestamp::NEVER })
        }

        pub(super) async fn sleep_until(&mut self, moment: Timestamp) -> io::Result<()> {
            if self.set_for != moment {
                let nanos = moment.as_nanos().max(1);
                let it_value = Timespec {
                    tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                    tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
                };
                let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
                timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
                self.set_for = moment;
            }
            loop {
                self.timer.readable().await?;
                match self.timer.try_read(&mut [0; 8]) {
                    // It rang for an earlier time, before it was set for this one.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    rung => {
                        self.set_for = Timestamp::NEVER;
                        return rung.map(drop);
                    }
                }
            }
        }
    }
}

/// On other systems, the clock is that of the runtime's timers.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod boot {
    use std::io;

    use crate::types::system::clock::Timestamp;

    #[derive(Debug)]
    pub(super) enum Timer {}

    impl Timer {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) async fn sleep_until(&mut self, _: Timestamp) -> io::Result<()> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_testing::limit;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    use super::WakeUp;
    use crate::types::system::clock::{Clock, Timestamp};

    #[tokio::test]
    #[limit]
    async fn it_wakes_when_the_moment_has_come_and_not_for_another() {
        let clock = Clock::system();
        let mut wake_up = WakeUp::new(clock.clone());
        let moment = |millis| clock.now().after(Duration::from_millis(millis));
        let (soon, never) = (moment(20), moment(3_600_000));
        for first in [never, soon] {
            // The timer is set and the sleep is dropped.
            let mut sleep = pin!(wake_up.at(first));
            let polled = std::future::poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await;
            assert!(polled.is_pending() || clock.now() >= first);
        }
        wake_up.at(soon).await;
        assert!(clock.now() >= soon);
        let later = moment(20);
        wake_up.at(later).await;
        assert!(clock.now() >= later);
        wake_up.at(soon).await;
        wake_up.at(Timestamp::from_nanos(0)).await;
    }
}

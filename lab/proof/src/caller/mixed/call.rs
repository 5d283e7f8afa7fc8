//! One caller: it acquires, works, and ends the hold or the request in every possible way.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use lock_core::{LockError, LockErrorKind, LockGuard, LockRequest, Mode, Renew, Result};
use lock_testing::Stopwatch;

use crate::caller::mixed::executor::Executor;
use crate::caller::mixed::section::Section;
use crate::caller::mixed::{MS, Shared};
use crate::record::now;

/// How many permits each semaphore has.
const PERMITS: u32 = 3;
/// How much longer than its wait limit an acquire may take.
const SLACK: Duration = Duration::from_millis(500);

pub(crate) async fn call(shared: Arc<Shared>, executor: Executor, mut random: Rng) {
    while !shared.is_over() {
        let (asked, wait) = (now(), random.u32(20..3_000) * MS);
        if !shared.shares && random.u8(0..50) == 0 {
            let refused = shared.locks.read("soak:rw:0").with_wait(wait).await.unwrap_err();
            assert_eq!(refused.kind(), LockErrorKind::Misconfigured, "{refused}");
        }
        let request = request(&shared, &mut random, wait);
        match random.u8(0..12) {
            0 | 1 => {
                if let Some(guard) = shared.judge("acquire", request.try_acquire().await).flatten() {
                    hold(&shared, executor, &mut random, guard, asked).await;
                }
            }
            2 => {
                let mut acquire = pin!(request.acquire());
                let polls = random.usize(1..6);
                if let Some(outcome) = poll_some(polls, acquire.as_mut()).await {
                    finish(&shared, executor, &mut random, outcome, asked).await;
                } else {
                    shared.count("dropped-futures");
                }
            }
            3 => {
                // As in a `select!` that took another branch: the acquire has begun, and nobody polls it for a while.
                let mut acquire = pin!(request.acquire());
                let begun = poll_some(1, acquire.as_mut()).await;
                executor.pause(random.u32(10..600) * MS).await;
                shared.count("neglected-futures");
                match begun {
                    Some(outcome) => finish(&shared, executor, &mut random, outcome, asked).await,
                    None if random.bool() => finish(&shared, executor, &mut random, acquire.await, asked).await,
                    None => {}
                }
            }
            4 => {
                let mut inner = random.fork();
                let ran: Result<()> = request
                    .run(async |guard| {
                        work(&shared, executor, &mut inner, guard, asked).await;
                        Ok(())
                    })
                    .await;
                shared.judge("run", ran);
            }
            _ => {
                let watch = Stopwatch::start();
                let outcome = request.acquire().await;
                watch.assert_within(wait + SLACK, "an acquire with a wait");
                finish(&shared, executor, &mut random, outcome, asked).await;
            }
        }
        executor.pause(random.u32(0..8) * MS).await;
    }
}

pub(crate) fn call_blocking(shared: &Shared, mut random: Rng) {
    while !shared.is_over() {
        let (asked, wait) = (now(), random.u32(20..3_000) * MS);
        let (request, watch) = (request(shared, &mut random, wait), Stopwatch::start());
        let outcome = request.acquire_blocking();
        watch.assert_within(wait + SLACK, "an acquire that blocks");
        if let Some(guard) = shared.judge("acquire", outcome) {
            if let Some(mut section) = Section::begin(shared, &guard, asked) {
                std::thread::sleep(random.u32(0..6) * MS);
                section.write(&guard);
                section.end(&guard);
            }
            if random.bool() {
                shared.judge("release", guard.release_blocking());
            }
        }
        std::thread::sleep(random.u32(0..8) * MS);
    }
}

/// Builds a request for one key or several, with random options.
fn request(shared: &Shared, random: &mut Rng, wait: Duration) -> LockRequest {
    let mut key = || format!("soak:{}", random.u64(0..shared.keys));
    let (one, two) = (key(), key());
    let (locks, number) = (&shared.locks, random.u64(0..2));
    let (shelf, pool) = (format!("soak:rw:{number}"), format!("soak:pool:{number}"));
    let mut request = match random.u8(0..if shared.shares { 12 } else { 6 }) {
        0 => locks.lock_all([one, two]),
        1..6 => locks.lock(one),
        6..8 => locks.read(shelf),
        8 => locks.write(shelf),
        9..11 => locks.semaphore(pool, PERMITS).with_weight(random.u32(1..=2)),
        // A plain lock on a semaphore's key excludes every permit.
        _ => locks.lock(pool),
    };
    request = request.with_wait(wait);
    match random.u8(0..16) {
        0 => request.with_min_hold(random.u32(1..150) * MS),
        1 => request.with_max_hold(random.u32(20..500) * MS),
        2 | 3 => request.release_in_background(),
        4 => request.without_handoff(),
        5 => request.with_renew(Renew::Off).with_ttl(random.u32(300..2_000) * MS),
        6 => request.without_waiting(),
        7 => request.with_ttl(Duration::from_secs(4)),
        _ => request,
    }
}

async fn finish(shared: &Shared, executor: Executor, random: &mut Rng, outcome: Result<LockGuard>, asked: u64) {
    if let Some(guard) = shared.judge("acquire", outcome) {
        hold(shared, executor, random, guard, asked).await;
    }
}

async fn hold(shared: &Shared, executor: Executor, random: &mut Rng, guard: LockGuard, asked: u64) {
    work(shared, executor, random, &guard, asked).await;
    if random.u8(0..3) > 0 {
        shared.judge("release", guard.release().await);
    }
}

async fn work(shared: &Shared, executor: Executor, random: &mut Rng, guard: &LockGuard, asked: u64) {
    let Some(mut section) = Section::begin(shared, guard, asked) else {
        return shared.count("granted-and-lost");
    };
    for _ in 0..random.u8(0..3) {
        let pause = if random.u8(0..40) == 0 { random.u32(0..1_500) } else { random.u32(0..6) };
        executor.pause(pause * MS).await;
        section.write(guard);
        if random.u8(0..12) == 0 {
            shared.judge("extend", guard.extend(random.u32(100..4_000) * MS).await);
        }
    }
    let writer = guard.mode() == Mode::Exclusive && guard.key().as_str().starts_with("soak:rw:");
    if !writer || random.bool() {
        return section.end(guard);
    }
    section.end_for_readers(guard);
    shared.judge("downgrade", guard.downgrade().await);
    if guard.mode().is_shared()
        && let Some(mut section) = Section::begin(shared, guard, asked)
    {
        executor.pause(random.u32(0..6) * MS).await;
        section.write(guard);
        section.end(guard);
    }
}

/// Polls a future a limited number of times. The end of its wait wakes it at the latest, so every poll comes.
async fn poll_some<F: Future>(mut most: usize, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        if most == 0 {
            return Poll::Ready(None);
        }
        most -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if most == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl Shared {
    /// Counts the outcome. Faults cause many refusals, but each must be an error of an expected kind.
    pub(crate) fn judge<T>(&self, of: &str, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                self.count(&format!("{of}-{}", name(&error)));
                None
            }
        }
    }
}

fn name(error: &LockError) -> &'static str {
    match error.kind() {
        LockErrorKind::Timeout => "timeout",
        LockErrorKind::Busy => "busy",
        LockErrorKind::Lost => "lost",
        LockErrorKind::Unavailable => "unavailable",
        LockErrorKind::Misconfigured => "misconfigured",
        _ => panic!("an answer that no fault explains: {error}"),
    }
}

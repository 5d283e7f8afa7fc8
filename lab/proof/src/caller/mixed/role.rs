//! Jobs that every process tries to start, and a role that every process tries to hold.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use lock_core::{IntoLockKey as _, LockError, current_lock};

use crate::caller::mixed::section::Section;
use crate::caller::mixed::{MS, Shared};
use crate::record::{Record, Told, now};

/// The period of the periodic job, and how late a scheduled run may start.
const PERIOD: Duration = Duration::from_secs(1);
const LATEST: u64 = 20;
/// A week in nanoseconds. A job that is remembered from its start for this long must run once only.
const FOR_GOOD: u64 = 604_800_000_000_000;

/// Starts jobs: one with a period, the others for the times of a schedule.
pub(crate) async fn schedule(shared: Arc<Shared>, mut random: Rng) {
    while !shared.is_over() {
        let asked = now();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        // Sometimes the caller asks for a past time, whose run has ended long ago.
        let fire = time - if random.u8(0..3) == 0 { random.u64(0..LATEST) } else { 0 };
        // A quorum remembers a started job at most for its longest lease, so `strict` jobs are left out there.
        let kind = ["plain", "failing", "every", "strict"][random.usize(..if shared.shares { 4 } else { 3 })];
        let lock = shared.locks.lock(format!("soak:job:{kind}"));
        let (job, name) = match kind {
            "every" => (lock.at_most_every(PERIOD), kind.to_owned()),
            _ => (lock.once_at(UNIX_EPOCH + Duration::from_secs(fire)), format!("{kind}@{fire}")),
        };
        let job = match kind {
            "every" | "strict" => job.run_once_even_if_crashed(),
            "failing" => job.retry_failed(),
            _ => job,
        };
        let within = match kind {
            "every" => Some(u64::try_from(PERIOD.as_nanos()).unwrap()),
            "strict" => Some(FOR_GOOD),
            _ => None,
        };
        let (fails, pause) = (kind == "failing" && random.bool(), random.u32(0..30) * MS);
        let begin = || {
            shared.count("runs");
            let name = format!("soak:job:{name}");
            shared.recorder.record(&Record::Job { what: Told::Began, name, within, asked, at: now() });
        };
        let end = || if fails { Err(LockError::unavailable("the job failed")) } else { Ok(()) };
        let outcome = if random.u8(0..4) == 0 {
            tokio::task::block_in_place(|| {
                job.run_blocking(|_| {
                    begin();
                    std::thread::sleep(pause);
                    end()
                })
            })
        } else {
            let body = async |_: &_| {
                begin();
                tokio::time::sleep(pause).await;
                end()
            };
            job.run(body).await
        };
        shared.judge("job", outcome);
        tokio::time::sleep(random.u32(20..300) * MS).await;
    }
}

/// Campaigns, leads for a moment, and resigns.
pub(crate) async fn stand(shared: Arc<Shared>, mut random: Rng) {
    let election = shared.locks.elect("soak:role");
    let key = "soak:role".into_lock_key().unwrap();
    while !shared.is_over() {
        let (asked, patience) = (now(), random.u32(20..3_000) * MS);
        let term = random.u32(0..40) * MS;
        if random.bool() {
            // The time-out drops this future at whatever point it has reached.
            let ours = Arc::clone(&shared);
            let work = async move |_| {
                if let Some(mut section) = current_lock().and_then(|lock| Section::begin(&ours, &lock, asked)) {
                    ours.count("terms");
                    tokio::time::sleep(term).await;
                    current_lock().iter().for_each(|lock| section.write(lock));
                }
            };
            if let Ok(led) = tokio::time::timeout(patience, election.run(work)).await {
                shared.judge("election", led);
            }
        } else if let Ok(outcome) = tokio::time::timeout(patience, election.campaign()).await {
            let Some(leadership) = shared.judge("election", outcome) else { continue };
            let proof = (key.clone(), leadership);
            if let Some(mut section) = Section::begin(&shared, &proof, asked) {
                shared.count("terms");
                tokio::time::sleep(term).await;
                section.write(&proof);
                section.end(&proof);
            }
            shared.judge("resign", proof.1.resign().await);
        }
        shared.judge("leader", election.leader().await);
        tokio::time::sleep(random.u32(0..50) * MS).await;
    }
}

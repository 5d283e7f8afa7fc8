//! How many requests a held lock and a waiter cost, as the API server has noted them in its audit log.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::row::kubernetes::manager;
use crate::row::kubernetes::servers::{ApiServer, Namespace};
use crate::{Failure, Result, clock};

/// The locks that are held. Each has one waiter. With several, it matters less how many renewals fall into the window.
const LOCKS: u32 = 10;

/// The default of client-go.
const TTL: Duration = Duration::from_secs(15);

/// A waiter announces itself after a second.
const ANNOUNCED: Duration = Duration::from_secs(3);

/// The counted requests of the managers.
pub(super) struct Requests {
    seconds: f64,
    /// The requests of the process that holds the locks, in the window.
    held: u32,
    /// The requests of the process that waits for them, before the window and in it.
    waiting: [u32; 2],
    /// The watches that both processes began in the window.
    watches: u32,
}

impl Requests {
    fn per_minute(&self, requests: u32) -> f64 {
        f64::from(requests) * 60.0 / self.seconds
    }

    pub(super) fn held_per_minute(&self) -> f64 {
        self.per_minute(self.held) / f64::from(LOCKS)
    }

    pub(super) fn held_per_third(&self) -> f64 {
        self.held_per_minute() * TTL.as_secs_f64() / 3.0 / 60.0
    }

    pub(super) fn of_a_new_waiter(&self) -> f64 {
        f64::from(self.waiting[0]) / f64::from(LOCKS)
    }

    pub(super) fn of_a_waiter_per_minute(&self) -> f64 {
        self.per_minute(self.waiting[1]) / f64::from(LOCKS)
    }

    pub(super) fn watches_per_minute(&self) -> f64 {
        self.per_minute(self.watches) / 2.0
    }
}

/// Holds locks and waits for them, and counts the requests in a window.
pub(super) fn measure(server: &ApiServer, window: Duration) -> Result<Requests> {
    let place = server.namespace();
    // The holder is the administrator, so the log tells the two apart.
    let user = place.user(&["get", "create", "update", "watch"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(count(&place, &user.url(), window))
}

async fn count(place: &Namespace<'_>, waits: &str, window: Duration) -> Result<Requests> {
    let (one, two) = (manager(&place.url(), TTL).await?, manager(waits, TTL).await?);
    let (mut guards, mut waiting) = (Vec::new(), JoinSet::new());
    for lock in 0..LOCKS {
        guards.push(one.lock(format!("held-{lock}")).await?);
        let request = two.lock(format!("held-{lock}"));
        waiting.spawn(async move { Ok::<_, Failure>(request.await?) });
    }
    sleep(ANNOUNCED).await;
    // For each request, whether the holder sent it, and whether it began a watch.
    let noted = || -> Vec<(bool, bool)> {
        place.requests().iter().map(|request| (request.user == "admin", request.verb == "watch")).collect()
    };
    let (before, started) = (noted(), clock::now());
    sleep(window).await;
    let seconds = Duration::from_nanos(clock::now() - started).as_secs_f64();
    let during = noted().split_off(before.len());
    waiting.shutdown().await;
    for guard in guards {
        guard.release().await?;
    }
    let count = |noted: &[(bool, bool)], wanted| u32::try_from(noted.iter().filter(|of| **of == wanted).count());
    Ok(Requests {
        seconds,
        held: count(&during, (true, false))?,
        waiting: [count(&before, (false, false))?, count(&during, (false, false))?],
        watches: count(&during, (true, true))? + count(&during, (false, true))?,
    })
}

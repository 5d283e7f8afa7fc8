//! Leader election: a lock whose holder leads, and whose waiters are the candidates.

mod leadership;
mod observation;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::api::protect;
use lock_store::contract::event::Purpose;
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::naming::{IntoLockKey, RequestedKeys};
use lock_store::types::options::Wait;
use lock_store::types::owner::Holder;

pub use leadership::Leadership;
pub use observation::Observation;

/// The longest announcement, in bytes: it is stored in the lock.
const MAX_ANNOUNCEMENT: usize = 150;

/// Distinguishes an announcement from a call site.
const MARK: char = '@';

impl LockManager {
    /// Makes this process a candidate for a role that at most one process of the fleet has. Examples are a scheduler,
    /// the writer of a log, or the owner of a shard.
    ///
    /// The role is the exclusive lock of that name, so everything that holds for a lock holds for it. A leader that is
    /// cut off stops by its own clock before another is elected. The term is a fencing token. Candidates wait in order,
    /// without a time limit.
    ///
    /// ```no_run
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let election = locks.elect("billing").announcing("10.0.0.3:8080");
    /// election
    ///     .run(async |term| {
    ///         println!("leading, term {term}");
    ///         // … work, with the term along with every write …
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn elect(&self, name: impl IntoLockKey) -> Election {
        Election {
            manager: self.clone(),
            key: self.key(name),
            ttl: self.options().ttl,
            stuck_after: None,
            label: None,
            announcement: None,
        }
    }
}

/// A role that at most one process has. Made by [`LockManager::elect`], which has the example of [`Election`]. Cheap to
/// clone.
#[must_use = "this process is not a candidate until run or campaign is awaited"]
#[derive(Clone, Debug)]
pub struct Election {
    manager: LockManager,
    key: Result<LockKey>,
    ttl: Duration,
    stuck_after: Option<Duration>,
    label: Option<LockLabel>,
    announcement: Option<Arc<str>>,
}

impl Election {
    /// Sets the lease: how long the role stays empty after the leader has died. Default: the manager's ttl.
    ///
    /// At least 1 s. If a leader resigns, the next one follows at once.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the age at which alerts call a term stuck. Default: never, because a leader leads for as long as it can.
    pub fn with_stuck_after(mut self, age: Duration) -> Self {
        self.stuck_after = Some(age);
        self
    }

    /// Names the role in metrics. Default: the template of the name, as [`lock_key!`](crate::lock_key) gives it,
    /// otherwise the call site of the candidate.
    pub fn with_label(mut self, label: impl Into<LockLabel>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Announces a text, for example an address, to callers that ask for the leader. At most 150 bytes, in one line and
    /// without `|`.
    pub fn announcing(mut self, what: impl Into<Arc<str>>) -> Self {
        self.announcement = Some(what.into());
        self
    }

    /// Campaigns, runs `work` while this process leads, and resigns when `work` ends. Returns the output of `work`.
    ///
    /// If the leadership is lost, `work` is dropped at its next await, and this process campaigns again: `work` then
    /// starts anew, with the next term. If the store cannot be reached, this waits for it. If `work` panics, this
    /// process resigns.
    ///
    /// Under `tokio::spawn`, write `async move |term|`, as in the second example. A closure that borrows does not
    /// compile there. The compiler reports *implementation of `Send` is not general enough*, because it cannot see that
    /// the closure's future may cross threads.
    ///
    /// The running code finds its lock by [`current_lock`](crate::current_lock). Call its `ensure_held` before a step
    /// that must not happen twice.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::ShutDown`] when the manager is shut down, which is the normal end of a candidate that did not
    /// lead. Also `InvalidKey` and `Misconfigured`. A loss or an unreachable store is never an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and resigns in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let done = locks.elect("migration").run(async |term| term.get() > 0).await?;
    /// assert!(done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// In a task of its own, with `async move`:
    ///
    /// ```
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// # use lock_core::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// # let counter = Arc::new(AtomicU64::new(0));
    /// let (election, count) = (locks.elect("billing"), counter.clone());
    /// let task = tokio::spawn(async move {
    ///     election
    ///         .run(async move |_term| {
    ///             count.fetch_add(1, Ordering::Relaxed);
    ///         })
    ///         .await
    /// });
    /// task.await.unwrap()?;
    /// assert_eq!(counter.load(Ordering::Relaxed), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn run<T, W: AsyncFnMut(FencingToken) -> T>(&self, mut work: W) -> impl Future<Output = Result<T>> + use<T, W> {
        let (election, called_from) = (self.clone(), Location::caller());
        async move {
            loop {
                let guard = election.request(called_from).acquire().await?;
                let term = guard.token();
                match protect::run(guard, async |_| work(term).await).await {
                    Err(error) if error.kind() == LockErrorKind::Lost => {
                        tracing::warn!(election = %election.name(), %term, %error, "lost the leadership; campaigning again");
                    }
                    ended => return ended,
                }
            }
        }
    }

    /// Waits until this process leads, without a time limit.
    ///
    /// # Errors
    ///
    /// Like [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// Safe: a candidate that is dropped leaves the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let leadership = locks.elect("billing").campaign().await?;
    /// tokio::select! {
    ///     reason = leadership.lost() => eprintln!("no longer leading: {reason}"),
    ///     () = std::future::ready(()) => leadership.resign().await.map(drop)?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn campaign(&self) -> impl Future<Output = Result<Leadership>> + Send + use<> {
        let request = self.request(Location::caller());
        async move { request.acquire().await.map(Leadership::new) }
    }

    /// Returns the current leader, or `None` if no process leads.
    ///
    /// # Errors
    ///
    /// Like [`LockManager::holder`].
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let holder = self.manager.holder_of(self.key.clone()?).await?;
        Ok(holder.map(Leader))
    }

    /// Follows the leader. All observers of one election in one manager share one poll of the store per second. The
    /// polls end with the last observer.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let mut billing = locks.elect("billing").observe();
    /// loop {
    ///     match billing.changed().await? {
    ///         Some(leader) => println!("ask {:?}", leader.announced()),
    ///         None => println!("nobody leads"),
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use = "it follows while it is kept"]
    pub fn observe(&self) -> Observation {
        Observation::new(&self.manager, self.key.clone())
    }

    fn name(&self) -> &str {
        self.key.as_ref().map_or("", LockKey::as_str)
    }

    /// Makes one candidacy. Hand-offs are off, because each term is a grant of the store.
    fn request(&self, called_from: &'static Location<'static>) -> LockRequest {
        let mut options = self.manager.options().clone().with_ttl(self.ttl).with_wait(Wait::Forever).without_handoff();
        options.min_hold = Duration::ZERO;
        // The manager's threshold for stuck locks does not apply to a role.
        options.stuck_after = Some(self.stuck_after.unwrap_or(Duration::MAX));
        let request = LockRequest::new(self.manager.clone(), self.key.clone().map(RequestedKeys::One));
        let mut request = request.on_behalf_of(called_from, options).with_purpose(Purpose::Leadership);
        if let Some(label) = &self.label {
            request = request.with_label(label.clone());
        }
        match &self.announcement {
            None => request,
            Some(text) if text.len() <= MAX_ANNOUNCEMENT && !text.contains(|c: char| c == '|' || c.is_control()) => {
                request.seen_as(format!("{MARK}{text}").into())
            }
            Some(_) => request.refused(LockError::misconfigured(format!(
                "an announcement is at most {MAX_ANNOUNCEMENT} bytes in one line, without \"|\"; announce an \
                 address that serves the rest"
            ))),
        }
    }
}

/// The leader, as the store reports it.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// if let Some(leader) = locks.elect("billing").leader().await? {
///     println!("{} leads, at {:?}", leader.holder(), leader.announced());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leader(Holder);

impl Leader {
    /// Returns the text that the leader announced.
    #[must_use]
    pub fn announced(&self) -> Option<&str> {
        self.0.site().strip_prefix(MARK)
    }

    /// Returns the leader's host, process and lease.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.0
    }
}

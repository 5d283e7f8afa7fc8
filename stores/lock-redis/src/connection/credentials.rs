//! Credentials that expire, and are renewed before they do.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::on_drop::OnDrop;
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// A user name and password for a Redis server.
///
/// For servers whose passwords are tokens that expire, as managed services use them. See
/// [`RedisStoreBuilder::credentials`](crate::RedisStoreBuilder::credentials).
///
/// ```
/// # use lock_redis as lock_core;
/// use std::time::Duration;
/// use lock_core::Credentials;
///
/// let credentials = Credentials::new("a token").with_username("locks").valid_for(Duration::from_secs(3600));
/// assert!(!format!("{credentials:?}").contains("token"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: String,
    valid_for: Option<Duration>,
}

impl Credentials {
    /// Creates credentials of the default user, which never expire.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into(), valid_for: None }
    }

    /// Names the user.
    #[must_use]
    pub fn with_username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// Sets how long they are valid from now on. The provider is asked again when a fifth of that time is
    /// left, and at most once a second.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }
}

/// Hides the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

type Asked = Pin<Box<dyn Future<Output = std::result::Result<Credentials, Box<dyn Error + Send + Sync>>> + Send>>;

/// How soon credentials are asked for again, however short they last.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long the answer of a provider is awaited. Then the next caller asks again, beside it. It is shorter than the time for
/// connecting, so that callers learn what they wait for.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long a provider may take to answer at all.
const AT_MOST: Duration = Duration::from_secs(60);

/// How many questions may be unanswered at a time.
const UNANSWERED: usize = 8;

/// Gives credentials, and remembers the last ones while they are good.
///
/// The application's function runs in a thread of its own, and nothing of ours is locked meanwhile: one that hangs, or
/// blocks its thread, holds up nobody but those who need its answer, and them for a while only.
pub(crate) struct Provider {
    ask: Box<dyn Fn() -> Asked + Send + Sync>,
    given: Mutex<Given>,
    changed: Notify,
    /// How many threads wait for the application.
    unanswered: AtomicUsize,
}

/// The state of a question: open, or credentials and how many were given up to these.
type Outcome = Option<Result<(u64, Credentials)>>;

/// The answers of the provider.
#[derive(Default)]
struct Given {
    /// How often.
    times: u64,
    /// The last credentials, unless they were refused, and when to ask again.
    last: Option<(Credentials, Timestamp)>,
    /// When the provider was last asked, and what comes of it.
    asked: Option<(Timestamp, watch::Receiver<Outcome>)>,
}

impl Provider {
    pub(crate) fn new<F, Fut>(provider: F) -> Arc<Self>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<Credentials, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let ask = Box::new(move || Box::pin(provider()) as Asked);
        let (given, changed, unanswered) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        Arc::new(Self { ask, given, changed, unanswered })
    }

    /// Returns credentials to log in with, and how many were given up to these.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<(u64, Credentials)> {
        let clock = Clock::system();
        let now = clock.now();
        let mut outcome = {
            let mut given = self.given.lock();
            if let Some((last, _)) = given.last.as_ref().filter(|(_, until)| now < *until) {
                return Ok((given.times, last.clone()));
            }
            // Connections that open together ask once.
            let waits = |(at, outcome): &&(Timestamp, watch::Receiver<Outcome>)| {
                now.since(*at) < PATIENCE && outcome.borrow().is_none() && outcome.has_changed().is_ok()
            };
            match given.asked.as_ref().filter(waits) {
                Some((_, outcome)) => outcome.clone(),
                None => {
                    let outcome = Arc::clone(self).ask(now)?;
                    given.asked = Some((now, outcome.clone()));
                    outcome
                }
            }
        };
        tokio::select! {
            biased;
            known = outcome.wait_for(Option::is_some) => match known.as_deref() {
                Ok(Some(known)) => known.clone(),
                Ok(None) | Err(_) => {
                    Err(LockError::not_executed("the provider of the Redis credentials panicked, or its runtime has ended"))
                }
            },
            () = clock.sleep_until(now.after(PATIENCE)) => Err(LockError::not_executed(format!(
                "the provider of the Redis credentials has not answered within {PATIENCE:?}; it is asked again",
            ))),
        }
    }

    /// Forgets credentials that were refused, so that the next connection asks for others.
    pub(crate) fn forget(&self, refused: &Credentials) {
        let mut given = self.given.lock();
        if given.last.as_ref().is_some_and(|(credentials, _)| credentials == refused) {
            given.last = None;
        }
    }

    /// Waits until connections that logged in with the credentials of this number must do so again: these are about to
    /// expire, or somebody was given others. Returns those, and their number. Zero stands for none.
    ///
    /// So all servers that share a provider learn of the next, whichever of them asked for them.
    pub(crate) async fn after(self: &Arc<Self>, number: u64) -> Result<(u64, Credentials)> {
        let clock = Clock::system();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (times, until) = {
                let given = self.given.lock();
                (given.times, given.last.as_ref().map_or(Timestamp::NEVER, |(_, until)| *until))
            };
            if times != number {
                return self.current().await;
            }
            tokio::select! {
                () = clock.sleep_until(until) => return self.current().await,
                () = changed => {}
            }
        }
    }

    /// Asks the application, on the current runtime but in a thread that nobody else needs.
    fn ask(self: Arc<Self>, now: Timestamp) -> Result<watch::Receiver<Outcome>> {
        let runtime =
            Handle::try_current().map_err(|_| LockError::misconfigured("credentials take a tokio runtime"))?;
        let failed = |why: &str| LockError::not_executed(format!("the provider of the Redis credentials {why}"));
        if self.unanswered.load(Ordering::Relaxed) >= UNANSWERED {
            return Err(failed("has not answered earlier calls, and is called again after it has answered one"));
        }
        let (publish, outcome) = watch::channel(None);
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let asked = Arc::clone(&self);
        let answered = OnDrop(move || _ = asked.unanswered.fetch_sub(1, Ordering::Relaxed));
        let ask = move || {
            let _answered = answered;
            let answer = runtime.block_on(async {
                let clock = Clock::system();
                tokio::select! {
                    answer = (self.ask)() => answer.map_err(|error| {
                        failed("failed; its own error is the source of this one").with_source(std::io::Error::other(error))
                    }),
                    () = clock.sleep_until(now.after(AT_MOST)) => Err(failed("has not answered within a minute")),
                }
            });
            let _ = publish.send(Some(answer.map(|credentials| self.take(credentials, now))));
        };
        let begun = std::thread::Builder::new().name("lock-credentials".to_owned()).spawn(ask);
        begun
            .map(drop)
            .map_err(|error| failed("cannot be asked, since no thread can be started").with_source(error))?;
        Ok(outcome)
    }

    /// Takes note of what the application gave when it was asked `then`.
    fn take(&self, credentials: Credentials, then: Timestamp) -> (u64, Credentials) {
        let until = credentials.valid_for.map_or(Timestamp::NEVER, |time| then.after((time / 5 * 4).max(SHORTEST)));
        let number = {
            let mut given = self.given.lock();
            given.last = Some((credentials.clone(), until));
            given.times += 1;
            given.times
        };
        self.changed.notify_waiters();
        (number, credentials)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

#[cfg(test)]
#[path = "tests/credentials.rs"]
mod tests;

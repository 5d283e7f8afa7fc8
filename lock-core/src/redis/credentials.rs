//! Credentials that expire, and are renewed before they do.

use std::error::Error;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::clock::{Clock, Timestamp};
use crate::error::{LockError, Result};

/// A user name and password for a Redis server.
///
/// For servers whose passwords are tokens that expire, as managed services use them. See
/// [`RedisStoreBuilder::credentials`](crate::RedisStoreBuilder::credentials).
///
/// ```
/// use std::time::Duration;
/// use lock_core::Credentials;
///
/// let credentials = Credentials::new("a token").with_username("locks").valid_for(Duration::from_secs(3600));
/// assert!(!format!("{credentials:?}").contains("token"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
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
    /// left.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }

    pub(super) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(super) fn password(&self) -> &str {
        &self.password
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

/// Gives credentials, and remembers the last ones while they are good.
pub(super) struct Provider {
    ask: Box<dyn Fn() -> Asked + Send + Sync>,
    /// Held while the provider is asked, so that connections that open together ask once.
    asking: AsyncMutex<()>,
    /// The last credentials, and when to ask again.
    known: Mutex<Option<(Credentials, Timestamp)>>,
    changed: Notify,
}

impl Provider {
    pub(super) fn new<F, Fut>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<Credentials, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let ask = Box::new(move || Box::pin(provider()) as Asked);
        Self { ask, asking: AsyncMutex::new(()), known: Mutex::new(None), changed: Notify::new() }
    }

    /// Returns credentials to log in with.
    pub(super) async fn current(&self) -> Result<Credentials> {
        let _asking = self.asking.lock().await;
        let now = Clock::system().now();
        if let Some((known, _)) = self.known().as_ref().filter(|(_, until)| now < *until) {
            return Ok(known.clone());
        }
        let credentials = (self.ask)().await.map_err(|error| {
            LockError::not_executed(
                "the provider of the Redis credentials failed; its own error is the source of this one",
            )
            .with_source(std::io::Error::other(error))
        })?;
        let until = credentials.valid_for.map_or(Timestamp::NEVER, |time| now.after(time / 5 * 4));
        *self.known() = Some((credentials.clone(), until));
        self.changed.notify_waiters();
        Ok(credentials)
    }

    /// Forgets credentials that were refused, so that the next connection asks for others.
    pub(super) fn forget(&self, refused: &Credentials) {
        let mut known = self.known();
        if known.as_ref().is_some_and(|(credentials, _)| credentials == refused) {
            *known = None;
        }
    }

    /// Waits until the known credentials are about to expire.
    pub(super) async fn due(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let until = self.known().as_ref().map_or(Timestamp::NEVER, |(_, until)| *until);
            let ending = async {
                if until == Timestamp::NEVER {
                    return pending().await;
                }
                Clock::system().sleep_until(until).await;
            };
            tokio::select! {
                () = ending => return,
                () = changed => {}
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<(Credentials, Timestamp)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

//! From wish to grant: the local queue, the attempts at the store, and the one budget over both.

mod together;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::claim::{Answer, Cargo, GRANT_TTL, Load, Pursuer, Success};
use crate::clock::{Timestamp, jitter};
use crate::context;
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::{GrantPath, LockEventKind};
use crate::fencing::FencingToken;
use crate::gate::{Seated, Turn};
use crate::keeper::{Anchor, Caller, Engine, Hold, Interrupted, PendingEntry, conclude};
use crate::lease::{Lease, Story};
use crate::options::{LockOptions, Wait};
use crate::owner::Holder;
use crate::tenure::{Tenure, Terms, deadline_of};
use crate::trace;

pub(crate) use together::{Attempted, acquire_together};

/// The bounds of the pause before a holder that will not tell us of its release is asked again.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// What a caller wants.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) story: Story,
    pub(crate) options: LockOptions,
    pub(crate) caller: Caller,
    /// Whether a grant that the current task holds already may be shared.
    pub(crate) reentrant: bool,
    /// Keeps the manager until what this acquire leaves behind is handed to the keeper.
    pub(crate) anchor: Arc<Anchor>,
}

/// Acquires a lock.
///
/// # Cancel safety
///
/// Dropping the future at any await point leaves nothing behind: the keeper finishes what is on
/// its way and undoes it.
pub(crate) fn acquire<T>(wish: Wish, make: impl FnOnce(Hold) -> T + Send) -> impl Future<Output = Result<T>> + Send {
    let mut journey = Journey::new(wish);
    // One future and no more: it goes to the heap, and each around it would hold a copy.
    async move {
        journey.set_out();
        let outcome = journey.travel().await;
        journey.end(outcome).map(make)
    }
}

/// What an acquire ends with.
enum Taken {
    New(Granted),
    /// A share in a grant that an enclosing scope of the same task holds.
    Shared(Arc<Lease>),
}

/// A grant that nobody holds yet.
struct Granted {
    token: FencingToken,
    tenure: Arc<Tenure>,
    turn: Turn<Cargo>,
    path: GrantPath,
    at: Timestamp,
}

/// One acquire on its way. Tells its events, also that it was cancelled.
pub(crate) struct Journey {
    wish: Wish,
    span: Span,
    started: Timestamp,
    /// The end of the one budget that all stages of waiting share.
    until: Timestamp,
    /// The last holder that stood in the way.
    holder: Option<Holder>,
    /// Whether it has been told of, and its end has not.
    under_way: bool,
    /// From the turn on, so that a shutdown waits for what it may take.
    claiming: Option<PendingEntry>,
}

impl Journey {
    /// Prepares an acquire. Its budget has not begun.
    fn new(wish: Wish) -> Self {
        let (span, never) = (Span::none(), Timestamp::NEVER);
        Self { wish, span, started: never, until: never, holder: None, under_way: false, claiming: None }
    }

    /// Prepares an acquire whose budget begins now.
    pub(crate) fn setting_out(wish: Wish) -> Self {
        let mut journey = Self::new(wish);
        journey.set_out();
        journey
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.wish.anchor.engine
    }

    fn set_out(&mut self) {
        self.started = self.engine().clock.now();
        self.until = match self.wish.options.wait {
            Wait::None => self.started.after(self.wish.options.command_timeout()),
            Wait::AtMost(limit) => self.started.after(limit),
            Wait::Forever => Timestamp::NEVER,
        };
    }

    /// Goes on alone, after an attempt together with others, within their one budget.
    pub(crate) async fn part(mut self) -> Result<Hold> {
        // Of several keys each waits for itself. One attempt each is no wait.
        let until = self.until;
        self.set_out();
        if self.wish.options.wait != Wait::None {
            self.until = until;
        }
        let outcome = self.travel().await;
        self.end(outcome)
    }

    async fn travel(&mut self) -> Result<Taken> {
        self.begin();
        let span = self.span.clone();
        self.run().instrument(span).await
    }

    fn begin(&mut self) {
        self.under_way = true;
        self.span = trace::acquire(&self.wish.story);
        self.wish.story.tell(LockEventKind::WaitStarted);
    }

    async fn run(&mut self) -> Result<Taken> {
        if self.engine().is_closed() {
            return Err(LockError::shut_down());
        }
        self.wish.options.validate()?;
        if let Some(lease) = context::holds(self.engine().identity(), &self.wish.story.key) {
            if self.wish.reentrant && lease.share() {
                return Ok(Taken::Shared(lease));
            }
            // Who does not wait finds it taken, which is true and harmless.
            if self.wish.options.wait != Wait::None {
                return Err(LockError::would_deadlock());
            }
        }
        let (mut turn, waited, now) = self.take_turn().await?;
        let (load, pending) = turn.unload().map(Cargo::unpack).unzip();
        self.claiming = Some(pending.unwrap_or_else(|| self.engine().enter()));
        let pursuer = match load {
            None => Pursuer::new(self.engine(), &self.wish, turn, None),
            Some(Load::Pursuit(pursuit)) => Pursuer::resume(pursuit, turn),
            Some(Load::Tenure(tenure)) => match tenure.next_token(now) {
                Some(token) => {
                    return Ok(Taken::New(Granted { token, tenure, turn, path: GrantPath::Handoff, at: now }));
                }
                // Lost on the way from one hand to the other.
                None => Pursuer::new(self.engine(), &self.wish, turn, Some(tenure)),
            },
            Some(Load::Retiring(tenure)) => Pursuer::new(self.engine(), &self.wish, turn, Some(tenure)),
        };
        // On the heap, so that a hand-off, which never gets here, has no room for it to clear and to carry.
        Box::pin(self.pursue(pursuer, waited)).await
    }

    /// Waits until no other caller of this process is before us. Returns also whether anybody was, and
    /// when it is.
    async fn take_turn(&mut self) -> Result<(Turn<Cargo>, bool, Timestamp)> {
        let started = self.started;
        let key = &self.wish.story.key;
        if self.wish.options.wait == Wait::None {
            return match self.engine().gate.try_enter(key) {
                Ok(turn) => Ok((turn, false, started)),
                Err(holder) => {
                    self.holder = holder.and_then(|holder| holder.describe(started));
                    Err(LockError::busy(self.holder.clone()))
                }
            };
        }
        let mut seat = match self.engine().gate.enter(key, Terms::of(&self.wish.options)) {
            Ok(turn) => return Ok((turn, false, started)),
            Err(seat) => seat,
        };
        self.contended(Self::holder_before(&seat, started));
        // Left only after the look below: the last to leave takes what is known of the holder along.
        let turn = self.engine().called(self.until, &mut seat).await;
        let now = self.engine().clock.now();
        if turn.is_err() || self.holder.is_none() {
            // Whoever had the turn may have been granted, or seen who stands in the way, meanwhile.
            self.holder = Self::holder_before(&seat, now).or(self.holder.take());
        }
        turn.map(|turn| (turn, true, now)).map_err(|why| self.interrupted(why, None))
    }

    fn holder_before(seat: &Seated<Cargo>, now: Timestamp) -> Option<Holder> {
        seat.holder().and_then(|holder| holder.describe(now))
    }

    /// Asks the store, and waits, until it grants.
    async fn pursue(&mut self, mut pursuer: Pursuer, mut waited: bool) -> Result<Taken> {
        let mut refusals = 0;
        // Why the store could not be asked the last time, if it could not.
        let mut out_of_reach = None;
        // The turn may have come from a holder who lost it to the shutdown.
        if self.engine().is_closed() {
            return Err(LockError::shut_down());
        }
        loop {
            let releases = pursuer.releases();
            let asked = pursuer.ask(&self.wish, self.until).await;
            if self.engine().is_closed() {
                return Err(LockError::shut_down());
            }
            let now = self.engine().clock.now();
            let again_at = match asked {
                Ok(Answer::Granted(success)) => {
                    if deadline_of(success.sent_at, success.granted_for) > now {
                        let path = match (releases, waited) {
                            (true, _) => GrantPath::Granted,
                            (false, true) => GrantPath::Polled,
                            (false, false) => GrantPath::Uncontended,
                        };
                        return self.take(pursuer, success, path, now);
                    }
                    // The answer took longer than the lease lasts. Asking again raises the lease.
                    now
                }
                Ok(Answer::Taken { holder, queued }) => {
                    out_of_reach = None;
                    // A holder of the classic protocol tells nobody of its release: it is polled.
                    let told = queued && holder.info.is_some();
                    refusals = if told { 0 } else { refusals + 1 };
                    let pause = if told {
                        backstop(self.wish.options.ttl, holder.ttl_left)
                    } else {
                        poll_pause(refusals, holder.ttl_left)
                    };
                    pursuer.name_holder(holder.clone());
                    self.contended(Some(holder));
                    if self.wish.options.wait == Wait::None {
                        return Err(LockError::busy(self.holder.clone()));
                    }
                    now.after(pause)
                }
                Err(error) if error.kind() == LockErrorKind::Unavailable && self.wish.options.wait != Wait::None => {
                    refusals += 1;
                    // A store that was left no time to answer is not to blame.
                    let cut_short = waited && error.is_ambiguous() && now >= self.until;
                    if !cut_short {
                        out_of_reach = Some(error);
                    }
                    now.after(poll_pause(refusals, None))
                }
                Err(error) => return Err(error),
            };
            waited = true;
            match pursuer.listen(again_at.min(self.until)).await {
                Ok(Some((success, now))) => return self.take(pursuer, success, GrantPath::Granted, now),
                Ok(None) => {}
                Err(Interrupted::TimedOut) if again_at < self.until => {}
                Err(why) => return Err(self.interrupted(why, out_of_reach)),
            }
        }
    }

    /// Takes up a lease that lasts at this moment.
    fn take(&self, pursuer: Pursuer, success: Success, path: GrantPath, now: Timestamp) -> Result<Taken> {
        let (tenure, turn) = pursuer.granted(&self.wish, success, now);
        match tenure.next_token(now) {
            Some(token) => Ok(Taken::New(Granted { token, tenure, turn, path, at: now })),
            None => {
                conclude(self.engine(), &tenure, turn);
                Err(LockError::unavailable("the store granted the token zero, which stands for none"))
            }
        }
    }

    /// Remembers who stands in the way, and tells when that changes.
    fn contended(&mut self, holder: Option<Holder>) {
        let seen = |holder: &Option<Holder>| holder.as_ref().map(|holder| (holder.owner, holder.token));
        let news = self.holder.is_none() || seen(&self.holder) != seen(&holder);
        self.holder = holder;
        if news && self.wish.options.wait != Wait::None {
            self.wish.story.tell(LockEventKind::Contended { holder: self.holder.as_ref() });
        }
    }

    /// The error of a wait that ended without a grant. If the store could not be asked the last time,
    /// that is the reason.
    fn interrupted(&self, why: Interrupted, last_error: Option<LockError>) -> LockError {
        match (why, last_error) {
            (Interrupted::Closed, _) => LockError::shut_down(),
            (Interrupted::TimedOut, Some(error)) => error,
            (Interrupted::TimedOut, None) => LockError::timeout(self.waited(), self.holder.clone()),
        }
    }

    fn tell_end(&self, kind: LockEventKind<'_>) {
        trace::ended(&self.span, &kind);
        self.wish.story.tell(kind);
    }

    fn waited(&self) -> Duration {
        self.engine().clock.now().since(self.started)
    }

    /// Tells how the acquire ended and puts a grant under the watchdog.
    fn end(mut self, outcome: Result<Taken>) -> Result<Hold> {
        self.under_way = false;
        let (story, holder) = (&self.wish.story, self.holder.as_ref());
        let (lease, path, now) = match outcome {
            Ok(Taken::New(Granted { token, tenure, turn, path, at })) => {
                (Lease::begin(at, story.clone(), &self.wish.options, token, tenure, turn), path, at)
            }
            Ok(Taken::Shared(lease)) => (lease, GrantPath::Reentrant, self.engine().clock.now()),
            Err(error) => {
                let waited = self.waited();
                let error = error.with_key(&story.key);
                self.tell_end(match error.kind() {
                    LockErrorKind::Busy => LockEventKind::Busy { waited, holder },
                    LockErrorKind::Timeout => LockEventKind::TimedOut { waited, holder },
                    _ => LockEventKind::Failed { waited, error: &error },
                });
                return Err(error);
            }
        };
        self.tell_end(LockEventKind::Acquired {
            waited: now.since(self.started),
            token: lease.token,
            owner: lease.tenure.claim.owner,
            path,
            lease_left: lease.tenure.deadline().since(now),
            waited_for: holder,
        });
        let anchor = Arc::clone(&self.wish.anchor);
        Ok(match path {
            GrantPath::Reentrant => Hold::shared(anchor, lease, story.clone()),
            GrantPath::Handoff => Hold::new(anchor, lease, false),
            _ => Hold::new(anchor, lease, true),
        })
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        // Before the anchor, which may wait for everything that is pending.
        self.claiming = None;
        if self.under_way {
            let (waited, holder) = (self.waited(), self.holder.as_ref());
            self.tell_end(LockEventKind::Cancelled { waited, holder });
        }
    }
}

/// How long to pause before asking again: full jitter under a bound that doubles, and no longer
/// than the lease in the way can last.
fn poll_pause(refusals: u32, ttl_left: Option<Duration>) -> Duration {
    let (least, most) = POLL;
    let bound = least.saturating_mul(1 << refusals.min(8)).min(most);
    let pause = jitter(Duration::from_millis(1), bound);
    // A millisecond more, because the store counts a lease in whole ones.
    ttl_left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)))
}

/// When to confirm a place in the store's queue: often enough that a grant in between is worth
/// something, and right when the lease in the way would end.
fn backstop(ttl: Duration, ttl_left: Option<Duration>) -> Duration {
    let regular = (ttl.min(GRANT_TTL) / 3).min(Duration::from_secs(1));
    let slack = jitter(Duration::from_millis(1), Duration::from_millis(20));
    ttl_left.map_or(regular, |left| regular.min(left + slack))
}

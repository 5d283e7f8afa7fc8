//! From wish to grant: the local queue, the attempts at the store, and the one budget over both.

mod together;

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::claim::{Answer, Cargo, GRANT_TTL, Known, Load, Pursuer, Success};
use crate::clock::{Timestamp, jitter};
use crate::context;
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::{GrantPath, LockEventKind};
use crate::fencing::FencingToken;
use crate::gate::Turn;
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
pub(crate) async fn acquire(engine: Arc<Engine>, wish: Wish) -> Result<Hold> {
    Journey::new(engine, wish).travel().await
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
}

/// One acquire on its way. Tells its events, also that it was cancelled.
pub(crate) struct Journey {
    engine: Arc<Engine>,
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
    /// Prepares an acquire. Its budget begins now.
    pub(crate) fn new(engine: Arc<Engine>, wish: Wish) -> Self {
        let started = engine.clock.now();
        let until = match wish.options.wait {
            Wait::None => started.after(wish.options.command_timeout()),
            Wait::AtMost(limit) => started.after(limit),
            Wait::Forever => Timestamp::NEVER,
        };
        let span = Span::none();
        Self { engine, wish, span, started, until, holder: None, under_way: false, claiming: None }
    }

    pub(crate) async fn travel(mut self) -> Result<Hold> {
        // Of several keys each waits for itself, though under one budget. One attempt each is no wait.
        self.started = self.engine.clock.now();
        if self.wish.options.wait == Wait::None {
            self.until = self.started.after(self.wish.options.command_timeout());
        }
        self.begin();
        let span = self.span.clone();
        let outcome = self.run().instrument(span).await;
        self.end(outcome)
    }

    fn begin(&mut self) {
        self.under_way = true;
        self.span = trace::acquire(&self.wish.story);
        self.wish.story.tell(LockEventKind::WaitStarted);
    }

    async fn run(&mut self) -> Result<Taken> {
        if self.engine.is_closed() {
            return Err(LockError::shut_down());
        }
        self.wish.options.validate()?;
        if let Some(lease) = context::holds(self.engine.identity(), &self.wish.story.key) {
            if self.wish.reentrant && lease.share() {
                return Ok(Taken::Shared(lease));
            }
            // Who does not wait finds it taken, which is true and harmless.
            if self.wish.options.wait != Wait::None {
                return Err(LockError::would_deadlock());
            }
        }
        let (mut turn, waited) = self.take_turn().await?;
        // Before the cargo is unloaded, which was pending until now.
        self.claiming = Some(self.engine.enter());
        let pursuer = match turn.unload().map(Cargo::into_load) {
            None => Pursuer::new(&self.engine, &self.wish, turn, None),
            Some(Load::Pursuit(pursuit)) => Pursuer::resume(pursuit, turn),
            Some(Load::Tenure(tenure)) => match tenure.next_token() {
                Some(token) => return Ok(Taken::New(Granted { token, tenure, turn, path: GrantPath::Handoff })),
                // Lost on the way from one hand to the other.
                None => Pursuer::new(&self.engine, &self.wish, turn, Some(tenure)),
            },
            Some(Load::Retiring(tenure)) => Pursuer::new(&self.engine, &self.wish, turn, Some(tenure)),
        };
        self.pursue(pursuer, waited).await
    }

    /// Waits until no other caller of this process is before us.
    async fn take_turn(&mut self) -> Result<(Turn<Cargo>, bool)> {
        let key = &self.wish.story.key.clone();
        if self.wish.options.wait == Wait::None {
            return match self.engine.gate.try_enter(key) {
                Ok(turn) => Ok((turn, false)),
                Err(holder) => {
                    self.holder = holder.and_then(|holder| holder.describe());
                    Err(LockError::busy(self.holder.clone()))
                }
            };
        }
        let seat = match self.engine.gate.enter(key, Terms::of(&self.wish.options)) {
            Ok(turn) => return Ok((turn, false)),
            Err(seat) => seat,
        };
        let holder = self.engine.gate.holder(key).and_then(|holder| holder.describe());
        self.contended(holder);
        // Left only after the look below: the last to leave takes what is known of the holder along.
        let mut seat = std::pin::pin!(seat);
        let turn = self.engine.until(self.until, seat.as_mut()).await;
        // Whoever had the turn may have been granted, or seen who stands in the way, meanwhile.
        let holder = self.engine.gate.holder(key).and_then(|holder| holder.describe());
        self.holder = holder.or(self.holder.take());
        turn.map(|turn| (turn, true)).map_err(|why| self.interrupted(why, None))
    }

    /// Asks the store, and waits, until it grants.
    async fn pursue(&mut self, mut pursuer: Pursuer, mut waited: bool) -> Result<Taken> {
        let mut refusals = 0;
        // Why the store could not be asked the last time, if it could not.
        let mut out_of_reach = None;
        // The turn may have come from a holder who lost it to the shutdown.
        if self.engine.is_closed() {
            return Err(LockError::shut_down());
        }
        loop {
            let releases = pursuer.releases();
            let asked = pursuer.ask(&self.wish, self.until).await;
            if self.engine.is_closed() {
                return Err(LockError::shut_down());
            }
            let again_at = match asked {
                Ok(Answer::Granted(success)) => {
                    if deadline_of(success.sent_at, success.granted_for) > self.engine.clock.now() {
                        let path = match (releases, waited) {
                            (true, _) => GrantPath::Granted,
                            (false, true) => GrantPath::Polled,
                            (false, false) => GrantPath::Uncontended,
                        };
                        return self.take(pursuer, success, path);
                    }
                    // The answer took longer than the lease lasts. Asking again raises the lease.
                    self.engine.clock.now()
                }
                Ok(Answer::Held(holder)) => {
                    refusals += 1;
                    out_of_reach = None;
                    let pause = poll_pause(refusals, holder.ttl_left);
                    self.engine.gate.set_holder(&self.wish.story.key, Known::Elsewhere(holder.clone()));
                    self.contended(Some(holder));
                    if self.wish.options.wait == Wait::None {
                        return Err(LockError::busy(self.holder.clone()));
                    }
                    self.engine.clock.now().after(pause)
                }
                Ok(Answer::Queued(holder)) => {
                    out_of_reach = None;
                    // A holder of the classic protocol tells nobody of its release: it is polled.
                    refusals = if holder.info.is_none() { refusals + 1 } else { 0 };
                    let pause = if refusals > 0 {
                        poll_pause(refusals, holder.ttl_left)
                    } else {
                        backstop(self.wish.options.ttl, holder.ttl_left)
                    };
                    self.engine.gate.set_holder(&self.wish.story.key, Known::Elsewhere(holder.clone()));
                    self.contended(Some(holder));
                    self.engine.clock.now().after(pause)
                }
                Err(error) if error.kind() == LockErrorKind::Unavailable && self.wish.options.wait != Wait::None => {
                    refusals += 1;
                    // A store that was left no time to answer is not to blame.
                    let cut_short = waited && error.is_ambiguous() && self.engine.clock.now() >= self.until;
                    if !cut_short {
                        out_of_reach = Some(error);
                    }
                    self.engine.clock.now().after(poll_pause(refusals, None))
                }
                Err(error) => return Err(error),
            };
            waited = true;
            match pursuer.listen(again_at.min(self.until)).await {
                Ok(Some(success)) => return self.take(pursuer, success, GrantPath::Granted),
                Ok(None) => {}
                Err(Interrupted::TimedOut) if again_at < self.until => {}
                Err(why) => return Err(self.interrupted(why, out_of_reach)),
            }
        }
    }

    fn take(&self, pursuer: Pursuer, success: Success, path: GrantPath) -> Result<Taken> {
        let (tenure, turn) = pursuer.granted(&self.wish, success);
        match tenure.next_token() {
            Some(token) => Ok(Taken::New(Granted { token, tenure, turn, path })),
            None => {
                let error = LockError::unavailable("the lease ended before it could be taken up; use a longer ttl");
                conclude(&self.engine, &tenure, turn);
                Err(error)
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
        self.engine.clock.now().since(self.started)
    }

    /// Tells how the acquire ended and puts a grant under the watchdog.
    fn end(mut self, outcome: Result<Taken>) -> Result<Hold> {
        self.under_way = false;
        let (waited, holder) = (self.waited(), self.holder.as_ref());
        match outcome {
            Ok(Taken::New(Granted { token, tenure, turn, path })) => {
                self.tell_end(LockEventKind::Acquired {
                    waited,
                    token,
                    owner: tenure.claim.owner,
                    path,
                    lease_left: tenure.time_left(),
                    waited_for: holder,
                });
                let (clock, story) = (self.engine.clock.clone(), self.wish.story.clone());
                let lease = Lease::new(clock, story, &self.wish.options, token, tenure, turn);
                let first = path != GrantPath::Handoff;
                Ok(Hold::new(Arc::clone(&self.wish.anchor), Arc::new(lease), first))
            }
            Ok(Taken::Shared(lease)) => {
                self.tell_end(LockEventKind::Acquired {
                    waited,
                    token: lease.token,
                    owner: lease.tenure.claim.owner,
                    path: GrantPath::Reentrant,
                    lease_left: lease.remaining(),
                    waited_for: holder,
                });
                Ok(Hold::shared(Arc::clone(&self.wish.anchor), lease, self.wish.story.clone()))
            }
            Err(error) => {
                let error = error.with_key(&self.wish.story.key);
                self.tell_end(match error.kind() {
                    LockErrorKind::Busy => LockEventKind::Busy { waited, holder },
                    LockErrorKind::Timeout => LockEventKind::TimedOut { waited, holder },
                    _ => LockEventKind::Failed { waited, error: &error },
                });
                Err(error)
            }
        }
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

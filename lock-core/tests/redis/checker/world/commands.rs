//! The commands of a process about a claim, and its use of the answers.

use std::sync::Arc;
use std::time::Instant;

use lock_core::{FencingToken, HolderInfo, LockBackend, LockError, LockErrorKind, Mode};
use lock_store::{AcquireRequest, Attempt, Freed, Release, Renewal, SharedClaims, Ticket};

use crate::checker::world::{Command, GRANT, MARGIN, State, TTL, Wish, World};
use crate::support::SECOND;

impl<F: Fn() -> Arc<B>, B: LockBackend> World<F, B> {
    pub(super) async fn send(&mut self, at: usize, command: Command) -> Result<(), String> {
        let wish = self.wishes[at].clone();
        let Some(process) = self.processes.iter().find(|process| process.number == wish.process) else {
            return Err("its process is gone".to_owned());
        };
        let (store, now) = (Arc::clone(&process.store), Instant::now());
        let certain = |wish: &Wish| wish.state == State::Held && wish.deadline > Instant::now();
        let renewed = |answer: Renewal| {
            if answer == Renewal::Lost && certain(&wish) {
                Err("a lease was lost that runs".to_owned())
            } else {
                Ok(answer)
            }
        };
        match command {
            Command::Free => {
                let release = Release::new(wish.claim.clone());
                let waits = matches!(wish.state, State::Waiting);
                let freed = if waits { store.withdraw(&wish.claim).await } else { store.release(&release).await };
                match freed {
                    Ok(Freed::NotHeld) if certain(&wish) => return Err("a lock was not held that was".to_owned()),
                    Ok(_) => drop(self.wishes.swap_remove(at)),
                    Err(error) => {
                        passing(&error)?;
                        self.wishes[at].state = State::Ended;
                    }
                }
            }
            Command::Renew | Command::Downgrade => {
                let (claim, token) = (wish.claim.clone(), FencingToken::new(wish.token));
                let (answer, mode) = match (command, wish.claim.mode) {
                    (Command::Downgrade, _) => {
                        (store.shared().unwrap().downgrade(&claim.with_mode(Mode::READ), token).await, Mode::READ)
                    }
                    // The step of an exclusive claim does not belong to a phase.
                    (_, Mode::Exclusive) => return Ok(()),
                    (_, mode) => (store.renew(&[claim]).await.remove(0), mode),
                };
                match answer {
                    Ok(answer) => {
                        let (wish, lost) = (&mut self.wishes[at], renewed(answer)? == Renewal::Lost);
                        // Also where the caller's own time was over: the store began a phase that others may join.
                        let newest = self.newest.entry(wish.claim.key.clone()).or_default();
                        if !lost && mode.is_shared() && wish.token >= newest.0 {
                            *newest = (wish.token, true);
                        }
                        if lost || wish.deadline <= now {
                            wish.state = State::Ended;
                        } else {
                            (wish.claim.mode, wish.deadline) = (mode, wish.deadline.max(now + TTL - MARGIN));
                        }
                    }
                    Err(error) => {
                        passing(&error)?;
                        self.wishes[at].state = State::Ended;
                    }
                }
            }
            Command::Send(before) => {
                let stamp = u64::try_from(now.duration_since(self.began).as_micros()).unwrap();
                let mut request = AcquireRequest::new(wish.claim.clone(), HolderInfo::new("here", 1, "checker"));
                // By the script, because a first attempt may pass a queue whose lock ended without a release.
                (request.repeated, request.execute_within) = (true, 5 * SECOND);
                if wish.waits {
                    request.ticket = Some(Ticket::new(Arc::clone(process.inbox.id()), stamp, GRANT));
                }
                let answer = match before {
                    Some(before) => store.requeue(&Release::new(before), &request).await,
                    None => store.try_acquire(&request).await,
                };
                self.wishes[at].sent = now;
                if self.faults && self.random.u8(0..30) == 0 {
                    // The answer is lost. A claim that does not wait gives up.
                    self.wishes[at].state = if wish.waits { State::Unknown } else { State::Ended };
                    return Ok(());
                }
                self.wishes[at].confirmed = stamp;
                match answer {
                    Ok(Attempt::Granted { token, .. } | Attempt::Shared { token, .. }) => {
                        return self.granted(at, token.get(), now + TTL - MARGIN);
                    }
                    Ok(Attempt::Queued { .. }) => self.wishes[at].state = State::Waiting,
                    Ok(_) if wish.waits => self.wishes[at].state = State::Waiting,
                    Ok(_) => drop(self.wishes.swap_remove(at)),
                    Err(error) => {
                        passing(&error)?;
                        self.wishes[at].state = State::Unknown;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes note of a grant, and compares it with what others certainly have.
    pub(super) fn granted(&mut self, at: usize, token: u64, deadline: Instant) -> Result<(), String> {
        let wish = &mut self.wishes[at];
        self.grants += usize::from(wish.state != State::Held);
        (wish.state, wish.token, wish.deadline) = (State::Held, token, wish.deadline.max(deadline));
        let (wish, now) = (self.wishes[at].clone(), Instant::now());
        if wish.deadline <= now {
            return Ok(());
        }
        let claim = &wish.claim;
        let beside = |other: &&Wish| {
            other.claim.key == claim.key
                && other.claim.owner != claim.owner
                && other.state == State::Held
                && other.deadline > now
        };
        let (mut used, mut most) = (0, 0);
        for other in self.wishes.iter().filter(beside).chain([&wish]) {
            let Mode::Shared { units, limit } = other.claim.mode else {
                if other.claim.owner == claim.owner && !self.wishes.iter().any(|wish| beside(&wish)) {
                    continue;
                }
                return Err(format!("{other:?} beside {claim:?}"));
            };
            (used, most) = (used + u64::from(units), most.max(u64::from(limit)));
            if other.token != token {
                return Err(format!("two tokens in one phase: {other:?} and {wish:?}"));
            }
        }
        if used > most {
            return Err(format!("{used} units of {most}"));
        }
        let (newest, shared) = self.newest.get(&claim.key).copied().unwrap_or_default();
        let repeats = shared && claim.mode.is_shared();
        if token < newest || token == newest && !repeats {
            return Err(format!("token {token} after {newest}"));
        }
        self.newest.insert(claim.key.clone(), (token, claim.mode.is_shared()));
        Ok(())
    }
}

/// Lets an error pass after which the claim asks again.
fn passing(error: &LockError) -> Result<(), String> {
    if error.kind() == LockErrorKind::Unavailable && !error.to_string().contains("script") {
        Ok(())
    } else {
        Err(format!("the store answers: {error}"))
    }
}

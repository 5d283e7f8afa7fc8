//! From a call to the master that serves its key, and after it when the slot moves or the master changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::calls::renew::{renew, renew_asking};
use crate::calls::run::Operation;
use crate::cluster::Cluster;
use crate::cluster::watch::Stop;
use crate::connection::redirect::Refusal;
use crate::connection::url::Address;
use crate::protocol::keys::hash_slot::slot_of;
use crate::server::node::Way;
use lock_store::contract::backend::{BoxFuture, Claim, Renewal};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::Clock;

/// How many redirections are followed at once. Then a pause comes before each.
const AT_ONCE: usize = 5;

/// The bounds of a pause.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));

impl Cluster {
    /// Returns the lane of the master that serves a key.
    pub(crate) fn lane(&self, key: &LockKey) -> Option<u16> {
        self.table.lane_of(slot_of(key))
    }

    /// Renews claims, those of each master together. The machinery repeats what fails.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers: Vec<Option<Result<Renewal>>> = claims.iter().map(|_| None).collect();
        while let Some(next) = answers.iter().position(Option::is_none) {
            // They are of one lane, unless a slot has moved since they were put together.
            let lane = self.lane(&claims[next].key);
            let places: Vec<usize> = (next..claims.len())
                .filter(|at| answers[*at].is_none() && (*at == next || self.lane(&claims[*at].key) == lane))
                .collect();
            let these: Vec<Claim> = places.iter().map(|at| claims[*at].clone()).collect();
            let renewals = match self.stop(slot_of(&claims[next].key)) {
                Ok(stop) => {
                    let work = async { Ok(renew(stop.node, &these).await) };
                    let renewals = self.renewed(stop, Box::pin(work)).await;
                    let renewals = renewals.unwrap_or_else(|error| vec![Err(error); these.len()]);
                    renewals.iter().for_each(|renewal| stop.node.redirections.count(renewal));
                    renewals
                }
                Err(error) => vec![Err(error); these.len()],
            };
            for (place, renewal) in places.into_iter().zip(renewals) {
                let claim = &claims[place];
                let moved = |error: &LockError| matches!(Refusal::of(error), Some(Refusal::Moved(_) | Refusal::Ask(_)));
                answers[place] = Some(match renewal {
                    Err(error) if moved(&error) => self.renew_elsewhere(claim, error).await,
                    Err(error) => Err(self.noted(slot_of(&claim.key), error)),
                    renewal => renewal,
                });
            }
        }
        answers.into_iter().flatten().collect()
    }

    /// Follows a claim to the master that has its key now.
    async fn renew_elsewhere(&self, claim: &Claim, mut why: LockError) -> Result<Renewal> {
        let slot = slot_of(&claim.key);
        for _ in 0..AT_ONCE {
            let (stop, asking) = match Refusal::of(&why) {
                Some(Refusal::Moved(to)) => {
                    self.moved(slot, to)?;
                    (self.stop(slot)?, false)
                }
                Some(Refusal::Ask(to)) => (self.stop_at(slot, to)?, true),
                _ => break,
            };
            let work: BoxFuture<'_, Result<Renewal>> = if asking {
                Box::pin(renew_asking(stop.node, claim))
            } else {
                Box::pin(async { renew(stop.node, std::slice::from_ref(claim)).await.remove(0) })
            };
            let renewal = self.renewed(stop, work).await;
            stop.node.redirections.count(&renewal);
            match renewal {
                Err(error) => why = self.noted(slot, error),
                renewed => return renewed,
            }
        }
        Err(why)
    }

    /// Does something at the master of a lock's slot, and again where that is redirected, until the time is up.
    ///
    /// Only what was certainly not executed is sent again. After any other failure the machinery asks again,
    /// because it knows what to undo.
    pub(crate) async fn run<O: Operation>(&self, operation: &O) -> Result<O::Answer> {
        let (clock, slot) = (Clock::system(), slot_of(operation.lock()));
        // Before the caller gives up by itself, which would not tell it why.
        let until = clock.now().after(operation.within() / 10 * 9);
        self.known().await?;
        let (mut way, mut importing, mut redirected, mut backoff) = (Way::default(), None, 0, PAUSE);
        loop {
            let done = match importing.take().map_or_else(|| self.stop(slot), Ok) {
                Ok(stop) => {
                    let done = self.watched(stop, operation.at_master(stop.node, way)).await;
                    stop.node.redirections.count(&done);
                    done
                }
                Err(error) => Err(error),
            };
            way.asking = false;
            let error = match done {
                Ok(done) => return Ok(done),
                Err(error) => self.noted(slot, error),
            };
            let at_once = match Refusal::of(&error) {
                Some(Refusal::Moved(_) | Refusal::Replaced) => true,
                Some(Refusal::Ask(to)) => {
                    importing = Some(self.stop_at(slot, to)?);
                    way.asking = true;
                    true
                }
                Some(Refusal::TryAgain | Refusal::NotHere) => !std::mem::replace(&mut way.alone, true),
                _ if error.kind() == LockErrorKind::Unavailable && !error.is_ambiguous() => false,
                _ => return Err(error),
            };
            if at_once && redirected < AT_ONCE {
                redirected += 1;
                continue;
            }
            let now = clock.now();
            let again = now.after(backoff.pause());
            if again >= until {
                return Err(error);
            }
            tokio::select! {
                () = clock.sleep_until(again) => {}
                () = self.another_master(slot) => {}
            }
            if self.keepers.load(Ordering::Relaxed) == 0 && !at_once {
                // Nobody else looks.
                let _ = self.look().await;
            }
        }
    }

    /// Returns the master of a slot.
    fn stop(&self, slot: u16) -> Result<Stop<'_>> {
        let at = |lane| Some(Stop { slot, lane, served_by: lane, node: self.table.node(lane)? });
        self.table.lane_of(slot).and_then(at).ok_or_else(|| {
            self.common.look_soon();
            LockError::not_executed(format!(
                "the cluster of {} has no master for slot {slot}; wait until every slot is served",
                self.name(),
            ))
        })
    }

    /// Waits until another master serves the slot than now.
    async fn another_master(&self, slot: u16) {
        let Ok(stop) = self.stop(slot) else { return std::future::pending().await };
        self.replaced(stop).await;
    }

    /// Returns the node at an address that a redirection names.
    fn stop_at(&self, slot: u16, address: &Address) -> Result<Stop<'_>> {
        let lane = self.lane_at(address)?;
        let node = self.table.node(lane).ok_or_else(|| LockError::not_executed("a node has just been forgotten"))?;
        Ok(Stop { slot, lane, served_by: self.table.lane_of(slot).unwrap_or(lane), node })
    }

    /// Corrects the table.
    fn moved(&self, slot: u16, to: &Address) -> Result<()> {
        let lane = self.lane_at(to)?;
        let changed = self.table.set(std::iter::once((slot, Some(lane))));
        self.slots_moved.fetch_add(u64::from(changed > 0), Ordering::Relaxed);
        self.common.look_soon();
        Ok(())
    }

    /// Draws the conclusions from an error, and returns it as the caller may have it.
    fn noted(&self, slot: u16, error: LockError) -> LockError {
        match Refusal::of(&error) {
            Some(Refusal::Moved(to)) => {
                if let Err(error) = self.moved(slot, to) {
                    return error;
                }
            }
            Some(Refusal::NoMaster | Refusal::NotHere) => self.common.look_soon(),
            _ => {}
        }
        error
    }
}

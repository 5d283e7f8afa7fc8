//! From a call to the master that serves its key, and after it when the slot moves or the master changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::contract::backend::{
    AcquireRequest, Attempt, AttemptAll, Blocked, BoxFuture, Claim, Freed, JobRecord, Release, Renewal,
};
use crate::stores::redis::cluster::Cluster;
use crate::stores::redis::cluster::watch::Stop;
use crate::stores::redis::error::wrong_type::WrongType;
use crate::stores::redis::keys::hash_slot::slot_of;
use crate::stores::redis::place::redirect::Refusal;
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::wire::url::Address;
use crate::types::error::{LockError, LockErrorKind, Result};
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::options::command_timeout;
use crate::types::owner::Holder;
use crate::types::system::clock::{Clock, jitter};

/// How many redirections are followed at once. Then a pause comes before each.
const AT_ONCE: usize = 5;

/// The bounds of a pause, which doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// How long a reading call may take.
const READ_WITHIN: Duration = Duration::from_secs(1);

impl Cluster {
    /// Returns the lane of the master that serves a key.
    pub(crate) fn lane(&self, key: &LockKey) -> u16 {
        self.table.lane_of(slot_of(key)).unwrap_or(0)
    }

    /// Returns the name of the master of a lane.
    pub(crate) fn node_name(&self, lane: u16) -> &str {
        self.table.node(lane).unwrap_or(&self.seeds[0]).name()
    }

    /// Returns a number that is another one when the server of a lane has another history than before, and for a lane
    /// that replaced another.
    pub(crate) fn failovers(&self, lane: u16) -> u64 {
        let changes = self.table.node(lane).map_or(0, |node| node.pool.history.changes());
        (self.failovers.of(lane) << 32) + changes
    }

    /// Returns whether a lock was found taken lately.
    pub(crate) fn is_contended(&self, key: &LockKey) -> bool {
        let found = self.table.lane_of(slot_of(key)).and_then(|lane| self.table.node(lane));
        found.is_some_and(|node| node.collisions.is_contended(key))
    }

    /// Returns whether masters report changes, as far as is known.
    pub(crate) fn can_hear(&self) -> bool {
        let nodes = (0..=u16::MAX).map_while(|lane| self.table.node(lane));
        nodes.chain(&self.seeds).any(|node| node.listeners.can_hear())
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let slot = slot_of(&request.claim.key);
        self.routed(slot, request.execute_within, |node, way| Box::pin(node.acquire_heard(request, None, way))).await
    }

    pub(crate) async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        let Some(first) = requests.first() else { return Ok(AttemptAll::Apart) };
        let slot = slot_of(&first.claim.key);
        if requests.iter().any(|request| slot_of(&request.claim.key) != slot) {
            // Reported for each key.
            return Ok(AttemptAll::Apart);
        }
        let attempt = self.routed(slot, first.execute_within, |node, way| {
            Box::pin(async move {
                if way == Way::default() { node.acquire_all(requests).await } else { Ok(AttemptAll::Apart) }
            })
        });
        attempt.await
    }

    pub(crate) async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        let slot = slot_of(&request.claim.key);
        self.routed(slot, request.execute_within, |node, way| {
            Box::pin(async move {
                if !way.alone {
                    return node.acquire_heard(request, Some(release), way).await;
                }
                node.free("release", release, way).await?;
                node.acquire_heard(request, None, Way { alone: false, ..way }).await
            })
        })
        .await
    }

    pub(crate) async fn free(&self, op: &'static str, release: &Release) -> Result<Freed> {
        let (slot, within) = (slot_of(&release.claim.key), command_timeout(release.claim.ttl));
        self.routed(slot, within, |node, way| Box::pin(node.free(op, release, way))).await
    }

    /// Names the key that is of another type, if an error is about one.
    pub(crate) async fn name_the_type(&self, error: LockError, key: &LockKey) -> LockError {
        if !WrongType::is_of(&error) {
            return error;
        }
        let found = self.routed(slot_of(key), READ_WITHIN, |node, _| Box::pin(node.other_type(key))).await;
        found.ok().flatten().unwrap_or(error)
    }

    pub(crate) async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.routed(slot_of(key), READ_WITHIN, |node, way| Box::pin(node.read_holder(key, way))).await
    }

    pub(crate) async fn holders(&self, key: &LockKey) -> Result<Vec<Holder>> {
        self.routed(slot_of(key), READ_WITHIN, |node, way| Box::pin(node.read_holders(key, way))).await
    }

    pub(crate) async fn downgrade(&self, claim: &Claim, token: FencingToken) -> Result<Renewal> {
        let (slot, within) = (slot_of(&claim.key), command_timeout(claim.ttl));
        self.routed(slot, within, |node, way| Box::pin(node.downgrade(claim, token, way))).await
    }

    pub(crate) async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        self.routed(slot_of(key), READ_WITHIN, |node, way| Box::pin(node.write_blocked(key, blocked, way))).await
    }

    pub(crate) async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        self.routed(slot_of(key), READ_WITHIN, |node, way| Box::pin(node.read_blocked(key, way))).await
    }

    pub(crate) async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.routed(slot_of(key), READ_WITHIN, |node, way| Box::pin(node.read_last_run(key, way))).await
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
                    let work = async { Ok(stop.node.renew(&these).await) };
                    let renewals = self.watched(stop, Box::pin(work)).await;
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
                Box::pin(stop.node.renew_asking(claim))
            } else {
                Box::pin(async { stop.node.renew(std::slice::from_ref(claim)).await.remove(0) })
            };
            let renewal = self.watched(stop, work).await;
            stop.node.redirections.count(&renewal);
            match renewal {
                Err(error) => why = self.noted(slot, error),
                renewed => return renewed,
            }
        }
        Err(why)
    }

    /// Makes a call at the master of a slot, and again where that is redirected, until the time is up.
    ///
    /// Only what was certainly not executed is sent again. After any other failure the machinery asks again,
    /// because it knows what to undo.
    async fn routed<'a, T>(
        &'a self,
        slot: u16,
        within: Duration,
        attempt: impl Fn(&'a Arc<Node>, Way) -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let clock = Clock::system();
        // Before the caller gives up by itself, which would not tell it why.
        let until = clock.now().after(within / 10 * 9);
        self.known().await?;
        let (mut way, mut importing, mut redirected, mut bound) = (Way::default(), None, 0, PAUSE.0);
        loop {
            let done = match importing.take().map_or_else(|| self.stop(slot), Ok) {
                Ok(stop) => {
                    let done = self.watched(stop, attempt(stop.node, way)).await;
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
            let again = now.after(jitter(Duration::from_millis(1), bound));
            if again >= until {
                return Err(error);
            }
            bound = (bound * 2).min(PAUSE.1);
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

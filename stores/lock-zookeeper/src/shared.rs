//! The state that the calls of a store share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lock_store::types::system::sync::Mutex;
use lock_store::{Clock, FencingToken, Holder, Inbox, LockError, LockKey, OwnerId, Result, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use zookeeper_client::{Error, Stat};

use crate::data::{ClaimData, KeptData, between};
use crate::error::{Answer, foreign, of_request};
use crate::names::{KeyHash, Line, Paths};
use crate::places::{Known, Places};
use crate::session::{Session, lasting, make_beat, sleep, within};
use crate::slot::Slot;
use crate::url::Settings;

/// How many claims may be worked on without waiting for one another. Two claims of one number take turns.
const TURNS: usize = 256;

/// For how long a lock counts as contended after it was found taken, and how many are remembered.
const CONTENDED: Duration = Duration::from_secs(10);
const MOST: usize = 4096;

/// The state that the calls of a store share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) paths: Paths,
    pub(crate) clock: Clock,
    /// The runtime of the store's thread, on which the client and all calls run.
    runtime: Handle,
    /// The session of the locks.
    pub(crate) locks: Slot,
    /// The session of everything that may be large: a long answer on the other one would delay renewals.
    pub(crate) looks: Slot,
    pub(crate) places: Places,
    turns: Vec<tokio::sync::Mutex<()>>,
    inbox: Mutex<Option<Inbox>>,
    /// A time of the server's clock, and when the request was sent that it answered.
    server_time: Mutex<(Timestamp, i64)>,
    contended: Mutex<HashMap<LockKey, Timestamp>>,
    /// Each call that is worked on has a receiver.
    pub(crate) in_flight: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, runtime: Handle) -> Self {
        Self {
            paths: Paths::new(settings.root.clone()),
            settings,
            clock: Clock::system(),
            runtime,
            locks: Slot::new(false),
            looks: Slot::new(true),
            places: Places::default(),
            turns: (0..TURNS).map(|_| tokio::sync::Mutex::default()).collect(),
            inbox: Mutex::default(),
            server_time: Mutex::new((Timestamp::from_nanos(0), 0)),
            contended: Mutex::default(),
            in_flight: watch::Sender::new(()),
        }
    }

    /// Runs a task on the store's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the session of the locks.
    pub(crate) async fn session(&self, until: Timestamp) -> Result<Arc<Session>> {
        self.locks.session(&self.settings, &self.clock, until).await
    }

    /// Waits until no other call works on a claim.
    pub(crate) async fn turn(&self, owner: OwnerId, until: Timestamp) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let [first, second, ..] = owner.digits();
        let turn = &self.turns[(usize::from(first) * 31 + usize::from(second)) % TURNS];
        within(until.since(self.now()), turn.lock()).await.ok_or_else(|| {
            LockError::not_executed(
                "an earlier request of this claim has no answer yet; ZooKeeper is slow or cannot be reached",
            )
        })
    }

    pub(crate) fn inbox(&self) -> Option<Inbox> {
        self.inbox.lock().clone()
    }

    pub(crate) fn set_inbox(&self, inbox: Option<Inbox>) {
        *self.inbox.lock() = inbox;
    }

    /// Ends the claims of a session that has ended, before there is another one.
    pub(crate) fn lose(&self, session: &Session) {
        self.places.lose(session.id);
        if self.locks.leave(session)
            && let Some(inbox) = self.inbox()
        {
            // Every holder asks at once, and learns that its lock is lost.
            inbox.reconnected();
        }
        self.looks.leave(session);
    }

    /// Notes a time of the server's clock in the answer to a request.
    pub(crate) fn note_time(&self, sent: Timestamp, millis: i64) {
        let mut known = self.server_time.lock();
        if sent >= known.0 {
            *known = (sent, millis);
        }
    }

    /// Returns the time of the server's clock, or one that is later by the time of an answer.
    pub(crate) fn server_now(&self) -> i64 {
        let (sent, millis) = *self.server_time.lock();
        let since = i64::try_from(self.now().since(sent).as_millis()).unwrap_or(0);
        millis.saturating_add(since).saturating_add(1)
    }

    pub(crate) fn note_contended(&self, key: &LockKey) {
        let mut contended = self.contended.lock();
        if contended.len() >= MOST {
            contended.clear();
        }
        contended.insert(key.clone(), self.now());
    }

    pub(crate) fn is_contended(&self, key: &LockKey) -> bool {
        self.contended.lock().get(key).is_some_and(|found| self.now().since(*found) < CONTENDED)
    }

    /// Writes to the node of a session. It is sent at once, before the returned future is polled, and what is read behind it is not older.
    pub(crate) fn write<'a>(&'a self, session: &'a Session) -> impl Future<Output = Answer<Stat>> + Send + 'a {
        let (sent, write) = (self.now(), session.client.set_data(&session.beat, &[], None));
        async move {
            let stat = match write.await {
                // An operator has removed the node. Without it, no lease of this session could be extended any more.
                Err(Error::NoNode) => match make_beat(&session.client, &self.settings, &self.paths).await {
                    // Another call was first.
                    Err(Error::NodeExists) => session.client.set_data(&session.beat, &[], None).await?,
                    made => made?,
                },
                written => written?,
            };
            self.note_time(sent, stat.mtime);
            Ok(stat)
        }
    }

    /// Reads which claims a lock has.
    pub(crate) async fn line(&self, session: &Session, hash: KeyHash) -> Result<Line> {
        Ok(Line::of(hash, &session.children(&self.paths.shard(hash.shard())).await?))
    }

    /// Reads by what a released lock is kept. A time that is over keeps nothing, and its node is removed.
    pub(crate) async fn kept(&self, session: &Session, key: &LockKey, now: i64) -> Result<Option<KeptData>> {
        let path = self.paths.kept(KeyHash::of(key));
        let Some((data, stat)) = session.read(&path).await? else { return Ok(None) };
        let kept = KeptData::read(&data).ok_or_else(|| foreign(&path, key))?;
        if kept.until > now {
            return Ok(Some(kept));
        }
        session.remove_read(&path, &stat).await.map(|()| None)
    }

    /// Describes the holder of a lock. The holder may have gone since the line was read.
    pub(crate) async fn holder(&self, session: &Session, key: &LockKey, line: &Line) -> Result<Option<Holder>> {
        let now = self.server_now();
        if line.kept
            && let Some(kept) = self.kept(session, key, now).await?
        {
            return Ok(Some(kept_holder(&kept, now)));
        }
        let Some(first) = line.claims.first() else { return Ok(None) };
        let path = self.paths.beside(KeyHash::of(key), &first.name);
        let Some((data, stat)) = session.read(&path).await? else { return Ok(None) };
        let data = ClaimData::read(&data).ok_or_else(|| foreign(&path, key))?;
        // Another process may have renewed its lease just now. If it is dead, its lock ends with its session.
        let left = self.places.left(first.owner, self.now()).unwrap_or_else(|| data.ttl.min(data.session));
        let mut holder = Holder::foreign(Some(left));
        (holder.owner, holder.info, holder.since) = (Some(first.owner), Some(data.info), since(stat.mtime));
        Ok(Some(holder))
    }

    /// Describes what is in the way of a claim.
    pub(crate) async fn in_the_way(&self, session: &Session, key: &LockKey, line: &Line) -> Result<Holder> {
        self.note_contended(key);
        Ok(self.holder(session, key, line).await?.unwrap_or_else(Holder::unseen))
    }

    /// Writes to the node of a claim before it is granted. Returns its state, and the base of its token.
    ///
    /// The number of this transaction exceeds those of all grants before, unlike the number of the one that made the node: the holder
    /// before may have been granted its lock again since.
    pub(crate) async fn confirm(&self, session: &Session, place: &Known) -> Answer<(Stat, Answer<(Vec<u8>, Stat)>)> {
        let (sent, text) = (self.now(), place.data.write());
        let write = session.client.set_data(&place.path, &text, None);
        let read = session.client.get_data(&self.paths.base);
        let (written, based) = tokio::join!(write, read);
        let stat = written?;
        self.note_time(sent, stat.mtime);
        Ok((stat, based))
    }

    /// Makes the token of a grant from the number of the transaction that granted it.
    ///
    /// `based` is the answer to a read of the base that was sent behind that transaction, so it is at least as new. If the token does
    /// not exceed the floor of the caller, the base is raised first, for all locks.
    pub(crate) async fn token(
        &self,
        session: &Session,
        mut based: Answer<(Vec<u8>, Stat)>,
        zxid: i64,
        floor: FencingToken,
    ) -> Result<FencingToken> {
        let path = &self.paths.base;
        let steps = u64::try_from(zxid).ok().and_then(|zxid| zxid.checked_mul(FencingToken::PER_GRANT));
        let fits =
            |token: &u64| token.checked_add(FencingToken::PER_GRANT).is_some_and(|end| i64::try_from(end).is_ok());
        let no_room =
            || LockError::misconfigured("the tokens of ZooKeeper have no room left in 64 bits; remove its node base");
        loop {
            let (base, version) = match &based {
                Ok((data, stat)) => (read_base(data, path)?, Some(stat.version)),
                Err(Error::NoNode) => (FencingToken::PLAIN.get(), None),
                Err(error) => return Err(of_request(error.clone())),
            };
            let token = steps.and_then(|steps| base.checked_add(steps)).filter(fits).ok_or_else(no_room)?;
            if token > floor.get() {
                return Ok(FencingToken::new(token));
            }
            let raised = base + (floor.get() - token) + FencingToken::PER_GRANT;
            let text = raised.to_string();
            let written = match version {
                Some(version) => session.client.set_data(path, text.as_bytes(), Some(version)).await.map(drop),
                None => session.client.create(path, text.as_bytes(), &lasting(&self.settings)).await.map(drop),
            };
            match written {
                // Another process may have raised it further.
                Ok(()) | Err(Error::BadVersion | Error::NodeExists | Error::NoNode) => {}
                Err(error) => return Err(of_request(error)),
            }
            based = session.client.get_data(path).await;
        }
    }

    /// Removes a node, and does not give up before it is gone or the session has ended.
    pub(crate) async fn remove(&self, session: &Session, path: &str) {
        while !session.has_ended() {
            match session.client.delete(path, None).await {
                Ok(()) | Err(Error::NoNode) => return,
                Err(error) => {
                    tracing::debug!(%error, "a node of a lock that is over is not removed yet");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// The floor that a caller may ask for: more would leave too little room in 64 bits.
pub(crate) fn check_floor(floor: FencingToken, key: &LockKey) -> Result<()> {
    if floor.get() > FencingToken::PLAIN.get() / 2 * 3 {
        let text = "the newest token known leaves too little room for further ones; find out which program stored it";
        return Err(LockError::misconfigured(text).with_key(key));
    }
    Ok(())
}

fn read_base(data: &[u8], path: &str) -> Result<u64> {
    let read = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
    read.ok_or_else(|| {
        LockError::misconfigured(format!("the node {path} does not have a number; remove it, or restore it"))
    })
}

/// Describes a lock that was released and stays taken.
pub(crate) fn kept_holder(kept: &KeptData, now: i64) -> Holder {
    let mut holder = Holder::foreign(Some(between(now, kept.until)));
    (holder.info, holder.since) = (Some(kept.info.clone()), since(kept.since));
    holder.kept()
}

/// Reads a time of the server's clock.
pub(crate) fn since(millis: i64) -> Option<std::time::SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(millis).ok()?))
}

#[cfg(test)]
mod tests {
    use lock_store::{FencingToken, LockKey};

    use super::{check_floor, read_base};

    #[test]
    fn nonsense_is_no_floor_and_no_base() {
        let key = LockKey::new("k").unwrap();
        let plain = FencingToken::PLAIN.get();
        assert!(check_floor(FencingToken::new(plain + plain / 2), &key).is_ok());
        assert!(check_floor(FencingToken::new(u64::MAX), &key).is_err());
        assert_eq!(read_base(b"4611686018427387904", "/base"), Ok(plain));
        assert!(read_base(b"", "/base").is_err() && read_base(b"\xff", "/base").is_err());
    }
}

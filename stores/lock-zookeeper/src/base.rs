//! The base of tokens: the number that each token adds to the number of a transaction.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Waker};

use lock_store::types::system::sync::Mutex;
use lock_store::{FencingToken, LockError, Result};
use tokio::task::unconstrained;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error, Permission, Stat};

use crate::calls::REMOVED;
use crate::error::{Answer, of_request};
use crate::session::{Session, acls};
use crate::shared::Shared;

/// What the node of the base has. `None` if there is no node: the base is then the smallest one.
pub(crate) type Read = Option<(Vec<u8>, Stat)>;

/// The base, as a session knows it.
#[derive(Default)]
pub(crate) struct Base(Mutex<Option<Known>>);

struct Known {
    read: Read,
    /// Ends when the node may have changed since.
    outdated: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").finish_non_exhaustive()
    }
}

impl Base {
    /// Returns what was read, unless it may have changed since. It is at least as new as every answer and event of this connection.
    ///
    /// Servers send the event of a change before later events, and before the answer to each request that they execute after the
    /// change. So a watch without an event shows that nothing has changed. This does not hold over a new connection: its server may
    /// be older than an event that came over the one before.
    pub(crate) fn known(&self) -> Option<Read> {
        let mut known = self.0.lock();
        let is_outdated = known.as_mut()?.outdated.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        // A future that has ended must not be polled again.
        known.take_if(|_| is_outdated);
        known.as_ref().map(|known| known.read.clone())
    }
}

impl Shared {
    /// Reads the base, and watches it.
    pub(crate) async fn learn_base(&self, session: &Session) -> Answer<Read> {
        let (client, path, mut states) = (&session.client, &self.paths.base, session.states());
        let (stat, watcher) = client.check_and_watch_stat(path).await?;
        let read = match stat {
            None => None,
            Some(_) => match client.get_data(path).await {
                Ok(read) => Some(read),
                Err(Error::NoNode) => None,
                Err(error) => return Err(error),
            },
        };
        // Polled in the middle of other work: what the scheduler allows that work must not hide an event.
        let outdated = Box::pin(unconstrained(async move {
            tokio::select! {
                _ = watcher.changed() => {}
                _ = states.changed() => {}
            }
        }));
        *session.base.0.lock() = Some(Known { read: read.clone(), outdated });
        Ok(read)
    }

    /// Makes the token of the claim with the node at `own`, from the number of a transaction: that of the grant, or one from after the
    /// end of the holder before. The base is what was `known` when the answer or the event with this number came, or it is read.
    ///
    /// If the token does not exceed the floor of the caller, the base is raised first, for all locks.
    pub(crate) async fn token(
        &self,
        session: &Session,
        own: &str,
        mut known: Option<Read>,
        zxid: i64,
        floor: FencingToken,
    ) -> Result<FencingToken> {
        let path = &self.paths.base;
        // A server does not tell a client of changes of a node that the client may not read.
        let acl = [&*acls(&self.settings), &[Acl::new(Permission::READ, AuthId::anyone())]].concat();
        let options = CreateMode::Persistent.with_acls(Acls::new(&acl));
        let steps = u64::try_from(zxid).ok().and_then(|zxid| zxid.checked_mul(FencingToken::PER_GRANT));
        let fits =
            |token: &u64| token.checked_add(FencingToken::PER_GRANT).is_some_and(|end| i64::try_from(end).is_ok());
        let no_room =
            || LockError::misconfigured("the tokens of ZooKeeper have no room left in 64 bits; remove its node base");
        loop {
            let read = match known.take() {
                Some(read) => read,
                None => {
                    let read = self.learn_base(session).await.map_err(of_request)?;
                    // If the claim was taken away meanwhile, others may have had the lock under smaller tokens.
                    if session.client.check_stat(own).await.map_err(of_request)?.is_none() {
                        return Err(LockError::not_executed(REMOVED));
                    }
                    read
                }
            };
            let (base, version) = match read {
                Some((data, stat)) => (number(&data, path)?, Some(stat.version)),
                None => (FencingToken::PLAIN.get(), None),
            };
            let token = steps.and_then(|steps| base.checked_add(steps)).filter(fits).ok_or_else(no_room)?;
            if token > floor.get() {
                return Ok(FencingToken::new(token));
            }
            let raised = base + (floor.get() - token) + FencingToken::PER_GRANT;
            let text = raised.to_string();
            let written = match version {
                Some(version) => session.client.set_data(path, text.as_bytes(), Some(version)).await.map(drop),
                None => session.client.create(path, text.as_bytes(), &options).await.map(drop),
            };
            match written {
                // Another process may have raised it further.
                Ok(()) | Err(Error::BadVersion | Error::NodeExists | Error::NoNode) => {}
                Err(error) => return Err(of_request(error)),
            }
        }
    }
}

fn number(data: &[u8], path: &str) -> Result<u64> {
    let read = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
    read.ok_or_else(|| {
        LockError::misconfigured(format!("the node {path} does not have a number; remove it, or restore it"))
    })
}

#[cfg(test)]
mod tests {
    use lock_store::FencingToken;
    use lock_store::types::system::sync::Mutex;

    use super::{Base, Known, number};

    #[test]
    fn what_may_have_changed_is_not_known_any_more() {
        let base = |outdated| Base(Mutex::new(Some(Known { read: None, outdated })));
        let same = base(Box::pin(std::future::pending()));
        assert_eq!([same.known(), same.known()], [Some(None), Some(None)]);
        let changed = base(Box::pin(async {}));
        assert_eq!([changed.known(), changed.known()], [None, None]);
    }

    #[test]
    fn nonsense_is_no_base() {
        assert_eq!(number(b"4611686018427387904", "/base"), Ok(FencingToken::PLAIN.get()));
        assert!(number(b"", "/base").is_err() && number(b"\xff", "/base").is_err());
    }
}

//! The thread of a store. Its sessions outlive the runtimes of their callers, and a caller needs no runtime.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{AcquireRequest, Claim, Inbox, LockError, Notice, Result, Timestamp};
use tokio::sync::{oneshot, watch};

use crate::attend::{close, open_when_wanted};
use crate::calls::acquire::undo;
use crate::revoked::hear;
use crate::session::{Session, number, versions, within};
use crate::shared::Shared;
use crate::sweep::sweep;
use crate::url::Settings;

/// How long calls that are worked on may take after the store is dropped.
const LAST: Duration = Duration::from_secs(2);

/// How long a background connection is waited for before it is reported as down.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread on which the client and all calls run.
pub(crate) struct Runner {
    pub(crate) shared: Arc<Shared>,
    /// Dropped with the store.
    _alive: watch::Sender<()>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        let refused = |error| {
            LockError::misconfigured("no thread could be started for the session with ZooKeeper").with_source(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let shared = Arc::new(Shared::new(settings, runtime.handle().clone()));
        let (alive, mut gone) = watch::channel(());
        let working = Arc::clone(&shared);
        let work = move || {
            runtime.block_on(async {
                working.spawn(open_when_wanted(Arc::clone(&working), |shared| &shared.locks));
                working.spawn(open_when_wanted(Arc::clone(&working), |shared| &shared.looks));
                working.spawn(beside(Arc::clone(&working)));
                let _ = gone.changed().await; // It ends when the store is dropped.
                end(&working).await;
            });
            // Without waiting for a look-up of a name that takes long.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("lock-zookeeper".to_owned()).spawn(work).map_err(refused)?;
        Ok(Self { shared, _alive: alive })
    }

    /// Runs a call on the store's thread. If its caller drops this, the call goes on.
    pub(crate) async fn ask<A: Send + 'static>(&self, work: impl Future<Output = A> + Send + 'static) -> Result<A> {
        let (answer, answered) = oneshot::channel();
        let in_flight = self.shared.in_flight.subscribe();
        self.shared.spawn(async move {
            let _in_flight = in_flight;
            // The caller may have gone.
            let _ = answer.send(work.await);
        });
        answered.await.map_err(|_| LockError::unavailable("the thread of the session with ZooKeeper has ended"))
    }

    /// Runs a call on the store's thread, which gives it up when its time is over.
    pub(crate) async fn ask_within<A: Send + 'static, F>(
        &self,
        time: Duration,
        call: impl FnOnce(Arc<Shared>, Timestamp) -> F,
    ) -> Result<A>
    where
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let call = call(Arc::clone(&self.shared), self.shared.now().after(time));
        let late =
            move || LockError::unavailable(format!("ZooKeeper has not answered within {time:?}, and may still do so"));
        self.ask(async move { within(time, call).await.unwrap_or_else(|| Err(late())) }).await?
    }

    /// Takes a lock, by a call. If its caller has gone when the answer comes, what was taken is given back.
    pub(crate) async fn acquire<A: Send + 'static, F>(
        &self,
        request: AcquireRequest,
        call: impl FnOnce(Arc<Shared>, AcquireRequest, Timestamp) -> F + Send + 'static,
    ) -> Result<A>
    where
        F: Future<Output = Result<A>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let (shared, in_flight) = (Arc::clone(&self.shared), self.shared.in_flight.subscribe());
        let until = shared.now().after(request.execute_within);
        self.shared.spawn(async move {
            let (_in_flight, claim) = (in_flight, request.claim.clone());
            let turn = match shared.turn(claim.owner, until).await {
                Ok(turn) => turn,
                Err(error) => return drop(answer.send(Err(error))),
            };
            if answer.is_closed() {
                return;
            }
            let attempt = call(Arc::clone(&shared), request, until).await;
            if answer.send(attempt.map_err(|error| error.with_key(&claim.key))).is_err() {
                give_back(&shared, &claim).await;
            }
            drop(turn);
        });
        answered.await.map_err(|_| LockError::unavailable("the thread of the session with ZooKeeper has ended"))?
    }

    /// Keeps a session, and lets grants reach an inbox while there is one.
    pub(crate) async fn attend(&self, inbox: &Inbox) -> LockError {
        let (shared, _registered) = (&self.shared, Registered { shared: &self.shared, inbox });
        shared.set_inbox(Some(inbox.clone()));
        let tell = |up| inbox.notice(&Notice::Connection { node: &shared.settings.hosts, up });
        loop {
            let session = match shared.session(shared.now().after(PATIENCE)).await {
                Ok(session) => session,
                Err(error) => {
                    tell(false);
                    return error;
                }
            };
            tell(true);
            inbox.set_open(true);
            inbox.reconnected();
            let _ = within(PATIENCE, tell_servers(shared, &session, inbox)).await;
            shared.locks.left(&session).await;
            inbox.set_open(false);
            tell(false);
        }
    }
}

/// Does the work beside the calls, in each session of the locks.
async fn beside(shared: Arc<Shared>) {
    loop {
        let session = shared.locks.opened().await;
        let work = async {
            tokio::join!(hear(&shared, &session), sweep(&shared, &session));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = work => {}
            () = shared.locks.left(&session) => {}
        }
    }
}

/// Reports which servers they are: two ensembles may have one name. When the root of the locks was made tells them apart.
async fn tell_servers(shared: &Shared, session: &Session, inbox: &Inbox) {
    let Ok(Some(stat)) = session.client.check_stat(&shared.paths.root).await else { return };
    let (node, id) = (&*shared.settings.hosts, format!("{:x}-{:x}", stat.czxid, stat.ctime));
    // A server may be down, or not say its version.
    let known = versions(&shared.settings).await.into_iter().flatten().find_map(|said| Some(number(&said)?.to_owned()));
    let version = known.map_or_else(|| "zookeeper".to_owned(), |number| format!("zookeeper {number}"));
    inbox.notice(&Notice::Server { node, id: &id, version: &version, kind: "server" });
}

async fn give_back(shared: &Arc<Shared>, claim: &Claim) {
    if let Some(place) = shared.places.get(claim.owner)
        && let Ok(session) = shared.session(shared.now().after(LAST)).await
        && place.session == session.id
    {
        undo(shared, &session, claim).await;
    }
}

/// Ends the work of a store: what is in flight is finished, and the sessions are closed.
async fn end(shared: &Arc<Shared>) {
    let _ = within(LAST, shared.in_flight.closed()).await;
    shared.places.clear();
    for session in [shared.locks.take(), shared.looks.take()].into_iter().flatten() {
        close(session).await;
    }
}

/// The inbox of a store's manager, for as long as the manager listens.
struct Registered<'a> {
    shared: &'a Shared,
    inbox: &'a Inbox,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.inbox.set_open(false);
        self.shared.set_inbox(None);
    }
}

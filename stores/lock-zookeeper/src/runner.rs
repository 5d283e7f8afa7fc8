//! The work on the thread of a store beside its calls. Its sessions outlive the runtimes of their callers.

use std::sync::Arc;
use std::time::Duration;

use lock_store::thread::{LAST, OnThread, ThreadState};
use lock_store::{Claim, Inbox, LockError, Notice};

use crate::attend::{close, open_when_wanted};
use crate::calls::acquire::undo;
use crate::revoked::hear;
use crate::session::{Session, number, versions, within};
use crate::shared::Shared;
use crate::sweep::sweep;
use crate::url::Settings;

/// How long a background connection is waited for before it is reported as down.
const PATIENCE: Duration = Duration::from_secs(5);

impl OnThread for Shared {
    type Settings = Settings;

    const THREAD: &'static str = "lock-zookeeper";
    const SERVER: &'static str = "ZooKeeper";

    fn begin(settings: Settings, thread: ThreadState) -> Arc<Self> {
        let shared = Arc::new(Self::new(settings, thread));
        shared.runtime.spawn(open_when_wanted(Arc::clone(&shared), |shared| &shared.locks));
        shared.runtime.spawn(open_when_wanted(Arc::clone(&shared), |shared| &shared.looks));
        shared.runtime.spawn(beside(Arc::clone(&shared)));
        shared
    }

    async fn give_back(shared: &Arc<Self>, claim: &Claim) {
        if let Some(place) = shared.places.get(claim.owner)
            && let Ok(session) = shared.session(shared.now().after(LAST)).await
            && place.session == session.id
        {
            undo(shared, &session, claim).await;
        }
    }

    /// Closes the sessions.
    async fn end(shared: &Arc<Self>) {
        shared.places.clear();
        for session in [shared.locks.take(), shared.looks.take()].into_iter().flatten() {
            close(session).await;
        }
    }
}

/// Keeps a session, and lets grants reach an inbox while there is one.
pub(crate) async fn attend(shared: &Shared, inbox: &Inbox) -> LockError {
    let _listening = shared.listen(inbox);
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

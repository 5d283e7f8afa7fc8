//! The parts of a store that keeps its locks in another layout on the same servers.

use redis::{PushInfo, aio::MultiplexedConnection};
use tokio::sync::{mpsc::UnboundedReceiver, watch};

use crate::RedisStore;
use crate::connection::greeting::Opened;
pub use crate::connection::link::{ServerTime, moved};
pub use crate::protocol::clock::Draw;
pub use crate::protocol::keys::{Keys, REVOKED};
#[cfg(any(test, feature = "inspect"))]
pub use crate::protocol::steps::revoking;
pub use crate::protocol::steps::script::{Eval, Script};
pub use crate::protocol::steps::step::{Step, Unread};
pub use crate::protocol::steps::{CLOCK_LUA, time_left};
use lock_store::types::error::{LockError, Result};
#[cfg(feature = "inspect")]
use lock_store::{LockKey, ScanPage, ScanPosition};

/// A connection for channels, the messages of its server, and what changes when the server is at another address.
pub type Ear = (MultiplexedConnection, UnboundedReceiver<PushInfo>, Option<watch::Receiver<u64>>);

#[doc(hidden)]
impl RedisStore {
    /// Does a step at the server that has its lock.
    pub async fn step<A: Send>(&self, step: Step<'_, A>) -> Result<A> {
        self.run(step).await
    }

    /// Opens a connection for channels to the server of a lane.
    pub async fn listen_at(&self, lane: u16) -> Result<Ear> {
        let node = self.masters.at(lane).ok_or_else(|| LockError::not_executed("this server is not known any more"))?;
        let Opened { connection, moves, more, .. } = node.pool.place.listen(&[REVOKED]).await?;
        Ok((connection, more.pushes, moves))
    }

    /// Reads the next keys of a type in a walk through all servers, as `Inspector::scan` reads locks.
    #[cfg(feature = "inspect")]
    pub async fn names(
        &self,
        of: &str,
        prefix: &str,
        limit: u32,
        after: Option<&ScanPosition>,
    ) -> Result<(ScanPage, Vec<LockKey>)> {
        let (_, page, names) = self.servers().names((of, prefix), limit, after).await?;
        Ok((page, names.locks))
    }
}

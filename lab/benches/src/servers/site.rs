//! The servers of one store.

use std::sync::Arc;

use lock_core::Quorum;

use crate::Result;
use crate::contestant::Store;
use crate::servers::keeper::{Formation, Keeper};
use crate::servers::server::Server;

/// Servers whose work belongs together.
pub(crate) struct Site {
    /// The servers that keep locks. Replicas and sentinels are not among them.
    pub(crate) servers: Vec<Server>,
    /// The keys to delete before each run.
    pub(crate) before_a_run: Empty,
}

/// Which keys to delete.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Empty {
    Everything,
    /// Only locks: a member of a quorum must remember its birth.
    Locks,
    Nothing,
}

impl Site {
    /// Starts a single server.
    pub(crate) fn alone(program: &str) -> Result<Self> {
        Ok(Self { servers: vec![Server::start(program)?], before_a_run: Empty::Everything })
    }

    /// Starts a master with a replica, and sentinels. Returns the port of a sentinel too.
    pub(crate) fn watched(program: &str) -> Result<(Self, u16)> {
        let (keeper, running) = Keeper::start(program, Formation::Watched)?;
        let (Some(master), Some(sentinel)) = (running.first(), running.last()) else {
            return Err("the sentinels did not start, see above".into());
        };
        let servers = vec![Server::at(&Arc::new(keeper), *master)?];
        Ok((Self { servers, before_a_run: Empty::Everything }, sentinel.port))
    }

    /// Starts a cluster.
    pub(crate) fn cluster(program: &str, masters: usize) -> Result<Self> {
        let (keeper, running) = Keeper::start(program, Formation::Cluster(masters))?;
        let keeper = Arc::new(keeper);
        let servers = running.into_iter().map(|running| Server::at(&keeper, running)).collect::<Result<_>>()?;
        Ok(Self { servers, before_a_run: Empty::Everything })
    }

    /// Starts the members of a quorum. Returns their ports too.
    pub(crate) fn members<const N: usize>(program: &str) -> Result<(Self, [u16; N])> {
        let servers = (0..N).map(|_| Server::start(program)).collect::<Result<Vec<_>>>()?;
        let mut ports = [0; N];
        ports.iter_mut().zip(&servers).for_each(|(port, server)| *port = server.port());
        Ok((Self { servers, before_a_run: Empty::Locks }, ports))
    }

    pub(crate) fn port(&self) -> u16 {
        self.servers.first().map_or(0, Server::port)
    }

    /// Empties the servers for the next run.
    pub(crate) fn empty(&mut self) -> Result<()> {
        self.servers.iter_mut().try_for_each(|server| match self.before_a_run {
            Empty::Everything => server.flush(),
            Empty::Locks => server.flush_locks(),
            Empty::Nothing => Ok(()),
        })
    }
}

/// Lets the members of a new quorum vote from now on.
pub(crate) fn begin(quorum: Store) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(Quorum::new(&quorum.url())?.init())?)
}

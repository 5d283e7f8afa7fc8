//! The masters of a store: a single one, fixed or named by sentinels, or those of a cluster. The one place that tells them apart.
//!
//! Each master has a lane, a number that it keeps for ever. A single one has lane 0, and every key.

use std::sync::Arc;

use crate::calls::elsewhere::explain;
use crate::calls::renew::renew;
use crate::calls::run::Operation;
use crate::calls::wrong_type::FindOtherType;
use crate::cluster::Cluster;
use crate::connection::connect::Settings;
use crate::error::WrongType;
use crate::protocol::keys::hash_slot::slot_of;
use crate::sentinel::place::{Place, take_durability};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{AcquireRequest, Claim, Inbox, JobVersion, Renewal};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::url::StoreUrl;

/// The masters of a store. The futures of a cluster are on the heap, so that the futures of one server stay small.
#[derive(Debug)]
pub(crate) enum Masters {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Masters {
    /// Reads a URL. Opens nothing.
    pub(crate) fn parse(mut url: StoreUrl, settings: Settings) -> Result<Self> {
        let (durability, accepts_loss) = take_durability(&mut url)?;
        if matches!(url.scheme(), "redis+cluster" | "rediss+cluster") {
            return Ok(Self::Cluster(Arc::new(Cluster::parse(&url, &settings, (durability, accepts_loss))?)));
        }
        let mut node = Node::new(Place::parse(&url, settings, durability)?, durability, None);
        node.accepts_loss = accepts_loss;
        Ok(Self::One(Arc::new(node)))
    }

    /// Returns the names that the URL gives them.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::One(node) => node.name().to_owned(),
            Self::Cluster(cluster) => format!("cluster of {}", cluster.name()),
        }
    }

    /// Returns the only one, if there can be no other.
    pub(crate) fn only(&self) -> Option<&Node> {
        if let Self::One(node) = self { Some(node) } else { None }
    }

    /// Returns the only one, or the first that the URL names.
    pub(crate) fn first(&self) -> &Node {
        match self {
            Self::One(node) => node,
            Self::Cluster(cluster) => &cluster.seeds[0],
        }
    }

    /// Returns the lane of the master that has a key.
    pub(crate) fn lane(&self, key: &LockKey) -> Option<u16> {
        match self {
            Self::One(_) => Some(0),
            Self::Cluster(cluster) => cluster.lane(key),
        }
    }

    /// Returns the one that has a lane.
    pub(crate) fn at(&self, lane: u16) -> Option<&Node> {
        match self {
            Self::One(node) => (lane == 0).then_some(&**node),
            Self::Cluster(cluster) => cluster.node(lane),
        }
    }

    /// Returns each of which anything is known.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Node> {
        let (one, several) = match self {
            Self::One(node) => (Some(&**node), None),
            Self::Cluster(cluster) => (None, Some(cluster.nodes())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns a number that is another one for a lane that replaced another.
    pub(crate) fn takeovers(&self, lane: u16) -> u64 {
        if let Self::Cluster(cluster) = self { cluster.takeovers(lane) } else { 0 }
    }

    /// Returns whether one step can do something with all of these locks, as far as is known.
    pub(crate) fn serve_together(&self, requests: &[AcquireRequest]) -> bool {
        let slot = |request: &AcquireRequest| slot_of(&request.claim.key);
        self.only().is_some() || requests.windows(2).all(|pair| slot(&pair[0]) == slot(&pair[1]))
    }

    /// Makes sure that there is somebody to ask.
    pub(crate) async fn reach(&self) -> Result<()> {
        match self {
            // Opening a connection logs in and reads the server's time.
            Self::One(node) => node.pool.connection().await.map(drop),
            Self::Cluster(cluster) => Box::pin(cluster.known()).await,
        }
    }

    /// Keeps what listens and what renews connected, until nobody lets us in.
    pub(crate) async fn drive(&self, inbox: &Inbox) -> LockError {
        match self {
            Self::One(node) => node.drive(inbox).await,
            Self::Cluster(cluster) => Box::pin(cluster.drive(inbox)).await,
        }
    }

    /// Does something with a lock where the lock is: at the only server, or at the master of its slot, wherever that moves. A
    /// failure says which key it is about.
    ///
    /// This future is made for every lock: what a failure needs waits on the heap.
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn would hold the operation twice")]
    pub(crate) fn run<O: Operation>(&self, operation: O) -> impl Future<Output = Result<O::Answer>> + Send {
        async move {
            let answer = match self {
                Self::One(node) => operation.at(node, Way::default()).await,
                Self::Cluster(cluster) => Box::pin(cluster.run(&operation)).await,
            };
            match answer {
                Ok(answer) => Ok(answer),
                Err(error) => Err(Box::pin(self.explain(error, operation.lock(), operation.version())).await),
            }
        }
    }

    /// The same with several locks, which the operation knows, so that a failure may be about any of them.
    pub(crate) async fn run_all<O: Operation>(
        &self,
        operation: O,
        keys: impl Iterator<Item = &LockKey>,
    ) -> Result<O::Answer> {
        let mut error = match self.attempt(&operation).await {
            Ok(answer) => return Ok(answer),
            Err(error) => Box::pin(self.redirected(error)).await,
        };
        for key in keys {
            error = Box::pin(self.name_the_type(error, key, None)).await;
        }
        Err(error)
    }

    /// Does something where it belongs, and explains nothing.
    async fn attempt<O: Operation>(&self, operation: &O) -> Result<O::Answer> {
        match self {
            Self::One(node) => operation.at(node, Way::default()).await,
            Self::Cluster(cluster) => Box::pin(cluster.run(operation)).await,
        }
    }

    /// Renews claims of one lane.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        match self {
            Self::One(node) => {
                let mut renewals = renew(node, claims).await;
                for (renewal, claim) in renewals.iter_mut().zip(claims) {
                    if let Err(error) = renewal {
                        *error = Box::pin(self.explain(error.clone(), &claim.key, None)).await;
                    }
                }
                renewals
            }
            Self::Cluster(cluster) => Box::pin(cluster.renew(claims)).await,
        }
    }

    /// Says of a failure which key it is about, of which type that is if it is another one, and what to write if the URL names
    /// one node of a cluster.
    async fn explain(&self, error: LockError, key: &LockKey, version: Option<&JobVersion>) -> LockError {
        let error = self.redirected(error).await;
        self.name_the_type(error, key, version).await.with_key(key)
    }

    /// Explains a redirection that is not followed.
    async fn redirected(&self, error: LockError) -> LockError {
        if let Self::One(node) = self { explain(node, error).await } else { error }
    }

    /// Names the key that is of another type, if an error is about one.
    async fn name_the_type(&self, error: LockError, key: &LockKey, version: Option<&JobVersion>) -> LockError {
        if !WrongType::is_of(&error) {
            return error;
        }
        // It is gone meanwhile, or the user may not ask.
        self.attempt(&FindOtherType(key, version)).await.ok().flatten().unwrap_or(error)
    }
}

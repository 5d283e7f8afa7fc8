//! Requests of a quorum to its members, beyond those to every store.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::AcquireRequest;
use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::options::MAX_TTL;
use crate::types::owner::Holder;

/// The part of a store that makes it a better member of a `Quorum`.
///
/// A store without this part can be a member too. It votes by a renewal and an acquire, counts as a store that cannot
/// lose data, and remembers no list of members. See the example of [`LockBackend`](crate::LockBackend).
pub trait QuorumMember: Send + Sync {
    /// Takes the lock as a member of a quorum, or confirms that the claim has it. The claim is never queued.
    ///
    /// Like [`try_acquire`](crate::LockBackend::try_acquire), but grants the least token above the floor that the store
    /// can give. Members with the same floor therefore grant the same token. A store that can lose its data also
    /// returns how long it has kept its data, and whether the claim already had the lock. Both are read in the same
    /// step.
    fn vote(&self, request: &AcquireRequest) -> impl Future<Output = Result<Vote>> + Send;

    /// If a list is given, remembers for a time that a quorum with these members is in use. Returns the remembered lists.
    /// A store may remember none.
    fn remember(&self, _: Option<&MemberList>, _: Duration) -> impl Future<Output = Result<Vec<MemberList>>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// Declares that the data of this member has no gap, whatever happened before.
    fn vouch(&self) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Returns a name of the data in this store, once it is known. Only a copy of the store has the same name. A quorum
    /// refuses two members of one name: otherwise a single server would have two votes.
    fn history(&self) -> Option<Arc<str>> {
        None
    }
}

/// The answer to [`QuorumMember::vote`](crate::QuorumMember::vote).
///
/// ```
/// use lock_store::Vote;
///
/// fn describe(vote: &Vote) -> String {
///     match vote {
///         Vote::Granted { token, .. } => format!("granted with token {token}"),
///         Vote::Held { holder, .. } => format!("held by {}", holder.site()),
///         _ => "unknown".to_owned(),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub enum Vote {
    /// The claim has the lock at this member, for its whole ttl from now.
    Granted {
        /// The first token of the grant: the least that the member can give, and greater than the floor.
        token: FencingToken,
        /// Whether the claim already had the lock at this member, without a gap since its last vote there.
        kept: bool,
        /// How long the member has kept its data without a gap. `None` if it cannot lose its data while it is in use.
        history: Option<Duration>,
        /// The clock of the member in ms, as its tokens count it. `None` if unknown.
        time: Option<u64>,
    },
    /// Another claim has the lock at this member.
    Held {
        /// The holder, and how long its lease lasts at most.
        holder: Holder,
        /// For how long the member has kept its data without a gap, as in [`Granted`](Self::Granted).
        history: Option<Duration>,
    },
}

/// A list of members that a process uses, as every member of a quorum remembers it.
///
/// ```
/// use lock_store::MemberList;
/// use std::time::Duration;
///
/// let list = MemberList::new(vec!["b".to_owned(), "a".to_owned(), "c".to_owned()], 2, Duration::from_secs(60));
/// assert_eq!(list.to_text(), "2|60000|a,b,c");
/// assert_eq!(MemberList::from_text("2|60000|a,b,c"), Some(list));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MemberList {
    /// The names of the members, sorted. No name contains a comma or a bar.
    pub names: Vec<String>,
    /// How many of them must agree.
    pub majority: usize,
    /// The longest lease that is taken from them.
    pub max_ttl: Duration,
}

impl MemberList {
    /// Lists members.
    #[must_use]
    pub fn new(mut names: Vec<String>, majority: usize, max_ttl: Duration) -> Self {
        names.sort_unstable();
        Self { names, majority, max_ttl }
    }

    /// Writes the list as `majority|max_ttl|name,name,…`, with the ttl in ms.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{}|{}|{}", self.majority, self.max_ttl.as_millis(), self.names.join(","))
    }

    /// Reads the text that [`to_text`](Self::to_text) wrote.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '|');
        let majority = parts.next()?.parse().ok()?;
        // This library never writes more. Without the limit, foreign text could exclude a server for a very long time.
        let max_ttl = Duration::from_millis(parts.next()?.parse().ok()?).min(MAX_TTL);
        Some(Self::new(parts.next()?.split(',').map(str::to_owned).collect(), majority, max_ttl))
    }
}

/// The answers of all nodes of a store to one question. `LockManager::sync` asks who holds a key.
///
/// ```
/// use lock_core::{Holder, NodeReport, SyncReport};
///
/// let taken = || Ok(Some(Holder::foreign(None)));
/// let nodes = [("a", taken()), ("b", taken()), ("c", Ok(None))].map(|(node, holder)| NodeReport::new(node, holder));
/// let report = SyncReport::new(nodes.into(), 2);
/// assert!(report.has_majority() && report.holder().is_some() && !report.is_in_sync());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncReport<T = Option<Holder>> {
    /// One entry for each node, in the order of the store's list.
    pub nodes: Vec<NodeReport<T>>,
    /// How many nodes must agree.
    pub majority: usize,
}

/// The answer of one node. See the example of [`SyncReport`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport<T = Option<Holder>> {
    /// The node, without credentials.
    pub node: Arc<str>,
    /// The holder of the key there, or another answer. An error says why the answer is unknown.
    pub answer: Result<T>,
}

impl<T> SyncReport<T> {
    /// Makes a report.
    #[must_use]
    pub fn new(nodes: Vec<NodeReport<T>>, majority: usize) -> Self {
        Self { nodes, majority }
    }

    /// Returns the answers that are known.
    pub fn known(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().ok())
    }

    /// Returns whether a majority of the nodes answered.
    #[must_use]
    pub fn has_majority(&self) -> bool {
        self.known().count() >= self.majority
    }

    /// Returns the error of a question that the answers do not decide. It names each node without an answer. If so many
    /// nodes refuse for good that the others are not a majority, it is their error.
    #[must_use]
    pub fn undecided(&self, says: &str) -> LockError {
        let errors = || self.nodes.iter().filter_map(|node| Some((&node.node, node.answer.as_ref().err()?)));
        let refusals: Vec<_> = errors().map(|(_, error)| error).filter(|error| !error.is_transient()).collect();
        if refusals.len() > self.nodes.len() - self.majority {
            return refusals[0].clone();
        }
        let said: Vec<String> = errors().map(|(node, error)| format!("{node}: {error}")).collect();
        LockError::unavailable(format!("{says} ({})", said.join("; ")))
    }
}

impl SyncReport {
    /// Returns the holder that a majority of the nodes names, if there is one.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        let holders = || self.known().flatten();
        let count = |one: &Holder| holders().filter(|other| other.owner == one.owner).count();
        holders().find(|one| count(one) >= self.majority)
    }

    /// Returns whether all nodes answered, with the same holder.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        let owner = |holder: &Option<Holder>| holder.as_ref().map(|holder| holder.owner);
        let first = self.known().next().map(owner);
        first.is_some() && self.nodes.iter().all(|node| node.answer.as_ref().ok().map(owner) == first)
    }
}

impl<T> NodeReport<T> {
    /// Makes the report of one node.
    #[must_use]
    pub fn new(node: impl Into<Arc<str>>, answer: Result<T>) -> Self {
        Self { node: node.into(), answer }
    }
}

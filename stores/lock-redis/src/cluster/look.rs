//! Looking at the cluster: who serves what, asked of three nodes side by side, of which the newest answer counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::task::{AbortHandle, JoinSet};

use crate::cluster::{Cluster, no_cluster};
use crate::connection::link::within;
use crate::connection::slots::Topology;
use crate::connection::url::Address;
use crate::on_drop::OnDrop;
use crate::protocol::keys::hash_slot::SLOTS;
use crate::server::node::Node;
use lock_store::contract::backend::Inbox;
use lock_store::contract::event::Notice;
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::{Clock, Timestamp, jitter};

/// How far apart looks are at least.
const AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// How far apart they are at most while a master is in doubt, and otherwise.
const AT_LEAST_EVERY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// How far apart they are at most while claims sleep: a master of before, which serves on as a replica, tells them nothing.
const WHILE_ASLEEP: Duration = Duration::from_secs(5);

/// How many looks leave out the masters in doubt, of which an answer may never come, for each that asks them.
const LEFT_OUT: usize = 8;

/// How many nodes are asked.
const NODES: usize = 3;

/// How long an answer may take: the first, and the others after it.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(100));

/// The bounds of the pause before a node that refused us is tried again in the background.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// The answer of one node.
struct View {
    topology: Topology,
    /// The greatest configuration epoch it knows of; 0 if it does not tell.
    epoch: u64,
}

impl View {
    /// The node that knows of more epochs knows more; then, the node that knows of more masters.
    fn rank(&self) -> (u64, usize) {
        (self.epoch, SLOTS - self.topology.unserved())
    }
}

impl Cluster {
    /// Makes sure that the masters are known.
    pub(crate) async fn known(&self) -> Result<()> {
        if !self.table.is_empty() {
            return Ok(());
        }
        let mut looked = self.looked.lock().await;
        // Another task may have refreshed meanwhile.
        if self.table.is_empty() { self.look_now(&mut looked).await } else { Ok(()) }
    }

    /// Returns the node at an address that the cluster announces, with its lane.
    pub(crate) fn lane_at(&self, announced: &Address) -> Result<u16> {
        let address = self.nat.reach(announced.clone());
        let make = || {
            let target = self.seeds[0].pool.target().sibling(&address.host, address.port)?;
            Ok::<_, LockError>(Arc::new(Node::in_cluster(target, self.durability, &self.common)))
        };
        let lane = self.table.lane_at(&address, make)?;
        lane.ok_or_else(|| LockError::not_executed("the cluster has had too many masters to tell them apart; restart"))
    }

    /// Finds out who serves what. A look that began while this one waited for its turn serves as well.
    pub(crate) async fn look(&self) -> Result<()> {
        let clock = Clock::system();
        let wanted = clock.now();
        let mut looked = self.looked.lock().await;
        if *looked > wanted {
            return Ok(());
        }
        clock.sleep_until(looked.after(AT_MOST_EVERY)).await;
        self.look_now(&mut looked).await
    }

    async fn look_now(&self, looked: &mut Timestamp) -> Result<()> {
        let clock = Clock::system();
        let first = self.table.is_empty();
        *looked = clock.now();
        let (mut asking, nodes) = (JoinSet::new(), self.candidates());
        let all_suspect = nodes.iter().all(|node| node.is_suspect());
        let mut expected = 0;
        for node in nodes {
            let expects = all_suspect || !node.is_suspect();
            expected += usize::from(expects);
            let late = if expects { Timestamp::NEVER } else { looked.after(PATIENCE.0) };
            asking.spawn(async move {
                let clock = Clock::system();
                let view = tokio::select! {
                    view = view_of(&node) => view,
                    () = clock.sleep_until(late) => Err(does_not_answer(&node)),
                };
                (expects, view)
            });
        }
        // A runtime without timers cannot connect either, and is told so; it must not be made to sleep before.
        let mut until = if first { Timestamp::NEVER } else { looked.after(PATIENCE.0) };
        let (mut newest, mut refused) = (None::<View>, None::<LockError>);
        loop {
            let answer = tokio::select! {
                biased;
                answer = asking.join_next() => answer,
                () = clock.sleep_until(until) => None,
            };
            match answer {
                Some(Ok((expects, Ok(view)))) => {
                    expected -= usize::from(expects);
                    until = until.min(clock.now().after(PATIENCE.1));
                    if newest.as_ref().is_none_or(|known| view.rank() > known.rank()) {
                        newest = Some(view);
                    }
                }
                Some(Ok((expects, Err(error)))) => {
                    expected -= usize::from(expects);
                    // Only if all of them say so, it is a mistake in the settings.
                    if refused.as_ref().is_none_or(is_of_settings) {
                        refused = Some(error);
                    }
                }
                Some(Err(_)) => {}
                None => break,
            }
            if expected == 0 && newest.is_some() {
                // Masters in doubt are trusted again when they answer. No caller waits for that.
                asking.detach_all();
                break;
            }
        }
        match (newest, refused) {
            (Some(view), _) => self.apply(&view.topology),
            (None, Some(error)) => Err(error),
            (None, None) => Err(LockError::not_executed(format!(
                "no node of the cluster of {} answers within {:?}; check that they are up",
                self.name(),
                PATIENCE.0,
            ))),
        }
    }

    /// Chooses whom to ask: masters that seem well before others, and the nodes of the URL, which may know
    /// names that lead to new addresses. Each look begins with another.
    fn candidates(&self) -> Vec<Arc<Node>> {
        let masters = self.table.masters();
        let mut nodes: Vec<Arc<Node>> = masters.iter().filter_map(|lane| self.table.node(*lane).cloned()).collect();
        let named: BTreeSet<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
        nodes.extend(self.seeds.iter().filter(|seed| !named.contains(seed.name())).cloned());
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let turn = look % nodes.len();
        nodes.rotate_left(turn);
        if !look.is_multiple_of(LEFT_OUT) && nodes.iter().any(|node| !node.is_suspect()) {
            nodes.retain(|node| !node.is_suspect());
        }
        nodes.sort_by_key(|node| node.is_suspect());
        nodes.truncate(NODES);
        nodes
    }

    fn apply(&self, topology: &Topology) -> Result<()> {
        let lane = |address: &Address| Ok::<_, LockError>((address.clone(), self.lane_at(address)?));
        let lanes = topology.masters().into_iter().map(lane).collect::<Result<BTreeMap<_, _>>>()?;
        for (address, lane) in &lanes {
            if let Some(node) = self.table.node(*lane) {
                node.note_found(topology.found_of(address));
            }
        }
        let taken_over = self.failovers.found(lanes.values().copied().collect());
        taken_over.iter().filter_map(|lane| self.table.node(*lane)).for_each(|node| node.taken_over.notify_one());
        let first = self.table.is_empty();
        let changed = self.table.set((0..=u16::MAX).zip(topology.each_slot(|master| lanes.get(master).copied())));
        if changed > 0 {
            self.slots_moved.fetch_add(u64::from(!first), Ordering::Relaxed);
            tracing::debug!(cluster = self.name(), slots = changed, masters = lanes.len(), "slots have other masters");
        }
        Ok(())
    }

    /// Publishes redirects to observers. Each count is published once, also if several keepers publish.
    fn tell(&self, inbox: &Inbox) {
        let times = self.slots_moved.swap(0, Ordering::Relaxed);
        if times > 0 {
            inbox.notice(&Notice::SlotsMoved { node: &self.name(), times });
        }
        for node in self.failovers.take().into_iter().filter_map(|lane| self.table.node(lane)) {
            // A master with an earlier connection reports by itself.
            if node.pool.history.name().is_none() {
                inbox.notice(&Notice::Failover { node: node.name() });
            }
        }
        for node in (0..=u16::MAX).map_while(|lane| self.table.node(lane)) {
            for (kind, times) in node.redirections.take() {
                inbox.notice(&Notice::Redirected { node: node.name(), kind, times });
            }
        }
    }

    /// Looks at the cluster whenever something is wrong, and keeps the connections to its masters.
    ///
    /// Ends only when no node lets us in.
    pub(crate) async fn drive(&self, inbox: &Inbox) -> LockError {
        self.keepers.fetch_add(1, Ordering::Relaxed);
        let _keeper = OnDrop(|| _ = self.keepers.fetch_sub(1, Ordering::Relaxed));
        let clock = Clock::system();
        let mut changes = self.table.changes();
        let mut served: HashMap<u16, AbortHandle> = HashMap::new();
        let mut tasks = JoinSet::new();
        let mut doubtful_since = None;
        loop {
            if let Err(error) = self.look().await {
                tracing::debug!(cluster = self.name(), %error, "cannot look at the cluster");
                if is_of_settings(&error) && self.table.is_empty() {
                    return error;
                }
            }
            changes.borrow_and_update();
            self.tell(inbox);
            while tasks.try_join_next().is_some() {}
            let masters = self.table.masters();
            served.retain(|lane, task| {
                masters.contains(lane) || {
                    task.abort();
                    if let Some(node) = self.table.node(*lane) {
                        node.pool.close();
                        node.renewals.pool.close();
                        inbox.notice(&Notice::NodeLeft { node: node.name() });
                    }
                    false
                }
            });
            let (known, before) = (!served.is_empty(), served.len());
            for lane in &masters {
                let Some(node) = self.table.node(*lane).filter(|_| !served.contains_key(lane)) else { continue };
                served.insert(*lane, tasks.spawn(serve(Arc::clone(node), inbox.clone())));
            }
            if known && served.len() > before {
                // A replica has become a master, without what had not reached it.
                inbox.reconnected();
            }
            let suspect = |lane: &u16| self.table.node(*lane).is_some_and(|node| node.is_suspect());
            let doubtful = masters.is_empty() || masters.iter().any(suspect);
            let now = clock.now();
            doubtful_since = doubtful.then(|| doubtful_since.unwrap_or(now));
            // A failover is noticed within a tenth of the time that it takes.
            let pause = doubtful_since
                .map_or(AT_LEAST_EVERY.1, |since| (now.since(since) / 10).clamp(AT_MOST_EVERY, AT_LEAST_EVERY.0));
            let again = now.after(jitter(pause / 2, pause));
            tokio::select! {
                () = self.common.trouble.notified() => {}
                _ = changes.changed() => {}
                () = self.look_is_due(&clock, again) => {}
            }
        }
    }

    /// Waits until that time, or until claims sleep that must hear of another master.
    async fn look_is_due(&self, clock: &Clock, again: Timestamp) {
        loop {
            clock.sleep_until(again.min(clock.now().after(WHILE_ASLEEP))).await;
            let now = clock.now();
            let relied_on = |node: &Arc<Node>| node.sleepers.are_there(now);
            if now >= again || self.table.masters().iter().any(|lane| self.table.node(*lane).is_some_and(relied_on)) {
                return;
            }
        }
    }
}

/// Keeps the connections to a master, also one that does not let us in for a while: users are not replicated.
async fn serve(node: Arc<Node>, inbox: Inbox) {
    let (clock, mut backoff) = (Clock::system(), REFUSED);
    loop {
        let error = node.drive(&inbox).await;
        tracing::warn!(node = node.name(), %error, "a master of the cluster refuses a background connection");
        clock.sleep_until(clock.now().after(backoff.long_pause())).await;
    }
}

fn does_not_answer(node: &Node) -> LockError {
    LockError::not_executed(format!("{} does not answer", node.name()))
}

/// Asks a node who serves what.
async fn view_of(node: &Node) -> Result<View> {
    let what = "tell who serves which slot";
    let connection = node.pool.connection().await?;
    let mut questions = redis::pipe();
    // Every version knows these; 6.2 does not know the command that replaces the first since 7.0.
    questions.cmd("CLUSTER").arg("SLOTS");
    questions.cmd("CLUSTER").arg("NODES");
    // A node may accept the connection and then fall silent. A first look would otherwise wait for it for ever.
    let answers = within(PATIENCE.0, connection.link.send_all(&questions)).await;
    let answers = answers.ok_or_else(|| does_not_answer(node))?.map_err(|error| node.failed(what, &error))?;
    let [slots, nodes] = answers.as_slice() else { return Err(node.unreadable(what)) };
    if let Value::ServerError(error) = slots {
        if error.details().is_some_and(|text| text.contains("cluster support disabled")) {
            return Err(no_cluster(node.name()));
        }
        return Err(node.failed(what, &error.clone().into()));
    }
    let topology = Topology::read(slots, node.pool.target().host()).ok_or_else(|| node.unreadable(what))?;
    if topology.unserved() == SLOTS {
        return Err(LockError::not_executed(format!(
            "{} knows of no master of its cluster; wait until the cluster is up",
            node.name(),
        )));
    }
    node.answered();
    Ok(View { topology, epoch: epoch_of(nodes) })
}

/// Reads the greatest configuration epoch out of `CLUSTER NODES`, which our user may not be permitted to ask.
fn epoch_of(nodes: &Value) -> u64 {
    let text = match nodes {
        Value::BulkString(text) => std::str::from_utf8(text).unwrap_or_default(),
        Value::VerbatimString { text, .. } => text,
        _ => return 0,
    };
    text.lines().filter_map(|node| node.split(' ').nth(6)?.parse().ok()).max().unwrap_or(0)
}

/// Returns whether waiting will not help.
fn is_of_settings(error: &LockError) -> bool {
    error.kind() == LockErrorKind::Misconfigured
}

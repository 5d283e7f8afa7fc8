//! The sentinels of a master: they are asked where it is, and listened to when it moves.
//!
//! Redis' own rules for clients: <https://redis.io/docs/latest/develop/reference/sentinel-clients/>. A sentinel only
//! proposes an address. Each connection checks the server's role, so it never leads to a replica.

mod hear;
mod one;
pub(crate) mod place;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::connect::{Settings, Target};
use crate::connection::url::{Address, Login, Nat, Several};
use crate::sentinel::one::{View, ask, within};
use crate::sentinel::told::{Told, newest};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;
use lock_store::types::url::StoreUrl;

const SHAPE: &str = "redis+sentinel://user:password@host:26379,host:26379/service/db (rediss+sentinel:// for TLS), where \
                     service is the name that `sentinel monitor` gave the master, and sentinels with credentials of \
                     their own take ?sentinel_user=…&sentinel_password=…";

/// How long the answers of one look may be used by others who look.
const SHARED_FOR: Duration = Duration::from_millis(50);

/// After how long the sentinels are asked again, while a server neither accepts nor refuses a connection.
const DOUBT_AFTER: Duration = Duration::from_millis(500);

/// The sentinels of one master.
pub(crate) struct Sentinels {
    service: String,
    /// The service and its first sentinel, for people and metric labels.
    pub(crate) name: String,
    /// How the master is reached, but for its address.
    pub(crate) master: Target,
    /// How sentinels are reached, but for their addresses.
    sentinel: Target,
    nat: Nat,
    /// The sentinels of the URL.
    named: BTreeSet<Address>,
    state: Mutex<State>,
    /// Counts how often the master turned out to be at another address.
    moves: watch::Sender<u64>,
    /// Changes when other sentinels are known.
    learnt: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The sentinels that others know, besides those of the URL.
    others: BTreeSet<Address>,
    believed: Option<Belief>,
    /// Their reports about replicas.
    told: Told,
    /// When the sentinels were last asked, and what came of it.
    looked: Option<(Timestamp, Result<Arc<Target>>)>,
    /// Sentinels that refuse us and were warned of.
    refusing: BTreeSet<Address>,
}

/// Where the master is, as far as is known.
#[derive(Debug)]
struct Belief {
    /// As the sentinels name it.
    announced: Address,
    target: Arc<Target>,
    /// The number of the decision that made it the master.
    epoch: u64,
    /// Whether it could not be reached, or is not a master.
    doubted: bool,
}

impl Sentinels {
    /// Reads a URL. Opens nothing.
    pub(crate) fn parse(url: &StoreUrl, settings: Settings) -> Result<Self> {
        let parameters = ["sentinel_user", "sentinel_password", "sentinel_tls"];
        let read = Several::read(url, 26379, &parameters, SHAPE)?;
        let (service, db) = read.path.split_once('/').unwrap_or((read.path, ""));
        if service.is_empty() || !service.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
            return Err(LockError::misconfigured(format!(
                "the URL of sentinels names no service after its hosts, and sentinels may watch several; write {SHAPE}",
            )));
        }
        let tls = match read.parameter("sentinel_tls") {
            None => read.tls,
            Some("yes") => true,
            Some("no") => false,
            Some(_) => return Err(LockError::misconfigured("sentinel_tls in the Redis URL is neither yes nor no")),
        };
        let first = &read.hosts[0];
        let login = match (read.parameter("sentinel_user"), read.parameter("sentinel_password")) {
            (None, None) => Some(Login::default()),
            (user, Some(password)) => Login::read(user.unwrap_or_default(), password),
            (Some(_), None) => {
                return Err(LockError::misconfigured("the Redis URL has a sentinel_user without a sentinel_password"));
            }
        };
        let (Some(login), Ok(number)) = (login, if db.is_empty() { Ok(0) } else { db.parse() }) else {
            return Err(LockError::misconfigured(format!(
                "the Redis URL cannot be read: its database is no number, or the sentinels' user or password is no text; \
                 write {SHAPE}",
            )));
        };
        let db_path = if db.is_empty() { String::new() } else { format!("/{db}") };
        let of_sentinels = settings.of_others(tls);
        let mut master = Target::one_of(read.tls, &read.login, first, number, settings)?;
        master.master_only = true;
        let sentinel = Target::one_of(tls, &login, first, 0, of_sentinels)?;
        Ok(Self {
            service: service.to_owned(),
            name: format!("{service}@{first}{db_path}"),
            master,
            sentinel,
            nat: read.nat,
            named: read.hosts.into_iter().collect(),
            state: Mutex::default(),
            moves: watch::Sender::new(0),
            learnt: watch::Sender::new(()),
        })
    }

    /// Waits until the master turns out to be at another address.
    pub(crate) async fn moved(&self) {
        let _ = self.moves.subscribe().changed().await;
    }

    /// Opens something at the master. Gives up when nobody knows a master that lets us in.
    ///
    /// Also returns a receiver that changes when the master turns out to be at another address.
    pub(crate) async fn at_the_master<T, F>(&self, open: impl Fn(Arc<Target>) -> F) -> Result<(T, watch::Receiver<u64>)>
    where
        F: Future<Output = Result<T>>,
    {
        let mut looked = false;
        loop {
            // From before an address is chosen, so that no move goes unseen.
            let moves = self.moves.subscribe();
            let believed = self.believed();
            let target = match believed {
                Some(target) => target,
                None => {
                    looked = true;
                    self.look().await?
                }
            };
            match self.try_at(&target, open(Arc::clone(&target))).await {
                Err(_) if !self.is_believed(&target) => {}
                Err(error) => {
                    self.doubt(&target);
                    if looked || error.kind() == LockErrorKind::Misconfigured {
                        return Err(error);
                    }
                }
                Ok(opened) => return Ok((opened, moves)),
            }
        }
    }

    /// Waits for a connection. Gives up when the master turns out to be at another address, which is asked about
    /// if a server stays silent.
    async fn try_at<T>(&self, target: &Target, opening: impl Future<Output = Result<T>>) -> Result<T> {
        let clock = Clock::system();
        let mut opening = std::pin::pin!(opening);
        loop {
            let silent = async {
                clock.sleep_until(clock.now().after(DOUBT_AFTER)).await;
                let _ = self.look().await;
            };
            tokio::select! {
                biased;
                opened = &mut opening => return opened,
                () = self.leaves(target) => {
                    return Err(LockError::not_executed(format!("{} is no longer the master of {}", target.node(), self.name)));
                }
                () = silent => {}
            }
        }
    }

    /// Waits until the master is believed to be elsewhere.
    async fn leaves(&self, target: &Target) {
        let mut moves = self.moves.subscribe();
        while self.is_believed(target) {
            let _ = moves.changed().await;
        }
    }

    /// Asks all sentinels at once. Believes the newest decision that is known when most of them have answered.
    async fn look(&self) -> Result<Arc<Target>> {
        let now = Clock::system().now();
        if let Some((at, found)) = &self.state.lock().looked
            && now.since(*at) < SHARED_FOR
        {
            return found.clone();
        }
        let found = self.look_now().await;
        self.state.lock().looked = Some((Clock::system().now(), found.clone()));
        found
    }

    async fn look_now(&self) -> Result<Arc<Target>> {
        let (mut asking, mut asked) = (JoinSet::new(), BTreeSet::new());
        let (mut views, mut failures) = (Vec::new(), BTreeMap::new());
        let mut all = self.all();
        loop {
            for address in all.difference(&asked) {
                let target = self.sentinel.sibling(&address.host, address.port)?;
                let (address, service) = (address.clone(), self.service.clone());
                asking.spawn(async move { (address, within(&target, ask(&target, &service)).await) });
            }
            asked.extend(all.iter().cloned());
            if views.len() > all.len() / 2 {
                break;
            }
            let Some(answer) = asking.join_next().await else { break };
            match answer {
                Ok((address, Ok(view))) => {
                    self.state.lock().told.note(&address, &view);
                    views.push(view);
                    // Most of the sentinels that other sentinels named are needed too.
                    all.extend(self.others(&views));
                }
                Ok((address, Err(error))) => {
                    self.warn_of(&address, &error);
                    failures.insert(address, error);
                }
                // Its runtime is shutting down.
                Err(_) => {}
            }
        }
        if views.is_empty() {
            return Err(self.nobody_knows(&failures));
        }
        self.learn(&views);
        newest(views).map_or_else(|| Err(self.nobody_knows(&failures)), |newest| self.believe(newest))
    }

    /// Asks every sentinel that is known which master it names.
    #[cfg(feature = "inspect")]
    pub(crate) async fn ask_all(&self) -> Result<Vec<(Address, Result<Address>)>> {
        let mut asking = JoinSet::new();
        for address in self.all() {
            let target = self.sentinel.sibling(&address.host, address.port)?;
            let service = self.service.clone();
            asking.spawn(async move { (address, within(&target, ask(&target, &service)).await) });
        }
        let mut all = asking.join_all().await;
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all.into_iter().map(|(address, said)| (address, said.map(|view| self.nat.reach(view.master)))).collect())
    }

    /// Describes why no sentinel names a master.
    fn nobody_knows(&self, failures: &BTreeMap<Address, LockError>) -> LockError {
        // An error that an operator can correct comes before one that may pass.
        let misconfigured = |error: &&LockError| error.kind() == LockErrorKind::Misconfigured;
        if failures.len() == self.all().len()
            && let Some(error) = failures.values().find(misconfigured)
            && failures.values().all(|error| misconfigured(&error))
        {
            return error.clone();
        }
        let each: Vec<String> = failures.values().map(LockError::to_string).collect();
        LockError::not_executed(format!(
            "none of the sentinels of {} names its master, so no lock can be taken; start them, or correct their addresses \
             in the URL: {}",
            self.name,
            each.join("; "),
        ))
    }

    fn warn_of(&self, address: &Address, error: &LockError) {
        if error.kind() == LockErrorKind::Misconfigured && self.state.lock().refusing.insert(address.clone()) {
            tracing::warn!(service = self.name, %error, "a sentinel cannot be asked; the others are");
        }
    }

    /// Returns the sentinels that others know, besides those of the URL.
    fn others(&self, views: &[View]) -> BTreeSet<Address> {
        let known = views.iter().filter_map(|view| view.sentinels.as_ref().ok()).flatten();
        known.map(|address| self.nat.reach(address.clone())).filter(|address| !self.named.contains(address)).collect()
    }

    /// Remembers the sentinels that others know, unless nobody tells.
    fn learn(&self, views: &[View]) {
        if views.iter().all(|view| view.sentinels.is_err()) {
            return;
        }
        let known = self.others(views);
        let mut state = self.state.lock();
        if state.others != known {
            state.others = known;
            drop(state);
            self.learnt.send_replace(());
        }
    }

    /// Takes a decision of the sentinels into account, unless a newer one is known and holds. Returns where the
    /// master is.
    fn believe(&self, view: View) -> Result<Arc<Target>> {
        let View { master: announced, epoch, .. } = view;
        let address = self.nat.reach(announced.clone());
        let target = Arc::new(self.master.sibling(&address.host, address.port)?);
        let mut state = self.state.lock();
        if let Some(belief) = &mut state.believed {
            if epoch < belief.epoch && !belief.doubted {
                return Ok(Arc::clone(&belief.target));
            }
            if belief.target.node() == target.node() {
                (belief.announced, belief.epoch, belief.doubted) = (announced, epoch, false);
                return Ok(Arc::clone(&belief.target));
            }
        }
        let before = state.believed.replace(Belief { announced, target: Arc::clone(&target), epoch, doubted: false });
        drop(state);
        if let Some(before) = before {
            let (from, to) = (before.target.node(), target.node());
            tracing::warn!(service = self.name, from, to, epoch, "the master has moved");
            self.moves.send_modify(|moves| *moves += 1);
        }
        Ok(target)
    }

    /// Returns how many replicas could take over.
    pub(crate) fn replicas(&self) -> Result<u64> {
        let (all, state) = (self.all(), self.state.lock());
        state.told.count(&all, state.believed.as_ref().map(|belief| &belief.announced))
    }

    fn believed(&self) -> Option<Arc<Target>> {
        self.state.lock().believed.as_ref().filter(|belief| !belief.doubted).map(|belief| Arc::clone(&belief.target))
    }

    fn is_believed(&self, target: &Target) -> bool {
        self.state.lock().believed.as_ref().is_some_and(|belief| belief.target.node() == target.node())
    }

    /// Has the sentinels asked before anybody connects to this server again.
    fn doubt(&self, target: &Target) {
        if let Some(belief) = self.state.lock().believed.as_mut().filter(|belief| belief.target.node() == target.node())
        {
            belief.doubted = true;
        }
    }

    fn all(&self) -> BTreeSet<Address> {
        self.named.union(&self.state.lock().others).cloned().collect()
    }
}

#[cfg(test)]
mod tests;

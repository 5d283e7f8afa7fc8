//! The rows of a run: each is one subject under one assumption, held or broken on purpose.

use crate::harness::fault::Menu;
use crate::harness::fleet::Workload;
use crate::harness::row::Setting;
use crate::harness::servers::{Change, Cluster, Database, Members, One, Sentinels, Topology};
use crate::peers::Peer;
use crate::record::Expect;

/// The stores, as `--store` names them.
pub(crate) const STORES: [&str; 4] = ["one", "sentinel", "cluster", "quorum"];

/// What is assumed, and how it is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Assumption {
    Held,
    ClocksRunAlike,
    AcknowledgedIsKept,
    HolderLooks,
    ResourceChecks,
    ForgetfulMemberIsLeftOut,
}

impl Assumption {
    pub(crate) const BROKEN: [Self; 5] = [
        Self::ClocksRunAlike,
        Self::AcknowledgedIsKept,
        Self::HolderLooks,
        Self::ResourceChecks,
        Self::ForgetfulMemberIsLeftOut,
    ];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Held => "all assumptions held",
            Self::ClocksRunAlike => "broken: clocks run alike",
            Self::AcknowledgedIsKept => "broken: a server keeps what it acknowledged",
            Self::HolderLooks => "broken: the holder looks before it writes",
            Self::ResourceChecks => "broken: the resource checks tokens",
            Self::ForgetfulMemberIsLeftOut => "broken: a member that forgot is left out",
        }
    }
}

/// One row, not begun.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) subject: String,
    pub(crate) store: &'static str,
    pub(crate) assumption: Assumption,
    mixed: bool,
    adapter: Option<String>,
    /// How much of the time of a run it gets, beside others.
    pub(crate) weight: f64,
}

impl Row {
    pub(crate) fn name(&self) -> String {
        format!("{}, {}", self.subject, self.assumption.text())
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.adapter.is_none()
    }

    pub(crate) fn expect(&self) -> Expect {
        match self.assumption {
            _ if self.adapter.is_some() => Expect::Anything,
            Assumption::Held => Expect::Nothing,
            Assumption::ResourceChecks => Expect::Stale,
            _ => Expect::Overlaps,
        }
    }

    /// The seed of the row: another for each, and the same whatever else is run.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        let mixed = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.name().bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mixed)
    }

    /// Starts its servers.
    pub(crate) fn setting(&self, seed: u64) -> Result<Setting, String> {
        let seed = self.seed(seed);
        let confirmed = seed % 2 == 1;
        let servers: Box<dyn Topology> = match (self.store, self.assumption) {
            (_, Assumption::ClocksRunAlike) => Box::new(One::with_movable_clock()?),
            ("sentinel", _) => Box::new(Sentinels::start(confirmed)),
            ("cluster", _) => Box::new(Cluster::start(confirmed)),
            ("quorum", _) => Box::new(Members::start()),
            ("postgres", _) => Box::new(Database::start(false)),
            ("pooled", _) => Box::new(Database::start(true)),
            _ => Box::new(One::start()),
        };
        let menu = match self.assumption {
            Assumption::Held if self.mixed => Menu::Everything,
            Assumption::Held => Menu::Outside,
            Assumption::ClocksRunAlike => Menu::Only(Change::Leap),
            Assumption::AcknowledgedIsKept => Menu::Only(Change::Flush(0)),
            Assumption::HolderLooks | Assumption::ResourceChecks => Menu::Stops,
            Assumption::ForgetfulMemberIsLeftOut => Menu::Only(Change::ForgetMost(0)),
        };
        let looks = self.assumption != Assumption::HolderLooks;
        let checks = self.assumption != Assumption::ResourceChecks;
        // Only who stands still in between writes late: where nothing else stops it, that is to happen soon.
        let gap_ms = if checks { 15 } else { 100 };
        let adapter = self.adapter.clone();
        let workload = if self.mixed { Workload::Mixed } else { Workload::Plain { adapter, looks, gap_ms } };
        Ok(Setting { workload, menu, servers, checks, expect: self.expect(), seed })
    }
}

/// Ours over some stores, with callers of every kind.
pub(crate) fn of_stores(stores: &[&'static str]) -> Vec<Row> {
    let mixed = |store: &&'static str| {
        let subject = format!("ours, every kind of caller, {}", kind(store));
        let assumption = Assumption::Held;
        Row { subject, store, assumption, mixed: true, adapter: None, weight: 3.0 }
    };
    stores.iter().map(mixed).collect()
}

fn kind(store: &str) -> &'static str {
    match store {
        "sentinel" => "Sentinel",
        "cluster" => "Cluster",
        "quorum" => "quorum of three",
        "postgres" => "PostgreSQL",
        _ => "one server",
    }
}

/// Ours and others by one workload, and each assumption broken.
pub(crate) fn compared(peers: &[Peer]) -> Vec<Row> {
    let ours = |store, assumption: Assumption, weight| {
        let subject = format!("ours, {}", kind(store));
        Row { subject, store, assumption, mixed: false, adapter: None, weight }
    };
    let broken = |assumption: Assumption| {
        let store = if assumption == Assumption::ForgetfulMemberIsLeftOut { "quorum" } else { "one" };
        ours(store, assumption, 0.7)
    };
    let mut rows = vec![ours("one", Assumption::Held, 1.5)];
    if Database::missing(false).is_none() {
        rows.push(ours("postgres", Assumption::Held, 1.0));
    }
    for peer in peers {
        let Ok(command) = &peer.command else { continue };
        let (subject, adapter) = (peer.name.clone(), Some(command.clone()));
        let (store, assumption) = (peer.store, Assumption::Held);
        rows.push(Row { subject, store, assumption, mixed: false, adapter, weight: 1.0 });
    }
    rows.extend(Assumption::BROKEN.map(broken));
    rows
}

//! The rows of a run. Each is one subject under one assumption, which holds or is broken on purpose.

use crate::harness::fault::Menu;
use crate::harness::fleet::Workload;
use crate::harness::row::Setting;
use crate::harness::servers::{Change, Cluster, Database, Ensemble, Kubernetes, Members, One, Sentinels, Topology};
use crate::peers::Peer;
use crate::record::Expect;

/// The weight of rows that stop processes. Each stop takes longer than a lease, and shows its effect most times but not always.
const STOPS: f64 = 2.0;

/// Tells the subjects of Jepsen's third workload from the subjects of the first.
const A_SET: &str = "a set in the database";

/// The stores, as `--store` names them.
pub(crate) const STORES: [&str; 4] = ["one", "sentinel", "cluster", "quorum"];

/// An assumption that may be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Assumption {
    Held,
    ClocksRunAlike,
    AcknowledgedIsKept,
    HolderLooks,
    ResourceChecks,
    ForgetfulMemberIsLeftOut,
    WriterPins,
}

impl Assumption {
    pub(crate) const BROKEN: [Self; 6] = [
        Self::ClocksRunAlike,
        Self::AcknowledgedIsKept,
        Self::HolderLooks,
        Self::ResourceChecks,
        Self::ForgetfulMemberIsLeftOut,
        Self::WriterPins,
    ];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Held => "all assumptions held",
            Self::ClocksRunAlike => "broken: clocks run alike",
            Self::AcknowledgedIsKept => "broken: a server keeps what it acknowledged",
            Self::HolderLooks => "broken: the holder looks before it writes",
            Self::ResourceChecks => "broken: the resource checks tokens",
            Self::ForgetfulMemberIsLeftOut => "broken: a member that forgot is left out",
            Self::WriterPins => "broken: the writer pins, and does not only look",
        }
    }
}

/// The work of the processes of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Mixed,
    Plain,
    /// This many processes, half of which wait for long.
    Crowd(u16),
    /// A set in the database. The transaction that changes the set pins the lock, if the library can do so.
    Set,
}

/// A row before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) subject: String,
    pub(crate) store: &'static str,
    pub(crate) assumption: Assumption,
    work: Work,
    adapter: Option<String>,
    /// The row's share of the time of a run, relative to the other rows.
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
            Assumption::WriterPins => Expect::Lost,
            _ => Expect::Overlaps,
        }
    }

    /// The seed of the row. It differs from row to row, and does not depend on which other rows run.
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
            ("zookeeper", _) => Box::new(Ensemble::start()),
            ("kubernetes", _) => Box::new(Kubernetes::start()),
            _ => Box::new(One::start()),
        };
        let menu = match self.assumption {
            Assumption::Held if matches!(self.work, Work::Mixed | Work::Crowd(_)) => Menu::Everything,
            Assumption::Held => Menu::Outside,
            Assumption::ClocksRunAlike => Menu::Only(Change::Leap),
            Assumption::AcknowledgedIsKept => Menu::Only(Change::Flush(0)),
            Assumption::HolderLooks | Assumption::ResourceChecks | Assumption::WriterPins => Menu::Stops,
            Assumption::ForgetfulMemberIsLeftOut => Menu::Only(Change::ForgetMost(0)),
        };
        let looks = self.assumption != Assumption::HolderLooks;
        let checks = self.assumption != Assumption::ResourceChecks;
        // A write is late only if its process is stopped between check and write. With a longer gap, stops hit it sooner.
        let gap_ms = if checks { 15 } else { 100 };
        let adapter = self.adapter.clone();
        let workload = match self.work {
            Work::Mixed => Workload::Mixed,
            Work::Plain => Workload::Plain { adapter, looks, gap_ms },
            Work::Crowd(processes) => Workload::Crowd(processes.into()),
            Work::Set => {
                let pins = adapter.is_none() && self.assumption != Assumption::WriterPins;
                Workload::Set { adapter, pins }
            }
        };
        Ok(Setting { workload, menu, servers, checks, expect: self.expect(), seed })
    }
}

/// This library over some stores, with callers of every kind.
pub(crate) fn of_stores(stores: &[&'static str]) -> Vec<Row> {
    let mixed = |store: &&'static str| {
        let subject = format!("ours, every kind of caller, {}", kind(store));
        let assumption = Assumption::Held;
        Row { subject, store, assumption, work: Work::Mixed, adapter: None, weight: 3.0 }
    };
    stores.iter().map(mixed).collect()
}

/// Many processes of this library over some stores.
pub(crate) fn crowds(stores: &[&'static str], processes: u16) -> Vec<Row> {
    let crowd = |store: &&'static str| {
        let subject = format!("ours, a crowd of {processes}, {}", kind(store));
        let (assumption, work) = (Assumption::Held, Work::Crowd(processes));
        Row { subject, store, assumption, work, adapter: None, weight: 1.0 }
    };
    stores.iter().map(crowd).collect()
}

fn kind(store: &str) -> &'static str {
    match store {
        "sentinel" => "Sentinel",
        "cluster" => "Cluster",
        "quorum" => "quorum of three",
        "postgres" => "PostgreSQL",
        "zookeeper" => "three ZooKeeper servers",
        "kubernetes" => "an API server of Kubernetes",
        _ => "one server",
    }
}

/// This library and others with the same workload, and each assumption broken.
pub(crate) fn compared(peers: &[Peer]) -> Vec<Row> {
    let row = |subject: String, store, assumption, work, weight| Row {
        subject,
        store,
        assumption,
        work,
        adapter: None,
        weight,
    };
    let ours =
        |store, assumption, weight| row(format!("ours, {}", kind(store)), store, assumption, Work::Plain, weight);
    let set = |assumption, weight| {
        let subject = format!("ours, {}, {A_SET}", kind("postgres"));
        row(subject, "postgres", assumption, Work::Set, weight)
    };
    let has_postgres = Database::missing(false).is_none();
    let mut rows = vec![ours("one", Assumption::Held, 1.5)];
    if has_postgres {
        rows.extend([ours("postgres", Assumption::Held, 1.0), set(Assumption::Held, 1.0)]);
    }
    if Ensemble::missing().is_none() {
        rows.push(ours("zookeeper", Assumption::Held, 1.0));
    }
    if Kubernetes::missing().is_none() {
        rows.push(ours("kubernetes", Assumption::Held, 1.0));
    }
    for peer in peers {
        let Ok(command) = &peer.command else { continue };
        let (name, adapter, held) = (&peer.name, Some(command.clone()), Assumption::Held);
        rows.push(Row { adapter: adapter.clone(), ..row(name.clone(), peer.store, held, Work::Plain, 1.0) });
        if !["one", "zookeeper"].contains(&peer.store) {
            rows.push(Row { adapter, ..row(format!("{name}, {A_SET}"), peer.store, held, Work::Set, 1.0) });
        }
    }
    for assumption in Assumption::BROKEN {
        match assumption {
            Assumption::ForgetfulMemberIsLeftOut => rows.push(ours("quorum", assumption, 0.7)),
            Assumption::WriterPins if has_postgres => rows.push(set(assumption, STOPS)),
            Assumption::WriterPins => {}
            Assumption::HolderLooks | Assumption::ResourceChecks => rows.push(ours("one", assumption, STOPS)),
            _ => rows.push(ours("one", assumption, 0.7)),
        }
    }
    rows
}

//! Conclusions from the store and from the live views that answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::HolderInfo;
use lock_core::inspect::EntryState;
use lock_core::lease::of_site;

use crate::commands::why::store::Stored;
use crate::commands::why::view::{Hold, View};

/// Clocks that differ by less agree: views are read over a network.
const SKEW: f64 = 1.0;

/// Everything that was read about one key.
pub(crate) struct Findings {
    pub(crate) stored: Stored,
    pub(crate) views: Vec<View>,
    /// The addresses of the views that could not be read, and why.
    pub(crate) unread: Vec<(String, String)>,
}

/// The state of the holder's process, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its live view has the hold.
    Shown,
    /// Its live view answers, and does not have the hold.
    LetGo,
    /// No process keeps it: its holder renews it by name.
    Leased,
    /// It renewed its lease not long ago, or has had no reason to yet.
    Renews,
    /// It has not renewed its lease for longer than it should take.
    Overdue,
    Unknown,
}

impl Life {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Shown => "alive",
            Self::LetGo => "let_go",
            Self::Leased => "leased",
            Self::Renews => "renews",
            Self::Overdue => "overdue",
            Self::Unknown => "unknown",
        }
    }
}

/// The waiters, as far as the store and the live views name them.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// By call site: how many, and in which processes.
    pub(crate) sites: BTreeMap<String, (usize, BTreeSet<String>)>,
    pub(crate) total: usize,
    pub(crate) longest: Duration,
    /// Whether there may be more: processes in the store's queue whose view was not read count as one caller.
    pub(crate) at_least: bool,
}

impl Findings {
    /// Returns the view of the holder's process, if it answered.
    pub(crate) fn holders_view(&self) -> Option<&View> {
        let info = self.stored.entry.as_ref()?.holder.info.as_ref()?;
        self.views.iter().find(|view| is_of(view, info))
    }

    /// Returns the hold as its process shows it. Within one process a lease may have passed to another
    /// holder than the one in the store.
    pub(crate) fn hold(&self) -> Option<&Hold> {
        self.holders_view()?.hold.as_ref()
    }

    /// Returns the processes that believe to hold the lock, although the store has it for another or as free.
    pub(crate) fn strangers(&self) -> Vec<&View> {
        let info = self.stored.entry.as_ref().and_then(|entry| entry.holder.info.as_ref());
        let is_stranger = |view: &&View| view.hold.is_some() && info.is_none_or(|info| !is_of(view, info));
        self.views.iter().filter(is_stranger).collect()
    }

    pub(crate) fn life(&self) -> Life {
        let Some(entry) = self.stored.entry.as_ref().filter(|entry| entry.state == EntryState::Held) else {
            return Life::Unknown;
        };
        if of_site(entry.holder.site()).is_some() {
            return Life::Leased;
        }
        match self.holders_view() {
            Some(view) if view.hold.is_some() => return Life::Shown,
            Some(view) if !view.is_cut => return Life::LetGo,
            _ => {}
        }
        match (entry.renewed_ago(), entry.ttl) {
            // A third of the lease is what it should take; a busy machine gets half as much again.
            (Some(ago), Some(ttl)) if ago <= ttl / 2 => Life::Renews,
            (Some(_), Some(_)) => Life::Overdue,
            _ => Life::Unknown,
        }
    }

    /// Returns by how many seconds the clock of the holder's process is ahead of the store's; `None` if that is
    /// not known, 0 if they agree.
    pub(crate) fn skew(&self) -> Option<f64> {
        let entry = self.stored.entry.as_ref()?;
        let (time, at) = self.holders_view()?.time;
        let store = seconds(entry.granted_at?) + entry.held_for?.as_secs_f64();
        let between = at.since(self.stored.read_at).as_secs_f64() - self.stored.read_at.since(at).as_secs_f64();
        let ahead = time - store - between;
        Some(if ahead.abs() < SKEW { 0.0 } else { ahead })
    }

    pub(crate) fn callers(&self) -> Callers {
        let mut callers =
            Callers { at_least: !self.unread.is_empty() || self.stored.votes.is_some(), ..Callers::default() };
        for view in &self.views {
            callers.at_least |= view.is_cut;
            for wait in &view.waits {
                callers.add(&wait.site, view.host.as_deref().unwrap_or("?"), wait.age);
            }
        }
        for waiter in &self.stored.queue {
            let Some(info) = &waiter.info else { continue };
            if !self.views.iter().any(|view| is_of(view, info)) {
                callers.at_least = true;
                callers.add(&info.site, &info.host, waiter.waiting_for);
            }
        }
        callers
    }
}

impl Callers {
    fn add(&mut self, site: &str, host: &str, age: Duration) {
        let (count, hosts) = self.sites.entry(site.to_owned()).or_default();
        *count += 1;
        hosts.insert(host.to_owned());
        self.total += 1;
        self.longest = self.longest.max(age);
    }
}

fn is_of(view: &View, info: &HolderInfo) -> bool {
    view.pid == u64::from(info.pid) && view.host.as_deref() == Some(&*info.host)
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

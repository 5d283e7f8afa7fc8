//! Interleaved rounds of several contestants with the same work.

use serde::Serialize;

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::process::fleet::{self, Sample};
use crate::process::instructions::Instructions;
use crate::process::work::{Pace, Work};
use crate::servers::site::Site;
use crate::stats::median;

/// The names of the lines. Lines of this library begin with `us`.
pub(crate) const RAW: &str = "raw";
pub(crate) const NODELAY: &str = "raw, TCP_NODELAY";
pub(crate) const RSLOCK: &str = "rslock";
pub(crate) const TUNED: &str = "rslock, retry 2 ms";
pub(crate) const DISTKIT: &str = "distkit";
pub(crate) const LOCAL: &str = "tokio Mutex";
pub(crate) const OURS: &str = "us";
pub(crate) const BACKGROUND: &str = "us, background release";

/// One contestant with its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) work: Work,
    pub(crate) port: u16,
    /// The site whose servers it uses. If one of these servers has the port of the line, only its work counts.
    pub(crate) site: usize,
}

/// The results of the rounds of one line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<Sample>,
    /// Counted only on request.
    pub(crate) instructions: Option<Instructions>,
}

/// The lines of one table, and their rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Race {
    /// Whether all tasks compete for one key.
    pub(crate) shared_key: bool,
    pub(crate) lanes: Vec<Lane>,
}

impl Race {
    /// Runs every line once in each round.
    pub(crate) fn run(bench: &mut Bench, lines: &[Line]) -> Result<Self> {
        let pace = bench.pace;
        Self::among(bench.rounds, pace, std::slice::from_mut(&mut bench.site), lines)
    }

    /// Runs each line on the servers of its site.
    pub(crate) fn among(rounds: u32, pace: Pace, sites: &mut [Site], lines: &[Line]) -> Result<Self> {
        let lane = |line: &Line| Lane { name: line.name, rounds: Vec::new(), instructions: None };
        let shared_key = lines.iter().any(|line| line.work.keys_per_task == 0);
        let mut race = Self { shared_key, lanes: lines.iter().map(lane).collect() };
        for round in 0..rounds {
            // Each round starts with another line, so that a line does not always follow the same one.
            for place in 0..lines.len() {
                let index = (place + usize::try_from(round)?) % lines.len();
                let Line { name, kind, work, port, site } = lines[index];
                let site = &mut sites[site];
                site.empty()?;
                let only = site.servers.iter().position(|server| server.port() == port);
                let servers = only.map_or(0..site.servers.len(), |only| only..only + 1);
                let sample = fleet::run(&mut site.servers[servers], port, kind, work, pace);
                race.lanes[index].rounds.push(sample.map_err(|error| format!("{name}: {error}"))?);
            }
        }
        Ok(race)
    }

    /// Counts the instructions of every line, if requested.
    pub(crate) fn count_instructions(&mut self, bench: &Bench, lines: &[Line]) -> Result<()> {
        let Some(counter) = &bench.counter else { return Ok(()) };
        for (line, lane) in lines.iter().zip(&mut self.lanes) {
            lane.instructions = Some(counter.count(line.port, line.kind, line.work)?);
        }
        Ok(())
    }

    /// Returns the ratio of a count of instructions between two lines.
    pub(crate) fn instructions(&self, line: &str, to: &str, count: impl Fn(Instructions) -> f64) -> Option<f64> {
        let of = |name| self.lane(name)?.instructions.map(&count);
        Some(of(line)? / of(to)?)
    }

    /// Returns the median of a figure over the rounds of one line.
    pub(crate) fn median(&self, line: &str, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.rounds(line, figure))
    }

    /// Returns a figure of each round of one line.
    pub(crate) fn rounds(&self, line: &str, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.lane(line).into_iter().flat_map(|lane| &lane.rounds).map(figure).collect()
    }

    /// Returns the ratio of a figure between two lines: one ratio for each round, then the median. If there are two
    /// lines of *raw*, the comparison uses the higher one of each round.
    pub(crate) fn ratio(&self, line: &str, to: &str, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let better = self.lane(NODELAY).filter(|_| to == RAW);
        let best = |(round, sample): (usize, &Sample)| {
            let other = better.and_then(|lane| lane.rounds.get(round)).map(&figure);
            other.map_or_else(|| figure(sample), |other| other.max(figure(sample)))
        };
        let to = self.lane(to)?.rounds.iter().enumerate().map(best);
        median(self.lane(line)?.rounds.iter().map(&figure).zip(to).map(|(one, other)| one / other).collect())
    }

    fn lane(&self, name: &str) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.name == name)
    }
}

//! Interleaved rounds of several contestants that do the same work.

use serde::Serialize;

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::fleet::{self, Sample};
use crate::instructions::Instructions;
use crate::site::Site;
use crate::spy::Seen;
use crate::stats::median;
use crate::work::{Pace, Work};

/// The names of the lines.
pub(crate) const RAW: &str = "raw";
pub(crate) const RSLOCK: &str = "rslock";
pub(crate) const TUNED: &str = "rslock, retry 2 ms";
pub(crate) const LOCAL: &str = "tokio Mutex";
pub(crate) const OURS: &str = "us";

/// One contestant with its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) work: Work,
    pub(crate) port: u16,
}

/// The results of the rounds of one line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<Sample>,
    /// Commands that both clients and scripts issue, so that they cannot be counted.
    #[serde(skip)]
    pub(crate) seen: Option<Seen>,
    /// Counted only on request.
    pub(crate) instructions: Option<Instructions>,
}

impl Lane {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, rounds: Vec::new(), seen: None, instructions: None }
    }
}

/// The lines of one row, and their rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Race {
    /// Whether all tasks wanted the same key.
    pub(crate) shared_key: bool,
    pub(crate) lanes: Vec<Lane>,
}

impl Race {
    /// Runs every line once in each round.
    pub(crate) fn run(bench: &mut Bench, lines: &[Line]) -> Result<Self> {
        let pace = bench.pace;
        Self::run_at(bench, lines, pace)
    }

    /// Runs with windows of an unusual length.
    pub(crate) fn run_at(bench: &mut Bench, lines: &[Line], pace: Pace) -> Result<Self> {
        let mut race = Self::interleaved(bench.rounds, lines, |index, seen| {
            let Line { kind, work, port, .. } = lines[index];
            bench.server.flush()?;
            fleet::run(std::slice::from_mut(&mut bench.server), port, kind, work, pace, seen)
        })?;
        for (line, lane) in lines.iter().zip(&mut race.lanes) {
            if lane.seen.as_ref().is_some_and(|seen| !seen.ambiguous.is_empty()) {
                bench.server.flush()?;
                let counted = fleet::count_commands(&bench.server, line.port, line.kind, line.work, pace)?;
                lane.rounds.iter_mut().for_each(|sample| sample.commands_per_acquisition = counted);
            }
        }
        Ok(race)
    }

    /// Runs lines each on the servers of a site, which each line names by its number. Of these, only the work of the
    /// server with the line's port counts, if there is one.
    pub(crate) fn among(rounds: u32, pace: Pace, sites: &mut [Site], lines: &[(usize, Line)]) -> Result<Self> {
        let (at, lines): (Vec<usize>, Vec<Line>) = lines.iter().copied().unzip();
        Self::interleaved(rounds, &lines, |index, seen| {
            let Line { kind, work, port, .. } = lines[index];
            let site = &mut sites[at[index]];
            site.flush()?;
            let only = site.servers.iter().position(|server| server.port() == port);
            let servers = only.map_or(0..site.servers.len(), |only| only..only + 1);
            fleet::run(&mut site.servers[servers], port, kind, work, pace, seen)
        })
    }

    fn interleaved(
        rounds: u32,
        lines: &[Line],
        mut run: impl FnMut(usize, &mut Option<Seen>) -> Result<Sample>,
    ) -> Result<Self> {
        let shared_key = lines.iter().any(|line| line.work.keys_per_task == 0);
        let mut race = Self { shared_key, lanes: lines.iter().map(|line| Lane::new(line.name)).collect() };
        for round in 0..rounds {
            // Each round starts with another line, so that no line always follows the same one.
            for place in 0..lines.len() {
                let index = (place + usize::try_from(round)?) % lines.len();
                let lane = &mut race.lanes[index];
                let sample = run(index, &mut lane.seen).map_err(|error| format!("{}: {error}", lane.name))?;
                lane.rounds.push(sample);
            }
        }
        Ok(race)
    }

    /// Counts the instructions of every line, if that was asked for.
    pub(crate) fn count_instructions(&mut self, bench: &Bench, lines: &[Line]) -> Result<()> {
        let Some(counter) = &bench.counter else { return Ok(()) };
        for (line, lane) in lines.iter().zip(&mut self.lanes) {
            lane.instructions = Some(counter.count(&bench.server, line.kind, line.work)?);
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
        median(self.lane(line)?.rounds.iter().map(figure).collect())
    }

    /// Returns the ratio of a figure between two lines: computed for each round, then the median.
    pub(crate) fn ratio(&self, line: &str, to: &str, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let pairs = self.lane(line)?.rounds.iter().zip(&self.lane(to)?.rounds);
        median(pairs.map(|(one, other)| figure(one) / figure(other)).collect())
    }

    /// Returns the sum of a count over the rounds of one line.
    pub(crate) fn total(&self, line: &str, count: impl Fn(&Sample) -> u64) -> Option<f64> {
        Some(self.lane(line)?.rounds.iter().map(count).sum::<u64>() as f64)
    }

    fn lane(&self, name: &str) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.name == name)
    }
}

//! What processes noted of holds in every mode and of runs of jobs, and whether it was right.

use std::collections::BTreeMap;

use crate::Window;

/// One key held once, for as long as its holder knew that it did.
#[derive(Clone, Debug)]
struct Hold {
    mode: String,
    units: u64,
    limit: u64,
    token: u64,
    /// When it was asked for, and the first and the last moment.
    asked: u64,
    from: u64,
    until: u64,
}

/// A job that was begun, or whose store was told of its end.
#[derive(Clone, Debug)]
struct Run {
    asked: u64,
    from: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) holds: usize,
    pub(crate) runs: usize,
    /// Holds that met others, and tokens that did not grow: in times for which that is excused, too.
    pub(crate) overlaps: usize,
    pub(crate) inversions: usize,
    /// Jobs that ran again because their end could not be told, or because the servers forgot them.
    pub(crate) again: usize,
    pub(crate) violations: Vec<String>,
}

/// What explains what would be wrong at other times.
pub(crate) struct Times<'a> {
    /// When servers forgot on purpose.
    pub(crate) forgotten: &'a [Window],
    /// When a process may not know yet that a server has begun another history, which forgot nothing. A phase that it
    /// begins looks as if it had outlived a failover, so whoever joins next draws a newer token; who is in it keeps the one
    /// before, and so do those who share its lease.
    pub(crate) renamed: &'a [Window],
}

impl Times<'_> {
    fn excuse(&self, at: u64) -> bool {
        self.forgotten.iter().any(|window| window.contains(&at))
    }

    fn excuse_of_shared(&self, one: &Hold, other: &Hold) -> bool {
        let both = one.is_shared() && other.is_shared();
        both && self.renamed.iter().any(|window| window.contains(&one.from) && window.contains(&other.from))
    }

    fn forgot_between(&self, from: u64, until: u64) -> bool {
        self.forgotten.iter().any(|window| *window.start() <= until && from <= *window.end())
    }
}

impl Hold {
    fn is_shared(&self) -> bool {
        matches!(self.mode.as_str(), "read" | "permit")
    }

    fn excludes(&self, other: &Self) -> bool {
        !self.is_shared() || !other.is_shared()
    }

    /// Whether its token is one that may follow another's.
    fn may_follow(&self, other: &Self) -> bool {
        let one_phase = self.is_shared() && (other.is_shared() || other.mode == "downgraded");
        self.token > other.token || one_phase && self.token == other.token
    }
}

pub(crate) fn judge(text: &str, times: &Times<'_>) -> Verdict {
    let mut holds = BTreeMap::<&str, Vec<Hold>>::new();
    let (mut begun, mut told) = (BTreeMap::<&str, Vec<Run>>::new(), BTreeMap::<&str, Vec<Run>>::new());
    for line in text.lines() {
        // Who is killed while it writes leaves the beginning of a line.
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        match (words[0], words.len()) {
            ("hold", 9) => {
                let numbers: Option<Vec<u64>> = (2..8).map(number).collect();
                let Some([units, limit, token, asked, from, until]) =
                    numbers.and_then(|all| <[u64; 6]>::try_from(all).ok())
                else {
                    continue;
                };
                let mode = words[1].to_owned();
                let hold = Hold { mode, units, limit, token, asked, from, until };
                holds.entry(words[8]).or_default().push(hold);
            }
            ("began" | "told", 4) => {
                let (Some(asked), Some(from)) = (number(1), number(2)) else { continue };
                let runs = if words[0] == "began" { &mut begun } else { &mut told };
                runs.entry(words[3]).or_default().push(Run { asked, from });
            }
            _ => {}
        }
    }
    let mut verdict = Verdict {
        holds: holds.values().map(Vec::len).sum(),
        runs: begun.values().map(Vec::len).sum(),
        ..Verdict::default()
    };
    for (key, holds) in &mut holds {
        check_overlaps(key, holds, times, &mut verdict);
        check_tokens(key, holds, times, &mut verdict);
    }
    for (name, runs) in &mut begun {
        check_begun(name, runs, times, &mut verdict);
    }
    for (name, told) in &told {
        check_told(name, told, begun.get(name).map_or(&[], Vec::as_slice), times, &mut verdict);
    }
    verdict
}

fn check_overlaps(key: &str, holds: &mut [Hold], times: &Times<'_>, verdict: &mut Verdict) {
    holds.sort_by_key(|hold| hold.from);
    let mut open: Vec<&Hold> = Vec::new();
    for hold in &*holds {
        open.retain(|other| other.until > hold.from);
        let permits = open.iter().filter(|other| other.mode == "permit").map(|other| other.units).sum::<u64>();
        let over = hold.mode == "permit" && permits + hold.units > hold.limit;
        if let Some(other) = open.iter().find(|other| over || other.excludes(hold)) {
            verdict.overlaps += 1;
            if !times.excuse(hold.from) {
                verdict.violations.push(format!("{key}: {hold:?} beside {other:?}, {permits} permits taken"));
            }
        }
        open.push(hold);
    }
}

/// Checks that whoever asked after another was granted the lock has a greater token: on one machine, whose clock all
/// servers share, also through everything that makes them forget.
fn check_tokens(key: &str, holds: &mut [Hold], times: &Times<'_>, verdict: &mut Verdict) {
    let mut granted: Vec<&Hold> = holds.iter().collect();
    let mut asked = granted.clone();
    granted.sort_by_key(|hold| hold.from);
    asked.sort_by_key(|hold| hold.asked);
    let mut granted = granted.into_iter().peekable();
    // The newest of a phase and the newest that was held alone, either of which may be too new for who asks now.
    let mut newest: [Option<&Hold>; 2] = [None, None];
    for hold in asked {
        while let Some(before) = granted.next_if(|before| before.from < hold.asked) {
            let newest = &mut newest[usize::from(before.mode == "write")];
            if newest.is_none_or(|newest| newest.token <= before.token) {
                *newest = Some(before);
            }
        }
        if let Some(before) = newest.into_iter().flatten().find(|before| !hold.may_follow(before)) {
            verdict.inversions += 1;
            if !times.excuse(hold.from) && !times.excuse(before.from) && !times.excuse_of_shared(hold, before) {
                verdict.violations.push(format!("{key}: {hold:?} has no newer token than {before:?}, granted before"));
            }
        }
    }
}

/// What is kept from its start is begun once, or once in its period.
fn check_begun(name: &str, runs: &mut [Run], times: &Times<'_>, verdict: &mut Verdict) {
    runs.sort_by_key(|run| run.from);
    for pair in runs.windows(2) {
        let apart = pair[1].from.saturating_sub(pair[0].asked);
        let wrong = name.contains(":strict@") || name.ends_with(":every") && apart < 1_000_000_000;
        if wrong && times.forgot_between(pair[0].asked, pair[1].from) {
            verdict.again += 1;
        } else if wrong {
            verdict.violations.push(format!("the job {name} began twice, {} ms apart: {pair:?}", apart / 1_000_000));
        }
    }
}

/// What is kept from its end runs no more once the store was told of that.
fn check_told(name: &str, told: &[Run], begun: &[Run], times: &Times<'_>, verdict: &mut Verdict) {
    let Some(told) = told.iter().min_by_key(|told| told.from) else { return };
    for run in begun.iter().filter(|run| run.asked > told.from) {
        let first = begun.iter().map(|run| run.asked).min().unwrap_or_default();
        verdict.again += 1;
        if !times.forgot_between(first, run.from) {
            verdict.violations.push(format!("the job {name} began again after its end was told: {told:?}, {run:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::testing::limit;

    use super::{Times, judge};

    fn wrong(lines: &[&str], forgotten: &[crate::Window]) -> usize {
        judge(&lines.join("\n"), &Times { forgotten, renamed: &[] }).violations.len()
    }

    #[test]
    #[limit]
    fn who_shares_stands_beside_others_and_who_writes_beside_nobody() {
        let (one, two) = ("hold read 1 2147483648 5 10 20 40 k", "hold read 1 2147483648 5 11 30 50 k");
        let early = "hold write 0 0 6 12 35 60 k";
        assert_eq!(wrong(&[one, two], &[]), 0);
        assert_eq!(wrong(&[one, two, "hold write 0 0 6 12 50 60 k", "hold write 0 0 7 12 60"], &[]), 0);
        assert_eq!(wrong(&[one, two, early], &[]), 1);
        assert_eq!(wrong(&[one, two, early], &[30..=40]), 0, "it was forgotten that they read");
        let permit = |units: u32, from: u32| format!("hold permit {units} 3 5 {from} {from} 90 k");
        assert_eq!(wrong(&[&permit(2, 10), &permit(1, 20)], &[]), 0);
        assert_eq!(wrong(&[&permit(2, 10), &permit(1, 20), &permit(1, 30)], &[]), 1);
    }

    #[test]
    #[limit]
    fn who_asks_after_a_grant_has_a_newer_token_or_is_in_the_same_phase() {
        let before = "hold write 0 0 7 10 20 30 k";
        assert_eq!(wrong(&[before, "hold write 0 0 8 40 50 60 k"], &[]), 0);
        assert_eq!(wrong(&[before, "hold write 0 0 7 40 50 60 k"], &[]), 1);
        assert_eq!(wrong(&[before, "hold write 0 0 6 15 50 60 k"], &[]), 0, "it asked before");
        assert_eq!(wrong(&[before, "hold read 1 2147483648 7 40 50 60 k"], &[]), 1);
        let readers = ["hold downgraded 0 0 7 10 20 30 k", "hold read 1 2147483648 7 40 50 60 k"];
        assert_eq!(wrong(&readers, &[]), 0);
        let older = ["hold read 1 2147483648 7 10 20 30 k", "hold read 1 2147483648 6 40 50 60 k"];
        assert_eq!(wrong(&older, &[]), 1);
        let renamed =
            |lines: &[&str], renamed| judge(&lines.join("\n"), &Times { forgotten: &[], renamed }).violations.len();
        assert_eq!(renamed(&older, &[15..=70]), 0, "the history had another name");
        assert_eq!(renamed(&[before, "hold read 1 2147483648 6 40 50 60 k"], &[15..=70]), 1, "a writer is no reader");
    }

    #[test]
    #[limit]
    fn a_job_runs_once_for_its_time_unless_it_was_forgotten() {
        let strict = ["began 10 20 job:strict@9", "began 30 40 job:strict@9"];
        assert_eq!((wrong(&strict, &[]), wrong(&strict[..1], &[]), wrong(&strict, &[25..=30])), (1, 0, 0));
        let every = ["began 10 20 job:every", "began 30 800000000 job:every", "began 1 1800000000 job:every"];
        assert_eq!(wrong(&every, &[]), 1);
        let plain = ["began 10 20 job:plain@9", "began 50 60 job:plain@9", "told 30 30 job:plain@9"];
        assert_eq!((wrong(&plain, &[]), wrong(&plain[..2], &[])), (1, 0));
    }
}

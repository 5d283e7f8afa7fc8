//! Whether a lock had two holders that exclude each other, and whether tokens grew.

use crate::check::{Hold, Row, within};
use crate::record::Mode;

impl Hold {
    fn is_shared(&self) -> bool {
        self.grant.mode != Mode::Write
    }

    fn excludes(&self, other: &Self) -> bool {
        !self.is_shared() || !other.is_shared()
    }

    /// Whether this token may follow the other: it is greater, or both belong to one phase of a shared lock.
    fn may_follow(&self, other: &Self) -> bool {
        let one_phase = self.is_shared() && (other.is_shared() || other.downgraded);
        self.grant.token > other.grant.token || one_phase && self.grant.token == other.grant.token
    }
}

/// Counts the grants that met a hold which excludes them, and how many of these came while servers forgot.
pub(super) fn overlaps(row: &Row) -> (usize, usize) {
    let (mut all, mut excused) = (0, 0);
    for (_, mut holds) in row.by_key() {
        holds.sort_by_key(|hold| (hold.grant.at, hold.grant.process, hold.grant.hold));
        let mut open: Vec<&Hold> = Vec::new();
        for hold in holds {
            open.retain(|other| other.until > hold.grant.at);
            let permits = open.iter().filter(|other| other.grant.mode == Mode::Permit).map(|other| other.grant.units);
            let over = hold.grant.mode == Mode::Permit && permits.sum::<u64>() + hold.grant.units > hold.grant.limit;
            if over || open.iter().any(|other| other.excludes(hold)) {
                all += 1;
                excused += usize::from(row.forgot_at(hold.grant.at));
            }
            open.push(hold);
        }
    }
    (all, excused)
}

/// Counts the holds whose token is not greater than that of a hold granted before they were asked for. The second
/// figure counts those that a fault explains.
pub(super) fn inversions(row: &Row) -> (usize, usize) {
    let (mut all, mut excused) = (0, 0);
    for (_, mut asked) in row.by_key() {
        asked.retain(|hold| hold.grant.token.is_some());
        let mut granted = asked.clone();
        granted.sort_by_key(|hold| (hold.grant.at, hold.grant.process, hold.grant.hold));
        asked.sort_by_key(|hold| (hold.grant.asked, hold.grant.process, hold.grant.hold));
        let mut granted = granted.into_iter().peekable();
        // The newest shared hold and the newest exclusive one. Each is compared by itself: the token of either may be too new.
        let mut newest: [Option<&Hold>; 2] = [None, None];
        for hold in asked {
            while let Some(before) = granted.next_if(|before| before.grant.at < hold.grant.asked) {
                let newest = &mut newest[usize::from(before.grant.mode == Mode::Write && !before.downgraded)];
                if newest.is_none_or(|newest| newest.grant.token <= before.grant.token) {
                    *newest = Some(before);
                }
            }
            if let Some(before) = newest.into_iter().flatten().find(|before| !hold.may_follow(before)) {
                let (one, other) = (hold.grant.at, before.grant.at);
                let renamed = |window: &(u64, u64)| within(&[*window], one) && within(&[*window], other);
                let shared = hold.is_shared() && before.is_shared() && row.renamed.iter().any(renamed);
                all += 1;
                excused += usize::from(row.forgot_at(one) || row.forgot_at(other) || shared);
            }
        }
    }
    (all, excused)
}

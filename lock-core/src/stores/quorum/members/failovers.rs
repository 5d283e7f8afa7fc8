//! Whether members that lost their data explain the loss of a lock.

/// Puts how often each member had another history into one number, in which every member has a part. With more than 64
/// members it reports 0.
pub(crate) fn together(failovers: &[u64]) -> u64 {
    let bits = bits_of(failovers.len());
    failovers.iter().rev().fold(0, |all, one| all << bits | one & mask(bits))
}

/// Returns whether so many members have had another history since `before` that the others are not a majority.
pub(crate) fn cost_the_majority(before: u64, failovers: &[u64], majority: usize) -> bool {
    let bits = bits_of(failovers.len());
    let part = |all: u64, member: usize| all >> (u32::try_from(member).unwrap_or(0) * bits) & mask(bits);
    let now = together(failovers);
    let kept = (0..failovers.len()).filter(|member| part(before, *member) == part(now, *member)).count();
    kept < majority
}

/// How many bits each member has.
fn bits_of(members: usize) -> u32 {
    u32::try_from(members).map_or(0, |members| 64 / members.max(3))
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use lock_core::testing::limit;

    use super::{cost_the_majority, together};

    #[test]
    #[limit]
    fn as_many_as_a_majority_can_spare_cost_nothing() {
        for (before, now, majority, costs) in [
            (&[0, 0, 0][..], &[0, 0, 0][..], 2, false),
            (&[0, 7, 0], &[9, 7, 0], 2, false),
            (&[0, 7, 0], &[9, 8, 0], 2, true),
            (&[0, 7, 0], &[0, 8, 0], 3, true),
            (&[1, 2, 3, 4, 5], &[2, 2, 4, 4, 5], 3, false),
            (&[1, 2, 3, 4, 5], &[2, 2, 4, 4, 6], 3, true),
            (&[4095, 0, 0, 0, 0], &[4096, 0, 1, 0, 0], 4, true),
            (&[0; 70], &[9; 70], 36, false),
        ] {
            assert_eq!(cost_the_majority(together(before), now, majority), costs, "{before:?} {now:?} {majority}");
        }
    }
}

//! The closed sets of label values. Other values are never exported.

use lock_core::lease::of_site;
use lock_core::{LockEvent, Mode, Purpose};

/// Returns the index of a label value in its closed set. If the value is not in the set, returns an index beyond its
/// end.
pub(crate) const fn place(set: &[&str], value: &str) -> usize {
    let mut place = 0;
    while place < set.len() && !same(set[place].as_bytes(), value.as_bytes()) {
        place += 1;
    }
    place
}

/// Compares two strings; usable in constants.
const fn same(one: &[u8], two: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < two.len() && one[at] == two[at] {
        at += 1;
    }
    at == one.len() && at == two.len()
}

/// Returns the index of a mode in [`MODES`].
pub(crate) const fn mode_of(mode: Mode) -> usize {
    match mode {
        Mode::READ => 1,
        mode if mode.is_shared() => 2,
        _ => 0,
    }
}

/// Returns the index of the mode of an acquire.
pub(crate) fn mode_of_event(event: &LockEvent<'_>) -> usize {
    if event.purpose == Purpose::Lease { LEASE } else { mode_of(event.mode) }
}

/// Returns a call site as a label. All leases have one, because their text names the holder and the reason.
pub(crate) fn site_of(site: &str) -> &str {
    if of_site(site).is_some() { MODES[LEASE] } else { site }
}

/// The values of `outcome` of `acquisitions_total`.
pub(crate) const ACQUIRE_OUTCOMES: [&str; 5] = ["acquired", "timeout", "busy", "cancelled", "error"];
/// The index of permits in [`MODES`].
pub(crate) const PERMIT: usize = place(&MODES, "permit");
/// The index of leases in [`MODES`].
pub(crate) const LEASE: usize = 3;
/// The values of `mode`.
pub(crate) const MODES: [&str; 4] = ["write", "read", "permit", "lease"];
/// The values of `path`.
pub(crate) const PATHS: [&str; 6] = ["uncontended", "granted", "polled", "handoff", "reentrant", "shared"];
/// The values of `outcome` of `wait_seconds`.
pub(crate) const WAIT_OUTCOMES: [&str; 2] = ["acquired", "failed"];
/// The values of `outcome` of `renewals_total`.
pub(crate) const RENEWAL_OUTCOMES: [&str; 2] = ["ok", "error"];
/// The values of `reason`. A shutdown that frees a lock counts as a release: no action is needed.
pub(crate) const LOSS_REASONS: [&str; 6] = ["expired", "stolen", "unreachable", "failover", "max_hold", "revoked"];
/// The values of `outcome` of `releases_total`.
pub(crate) const RELEASE_OUTCOMES: [&str; 5] = ["released", "dropped", "unconfirmed", "abandoned", "shut_down"];
/// The values of `op`.
pub(crate) const OPS: [&str; 6] = ["acquire", "renew", "release", "withdraw", "holder", "other"];
/// The values of `kind`.
pub(crate) const ERROR_KINDS: [&str; 3] = ["unavailable", "misconfigured", "other"];
/// The values of `change`: the change of the servers that serve locks.
pub(crate) const CHANGES: [&str; 2] = ["master_moved", "slots"];
/// The values of `kind` of `redirections_total`.
pub(crate) const REDIRECTIONS: [&str; 4] = ["moved", "ask", "try_again", "no_master"];
/// The values of `state` of `quorum_members`.
pub(crate) const MEMBER_STATES: [&str; 4] = ["counted", "excluded", "away", "disagrees"];
/// The values of `by` of `confirm_seconds`.
pub(crate) const CONFIRMED_BY: [&str; 2] = ["disk", "replicas"];
/// The values of `phase`.
pub(crate) const PHASES: [&str; 2] = ["first", "second"];
/// The values of `role` of `deadlocks_total`.
pub(crate) const DEADLOCK_ROLES: [&str; 2] = ["victim", "member"];
/// The values of `label` of `label_overflow_total`: the kind of name that exceeded its limit.
pub(crate) const OVERFLOWS: [&str; 4] = ["lock", "site", "holder_site", "store"];
/// The values of `policy`: the eviction policies of Redis other than `noeviction`.
pub(crate) const POLICIES: [&str; 8] = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "other",
];

#[cfg(test)]
mod tests {
    use lock_core::{GrantPath, LossReason, MemberState, Mode};

    use super::{LEASE, LOSS_REASONS, MEMBER_STATES, MODES, PATHS, mode_of, place};

    #[test]
    fn the_sets_of_the_core_are_ours() {
        let paths = [
            GrantPath::Uncontended,
            GrantPath::Granted,
            GrantPath::Polled,
            GrantPath::Handoff,
            GrantPath::Reentrant,
            GrantPath::Shared,
        ];
        assert_eq!(paths.map(GrantPath::as_str), PATHS);
        let reasons = [
            LossReason::Expired,
            LossReason::Stolen,
            LossReason::Unreachable,
            LossReason::Failover,
            LossReason::MaxHold,
            LossReason::Revoked,
        ];
        assert_eq!(reasons.map(LossReason::as_str), LOSS_REASONS);
        let states = [MemberState::Counted, MemberState::Excluded, MemberState::Away, MemberState::Disagrees];
        assert_eq!(states.map(MemberState::as_str), MEMBER_STATES);
        let modes = [Mode::Exclusive, Mode::READ, Mode::permits(1, 2).unwrap()];
        assert_eq!(modes.map(Mode::as_str), MODES[..LEASE]);
        assert_eq!(modes.map(mode_of), [0, 1, 2]);
    }

    #[test]
    fn an_unknown_value_is_beyond_the_end() {
        assert_eq!(place(&PATHS, "granted"), 1);
        assert_eq!(place(&PATHS, "grant"), PATHS.len());
        assert_eq!(place(&PATHS, ""), PATHS.len());
    }
}

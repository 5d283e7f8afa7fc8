//! The runbooks, one for each alert.

/// The target of links to pages that are not written beside the runbooks.
const PAGES: &str = concat!("](", env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

macro_rules! runbooks {
    ($($alert:ident),* $(,)?) => {
        const ALL: &[(&str, &str)] = &[
            $((stringify!($alert), include_str!(concat!("../../runbooks/", stringify!($alert), ".md")))),*
        ];
    };
}

// A test compares this list with the folder.
runbooks![
    LockAcquireTimeouts,
    LockClockSkew,
    LockCommandStuck,
    LockDeadlock,
    LockDurabilityShort,
    LockFailover,
    LockFailoverUnguarded,
    LockFencingRegression,
    LockHistogramsConverted,
    LockHolderSilent,
    LockHoldersKilled,
    LockInspectorOverflow,
    LockInspectorStale,
    LockJobOverdue,
    LockKeyWithoutTtl,
    LockLeaderChanges,
    LockLeaseNearlyLost,
    LockLimitsDiffer,
    LockLost,
    LockManyLost,
    LockManyStuck,
    LockMemberAway,
    LockMembersDisagree,
    LockNamesOverflow,
    LockNoLeader,
    LockOrderInverted,
    LockOrphanedHold,
    LockPinnedLong,
    LockProcessCutOff,
    LockQuorumDegraded,
    LockReleaseAbandoned,
    LockRenewalsFailing,
    LockRulesMissing,
    LockSamplerStalled,
    LockSlotStuck,
    LockStaleWriteRefused,
    LockStoreAmbiguous,
    LockStoreErrors,
    LockStoreMayEvict,
    LockStoreRefuses,
    LockStoreSlow,
    LockStoreUnreachable,
    LockStuck,
    LockStuckWithWaiters,
    LockTakenAway,
    LockUnlockedRuns,
    LockWaitBudgetBurn,
    LockWaitTooLong,
    LockWaitersPilingUp,
    LockWatchdogLate,
];

/// Returns the name and the text of each file.
pub(crate) fn files() -> impl Iterator<Item = (String, String)> {
    ALL.iter().map(|(alert, text)| (format!("runbooks/{alert}.md"), text.replace("](../../", PAGES)))
}

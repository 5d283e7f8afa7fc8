//! What a store of distributed locks and the engine of `lock-core` share: keys, leases, tokens, and the contract.
//!
//! The author of a store implements [`LockBackend`] with the types of this crate. A store depends on this crate alone. The
//! users of locks need only `lock-core`, which exports every name of this crate that they meet.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod contract;
#[doc(hidden)]
pub mod thread;
#[doc(hidden)]
pub mod types;

#[doc(hidden)]
pub use linkme;

pub use contract::backend::{
    AcquireRequest, AnyBackend, Attempt, AttemptAll, Blocked, BlockedNotes, Capabilities, Claim, Doctor, DoneMark,
    DoneMarks, EntryState, Finding, FindingGrade, FleetHolder, Freed, Grant, Inbox, Inspector, JobRecord, JobRecords,
    JobRun, JobVersion, LockBackend, LockEntry, MAX_VERSION_BYTES, MemberList, NodeReport, QuorumMember, Release,
    Renewal, Revocation, RevokeFrom, ScanPage, ScanPosition, SharedClaims, SyncReport, Ticket, Vote, Waiter,
};
pub use contract::event::{
    Deadlock, DeadlockMember, GrantPath, LockEvent, LockEventKind, LockObserver, MemberHealth, MemberState, Notice,
    Purpose, QuorumHealth, WaitProgress, observe_all,
};
pub use types::error::{LockError, LockErrorKind, LossReason, Result};
pub use types::fencing::{FencingToken, StaleToken};
pub use types::key::{LockKey, LockLabel};
pub use types::mode::{MAX_PERMITS, Mode};
pub use types::naming::{IntoLockKey, KeyBuilder, MAX_KEY_BYTES};
pub use types::options::{
    Durability, LockOptions, MAX_TTL, MIN_FIXED_TTL, MIN_RENEW_INTERVAL, MIN_RENEWED_TTL, Renew, Wait,
};
pub use types::order::{LockOrder, OrderInversion};
pub use types::owner::{Holder, HolderInfo, OwnerId};
pub use types::system::clock::{Clock, Timestamp};
pub use types::system::text;

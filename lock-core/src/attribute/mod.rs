//! The functions that the attribute expands to. They are not part of the public API and may change in any release.

mod body;
mod once;
mod refusal;
mod request;
pub(crate) mod site;

pub use body::{
    Asynchronous, Ended, Failed, Held, NeverFails, NotAFuture, Plain, Probe, Synchronous, boxed, call, drive,
    future_of, job_ended, min_hold_off, min_hold_on, never, release, release_blocking, run_to_end, synchronous,
};
pub use once::{VersionValue, end_once, end_once_blocking, enter_once, enter_once_blocking, version};
pub use refusal::{
    Answer, ByCall, ByValue, CannotCarry, Mistake, answer, answer_unless_mistaken, handle, is_busy, is_mistake, mapped,
    mistake, skipped, value,
};
pub use request::{
    DurabilityValue, KeyValue, Keys, Permits, Shown, WaitValue, at_most_every, client, durability, enter,
    enter_blocking, enter_maybe, enter_maybe_blocking, even_if_crashed, keys, once_at, once_every, once_for, permits,
    read, request, request_all, request_striped, semaphore, shown, wait,
};

pub use crate::__register_site as register;
pub use crate::api::outcome::{Fallible, Skip};
pub use crate::api::protect::join_outcome;
pub use crate::attribute::site::{SITES, function_name};
pub use linkme;

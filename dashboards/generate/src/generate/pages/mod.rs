//! The dashboards, one file each.

mod details;
mod fleet;
mod on_call;
mod one_lock;
mod roles;

use crate::generate::dashboard::Dashboard;

/// Returns all of them.
pub(crate) fn all() -> Vec<Dashboard> {
    vec![on_call::dashboard(), one_lock::dashboard(), fleet::dashboard(), details::dashboard()]
}

//! The live view for programs.

use serde_json::{Map, Value, json};

use crate::view::contention::Blocked;
use crate::view::live::LiveState;
use crate::view::{Shown, View, host, short_owner};

pub(super) fn document(view: &View) -> Value {
    json!({
        "at_unix_seconds": view.at.to_unix_seconds(),
        "process": { "pid": std::process::id(), "host": host() },
        // This view has only this process. `fleet_waiters` is the only field about other processes.
        "scope": "process",
        "fleet_seen_seconds_ago": view.scanned.map(|ago| ago.as_secs_f64()),
        "totals": {
            "stuck": view.totals.stuck,
            "held": view.totals.held,
            "waiting": view.totals.waiting,
            "candidates": view.totals.candidates,
        },
        "not_shown": view.hidden(),
        "locks": view.rows.iter().map(row).collect::<Vec<_>>(),
        "roles": view.roles.json(),
        "contention": view.contention.iter().map(Blocked::json).collect::<Vec<_>>(),
    })
}

fn row(Shown { live, trace_link, waiters, fleet_waiters }: &Shown) -> Value {
    let mut row = Map::new();
    let mut set = |name: &str, value: Value| drop(row.insert(name.to_owned(), value));
    set("key", live.key.as_str().into());
    set("lock", live.lock.as_str().into());
    set("store", live.store.as_str().into());
    set("state", live.state().into());
    set("role", live.role.into());
    set("site", live.site.as_str().into());
    set("mode", live.mode.into());
    set("permits", live.permits.into());
    set(
        "since_unix_seconds",
        json!(live.since.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()),
    );
    set("age_seconds", json!(live.age.as_secs_f64()));
    set("trace_id", json!(live.trace_id));
    set("trace_link", json!(trace_link));
    match &live.state {
        LiveState::Held { token, owner, lease_left, stuck_after, stuck, reentrant, fenced } => {
            set("owner", owner.as_str().into());
            // As text, because JavaScript cannot represent every token exactly.
            set("token", token.to_string().into());
            set("lease_left_seconds", json!(lease_left.as_secs_f64()));
            set("stuck_after_seconds", json!(stuck_after.map(|age| age.as_secs_f64())));
            set("stuck", (*stuck).into());
            set("reentrant", (*reentrant).into());
            set("fenced", (*fenced).into());
            set("waiters", (*waiters).into());
            set("fleet_waiters", (*fleet_waiters).into());
        }
        LiveState::Waiting { waits_for } => {
            let holder = waits_for.as_ref().map(|holder| {
                json!({
                    "site": holder.site(),
                    "host": holder.info.as_ref().map(|info| &*info.host),
                    "pid": holder.info.as_ref().map(|info| info.pid),
                    "owner": short_owner(holder),
                    "token": holder.token.map(|token| token.to_string()),
                })
            });
            set("waits_for", json!(holder));
        }
    }
    Value::Object(row)
}

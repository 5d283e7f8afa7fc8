//! The spans and events for `tracing`: a span for each acquire, a span for each hold, and a warning for each loss.
//!
//! The spans have level `DEBUG` and target `lock_core`. They cost nothing unless they are enabled. The span of an
//! acquire is a child of its caller's span. The span of a hold is its sibling, and the body runs in it.

use std::time::Duration;

use tracing::Span;
use tracing::field::{Empty, Value, debug, display};

use crate::engine::report::event_context::EventContext;
use lock_store::contract::event::LockEventKind;
use lock_store::types::error::LossReason;
use lock_store::types::fencing::FencingToken;
use lock_store::types::owner::OwnerId;

/// Opens the span of an acquire, from the request to the answer.
pub(crate) fn acquire(events: &EventContext) -> Span {
    tracing::debug_span!(
        target: "lock_core",
        "lock_acquire",
        lock = events.label.as_str(),
        key = events.key.as_str(),
        site = events.call_site.name,
        store = &*events.origin.store,
        outcome = Empty,
        otel.status_code = Empty,
        error.type = Empty,
        path = Empty,
        waited_seconds = Empty,
        holder = Empty, holder_owner = Empty,
        token = Empty,
        error = Empty,
    )
}

/// Opens the span of a hold, from the grant to the release or loss.
pub(crate) fn hold(events: &EventContext, owner: OwnerId, token: FencingToken) -> Span {
    tracing::debug_span!(
        target: "lock_core",
        "lock_hold",
        lock = events.label.as_str(),
        key = events.key.as_str(),
        site = events.call_site.name,
        store = &*events.origin.store,
        owner = %owner.short(),
        %token,
        outcome = Empty,
        otel.status_code = Empty,
        error.type = Empty,
        held_seconds = Empty,
    )
}

/// Records in its span how an acquire or a hold ended.
pub(crate) fn ended(span: &Span, how: &LockEventKind<'_>) {
    if span.is_disabled() {
        return;
    }
    let (outcome, waited, holder) = match how {
        LockEventKind::Acquired { waited, token, path, waited_for, .. } => {
            span.record("token", display(token)).record("path", path.as_str());
            ("acquired", waited, *waited_for)
        }
        LockEventKind::Busy { waited, holder } => ("busy", waited, *holder),
        LockEventKind::TimedOut { waited, holder } => {
            failed(span, "timeout");
            ("timeout", waited, *holder)
        }
        LockEventKind::Cancelled { waited, holder } => ("cancelled", waited, *holder),
        LockEventKind::Failed { waited, error } => {
            failed(span, debug(error.kind()));
            span.record("error", display(error));
            ("error", waited, None)
        }
        LockEventKind::Released { held, dropped, .. } => {
            return hold_ended(span, if *dropped { "dropped" } else { "released" }, *held);
        }
        LockEventKind::Abandoned { held } => {
            failed(span, "abandoned");
            return hold_ended(span, "abandoned", *held);
        }
        LockEventKind::Lost { held, reason } => {
            if *reason != LossReason::ShutDown {
                failed(span, reason.as_str());
            }
            return hold_ended(span, reason.as_str(), *held);
        }
        _ => return,
    };
    span.record("outcome", outcome).record("waited_seconds", waited.as_secs_f64());
    if let Some(holder) = holder {
        // The span of that hold has the same text in `owner`, so a search by key and owner finds the trace of the holder.
        span.record("holder", display(holder)).record("holder_owner", holder.owner.map(|owner| display(owner.short())));
    }
}

/// Sets the error status, by the field that OpenTelemetry's layer for `tracing` reads, and `error.type` of its semantic
/// conventions. A busy lock and a dropped caller are not errors.
fn failed(span: &Span, error_type: impl Value) {
    span.record("otel.status_code", "ERROR").record("error.type", error_type);
}

fn hold_ended(span: &Span, outcome: &str, held: Duration) {
    span.record("outcome", outcome).record("held_seconds", held.as_secs_f64());
}

/// Warns that a lock was lost while it was held, unless the manager was shut down.
pub(crate) fn lost(span: &Span, events: &EventContext, token: FencingToken, held: Duration, reason: LossReason) {
    if reason == LossReason::ShutDown {
        return;
    }
    let _inside = span.enter();
    tracing::warn!(
        target: "lock_core",
        lock = events.label.as_str(), key = events.key.as_str(), site = events.call_site.name, %token,
        held_seconds = held.as_secs_f64(), reason = reason.as_str(),
        "lock was lost while it was held"
    );
}

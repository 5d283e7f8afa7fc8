//! Prints audit events, and no other traced events, as lines of `name=value`.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::end::print_line;

const TARGET: &str = "lock_core::audit";

/// Writes audit events of this process to standard error from now on.
pub(crate) fn print_to_stderr() {
    // This program does not have another subscriber.
    let _ = tracing::subscriber::set_global_default(Printer);
}

struct Printer;

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line("audit:".to_owned());
        event.record(&mut line);
        print_line(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The `Debug` form of text keeps control characters out of the line.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != "message" {
            let _ = write!(self.0, " {field}={value:?}");
        }
    }
}

/// Returns the user who runs this program, as far as the system knows.
pub(crate) fn actor() -> String {
    let name = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let name = name.unwrap_or_else(|| "unknown".to_owned());
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return format!("{name}@{}", rustix::system::uname().nodename().to_string_lossy());
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    name
}

//! The state behind a handle, and the thread that maintains it.

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use crate::export::openmetrics::{self, OPENMETRICS_TYPE, TEXT_TYPE};
use crate::export::{Bridge, Text};
use crate::state::Core;
use crate::words::time::{Moment, follow_system_time};

/// How often the samples of the application's own histograms are collected.
const UPKEEP: Duration = Duration::from_secs(5);

/// The state that the handle, the sampler and the listener share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) text: Text,
    /// Feeds the application's recorder, if that was requested.
    pub(crate) bridge: Option<Mutex<Bridge>>,
}

impl Shared {
    /// Renders the metrics in the format that a client accepts, with its content type.
    pub(crate) fn render_for(&self, accept: &str) -> (&'static str, String) {
        if self.core.settings.traces.are_known() && openmetrics::is_preferred(accept) {
            (OPENMETRICS_TYPE, self.text.render_openmetrics(&self.core))
        } else {
            (TEXT_TYPE, self.text.render(&self.core))
        }
    }

    /// Reports stuck locks and feeds the application's recorder.
    pub(crate) fn tick(&self) {
        // The application's subscriber and recorder run here, and may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            follow_system_time();
            self.core.sample(Moment::now());
            if let Some(bridge) = &self.bridge {
                bridge.lock().unwrap_or_else(PoisonError::into_inner).push(&self.core);
            }
        }));
    }

    /// Starts the sampler on its own thread, so that it does not end with a runtime. It ends when the returned value is
    /// dropped.
    pub(crate) fn start_sampler(self: &Arc<Self>, interval: Duration) -> io::Result<Sender<Infallible>> {
        let (alive, gone) = mpsc::channel();
        let shared = Arc::clone(self);
        thread::Builder::new().name("lock-metrics".to_owned()).spawn(move || shared.run(interval, &gone)).map(|_| alive)
    }

    fn run(&self, interval: Duration, gone: &Receiver<Infallible>) {
        let mut upkeep_due = Duration::ZERO;
        while let Err(RecvTimeoutError::Timeout) = gone.recv_timeout(interval) {
            self.tick();
            upkeep_due += interval;
            if upkeep_due >= UPKEEP {
                upkeep_due = Duration::ZERO;
                self.text.upkeep();
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("bridge", &self.bridge.is_some()).finish_non_exhaustive()
    }
}

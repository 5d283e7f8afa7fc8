//! A release that nobody waits for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;

use crate::backend::BoxFuture;
use crate::error::Result;
use crate::keeper::PendingEntry;
use crate::keeper::release::ReleaseOutcome;
use crate::wakes::Wakes;

type Work = BoxFuture<'static, Result<ReleaseOutcome>>;

/// A release on its way. It is polled by whoever wakes it: the driver of the connection that brings its
/// answer, or the keeper when its time is up. So it depends on no task, and wakes no thread.
pub(super) struct Background {
    stage: Mutex<Stage>,
    wakes: Wakes,
}

enum Stage {
    UnderWay { work: Work, _pending: PendingEntry },
    Over(Option<Result<ReleaseOutcome>>),
}

impl Background {
    /// Sends a release. Returns its outcome if that is known at once.
    pub(super) fn start(work: Work, pending: PendingEntry) -> Option<Result<ReleaseOutcome>> {
        // It is polled by others, whose own budget is not to be used up.
        let work = Box::pin(unconstrained(work));
        let release =
            Arc::new(Self { stage: Mutex::new(Stage::UnderWay { work, _pending: pending }), wakes: Wakes::default() });
        Arc::clone(&release).wake();
        match &mut *release.stage() {
            Stage::UnderWay { .. } => None,
            Stage::Over(outcome) => outcome.take(),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(self: &Arc<Self>) -> Poll<()> {
        let mut stage = self.stage();
        let Stage::UnderWay { work, .. } = &mut *stage else { return Poll::Ready(()) };
        let waker = Waker::from(Arc::clone(self));
        let Poll::Ready(outcome) = work.as_mut().poll(&mut Context::from_waker(&waker)) else { return Poll::Pending };
        let over = std::mem::replace(&mut *stage, Stage::Over(Some(outcome)));
        drop(stage);
        drop(over);
        Poll::Ready(())
    }
}

impl Wake for Background {
    fn wake(self: Arc<Self>) {
        self.wakes.wake(|| self.poll());
    }
}

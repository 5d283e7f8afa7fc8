//! A release that nobody waits for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;

use crate::backend::BoxFuture;
use crate::engine::PendingEntry;
use crate::error::Result;
use crate::free::ReleaseOutcome;
use crate::inline_task::InlineTask;

type Work = BoxFuture<'static, Result<ReleaseOutcome>>;

/// Sends a release. Returns its outcome if that is known at once.
pub(crate) fn in_background(work: Work, pending: PendingEntry) -> Option<Result<ReleaseOutcome>> {
    // It is polled by others, whose own budget is not to be used up.
    let work = Box::pin(unconstrained(work));
    let release = Arc::new(Background {
        progress: Mutex::new(Progress::UnderWay { work, _pending: pending }),
        task: InlineTask::default(),
    });
    Arc::clone(&release).wake();
    match &mut *release.progress() {
        Progress::UnderWay { .. } => None,
        Progress::Over(outcome) => outcome.take(),
    }
}

/// A release on its way. It is polled by whoever wakes it: the driver of the connection that brings its
/// answer, or the keeper when its time is up. So it depends on no task, and wakes no thread.
struct Background {
    progress: Mutex<Progress>,
    task: InlineTask,
}

enum Progress {
    UnderWay { work: Work, _pending: PendingEntry },
    Over(Option<Result<ReleaseOutcome>>),
}

impl Background {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(self: &Arc<Self>) -> Poll<()> {
        let mut progress = self.progress();
        let Progress::UnderWay { work, .. } = &mut *progress else { return Poll::Ready(()) };
        let waker = Waker::from(Arc::clone(self));
        let Poll::Ready(outcome) = work.as_mut().poll(&mut Context::from_waker(&waker)) else { return Poll::Pending };
        let over = std::mem::replace(&mut *progress, Progress::Over(Some(outcome)));
        drop(progress);
        drop(over);
        Poll::Ready(())
    }
}

impl Wake for Background {
    fn wake(self: Arc<Self>) {
        self.task.wake(|| self.poll());
    }
}

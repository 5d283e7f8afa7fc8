//! The keeper: one thread for each manager, which renews leases, handles timeouts, and cleans up behind callers.
//!
//! The keeper has a runtime of its own. A blocked or starved application runtime therefore cannot starve the watchdog,
//! and the keeper survives the end of any runtime. `Drop` works anywhere, because it only adds work to the keeper's
//! queue.

mod hear;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::engine::claim::Handoff;
use crate::engine::gate::{Gate, TurnCheck};
use crate::engine::handle::EngineHandle;
use crate::engine::lease::Lease;
use crate::engine::shared::{Engine, Mail};
use crate::engine::timer::{Alarm, Timer};
use crate::engine::watch::watchdog::BATCH;
use lock_store::contract::backend::{DynBackend, Inbox, drive_again};
use lock_store::contract::event::Observers;
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::HandoffLimits;
use lock_store::types::system::clock::{Clock, WakeUp};

/// Starts an engine with a keeper thread.
pub(crate) fn start(
    backend: Arc<dyn DynBackend>,
    observers: Arc<Observers>,
    handoff: HandoffLimits,
) -> Result<Arc<EngineHandle>> {
    let refused = |error: std::io::Error| {
        LockError::misconfigured("the keeper thread could not be started; raise the process's thread limit")
            .with_source(error)
    };
    let (handle, keeper) = assemble(backend, observers, handoff, Clock::system(), true);
    // The thread builds the runtime. If it were built here and the thread failed to start, the runtime would be dropped
    // here, and dropping a runtime in async code panics.
    let (ready, is_ready) = std::sync::mpsc::channel();
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = ready.send(Ok(()));
            runtime.block_on(keeper.run());
        }
        Err(error) => drop(ready.send(Err(error))),
    };
    std::thread::Builder::new().name("lock-keeper".to_owned()).spawn(run).map_err(refused)?;
    is_ready.recv().map_err(std::io::Error::other).and_then(|built| built).map_err(refused)?;
    Ok(handle)
}

/// Starts an engine whose keeper is a task of the current runtime, on its clock.
pub(crate) fn start_on_current_runtime(
    backend: Arc<dyn DynBackend>,
    observers: Arc<Observers>,
    handoff: HandoffLimits,
) -> Result<Arc<EngineHandle>> {
    if Handle::try_current().is_err() {
        return Err(LockError::misconfigured(
            "drive_on_current_runtime needs a tokio runtime; build the manager inside of one",
        ));
    }
    let (handle, keeper) = assemble(backend, observers, handoff, Clock::of_current_runtime(), false);
    #[expect(clippy::disallowed_methods, reason = "the caller asked for the keeper to live on this runtime")]
    tokio::spawn(keeper.run());
    Ok(handle)
}

/// The bounds of the time that a waiter has to take its turn. Between them, the time is the hand-off slice.
const TURN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));

fn assemble(
    backend: Arc<dyn DynBackend>,
    observers: Arc<Observers>,
    handoff: HandoffLimits,
    clock: Clock,
    threaded: bool,
) -> (Arc<EngineHandle>, Keeper) {
    let (engine, mail) = Engine::new(Arc::clone(&backend), observers, handoff, clock, threaded, BATCH);
    let turn = handoff.slice.clamp(TURN.0, TURN.1);
    let [gate, shared] = [(); 2].map(|()| {
        let timer = Arc::clone(&engine.timer);
        Arc::new(Gate::new(move |check| {
            timer.set(timer.clock.now().after(turn), Alarm::Call(Box::new(move || TurnCheck::run(check))));
        }))
    });
    let keeper = Keeper {
        engine: Arc::downgrade(&engine),
        gate: Arc::clone(&gate),
        backend,
        timer: Arc::clone(&engine.timer),
        mail,
        inbox: engine.inbox.clone(),
        tasks: JoinSet::new(),
    };
    (Arc::new(EngineHandle { engine, gate, shared }), keeper)
}

/// The keeper's side of an engine. It ends when the engine and all its guards and handles are gone.
struct Keeper {
    engine: Weak<Engine>,
    gate: Arc<Gate<Handoff>>,
    backend: Arc<dyn DynBackend>,
    timer: Arc<Timer<Lease>>,
    mail: Mail,
    inbox: Inbox,
    /// All tasks of the keeper. They are aborted when it ends.
    tasks: JoinSet<()>,
}

impl Keeper {
    async fn run(mut self) {
        let mut wake_up = WakeUp::new(self.timer.clock.clone());
        self.tasks.spawn(drive_again(Arc::clone(&self.backend), self.inbox.clone(), self.timer.clock.clone()));
        loop {
            self.ring_alarms();
            tokio::select! {
                // In a fixed order, so that a run on virtual time can be repeated. Alarms come first.
                biased;
                job = self.mail.jobs.recv() => match job {
                    Some(job) => {
                        self.tasks.spawn(job);
                    }
                    None => return,
                },
                Some(message) = self.mail.messages.recv() => self.hear(message),
                Some(_) = self.tasks.join_next() => {}
                () = self.timer.first_alarm(&mut wake_up) => {}
            }
        }
    }

    /// Wakes every sleeper and serves every lease whose time has come.
    fn ring_alarms(&mut self) {
        let due = self.timer.take_due(self.timer.clock.now());
        let mut leases = Vec::new();
        for alarm in due {
            match alarm {
                Alarm::Sleeper(sleeper) => sleeper.ring(),
                Alarm::Item(lease) => leases.push(lease),
                Alarm::Call(call) => call(),
            }
        }
        if !leases.is_empty() {
            self.inspect(leases, Duration::ZERO);
            self.timer.served();
        }
    }
}

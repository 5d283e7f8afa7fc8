//! The library never holds an internal lock while it calls functions of the application.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lock_core::{LockEvent, LockEventKind, LockManager, LockObserver, Notice, Renew};
use lock_testing::{RedisServer, limit};

use crate::support::{SECOND, eventually, locks, take};

/// Notes whether a node is up.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<bool>>>);

impl LockObserver for Notes {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Connection { up, .. } = notice {
            self.0.lock().unwrap().push(*up);
        }
    }
}

/// Adds another observer when it is told of a connection.
#[derive(Clone, Default)]
struct Adds {
    to: Arc<OnceLock<LockManager>>,
    added: Notes,
    done: Arc<AtomicBool>,
}

impl LockObserver for Adds {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let (Notice::Connection { .. }, Some(manager)) = (notice, self.to.get())
            && !self.done.swap(true, Ordering::SeqCst)
        {
            manager.observe(self.added.clone());
        }
    }
}

#[tokio::test]
#[limit]
async fn an_observer_may_add_another_which_learns_what_is_so() {
    let mut server = RedisServer::start();
    let (locks, adds) = (locks(&server), Adds::default());
    locks.observe(adds.clone());
    adds.to.set(locks.clone()).unwrap();
    take(&locks, "k").await.release().await.unwrap();
    server.kill();
    eventually("the loss of the connection is told", || adds.added.0.lock().unwrap().last() == Some(&false)).await;
    server.restart();
    take(&locks, "k").await.release().await.unwrap();
    eventually("and that it is back", || adds.added.0.lock().unwrap().last() == Some(&true)).await;
}

/// Hangs when it is told of a connection, until the other end is dropped.
struct Hangs(Mutex<Receiver<()>>, Sender<()>);

impl LockObserver for Hangs {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Connection { up: false, .. } = notice {
            let _ = self.1.send(());
            let _ = self.0.lock().unwrap().recv_timeout(30 * SECOND);
        }
    }
}

#[tokio::test]
#[limit]
async fn an_observer_that_hangs_keeps_nobody_from_adding_another() {
    let mut server = RedisServer::start();
    let locks = locks(&server);
    let ((go, wait), (hung, hangs)) = (channel(), channel());
    locks.observe(Hangs(Mutex::new(wait), hung));
    take(&locks, "k").await.release().await.unwrap();
    server.kill();
    tokio::task::spawn_blocking(move || hangs.recv_timeout(30 * SECOND)).await.unwrap().unwrap();
    // It is told by the keeper, which hangs; this thread does not.
    let notes = Notes::default();
    locks.observe(notes.clone());
    drop(go);
    eventually("it learns what is so", || notes.0.lock().unwrap().last() == Some(&false)).await;
}

/// Hangs in the event of the first renewal, until the other end is dropped; notes what it is told of, and when it went on.
struct HangsInRenewal {
    wait: Mutex<Option<Receiver<()>>>,
    hung: Sender<()>,
    told: Arc<Mutex<Vec<&'static str>>>,
}

impl LockObserver for HangsInRenewal {
    fn on_event(&self, event: &LockEvent<'_>) {
        let what = match event.kind {
            LockEventKind::Renewed { .. } => "renewed",
            LockEventKind::Released { .. } => "released",
            _ => return,
        };
        let wait = if what == "renewed" { self.wait.lock().unwrap().take() } else { None };
        if let Some(wait) = wait {
            let _ = self.hung.send(());
            let _ = wait.recv_timeout(30 * SECOND);
            self.told.lock().unwrap().push("went on");
        }
        self.told.lock().unwrap().push(what);
    }
}

#[tokio::test]
#[limit]
async fn an_observer_that_hangs_in_a_renewal_holds_up_no_release_and_hears_of_the_end_last() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let ((go, wait), (hung, hangs)) = (channel(), channel());
    let told = Arc::new(Mutex::default());
    locks.observe(HangsInRenewal { wait: Mutex::new(Some(wait)), hung, told: Arc::clone(&told) });
    let guard = locks.lock("k").with_ttl(30 * SECOND).with_renew(Renew::Every(Duration::from_millis(200)));
    let guard = guard.await.unwrap();
    tokio::task::spawn_blocking(move || hangs.recv_timeout(30 * SECOND)).await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert_eq!(*told.lock().unwrap(), [""; 0], "the release has ended, and the observer still hangs");
    drop(go);
    eventually("it hears of the end", || *told.lock().unwrap() == ["went on", "renewed", "released"]).await;
}

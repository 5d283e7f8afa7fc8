//! Events of a whole process: signals, a fork, a system that refuses a thread. Each is tried in its own process,
//! which is this program again.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

#[cfg(all(target_os = "linux", feature = "axum", feature = "tower"))]
mod served;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: forks and limits are tried on Linux only");
}

#[cfg(target_os = "linux")]
fn main() {
    use std::env;

    let tests = [
        ("forked", forked::parent as fn() -> bool),
        ("owners", owners::parent),
        ("no_thread", no_thread::child),
        ("told_to_stop", stopped::child),
        ("told_to_stop_twice", stopped::child),
        #[cfg(all(feature = "axum", feature = "tower"))]
        ("told_to_stop_while_it_serves", served::by_the_layer),
        #[cfg(all(feature = "axum", feature = "tower"))]
        ("told_to_stop_while_it_serves_and_blocks", served::by_a_blocking_handler),
    ];
    if let Ok(name) = env::var("LOCK_TEST_PROCESS") {
        let (_, child) = tests.iter().find(|(known, _)| *known == name).unwrap();
        std::process::exit(if child() { 0 } else { 1 });
    }
    let filter = env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for (name, _) in tests.iter().filter(|(name, _)| name.contains(&filter)) {
        run::child(name);
        println!("test {name} ... ok");
    }
}

/// The parent's side.
#[cfg(target_os = "linux")]
mod run {
    use std::env;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Ends the process whatever happens.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    pub(crate) fn child(name: &str) {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut child = Killed(command.env("LOCK_TEST_PROCESS", name).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(child.0.stdout.take().unwrap());
        let times = match name {
            "told_to_stop" => 1,
            "told_to_stop_twice" => 2,
            _ => 0,
        };
        for word in ["listening\n", "draining\n"].into_iter().take(times) {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert_eq!(line, word, "{name}");
            let pid = Pid::from_raw(i32::try_from(child.0.id()).unwrap()).unwrap();
            kill_process(pid, if word == "draining\n" { Signal::INT } else { Signal::TERM }).unwrap();
        }
        let since = Instant::now();
        let status = loop {
            match child.0.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(since.elapsed() < PATIENCE, "{name} does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(status.success(), "{name}: {status}, {rest}");
    }
}

/// A manager in a forked child.
#[cfg(target_os = "linux")]
mod forked {
    use std::time::Duration;

    use fork::{Fork, fork, waitpid};
    use lock_core::{Leadership, LockError, LockErrorKind, LockGuard, LockManager, Result};

    fn is_refused<T>(what: &str, result: Result<T>) -> bool {
        let refused = result.err().filter(|error| {
            error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("connect a new one here")
        });
        if refused.is_none() {
            println!("{what} is not refused");
        }
        refused.is_some()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn parent() -> bool {
        let server = lock_core::testing::RedisServer::start();
        let locks = block_on(LockManager::connect(&server.url())).unwrap();
        let [held, dropped, released] =
            ["held", "dropped", "released"].map(|key| locks.lock(key).acquire_blocking().unwrap());
        let leads = block_on(locks.elect("role").campaign()).unwrap();
        match fork().unwrap() {
            Fork::Child => {
                let right = child(&locks, &held, [dropped, released], leads, &server.url());
                // Without the parent's destructors: its server is not ours to stop.
                std::process::exit(if right { 0 } else { 1 });
            }
            Fork::Parent(pid) => {
                let status = waitpid(pid);
                println!("the child ended with {status:?}");
                let ours = [&held, &dropped, &released].map(LockGuard::ensure_held);
                let kept = ["held", "dropped", "released"].map(|key| server.command(&["EXISTS", key]).int());
                let (outcome, term) = (held.release_blocking(), leads.ensure_held());
                println!("{ours:?} {kept:?} {outcome:?} {term:?}");
                ours.iter().all(Result::is_ok)
                    && term.is_ok()
                    && kept == [1; 3]
                    && outcome.is_ok()
                    && matches!(status, Ok(0))
            }
        }
    }

    fn child(
        locks: &LockManager,
        held: &LockGuard,
        [dropped, released]: [LockGuard; 2],
        leads: Leadership,
        url: &str,
    ) -> bool {
        drop(dropped);
        let acquired = [locks.lock("new").acquire_blocking(), locks.lock("held").without_waiting().acquire_blocking()];
        let mut right = acquired.into_iter().all(|acquired| is_refused("a blocking acquire", acquired));
        right &= is_refused("ensure_held", held.ensure_held()) && held.remaining().is_zero();
        right &= is_refused("a blocking release", released.release_blocking());
        let hourly = || locks.lock("cron").at_most_every(Duration::from_secs(3600));
        right &= block_on(async {
            held.lost().await;
            is_refused("an acquire", locks.lock("new").await)
                & is_refused("several", locks.lock_all(["a", "b"]).await)
                & is_refused("extend", held.extend(Duration::from_secs(60)).await)
                & is_refused("ping", locks.ping().await)
                & is_refused("holder", locks.holder("held").await)
                & is_refused("a reader", locks.read("new").await)
                & is_refused("a permit", locks.semaphore("new", 2).await)
                & is_refused("any stripe", locks.striped("new", 4).any().await)
                & is_refused("a candidate", locks.elect("role").campaign().await)
                & is_refused("an election", locks.elect("role").run(async |_| ()).await)
                & is_refused("who leads", locks.elect("role").leader().await)
                & is_refused("an observer", locks.elect("role").observe().changed().await)
                & is_refused("a resignation", leads.resign().await)
                & is_refused("a job", hourly().run(async |_| Ok::<_, LockError>(())).await)
                & is_refused("a blocking job", hourly().run_blocking(|_| Ok::<_, LockError>(())))
                & is_refused("run", locks.lock("new").run(async |_| Ok::<_, LockError>(())).await)
                & locks.shutdown(Duration::from_secs(60)).await.is_clean()
        });
        // A new manager is like any other.
        right &= block_on(async {
            let locks = LockManager::connect(url).await?;
            let busy = locks.lock("held").without_waiting().await.is_err_and(|error| error.is_contended());
            locks.lock("new").await?.release().await?;
            Ok::<_, LockError>(busy)
        })
        .unwrap();
        right
    }
}

/// Identities drawn on both sides of a fork, which copies what was drawn ahead.
#[cfg(target_os = "linux")]
mod owners {
    use std::collections::HashSet;
    use std::io::{Read as _, Write as _};

    use fork::{Fork, fork, waitpid};
    use lock_core::OwnerId;

    pub(crate) fn parent() -> bool {
        let draw = || (0..40).map(|_| OwnerId::random().to_hex()).collect::<Vec<_>>();
        draw();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        match fork().unwrap() {
            Fork::Child => {
                let sent = writer.write_all(draw().concat().as_bytes());
                std::process::exit(if sent.is_ok() { 0 } else { 1 });
            }
            Fork::Parent(pid) => {
                drop(writer);
                let mut theirs = String::new();
                reader.read_to_string(&mut theirs).unwrap();
                let theirs = theirs.as_bytes().chunks(32).map(|hex| String::from_utf8(hex.to_vec()).unwrap());
                let all: HashSet<String> = draw().into_iter().chain(theirs).collect();
                println!("{} of 80 differ", all.len());
                all.len() == 80 && matches!(waitpid(pid), Ok(0))
            }
        }
    }
}

/// A system that gives the keeper no thread.
#[cfg(target_os = "linux")]
mod no_thread {
    use lock_core::{LockErrorKind, LockManager, MemoryStore};
    use rustix::process::{Resource, Rlimit, setrlimit};

    pub(crate) fn child() -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Enough for everything but another stack of 2 MiB.
            let pages: u64 =
                std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
            let limit = Some(pages * 4096 + (1 << 20));
            setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
            assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "the limit does not hold");
            let refused = LockManager::builder(MemoryStore::new()).build();
            let error = refused.map(drop).unwrap_err();
            println!("{error}");
            error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("thread limit")
        })
    }
}

/// Signals.
#[cfg(target_os = "linux")]
mod stopped {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    use lock_core::LockManager;

    /// Holds a lock, listens, and ends when it is told to: after the holder, or at once when told again.
    pub(crate) fn child() -> bool {
        let twice = std::env::var("LOCK_TEST_PROCESS").unwrap() == "told_to_stop_twice";
        let locks = LockManager::in_memory();
        let guard = locks.lock("k").acquire_blocking().unwrap();
        let mut guard = Some(guard);
        // No runtime: the keeper listens.
        let report = futures_block_on(async {
            let mut stopping = pin!(locks.shutdown_on_signal(Duration::from_secs(600)));
            let mut began = pin!(locks.stopping());
            let mut told = false;
            let mut first = true;
            poll_fn(|cx| {
                let ended = stopping.as_mut().poll(cx);
                if first {
                    first = false;
                    // In the keeper's order: when this was served, it listens.
                    drop(locks.lock("other").acquire_blocking().unwrap());
                    println!("listening");
                }
                if !told && began.as_mut().poll(cx).is_ready() {
                    told = true;
                    println!("draining");
                    if !twice {
                        guard.take().unwrap().ensure_held().unwrap();
                    }
                }
                if let Poll::Ready(report) = ended { Poll::Ready(report) } else { Poll::Pending }
            })
            .await
        })
        .unwrap();
        println!("{report:?}");
        report.is_clean() && report.released == usize::from(twice)
    }

    /// Runs a future on this thread, with no runtime at all.
    fn futures_block_on<T>(future: impl Future<Output = T>) -> T {
        use std::sync::Arc;
        use std::task::{Context, Wake, Waker};
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            std::thread::park();
        }
    }
}

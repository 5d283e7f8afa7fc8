//! A web server that is told to stop under load: every request that it accepted is answered as if it were not.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use lock_core::{LockError, LockLayer, LockManager};
use lock_testing::RedisServer;
use rustix::process::{Signal, getpid, kill_process};
use tokio::net::TcpListener;

const WITHIN: Duration = Duration::from_secs(45);
const HOLD: Duration = Duration::from_millis(5);

/// So many clients ask at once, for so many locks: most requests wait for their lock.
const CLIENTS: usize = 24;
const LOCKS: usize = 3;

/// The process is told to stop when so many requests were answered.
const BEFORE: usize = 100;

/// The lock is taken by the layer.
pub(crate) fn by_the_layer() -> bool {
    let server = RedisServer::start();
    let locks = LockManager::builder_for(&server.url()).unwrap().build().unwrap();
    serve(&locks, |locks| {
        let one_at_a_time = LockLayer::new(move |request: &Request| locks.lock(request.uri().path()).with_wait(WITHIN));
        let work = async || {
            tokio::time::sleep(HOLD).await;
            "done"
        };
        Router::new().route("/{key}", get(work).layer(one_at_a_time))
    })
}

/// The lock is taken by a handler that blocks its thread.
pub(crate) fn by_a_blocking_handler() -> bool {
    let server = RedisServer::start();
    let locks = LockManager::builder_for(&server.url()).unwrap().serve_while_stopping().build().unwrap();
    serve(&locks, |locks| {
        let work = async move |Path(key): Path<String>| {
            let blocking = move || {
                let guard = locks.lock(key).with_wait(WITHIN).acquire_blocking()?;
                thread::sleep(HOLD);
                guard.release_blocking().map(|_| "done")
            };
            let done: Result<&str, LockError> = tokio::task::spawn_blocking(blocking).await.unwrap();
            done
        };
        Router::new().route("/{key}", get(work))
    })
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    done: AtomicUsize,
    done_while_stopping: AtomicUsize,
}

fn serve(locks: &LockManager, app: impl FnOnce(LockManager) -> Router) -> bool {
    let counts = Arc::new(Counts::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (report, answers) = runtime.block_on(async {
        let stopping = Arc::new(AtomicUsize::new(0));
        let (counted, stops) = (Arc::clone(&counts), Arc::clone(&stopping));
        let count = async move |request: Request, next: Next| {
            counted.accepted.fetch_add(1, Ordering::SeqCst);
            let response = next.run(request).await;
            if response.status().is_success() {
                counted.done.fetch_add(1, Ordering::SeqCst);
                counted.done_while_stopping.fetch_add(stops.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            response
        };
        let app = app(locks.clone()).layer(from_fn(move |request, next| {
            let count = count.clone();
            async move { count(request, next).await }
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = {
            let began = locks.stopping();
            async move {
                began.await;
                stopping.store(1, Ordering::SeqCst);
            }
        };
        let server = axum::serve(listener, app).with_graceful_shutdown(stop);
        let answered = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let answered = Arc::clone(&answered);
                thread::spawn(move || ask_again_and_again(address, number, &answered))
            })
            .collect();
        let (served, report) = tokio::join!(server.into_future(), locks.shutdown_on_signal(WITHIN));
        served.unwrap();
        let answers: Vec<String> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (report.unwrap(), answers)
    });
    let refused: Vec<&String> = answers.iter().filter(|answer| !answer.starts_with("HTTP/1.1 200 ")).collect();
    let [accepted, done, late] =
        [&counts.accepted, &counts.done, &counts.done_while_stopping].map(|count| count.load(Ordering::SeqCst));
    println!("{accepted} accepted, {done} done, {late} of them while stopping; {report:?}; {refused:?}");
    refused.is_empty() && accepted == done && late > 0 && report.is_clean()
}

/// Sends request after request until the server takes no more of them. Returns the answers.
fn ask_again_and_again(server: SocketAddr, number: usize, answered: &AtomicUsize) -> Vec<String> {
    let mut answers = Vec::new();
    while let Some(answer) = ask(server, number % LOCKS) {
        answers.push(answer);
        if answered.fetch_add(1, Ordering::SeqCst) + 1 == BEFORE {
            kill_process(getpid(), Signal::TERM).unwrap();
        }
    }
    answers
}

/// Sends one request. `None` if the server did not accept it.
fn ask(server: SocketAddr, lock: usize) -> Option<String> {
    let mut connection = TcpStream::connect(server).ok()?;
    write!(connection, "GET /k{lock} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    (!answer.is_empty()).then_some(answer)
}

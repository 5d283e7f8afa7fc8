//! Serves the metrics and the live view over HTTP, from a thread and a runtime of its own.
//!
//! On hyper rather than on the exporter's own listener, which answers every path and method, has no
//! working time-outs and no cap on connections, and dies with the runtime that happened to call
//! `install`. And rather than on a hand-written server, because HTTP is not ours to write.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::access::Access;
use crate::handle::Shared;
use crate::view::LIVE_VIEW_CSP;

/// Connections served at a time; more wait in the kernel.
const MAX_CONNECTIONS: usize = 16;
/// For a client that connects and says nothing.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// For a client that does not read its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// After a failed accept, which means that the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What every connection needs.
struct Site {
    shared: Arc<Shared>,
    access: Access,
}

/// A listener that is bound and has a thread, but answers only after [`Prepared::start`]. Dropping
/// it closes the socket.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) address: SocketAddr,
    start: mpsc::Sender<()>,
    stop: oneshot::Sender<Infallible>,
}

/// Keeps the listener open until it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    _stop: oneshot::Sender<Infallible>,
}

impl Prepared {
    /// Takes over a bound socket.
    pub(crate) fn new(socket: TcpListener, shared: Arc<Shared>, keys_for_all: bool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let site = Arc::new(Site { shared, access: Access { bound: address, keys_for_all } });
        let (start, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        thread::Builder::new().name("lock-metrics-http".to_owned()).spawn(move || {
            // Built and dropped here: a runtime must not be dropped inside of the caller's.
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            if ready.send(Ok(())).is_ok() && started.recv().is_ok() {
                runtime.block_on(serve(socket, site, stopped));
            }
        })?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(Self { address, start, stop })
    }

    /// Begins to answer.
    pub(crate) fn start(self) -> Running {
        let _ = self.start.send(());
        Running { _stop: self.stop }
    }
}

async fn serve(socket: TcpListener, site: Arc<Site>, mut stopped: oneshot::Receiver<Infallible>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(socket) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, caller)) => drop(connections.spawn(connection(stream, caller.ip(), Arc::clone(&site)))),
                Err(_) => pause().await,
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this runtime belongs to the listener")]
async fn pause() {
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[expect(clippy::disallowed_methods, reason = "this runtime belongs to the listener")]
async fn connection(stream: TcpStream, caller: IpAddr, site: Arc<Site>) {
    let service = service_fn(move |request| {
        let response = site.answer(&request, caller);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    // Whatever went wrong is the client's affair.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
}

impl Site {
    fn answer(&self, request: &Request<impl Body>, caller: IpAddr) -> Response<Full<Bytes>> {
        let (uri, headers) = (request.uri(), request.headers());
        let allowed = match uri.path() {
            "/metrics" => self.access.allows_metrics(uri, headers),
            "/locks" | "/locks.json" => self.access.allows_keys(uri, headers, caller),
            _ => {
                return plain(StatusCode::NOT_FOUND, "metrics are at /metrics, live locks at /locks and /locks.json\n");
            }
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if !allowed {
            return plain(
                StatusCode::FORBIDDEN,
                "this is only for callers on the same machine that ask for localhost, a loopback address or the bound \
                 address; elsewhere, serve it from the application's own router\n",
            );
        }
        match uri.path() {
            "/locks" => page(self.shared.locks_html(), "text/html; charset=utf-8"),
            "/locks.json" => page(self.shared.locks_json(), "application/json"),
            _ => respond(StatusCode::OK, self.shared.render(), TEXT),
        }
    }
}

/// An answer with keys in it.
fn page(text: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = respond(StatusCode::OK, text, kind);
    let mut set = |name: HeaderName, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
    set(CONTENT_SECURITY_POLICY, LIVE_VIEW_CSP);
    set(CACHE_CONTROL, "no-store");
    set(REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, text.to_owned(), TEXT)
}

fn respond(status: StatusCode, text: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

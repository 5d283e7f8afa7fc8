//! Serves the metrics and the live view over HTTP, from its own thread and runtime.
//!
//! It is built on hyper instead of the exporter's own listener. That listener answers every path and method, has no
//! working timeouts and no limit on connections, and ends with the runtime that called `install`. An HTTP server
//! written by hand would not belong into this crate either.

#[cfg(feature = "listener")]
pub(crate) mod access;

use std::cmp::Reverse;
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use crate::export::openmetrics::TEXT_TYPE;
use crate::listener::access::{Access, Allowed, is_forwarded};
use crate::shared::Shared;
use crate::view::{self, LIVE_VIEW_CSP};

/// Connections open at a time. One more takes the place of another.
const MAX_CONNECTIONS: usize = 64;
/// The limit for a client that connects and does not send the whole head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// The limit for a client that does not read its response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failed accept, which means that the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The data that every connection needs.
struct Site {
    shared: Arc<Shared>,
    access: Access,
}

/// A listener that is bound and has a thread, but answers only after [`Prepared::start`]. Dropping it closes the
/// socket.
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
    pub(crate) fn new(socket: TcpListener, shared: Arc<Shared>, allowed: Allowed) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let site = Arc::new(Site { shared, access: Access { bound: address, allowed } });
        let (start, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        thread::Builder::new().name("lock-metrics-http".to_owned()).spawn(move || {
            // Built and dropped here: a runtime must not be dropped inside the caller's runtime. Views are rendered on
            // a second thread, one at a time, so that they never delay a scrape.
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = match runtime.enable_all().max_blocking_threads(1).build() {
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

    /// Starts to answer.
    pub(crate) fn start(self) -> Running {
        let _ = self.start.send(());
        Running { _stop: self.stop }
    }
}

async fn serve(socket: TcpListener, site: Arc<Site>, mut stopped: oneshot::Receiver<Infallible>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(socket) else { return };
    let (mut connections, mut open) = (JoinSet::new(), Vec::new());
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, caller)) => {
                    make_room(&mut open);
                    let (caller, asked) = (caller.ip(), Arc::<AtomicBool>::default());
                    let task = connections.spawn(connection(stream, caller, Arc::clone(&site), Arc::clone(&asked)));
                    open.push(Open { caller, asked, task });
                }
                Err(_) => pause().await,
            }
        }
    }
}

/// A connection that is open.
struct Open {
    caller: IpAddr,
    /// Whether it has sent a whole request.
    asked: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Closes one connection if there are too many. It first closes one that has sent no request yet, then one of the
/// caller with the most connections, then the oldest. A caller therefore cannot keep others out by connecting often, or
/// by sending or reading slowly.
fn make_room(open: &mut Vec<Open>) {
    open.retain(|one| !one.task.is_finished());
    let of = |caller| open.iter().filter(|one| one.caller == caller).count();
    let first_to_go = |(at, one): &(usize, &Open)| (one.asked.load(Ordering::Relaxed), Reverse(of(one.caller)), *at);
    if open.len() >= MAX_CONNECTIONS
        && let Some((at, _)) = open.iter().enumerate().min_by_key(first_to_go)
    {
        open.remove(at).task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "this runtime belongs to the listener")]
async fn pause() {
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[expect(clippy::disallowed_methods, reason = "this runtime belongs to the listener")]
async fn connection(stream: TcpStream, caller: IpAddr, site: Arc<Site>, asked: Arc<AtomicBool>) {
    let reached = stream.local_addr().map_or(site.access.bound.ip(), |address| address.ip());
    let service = service_fn(move |request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let site = Arc::clone(&site);
        async move {
            let page = match site.route(&request, caller, reached) {
                Ok(page) => page,
                Err(refusal) => return Ok::<_, Infallible>(*refusal),
            };
            let compressed = accepts_gzip(request.headers());
            let accept = accept(request.headers());
            Ok(match page {
                Page::Metrics => site.render(page, &accept, compressed),
                Page::View | Page::Json => {
                    let rendered = tokio::task::spawn_blocking(move || site.render(page, &accept, compressed)).await;
                    rendered.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the view failed\n"))
                }
            })
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    // An error here concerns only the client.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
}

/// The pages that a client can request.
#[derive(Clone, Copy)]
enum Page {
    Metrics,
    View,
    Json,
}

impl Site {
    /// Returns the page that the client requested, or why it is refused.
    fn route(
        &self,
        request: &Request<Incoming>,
        caller: IpAddr,
        reached: IpAddr,
    ) -> Result<Page, Box<Response<Full<Bytes>>>> {
        let (uri, headers) = (request.uri(), request.headers());
        let page = match uri.path() {
            "/metrics" => Page::Metrics,
            "/locks" => Page::View,
            "/locks.json" => Page::Json,
            _ => {
                let hint = "metrics are at /metrics, live locks at /locks and /locks.json\n";
                return Err(Box::new(plain(StatusCode::NOT_FOUND, hint)));
            }
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Err(Box::new(response));
        }
        let allowed = match page {
            Page::Metrics => self.access.allows_metrics(uri, headers),
            Page::View | Page::Json => {
                let is_direct = !is_forwarded(request.version(), headers);
                self.access.allows_keys(uri, headers, caller, is_direct.then_some(reached))
            }
        };
        if !allowed {
            let hint = "only callers on the same machine may read this, without a proxy, under the name localhost \
                or an address of the machine; allow a network with Builder::with_live_view_for, a name with \
                Builder::with_live_view_name, or serve it from \
                        the application's own router\n";
            return Err(Box::new(plain(StatusCode::FORBIDDEN, hint)));
        }
        Ok(page)
    }

    fn render(&self, page: Page, accept: &str, compressed: bool) -> Response<Full<Bytes>> {
        let (kind, text) = match page {
            Page::Metrics => self.shared.render_for(accept),
            Page::View => ("text/html; charset=utf-8", view::html(&self.shared.core)),
            Page::Json => ("application/json", view::json(&self.shared.core)),
        };
        let mut response = if compressed {
            let mut response = respond(StatusCode::OK, gzip(&text), kind);
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        } else {
            respond(StatusCode::OK, text.into(), kind)
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        if !matches!(page, Page::Metrics) {
            shield(&mut response);
        }
        response
    }
}

/// Returns the formats that the client accepts, in one list.
fn accept(headers: &HeaderMap) -> String {
    let values: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

/// Returns whether the client accepts gzip. Prometheus does: the response to a scrape then has a tenth of the size.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0));
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip")) && !parts.any(refused)
    })
}

fn gzip(text: &str) -> Bytes {
    let mut packed = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    // Writing to memory never fails.
    let _ = packed.write_all(text.as_bytes());
    packed.finish().unwrap_or_default().into()
}

/// Sets headers that keep a response with keys from being shown elsewhere.
fn shield(response: &mut Response<Full<Bytes>>) {
    let mut set = |name: HeaderName, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
    set(CONTENT_SECURITY_POLICY, LIVE_VIEW_CSP);
    set(CACHE_CONTROL, "no-store");
    set(REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, Bytes::from_static(text.as_bytes()), TEXT_TYPE)
}

fn respond(status: StatusCode, body: Bytes, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

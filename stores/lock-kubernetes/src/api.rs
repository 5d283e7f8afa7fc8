//! Requests to the API server. Each is sent once, has a time limit, and ends with an answer, a refusal, or as unknown.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::client::Body;
use kube::core::ObjectList;
use lock_store::thread::{sleep, within};
use lock_store::{Clock, LockError, LockErrorKind, Result, Timestamp};
use tokio::runtime::Handle;

use crate::connection::Connection;
use crate::error::{Asked, of_status, of_transport};
use crate::record::Record;
use crate::server_time::ServerTime;
use crate::url::Settings;

/// How long to wait if the server has too many requests and does not say how long.
const TOO_MANY: Duration = Duration::from_secs(1);

/// Credentials that are refused are read again, but no sooner than this after the last time.
const REREAD: Duration = Duration::from_millis(500);

/// The API server.
pub(crate) struct Api {
    pub(crate) settings: Settings,
    clock: Clock,
    pub(crate) time: ServerTime,
    /// The runtime of the store's thread.
    runtime: Handle,
    connection: Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>,
}

/// A request about Leases, or about another path.
#[derive(Default)]
struct Sending<'a> {
    /// The verb of RBAC.
    verb: &'static str,
    /// The name of a Lease, or another path, which begins with a slash.
    name: &'a str,
    /// Parameters. An empty value is left out.
    query: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Sending<'_> {
    fn asked<'b>(&'b self, over: &'b Connection) -> Asked<'b> {
        Asked { verb: self.verb, name: self.name, namespace: &over.namespace }
    }

    /// Makes the request, with the time after which the server gives up too. A late request then rarely changes anything.
    fn request(&self, over: &Connection, left: Option<Duration>) -> Result<Request<Body>> {
        let (method, named) = match self.verb {
            "create" => (Method::POST, ""),
            "update" => (Method::PUT, self.name),
            _ => (Method::GET, self.name),
        };
        let mut path = match self.name.strip_prefix('/') {
            Some(_) => self.name.to_owned(),
            None => format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{named}", over.namespace),
        };
        path.truncate(path.trim_end_matches('/').len());
        let timeout = left.map(|left| ("timeout", format!("{}ms", left.as_millis().max(1))));
        let query = self.query.iter().cloned().chain(timeout).filter(|(_, value)| !value.is_empty());
        for (at, (name, value)) in query.enumerate() {
            // The only value with other characters is where a page begins, which is base64.
            let value = value.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
            path = format!("{path}{}{name}={value}", if at == 0 { '?' } else { '&' });
        }
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        request
            .body(Body::from(self.body.clone()))
            .map_err(|error| of_transport(kube::Error::HttpError(error), self.asked(over)))
    }
}

impl Api {
    pub(crate) fn new(settings: Settings, runtime: Handle) -> Self {
        let (clock, time, connection) = (Clock::system(), ServerTime::default(), Arc::default());
        Self { settings, clock, time, runtime, connection }
    }

    /// Returns the connection. Opens it if there is none, or if its credentials have ended.
    pub(crate) async fn connection(&self, until: Timestamp) -> Result<Arc<Connection>> {
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        let (known, settings) = (Arc::clone(&self.connection), self.settings.clone());
        // A task of its own, because a caller may have less time than it takes.
        let opened = self.runtime.spawn(async move {
            let mut known = known.lock().await;
            if let Some(open) = usable(&known) {
                return Ok(open);
            }
            let open = Arc::new(Connection::open(&settings).await?);
            Ok(Arc::clone(known.insert(open)))
        });
        let opened = within(until.since(self.clock.now()), opened).await.and_then(std::result::Result::ok);
        opened.unwrap_or_else(|| {
            let text =
                format!("the API server of {} was not reached in time; the request was not sent", self.settings.node);
            Err(LockError::not_executed(text))
        })
    }

    /// Returns the connection if there is one whose credentials have not ended. Does not wait for one that is being opened.
    pub(crate) fn open_connection(&self) -> Option<Arc<Connection>> {
        self.connection.try_lock().ok().and_then(|known| usable(&known))
    }

    /// Checks that the numbers of the server's writes may be compared, or that the URL accepts that they may not.
    pub(crate) fn check_version(&self, connection: &Connection) -> Result<()> {
        if connection.gives_tokens() || self.settings.old_tokens {
            return Ok(());
        }
        Err(LockError::misconfigured(format!(
            "the API server is {}; numbers of its writes may be compared since 1.35, and fencing tokens consist of them; upgrade it, \
             or write ?tokens=unchecked in the URL if no resource checks tokens",
            connection.version
        )))
    }

    /// Checks that the server answers and accepts the credentials.
    pub(crate) async fn ping(&self, until: Timestamp) -> Result<()> {
        self.check_version(&*self.connection(until).await?)?;
        let review = br#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
        match self.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", review.to_vec(), until).await {
            // Every user with accepted credentials may ask who it is, unless an operator has forbidden even that.
            Err(error) if error.kind() != LockErrorKind::Misconfigured => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks something of the server that is not a Lease.
    pub(crate) async fn ask(&self, path: &str, body: Vec<u8>, until: Timestamp) -> Result<serde_json::Value> {
        let sending = Sending { verb: "create", name: path, body, ..Sending::default() };
        parsed(&self.send(&sending, until).await?.unwrap_or_default())
    }

    /// Reads a Lease. `None` if there is none.
    pub(crate) async fn get(&self, name: &str, until: Timestamp) -> Result<Option<Arc<Record>>> {
        let sending = Sending { verb: "get", name, ..Sending::default() };
        self.send(&sending, until).await?.map(|body| record(&body)).transpose()
    }

    /// Creates a Lease that was not read. Writes another Lease if it is still as it was read: the `uid` in it keeps a Lease that was
    /// deleted from being made again. Returns the Lease as it is now, or `None` if another client was first.
    pub(crate) async fn write(&self, lease: &Lease, until: Timestamp) -> Result<Option<Arc<Record>>> {
        let unwritable = |error| LockError::misconfigured("a Lease cannot be written").with_source(error);
        let verb = if lease.metadata.resource_version.is_none() { "create" } else { "update" };
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let query = vec![("fieldManager", "lock-core".to_owned())];
        let sending = Sending { verb, name, query, body: serde_json::to_vec(lease).map_err(unwritable)? };
        self.send(&sending, until).await?.map(|body| record(&body)).transpose()
    }

    /// Lists a page of Leases, and says where the next one begins.
    pub(crate) async fn list(&self, limit: u32, from: &str, until: Timestamp) -> Result<(Vec<Lease>, Option<String>)> {
        let query = vec![("limit", limit.to_string()), ("continue", from.to_owned())];
        let sending = Sending { verb: "list", query, ..Sending::default() };
        let page: ObjectList<Lease> = parsed(&self.send(&sending, until).await?.unwrap_or_default())?;
        Ok((page.items, page.metadata.continue_.filter(|next| !next.is_empty())))
    }

    /// Begins to watch the Leases of the namespace behind a version, or from their present state if `version` is empty. `None` if the
    /// server does not know the changes since that version any more.
    pub(crate) async fn watch(
        &self,
        version: &str,
        lasts: Duration,
        until: Timestamp,
    ) -> Result<Option<Response<Body>>> {
        let query = vec![
            ("watch", "true".to_owned()),
            ("allowWatchBookmarks", "true".to_owned()),
            ("timeoutSeconds", lasts.as_secs().to_string()),
            ("resourceVersion", version.to_owned()),
        ];
        let sending = Sending { verb: "watch", query, ..Sending::default() };
        let begun = async {
            let over = self.connection(until).await?;
            let request = sending.request(&over, None)?;
            let answer = over.client.send(request).await.map_err(|error| of_transport(error, sending.asked(&over)))?;
            let status = answer.status();
            if status.is_success() {
                return Ok(Some(answer));
            }
            let body = answer.into_body().collect().await.map_err(|error| of_transport(error, sending.asked(&over)))?;
            match status {
                StatusCode::GONE => return Ok(None),
                StatusCode::UNAUTHORIZED => self.reread(&over).await,
                _ => {}
            }
            Err(of_status(status, &body.to_bytes(), sending.asked(&over)))
        };
        let begun = within(until.since(self.clock.now()), begun).await;
        begun.unwrap_or_else(|| Err(LockError::unavailable("the API server has not begun a watch in time")))
    }

    /// Sends a request before `until`. Repeats it only after an answer which says that it was not executed. `None` if a Lease does not
    /// exist, or is not as it was read.
    async fn send(&self, sending: &Sending<'_>, until: Timestamp) -> Result<Option<Vec<u8>>> {
        let mut reread = false;
        loop {
            let over = self.connection(until).await?;
            let (sent, left) = (self.clock.now(), until.since(self.clock.now()));
            if left.is_zero() {
                return Err(LockError::not_executed("no time was left, and the request was not sent"));
            }
            let request = sending.request(&over, Some(left))?;
            let answered = async {
                let answer = over.client.send(request).await?;
                self.note_time(sent, answer.headers());
                let (status, wait) = (answer.status(), retry_after(answer.headers()));
                Ok::<_, kube::Error>((status, wait, answer.into_body().collect().await?.to_bytes().to_vec()))
            };
            let (status, wait, body) = match within(left, answered).await {
                Some(answered) => answered.map_err(|error| of_transport(error, sending.asked(&over)))?,
                None => {
                    let asked = sending.asked(&over);
                    let text = format!("the API server has not answered within {left:?}, and may still {asked}");
                    return Err(LockError::unavailable(text));
                }
            };
            match status {
                StatusCode::TOO_MANY_REQUESTS if self.clock.now().after(wait) < until => sleep(wait).await,
                StatusCode::UNAUTHORIZED if !std::mem::replace(&mut reread, true) => self.reread(&over).await,
                status if status.is_success() => return Ok(Some(body)),
                StatusCode::NOT_FOUND if matches!(sending.verb, "get" | "update") => return Ok(None),
                StatusCode::CONFLICT if matches!(sending.verb, "create" | "update") => return Ok(None),
                _ => return Err(of_status(status, &body, sending.asked(&over))),
            }
        }
    }

    fn note_time(&self, sent: Timestamp, headers: &HeaderMap) {
        let date = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) {
            self.time.note(sent, self.clock.now(), date.timestamp().as_second());
        }
    }

    /// Leaves a connection whose credentials are refused. The next one reads them again.
    async fn reread(&self, connection: &Arc<Connection>) {
        let mut known = self.connection.lock().await;
        let is_it = known.as_ref().is_some_and(|known| Arc::ptr_eq(known, connection));
        if is_it && self.clock.now().since(connection.opened) >= REREAD {
            *known = None;
        }
    }
}

fn usable(known: &Option<Arc<Connection>>) -> Option<Arc<Connection>> {
    known.clone().filter(|open| !open.has_expired())
}

fn record(body: &[u8]) -> Result<Arc<Record>> {
    Record::of(parsed(body)?).map(Arc::new)
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(http::header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
    seconds.map_or(TOO_MANY, Duration::from_secs)
}

fn parsed<T: k8s_openapi::serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|error| LockError::unavailable("the answer of the API server cannot be read").with_source(error))
}

//! Asks a process for its live view.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use lock_core::{Clock, Timestamp};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::args::address::target;

/// How long one view may take. Each shows at most 500 rows, so a process that is well answers at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than the largest view.
const MAX_BYTES: usize = 4 << 20;

/// The entries about one key in the live view of one process.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) address: String,
    pub(crate) host: Option<String>,
    pub(crate) pid: u64,
    /// The time of its clock, in seconds since 1970, and when that was here.
    pub(crate) time: (f64, Timestamp),
    /// The hold of the process, if it has one.
    pub(crate) hold: Option<Hold>,
    /// Its waits.
    pub(crate) waits: Vec<Wait>,
    /// Whether the view left out rows, which may be of this key.
    pub(crate) is_cut: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) site: String,
    pub(crate) age: Duration,
    pub(crate) token: String,
    /// Whether its process was seen to check tokens of this lock where it writes.
    pub(crate) fenced: bool,
    /// Where its trace is shown, or the id of the trace.
    pub(crate) trace: Option<String>,
    /// By how much it is older than it should become.
    pub(crate) stuck_for: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) site: String,
    pub(crate) age: Duration,
}

/// Asks every address at once. Returns the answers, and each address that was not read, with the reason.
pub(crate) async fn each<T: Send + 'static, F>(
    addresses: BTreeSet<String>,
    ask: impl Fn(String) -> F,
) -> (Vec<T>, Vec<(String, String)>)
where
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let mut looks = JoinSet::new();
    for address in addresses {
        let answer = ask(address.clone());
        looks.spawn(async move { (address, answer.await) });
    }
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for (address, answer) in looks.join_all().await {
        match answer {
            Ok(answer) => read.push(answer),
            Err(why) => unread.push((address, why)),
        }
    }
    unread.sort();
    (read, unread)
}

/// Reads what a process shows of a key. The error says why it cannot be told.
pub(crate) async fn look(address: &str, key: &str) -> Result<View, String> {
    let clock = Clock::system();
    let asked = clock.now();
    let document = document(address).await?;
    let half = clock.now().since(asked) / 2;
    read(address, key, &document, asked.after(half)).ok_or_else(no_view)
}

/// Reads everything that a process shows. The error says why it cannot be read.
pub(crate) async fn document(address: &str) -> Result<Value, String> {
    #[expect(clippy::disallowed_methods, reason = "this runtime belongs to the program")]
    let answer = tokio::time::timeout(PATIENCE, get(address)).await;
    let text = answer.unwrap_or_else(|_| Err(format!("no answer in {} s", PATIENCE.as_secs())))?;
    serde_json::from_slice(&text).map_err(|_| no_view())
}

pub(crate) fn no_view() -> String {
    "this is no live view".to_owned()
}

async fn get(address: &str) -> Result<Bytes, String> {
    let (authority, path) = target(address)?;
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let broken = |error: hyper::Error| format!("it broke off: {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = Request::get(path.as_str()).header(HOST, authority.as_str()).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::FORBIDDEN => {
                return Err("it refuses (403): it allows neither this machine nor this name".to_owned());
            }
            StatusCode::NOT_FOUND => {
                return Err(format!(
                    "it answers 404 at {path}; a service with a router of its own serves MetricsHandle::locks_json() there"
                ));
            }
            status => return Err(format!("it answers {status}")),
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| format!("it broke off: {error}"))
    };
    // The connection moves while it is polled, and ends with the sender.
    tokio::join!(exchange, connection).0
}

fn read(address: &str, key: &str, document: &Value, at: Timestamp) -> Option<View> {
    let mut view = View {
        address: address.to_owned(),
        host: document["process"]["host"].as_str().map(str::to_owned),
        pid: document["process"]["pid"].as_u64()?,
        time: (document["at_unix_seconds"].as_f64()?, at),
        hold: None,
        waits: Vec::new(),
        is_cut: document["not_shown"].as_u64()? > 0,
    };
    for row in document["locks"].as_array()?.iter().filter(|row| row["key"] == key) {
        let site = row["site"].as_str()?.to_owned();
        let age = seconds(&row["age_seconds"])?;
        // Candidates of an election wait in the same queue.
        if row["state"] == "waiting" || row["state"] == "stands" {
            view.waits.push(Wait { site, age });
        } else if row["reentrant"] != true {
            // A role has no threshold.
            let stuck_for = seconds(&row["stuck_after_seconds"]).and_then(|threshold| age.checked_sub(threshold));
            let token = row["token"].as_str()?.to_owned();
            let trace = row["trace_link"].as_str().or(row["trace_id"].as_str()).map(str::to_owned);
            view.hold = Some(Hold { site, age, token, fenced: row["fenced"] == true, trace, stuck_for });
        }
    }
    Some(view)
}

fn seconds(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok()
}

#[cfg(test)]
mod tests {
    use lock_core::Clock;
    use serde_json::json;

    use super::read;

    #[test]
    fn what_is_no_view_is_refused() {
        let now = Clock::system().now();
        for wrong in [json!({}), json!([1]), json!({ "process": { "pid": 1 }, "at_unix_seconds": 5, "locks": [] })] {
            assert!(read("", "k", &wrong, now).is_none(), "{wrong}");
        }
    }
}

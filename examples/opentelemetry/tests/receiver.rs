//! A collector that keeps what the example sends, and checks it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use lock_metrics::catalog;
use lock_testing::{RedisServer, limit};
use serde_json::Value;

/// A message: its path, such as `/v1/traces`, and its content.
type Message = (String, Value);

/// Answers every request of one connection.
fn serve(connection: TcpStream, keep: &Sender<Message>) -> Option<()> {
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    let mut connection = connection;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(number) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        keep.send((path, serde_json::from_slice(&body).expect("the example sends JSON"))).ok()?;
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        connection.write_all(answer.as_bytes()).ok()?;
    }
}

fn collector() -> (String, impl Fn() -> Vec<Message>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (keep, kept) = channel();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let keep = keep.clone();
            thread::spawn(move || serve(connection, &keep));
        }
    });
    (url, move || kept.try_iter().collect())
}

/// The members of each list below `path`, for example `resourceSpans/scopeSpans/spans`.
fn below<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    path.split('/').fold(vec![value], |values, name| {
        values.into_iter().filter_map(|value| value[name].as_array()).flatten().collect()
    })
}

/// The attributes of a span or of a point.
fn attributes(value: &Value) -> BTreeMap<&str, String> {
    let text = |value: &Value| match value.as_object().and_then(|kinds| kinds.values().next()) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let pairs = value["attributes"].as_array().into_iter().flatten();
    pairs.map(|pair| (pair["key"].as_str().unwrap(), text(&pair["value"]))).collect()
}

#[test]
#[limit]
fn a_collector_gets_the_catalogue_and_the_spans_of_each_request() {
    let redis = RedisServer::start();
    let (url, kept) = collector();
    let output = Command::new(env!("CARGO_BIN_EXE_opentelemetry-example"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &url)
        .env("LOCK_URL", redis.url())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("charged\n") && said.contains("order:7"), "{said}");
    let messages = kept();
    metrics(&messages);
    spans(&messages);
}

fn metrics(messages: &[Message]) {
    let sent: Vec<&Value> = messages.iter().filter(|(path, _)| path == "/v1/metrics").map(|(_, body)| body).collect();
    let last = sent.last().expect("metrics were sent");
    assert!(last["resourceMetrics"][0]["resource"].to_string().contains("shop"), "{last}");
    let mut seen = BTreeMap::new();
    for metric in below(last, "resourceMetrics/scopeMetrics/metrics") {
        let name = metric["name"].as_str().unwrap();
        let known = catalog().find(|known| known.name() == name);
        let known = known.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        let unit = metric["unit"].as_str().unwrap_or_default();
        assert_eq!(unit == "s", known.unit() == lock_metrics::MetricUnit::Seconds, "the unit of {name} is {unit:?}");
        // 2 is AGGREGATION_TEMPORALITY_CUMULATIVE, which Prometheus needs.
        if let Some(sum) = metric.get("sum") {
            assert!(name.ends_with("_total"), "{name} is a counter");
            assert_eq!((&sum["aggregationTemporality"], &sum["isMonotonic"]), (&2.into(), &true.into()), "{name}");
        }
        if let Some(histogram) = metric.get("histogram") {
            assert_eq!(histogram["aggregationTemporality"], 2, "{name}");
            let bounds = histogram["dataPoints"][0]["explicitBounds"].as_array().unwrap();
            let bounds: Vec<f64> = bounds.iter().filter_map(Value::as_f64).collect();
            assert_eq!(bounds, known.buckets(), "the buckets of {name}");
        }
        assert!(seen.insert(name, metric).is_none(), "{name} is sent once");
    }
    let points = below(seen["distributed_lock_acquisitions_total"], "dataPoints");
    assert!(points.is_empty(), "they are below `sum`");
    let points = below(&seen["distributed_lock_acquisitions_total"]["sum"], "dataPoints");
    let outcomes: Vec<String> = points.iter().map(|point| attributes(point)["outcome"].clone()).collect();
    assert!(outcomes.iter().any(|outcome| outcome == "acquired"), "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| outcome == "timeout"), "{outcomes:?}");
    assert!(seen.contains_key("distributed_lock_wait_seconds") && seen.contains_key("distributed_lock_hold_seconds"));
}

fn spans(messages: &[Message]) {
    let sent = messages.iter().filter(|(path, _)| path == "/v1/traces").map(|(_, body)| body);
    let spans: Vec<&Value> = sent.flat_map(|body| below(body, "resourceSpans/scopeSpans/spans")).collect();
    let named = |name: &str| spans.iter().copied().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let (requests, acquires, holds) = (named("POST /charge"), named("lock_acquire"), named("lock_hold"));
    assert_eq!((requests.len(), acquires.len(), holds.len()), (2, 2, 1), "{spans:?}");
    for span in acquires.iter().chain(&holds) {
        let parent = requests.iter().find(|request| request["spanId"] == span["parentSpanId"]).expect("a request");
        assert_eq!(parent["traceId"], span["traceId"]);
        let attributes = attributes(span);
        assert_eq!((&*attributes["lock"], &*attributes["key"]), ("order:<order>", "order:7"));
    }
    // 2 is STATUS_CODE_ERROR.
    let failed: Vec<_> = acquires.iter().filter(|span| span["status"]["code"] == 2).collect();
    assert_eq!(failed.len(), 1, "{acquires:?}");
    let attributes = attributes(failed[0]);
    assert_eq!((&*attributes["outcome"], &*attributes["error.type"]), ("timeout", "timeout"));
    assert!(attributes["holder"].contains("charge"), "the holder is named: {attributes:?}");
    assert_eq!(
        attributes["holder_owner"],
        self::attributes(holds[0])["owner"],
        "a search leads to the trace of the holder"
    );
    assert_ne!(holds[0]["status"]["code"], 2);
}

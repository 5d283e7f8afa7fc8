//! Traces of the application reach exemplars, the live view and the event of a stuck lock; histograms can be left out.

use std::future::Future as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use lock_core::testing::limit;
use lock_core::{GrantPath, LockEventKind, LockManager};
use lock_metrics::{InstallError, MetricsHandle, builder, catalog};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Acquire, Scrape};

const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// Metrics in whose process the trace is what `trace` says.
fn traced(trace: &Arc<Mutex<Option<[u8; 16]>>>) -> MetricsHandle {
    let trace = Arc::clone(trace);
    let metrics = builder().with_trace_ids(move || *trace.lock().unwrap());
    metrics.with_trace_link("https://tempo.example/{trace_id}?a=1&b=\"2\"").build().unwrap()
}

fn openmetrics(metrics: &MetricsHandle) -> String {
    metrics.render_for(PROMETHEUS).1
}

/// The current trace of OpenTelemetry, as the documentation says.
fn current() -> Option<[u8; 16]> {
    let context = tracing::Span::current().context();
    let span = context.span();
    span.span_context().is_sampled().then(|| span.span_context().trace_id().to_bytes())
}

#[test]
#[limit]
fn a_wait_leaves_its_trace_in_its_bucket() {
    let trace = Arc::default();
    let metrics = traced(&trace);
    let observer = metrics.observer();
    let wait = |attempt, id: Option<u8>, waited| {
        *trace.lock().unwrap() = id.map(|id| [id; 16]);
        let acquire = Acquire::new(&observer, attempt, "order:<id>", "order:1");
        acquire.send(LockEventKind::WaitStarted);
        // Later work runs elsewhere.
        *trace.lock().unwrap() = Some([9; 16]);
        acquire.acquired(GrantPath::Granted, Duration::from_millis(waited), None);
        acquire.release(Duration::from_secs(1));
    };
    wait(1, Some(1), 700);
    wait(2, Some(2), 650);
    wait(3, None, 600);
    wait(4, Some(4), 40_000);
    let failed = Acquire::new(&observer, 5, "order:<id>", "order:1");
    *trace.lock().unwrap() = Some([5; 16]);
    failed.send(LockEventKind::WaitStarted);
    failed.send(LockEventKind::TimedOut { waited: Duration::from_secs(3), holder: None });

    let text = openmetrics(&metrics);
    let with = |part: &str| text.lines().filter(|line| line.contains(part)).collect::<Vec<_>>();
    let [one, two, three] = with(" # {")[..] else { panic!("three exemplars in {text}") };
    let id = |id: u8| format!("{id:02x}").repeat(16);
    for (line, outcome, bound, count, id, value) in [
        (one, "acquired", "0.75", 3, id(2), "0.65"),
        (two, "acquired", "+Inf", 4, id(4), "40"),
        (three, "failed", "3.1", 1, id(5), "3"),
    ] {
        let start = format!(
            "distributed_lock_wait_seconds_bucket{{lock=\"order:<id>\",store=\"memory\",outcome=\"{outcome}\",mode=\"write\",le=\"{bound}\"}} {count} \
             # {{trace_id=\"{id}\"}} {value} "
        );
        let at = line.strip_prefix(&start).unwrap_or_else(|| panic!("{line} is not {start}"));
        assert!(at.parse::<f64>().unwrap() > 1e9, "{line}");
    }
    // The other format has no place for them.
    assert!(!metrics.render().contains(" # {") && !metrics.render().contains("# EOF"));
    assert_eq!(metrics.render_for("text/plain;version=0.0.4").0, "text/plain; version=0.0.4; charset=utf-8");
}

#[test]
#[limit]
fn both_formats_have_the_same_series() {
    let metrics = traced(&Arc::new(Mutex::new(Some([7; 16]))));
    let observer = metrics.observer();
    Acquire::new(&observer, 1, "order:<id>", "order:1").take();
    let series = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let names = lines.map(|line| line.split(" # ").next().unwrap().rsplit_once(' ').unwrap().0.to_owned());
        names.collect()
    };
    let open = openmetrics(&metrics);
    assert_eq!(series(&open), series(&metrics.render()));
    assert!(open.ends_with("# EOF\n") && open.matches("# EOF").count() == 1);
    for (family, kind) in [("acquisitions", "counter"), ("held", "gauge"), ("wait_seconds", "histogram")] {
        assert!(open.contains(&format!("# TYPE distributed_lock_{family} {kind}\n# HELP ")), "{family}");
    }
    // A scraper gets another format only if that has a benefit.
    let (kind, text) = builder().build().unwrap().render_for(PROMETHEUS);
    assert!(kind.starts_with("text/plain"), "{kind}");
    Scrape::read(&text);
}

#[test]
#[limit]
fn the_listener_answers_in_the_format_that_is_preferred() {
    let metrics = builder().with_trace_ids(|| Some([7; 16])).with_listener(([127, 0, 0, 1], 0)).build().unwrap();
    let ask = |accept: &str| {
        let mut stream = TcpStream::connect(metrics.listener().unwrap()).unwrap();
        stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.to_lowercase()
    };
    let open = ask(&format!("Accept: {PROMETHEUS}\r\n"));
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{open}");
    assert!(open.contains("vary: accept, accept-encoding\r\n") && open.ends_with("# eof\n"), "{open}");
    let plain = ask("");
    assert!(plain.contains("content-type: text/plain; version=0.0.4") && !plain.contains("# eof"), "{plain}");
}

#[test]
#[limit]
fn the_span_of_the_caller_is_asked_for_its_trace() {
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let metrics = builder().with_trace_ids(current).build().unwrap();
    let locks = LockManager::in_memory();
    locks.observe(metrics.observer());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (guard, id) = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("request");
        // Made outside, acquired inside: what counts is where the caller waits.
        let request = locks.lock("order:1").with_wait(Duration::from_secs(5));
        let _inside = span.enter();
        let guard = runtime.block_on(request.acquire()).unwrap();
        let mut waiting = pin!(locks.lock("order:1").acquire());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let id: String = current().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let seen: Vec<_> = metrics.live_locks().map(|live| live.trace_id).collect();
        assert_eq!(seen, [Some(id.clone()), Some(id.clone())]);
        (guard, id)
    });
    assert!(openmetrics(&metrics).contains(&format!("# {{trace_id=\"{id}\"}}")));
    // Outside a span a trace is missing, and none is made up.
    let _other = runtime.block_on(locks.lock("order:2").acquire()).unwrap();
    let live = metrics.live_locks().find(|live| live.key.as_str() == "order:2").unwrap();
    assert_eq!(live.trace_id, None);
    drop(guard);
}

#[test]
#[limit]
fn the_live_view_leads_to_the_trace() {
    let metrics = traced(&Arc::new(Mutex::new(Some([0xab; 16]))));
    let observer = metrics.observer();
    Acquire::new(&observer, 1, "order:<id>", "order:1").take();
    let id = "ab".repeat(16);
    let row: serde_json::Value = serde_json::from_str(&metrics.locks_json()).unwrap();
    assert_eq!(row["locks"][0]["trace_id"], id);
    assert_eq!(row["locks"][0]["trace_link"], format!("https://tempo.example/{id}?a=1&b=\"2\""));
    let link = format!("<a href=\"https://tempo.example/{id}?a=1&amp;b=&quot;2&quot;\" rel=\"noopener noreferrer\">");
    assert!(metrics.locks_html().contains(&link), "{}", metrics.locks_html());

    let error = builder().with_trace_link("javascript:{trace_id}").build().unwrap_err();
    assert!(matches!(&error, InstallError::TraceLink(link) if link == "javascript:{trace_id}"), "{error:?}");
    assert!(error.to_string().ends_with("write https://… with {trace_id} in it"), "{error}");
}

#[test]
#[limit]
fn only_the_chosen_histograms_are_exported() {
    let wait = "distributed_lock_wait_seconds";
    let metrics = builder().with_histograms([wait]).build().unwrap();
    let observer = metrics.observer();
    let acquire = Acquire::new(&observer, 1, "order:<id>", "order:1");
    acquire.take();
    acquire.release(Duration::from_secs(1));
    let scrape = Scrape::read(&metrics.render());
    let histograms: Vec<_> =
        scrape.types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name).collect();
    assert_eq!(histograms, [wait]);
    assert_eq!(scrape.get("wait_seconds_count", &[("lock", "order:<id>"), ("outcome", "acquired")]), 1.0);
    assert_eq!(scrape.get("releases_total", &[("lock", "order:<id>"), ("outcome", "released")]), 1.0);
    // Everything else is as it was.
    let all = Scrape::read(&builder().build().unwrap().render());
    let others = |scrape: &Scrape| scrape.types.values().filter(|kind| *kind != "histogram").count();
    assert!(others(&scrape) >= others(&all));
    let none = builder().with_histograms(Vec::<String>::new()).build().unwrap().render();
    assert!(!none.contains("_bucket"));

    for wrong in ["wait_seconds", "distributed_lock_held"] {
        let error = builder().with_histograms([wrong]).build().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, InstallError::NoHistogram(name) if name == wrong), "{text}");
        let names = catalog().filter(|metric| !metric.buckets().is_empty()).map(lock_metrics::Metric::name);
        names.for_each(|name| assert!(text.contains(name), "{name} in {text}"));
    }
}

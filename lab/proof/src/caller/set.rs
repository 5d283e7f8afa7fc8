//! One caller that takes a lock, reads a set in the database, adds an element and writes the set back: Jepsen's third
//! workload for locks. The caller does all of it in one transaction, which pins the lock or only checks it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use crate::caller::locks::{Held, Locks, WAIT};
use crate::caller::{Args, serve};
use crate::record::{Grant, Mode, Record, Recorder, now};

const MS: Duration = Duration::from_millis(1);

/// How long a transaction may take: longer than a process is ever stopped.
const PATIENCE: Duration = Duration::from_secs(8);

/// Ends a session whose client is gone, so that it does not keep its lock for ever. The page for operators recommends it.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '6s'";

/// The longest pause between the read and the write.
const GAP_MS: u32 = 100;

type Failure = Box<dyn std::error::Error>;

struct Caller {
    locks: Locks,
    recorder: Recorder,
    runtime: Runtime,
    url: String,
    client: Option<Client>,
    keys: u64,
    pins: bool,
    random: Rng,
    served: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Caller {
    fn call(mut self) {
        let mut hold = 0;
        while !self.over.load(Ordering::SeqCst) {
            let (asked, key) = (now(), format!("proof:{}", self.random.u64(0..self.keys)));
            if let Some(held) = self.locks.acquire(&key, WAIT) {
                hold += 1;
                self.work(held, &key, asked, hold);
            }
            std::thread::sleep(self.random.u32(0..10) * MS);
        }
        drop(self.client);
        self.locks.leave();
    }

    fn work(&mut self, held: Held, key: &str, asked: u64, hold: u64) {
        let (process, at, token) = (std::process::id(), now(), held.token());
        if !self.locks.is_held(&held) {
            return self.locks.release(held);
        }
        let (site, deadline) = (format!("{}:{}", file!(), line!()), held.deadline(at));
        let (mode, name, units, limit) = (Mode::Write, key.to_owned(), 0, 0);
        let grant = Grant { process, hold, key: name, mode, units, limit, token, asked, at, deadline, site };
        self.recorder.record(&Record::Grant(grant));
        // Process and hold make the element unique.
        let element = (u64::from(process) << 32) | hold;
        if self.add(&held, key, element).is_ok() {
            self.recorder.record(&Record::Add { process, hold, key: key.to_owned(), element, at: now() });
            self.served.fetch_add(1, Ordering::SeqCst);
        } else {
            // The commit may or may not have happened. The old session may be in any state, so a new one takes its place.
            self.client = None;
        }
        let before = now();
        let last = if self.locks.is_held(&held) { before } else { at };
        self.recorder.record(&Record::End { process, hold, at: last, downgraded: false });
        self.locks.release(held);
    }

    /// Adds an element to the set of a key. Returns `Ok` only if the transaction was committed.
    fn add(&mut self, held: &Held, key: &str, element: u64) -> Result<(), Failure> {
        let Self { locks, runtime, url, client, pins, random, .. } = self;
        if client.is_none() {
            *client = Some(runtime.block_on(in_time(connect(url)))?);
        }
        let Some(client) = client else { return Err("there is no session".into()) };
        runtime.block_on(in_time(client.batch_execute(BEGIN)))?;
        match held {
            Held::Ours(guard) if *pins => {
                let pin = lock_postgres::pin(guard);
                ask(runtime, client, pin.text(), &[(&pin.key(), Type::TEXT), (&pin.token(), Type::INT8)])?;
            }
            held if !locks.is_held(held) => return Err("the lock is lost".into()),
            _ => {}
        }
        let made = "INSERT INTO proof_set VALUES ($1, '{}') ON CONFLICT DO NOTHING";
        ask(runtime, client, made, &[(&key, Type::TEXT)])?;
        let rows = ask(runtime, client, "SELECT elements FROM proof_set WHERE key = $1", &[(&key, Type::TEXT)])?;
        let mut elements: Vec<i64> = rows.first().ok_or("there is no set")?.get(0);
        // A process may be stopped here. No lock can rule that out.
        std::thread::sleep(random.u32(0..GAP_MS) * MS);
        elements.push(element.cast_signed());
        let write = "UPDATE proof_set SET elements = $2 WHERE key = $1";
        ask(runtime, client, write, &[(&key, Type::TEXT), (&elements, Type::INT8_ARRAY)])?;
        runtime.block_on(in_time(client.batch_execute("COMMIT")))
    }
}

/// Sends one unnamed statement, so that a pooler in transaction mode can carry it.
fn ask(
    runtime: &Runtime,
    client: &Client,
    text: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<tokio_postgres::Row>, Failure> {
    runtime.block_on(in_time(client.query_typed(text, values)))
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Waits for an answer, with a limit: the answer may never come.
async fn in_time<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
    Ok(tokio::time::timeout(PATIENCE, answer).await??)
}

pub(super) fn run(args: &Args) {
    let (served, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let caller = Caller {
        locks: Locks::of(args),
        recorder: Recorder::append_to(Path::new(args.text("history"))),
        runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        url: args.text("url").to_owned(),
        client: None,
        keys: args.number("keys"),
        pins: args.text("pins") == "true",
        random: Rng::with_seed(args.number("seed")),
        served: Arc::clone(&served),
        over: Arc::clone(&over),
    };
    serve(std::thread::spawn(move || caller.call()), &served, &over);
}

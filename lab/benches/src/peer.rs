//! A lock of another library, behind its adapter: `lab/proof/peers/README.md`. The loop runs inside the adapter. This
//! process only forwards the order and the results.

use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::child::Child;
use crate::contestant::TTL_MS;
use crate::process::load::{Account, Load};
use crate::process::wire::{Go, hear, say};
use crate::{Result, peers};

/// The size in bytes of a record in the file of an adapter, as in `record`.
const RECORD: usize = 44;

/// A running adapter. It is killed on drop, with all of its waits.
pub(crate) struct Adapter(Child);

impl Adapter {
    fn start(number: usize, port: u16) -> Result<Self> {
        let command = peers::all().into_iter().nth(number).ok_or("there is no such peer")?.command?;
        Self::start_at(&command, &format!("redis://127.0.0.1:{port}"))
    }

    /// Starts the adapter with the words of a command, over the server of a URL.
    pub(crate) fn start_at(command: &str, url: &str) -> Result<Self> {
        let mut words = command.split('\t');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args([url, &TTL_MS.to_string()]);
        let mut adapter = Self(Child::spawn(&mut command)?);
        adapter.hear("ready")?;
        Ok(adapter)
    }

    /// Reads the next answer of one kind. Skips other output of the library.
    fn hear(&mut self, kind: &str) -> Result<Value> {
        loop {
            let line = self.0.line()?;
            if line.is_empty() {
                return Err("an adapter ended, see above".into());
            }
            match serde_json::from_str::<Value>(&line) {
                Ok(said) if said.get(kind).is_some() => return Ok(said),
                Ok(said) if said.get("why").is_some() => return Err(format!("an adapter says: {line}").into()),
                _ => {}
            }
        }
    }

    pub(crate) fn ask(&mut self, order: &Value, kind: &str) -> Result<Value> {
        self.0.tell(order)?;
        self.hear(kind)
    }
}

/// Lets an adapter do the work of one process.
pub(crate) fn run(number: usize, load: &Load) -> Result<()> {
    let mut adapter = Adapter::start(number, load.port)?;
    // The first acquire loads scripts and opens connections, so the measurement does not include them.
    let key = format!("bench:{}:ready", load.first_task);
    adapter.ask(&json!({"acquire": key, "wait_ms": 10_000}), "acquired")?;
    adapter.ask(&json!({"release": true}), "released")?;
    say("ready")?;
    let go: Go = hear()?;
    let file = std::env::temp_dir().join(format!("lock-bench-{}.records", std::process::id()));
    let (tasks, first, hold_us) = (load.tasks, load.first_task, load.hold_us);
    let order = json!({"load": {
        "tasks": tasks, "first": first, "keys_per_task": load.keys_per_task, "hold_us": hold_us,
        "from": go.from, "to": go.to, "file": file,
    }});
    let said = adapter.ask(&order, "loaded")?;
    let bytes = std::fs::read(&file)?;
    std::fs::remove_file(&file)?;
    let number = |name: &str| said.get(name).and_then(Value::as_u64).unwrap_or_default();
    let account = Account {
        records: bytes.len() / RECORD,
        open: said["open"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect(),
        errors: number("errors"),
        error: said["why"].as_str().filter(|why| !why.is_empty()).map(str::to_owned),
        cpu: number("cpu"),
    };
    if account.records as u64 != number("loaded") {
        return Err(format!("an adapter wrote {} records and says {}", account.records, number("loaded")).into());
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer(&mut out, &account)?;
    out.write_all(b"\n")?;
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}

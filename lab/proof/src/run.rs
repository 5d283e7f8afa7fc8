//! A whole run: its rows one after the other, both checkers, and its files.

pub(crate) mod replay;
mod rows;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::check::{self, Verdict};
use crate::harness::row::{self, Until};
use crate::harness::servers::{Database, Ensemble, Kubernetes};
use crate::kept::{Kept, Options, Ran, write};
use crate::peers::Peer;
use crate::record::{Record, Recorder, now};
use crate::report::table;
use crate::run::rows::Row;

/// The rows that the options select, and the peers that are not installed.
fn wanted(options: &Options) -> Result<(Vec<Row>, Vec<String>), String> {
    if !options.stores.is_empty() || options.crowd.is_some() {
        let known = |store: &String| {
            let found = rows::STORES.into_iter().find(|known| known == store);
            found.ok_or_else(|| format!("the store {store:?} is unknown; there are {}", rows::STORES.join(", ")))
        };
        let stores = options.stores.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let rows = match options.crowd {
            Some(processes) if stores.is_empty() => rows::crowds(&rows::STORES[..1], processes),
            Some(processes) => rows::crowds(&stores, processes),
            None => rows::of_stores(&stores),
        };
        return Ok((rows, Vec::new()));
    }
    let mut peers = crate::peers::all();
    let this = std::env::current_exe().unwrap_or_default();
    let command = |name: &str| Ok(format!("{}\tpeer\t{name}", this.display()));
    let native = |name: &str| Peer { command: command(name), store: "one", name: name.to_owned() };
    peers.splice(3..3, ["rslock", "distkit"].map(native));
    for text in &options.peers {
        peers.push(named(text)?);
    }
    for peer in &mut peers {
        let no_server = match peer.store {
            "one" => None,
            "zookeeper" => Ensemble::missing(),
            store => Database::missing(store == "pooled"),
        };
        if let Some(why) = no_server {
            peer.command = Err(why);
        }
    }
    let ours = [
        ("PostgreSQL", Database::missing(false)),
        ("ZooKeeper", Ensemble::missing()),
        ("Kubernetes", Kubernetes::missing()),
    ];
    let ours = ours.into_iter().filter_map(|(store, why)| Some(format!("ours, {store}: {}", why?)));
    let missing = |peer: &Peer| peer.command.as_ref().err().map(|why| format!("{}: {why}", peer.name));
    let missing = ours.chain(peers.iter().filter_map(missing)).collect();
    Ok(([rows::compared(&peers), rows::of_stores(&rows::STORES)].concat(), missing))
}

/// Another peer, as `NAME=COMMAND WORDS` on the command line.
fn named(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, command)) if !command.trim().is_empty() => {
            let command = command.split_whitespace().collect::<Vec<_>>().join("\t");
            Ok(Peer { name: name.to_owned(), store: "one", command: Ok(command) })
        }
        _ => Err(format!("--peer {text:?} is not NAME=COMMAND")),
    }
}

/// The rows that the options select, also by name, and the peers that are not installed.
fn rows_of(options: &Options) -> Result<(Vec<Row>, Vec<String>), String> {
    let (mut rows, missing) = wanted(options)?;
    rows.retain(|row| options.only.is_empty() || options.only.iter().any(|part| row.name().contains(part)));
    if rows.is_empty() {
        return Err(format!("no row has a name that contains {:?}", options.only.join(" or ")));
    }
    Ok((rows, missing))
}

/// Runs all rows and prints their results. Returns the folder of the run, and whether everything is as expected.
pub(crate) fn run(options: Options, out: &Path, repeat: Option<&Kept>) -> Result<(PathBuf, bool), String> {
    let (rows, missing) = rows_of(&options)?;
    let server = version("redis-server", "--version");
    if server.is_empty() {
        return Err("no server can be started here: redis-server is not installed; run sh scripts/need-redis.sh".into());
    }
    let folder = out.join(format!("{}-{}", std::process::id(), options.seed));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot write {}: {error}", folder.display()))?;
    let (commit, machine) = (version("git", "rev-parse HEAD"), version("uname", "-srm"));
    println!("seed {}, {} minutes, {server}, {machine}, commit {commit}", options.seed, options.minutes);
    println!("a waiter counts as served within {:?} after the faults ended", crate::harness::SERVED_WITHIN);
    for peer in &missing {
        println!("not installed, so not run: {peer}");
    }
    let build = if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned();
    let kept = Kept {
        options,
        commit,
        server,
        machine,
        build,
        missing,
        rows: Vec::new(),
        resumed: 0,
        note: String::new(),
        without_history: Vec::new(),
    };
    let right = go_on(&folder, kept, &rows, repeat)?;
    Ok((folder, right))
}

/// Continues an interrupted run. Finished rows stay; the unfinished row starts again.
pub(crate) fn resume(folder: &Path) -> Result<bool, String> {
    let mut kept = Kept::read(folder)?;
    kept.resumed += 1;
    let (rows, missing) = rows_of(&kept.options)?;
    if missing != kept.missing {
        return Err(format!("not installed then: {:?}; not installed now: {missing:?}", kept.missing));
    }
    let path = folder.join("history.jsonl");
    let failed = |error| format!("cannot go on with {}: {error}", path.display());
    let text = std::fs::read(&path).map_err(failed)?;
    let lines = text.split_inclusive(|byte| *byte == b'\n').scan(0, |end, line| {
        *end += line.len() as u64;
        Some((*end, line.starts_with(br#"{"type":"done""#)))
    });
    let mut ends = lines.filter(|(_, is_done)| *is_done).map(|(end, _)| end);
    let end = match kept.rows.len() {
        0 => Some(0),
        rows => ends.nth(rows - 1),
    };
    let end = end.ok_or_else(|| format!("{} is no history of {} rows", path.display(), kept.rows.len()))?;
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(end)).map_err(failed)?;
    println!("{} of {} rows are done", kept.rows.len(), rows.len());
    go_on(folder, kept, &rows, None)
}

/// Runs the unfinished rows, and judges all of them.
fn go_on(folder: &Path, mut kept: Kept, rows: &[Row], repeat: Option<&Kept>) -> Result<bool, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let (history, weights) = (folder.join("history.jsonl"), rows.iter().map(|row| row.weight).sum::<f64>());
    for row in rows {
        if kept.rows.iter().any(|ran| ran.row == row.name()) {
            continue;
        }
        let part = kept.options.minutes * 60.0 * row.weight / weights;
        let until = match repeat.map(|before| before.rows.iter().find(|ran| ran.row == row.name())) {
            None => Until::Elapsed(Duration::from_secs_f64(part)),
            Some(Some(ran)) => Until::Steps(ran.steps),
            // The row did not run in the run that is repeated.
            Some(None) => continue,
        };
        println!("{} …", row.name());
        kept.rows.push(runtime.block_on(one(row, kept.options.seed, &history, until))?);
        write(&folder.join("run.json"), &serde_json::to_string_pretty(&kept).unwrap_or_default())?;
    }
    let right = judge(folder, &kept, rows)?;
    println!("\nseed {}; all of it is in {}", kept.options.seed, folder.display());
    Ok(right)
}

async fn one(row: &Row, seed: u64, history: &Path, until: Until) -> Result<Ran, String> {
    let recorder = Recorder::append_to(history);
    let (name, assumption) = (row.name(), row.assumption.text().to_owned());
    let subject = row.subject.clone();
    let begin = Record::Run { row: name.clone(), subject, assumption, expect: row.expect(), seed: row.seed(seed) };
    recorder.record(&begin);
    let outcome = row::run(row.setting(seed)?, history, until).await?;
    recorder.record(&Record::Done { at: now() });
    if !outcome.tally.is_empty() {
        println!("    answers: {:?}", outcome.tally);
    }
    let served_ms = outcome.recovery.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    Ok(Ran { row: name, steps: outcome.steps, served_ms })
}

/// Lets both checkers read the history, and prints the table. Returns whether everything is as expected.
fn judge(folder: &Path, kept: &Kept, rows: &[Row]) -> Result<bool, String> {
    let path = folder.join("history.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let verdicts = check::check(&text)?;
    let ours: Vec<String> = verdicts.iter().map(Verdict::as_json).collect();
    let checker = Path::new(env!("CARGO_MANIFEST_DIR")).join("check.py");
    let second = Command::new("python3").arg("-B").arg(&checker).arg(&path).output();
    let agreed = match second {
        Err(_) => {
            println!("not installed: python3, so only one checker has read the history, and that proves less");
            true
        }
        Ok(output) => {
            let theirs = String::from_utf8_lossy(&output.stdout).into_owned();
            let agreed = theirs.lines().eq(ours.iter().map(String::as_str));
            if !agreed {
                let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
                println!("THE CHECKERS DISAGREE\n{}\n--- check.py says\n{theirs}{complaint}", ours.join("\n"));
            }
            agreed
        }
    };
    let faults = table::faults(&text);
    let shown = table::table(&verdicts, &kept.rows);
    println!("\nfaults that happened: {faults}\n\n{shown}");
    write(&folder.join("table.md"), &format!("{shown}\n"))?;
    write(
        &folder.join("verdicts.json"),
        &json!({"verdicts": verdicts, "agreed": agreed, "faults": faults}).to_string(),
    )?;
    crate::report::write(folder, kept, &verdicts, &text)?;
    let ours_are_right = verdicts.iter().all(|verdict| {
        let right = verdict.is_as_expected();
        if !right && rows.iter().any(|row| row.is_ours() && row.name() == verdict.row) {
            println!("NOT AS EXPECTED: {}", verdict.as_json());
        }
        right
    });
    Ok(ours_are_right && agreed)
}

fn version(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split(' ')).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

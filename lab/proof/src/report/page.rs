//! Builds `docs/proof.md` from the files of a run.

use std::path::Path;

use serde::Deserialize;

use crate::check::Verdict;
use crate::harness;
use crate::kept::Kept;
use crate::report::{pictures, table};

/// How many seconds faults must strike a row for its figures to mean something.
const ENOUGH: f64 = 15.0;

/// The content of a run's `verdicts.json`.
#[derive(Deserialize)]
struct Judged {
    verdicts: Vec<Verdict>,
    agreed: bool,
    faults: String,
}

pub(crate) fn page(folder: &Path) -> Result<String, String> {
    let kept = Kept::read(folder)?;
    let path = folder.join("verdicts.json");
    let no_run = |why: String| format!("{} is no folder of a run: verdicts.json: {why}", folder.display());
    let text = std::fs::read_to_string(path).map_err(|error| no_run(error.to_string()))?;
    let judged: Judged = serde_json::from_str(&text).map_err(|error| no_run(error.to_string()))?;
    let (fault_count, fault_kinds) = judged.faults.split_once(": ").unwrap_or(("0", "none"));
    let agree = if judged.agreed { "Both checkers say the same of it." } else { "**The checkers disagree.**" };
    let missing = if kept.missing.is_empty() {
        String::new()
    } else {
        let names: Vec<&str> = kept.missing.iter().filter_map(|text| text.split(':').next()).collect();
        format!(" Not installed there, so not run: {}.", names.join(", "))
    };
    let resumed = match kept.resumed {
        0 => String::new(),
        1 => " It was interrupted once, and went on with the row that had not ended.".to_owned(),
        times => format!(" It was interrupted {times} times, and went on with the row that had not ended."),
    };
    let (options, note) = (&kept.options, &kept.note);
    let each = options.minutes * 60.0 / f64::from(u32::try_from(kept.rows.len()).unwrap_or(u32::MAX));
    let short = if each < ENOUGH {
        format!(" **{each:.0} seconds a row show that it works, and little else**: a rare fault needs a longer run.")
    } else {
        String::new()
    };
    let pictures: Vec<String> = pictures(&judged.verdicts)
        .into_iter()
        .filter(|(name, _)| folder.join(name).exists())
        .map(|(name, row)| {
            let row = &judged.verdicts[row].row;
            format!("{row}:\n\n![who held one lock](../lab/proof/published/{name})\n\n")
        })
        .collect();
    let pictures = if pictures.is_empty() {
        String::new()
    } else {
        format!(
            "The pictures show one lock, with a line for each process. Holds are blue, overlapping ones red, and faults shaded.
`lab/proof/published/report.html` has one for each row, with call sites and tokens.\n\n{}",
            pictures.concat()
        )
    };
    let history = if folder.join("history.jsonl.xz").exists() {
        let left_out = &kept.without_history;
        let names: Vec<String> =
            left_out.iter().map(|row| format!("`{}`", row.trim_end_matches(", all assumptions held"))).collect();
        let which = if names.is_empty() {
            "these rows".to_owned()
        } else {
            format!("{} of these {} rows", kept.rows.len() - left_out.len(), kept.rows.len())
        };
        let less = if names.is_empty() {
            String::new()
        } else {
            format!("\n\nIt lacks these rows, because it keeps at most two megabytes: {}.", names.join(", "))
        };
        format!(
            "The history of {which} is in the repository. Read the second checker, and run it:\n\n```sh
python3 lab/proof/check.py lab/proof/published/history.jsonl.xz   # a line for each row, with its faults\n```{less}\n\n"
        )
    } else {
        String::new()
    };
    Ok(format!(
        "# Proof

Check it yourself: `cargo lab lock-proof` starts its own servers and prints the table below.

- [The README of the proof](../lab/proof/README.md) says what the rows mean, how assumptions are broken, and what the folder contains.
- [The schema](../lab/proof/schema.md) says what a history is. The second checker was written from it alone.
- [Peers](../lab/proof/peers/README.md) says how others take part.

## A run

Seed {}, {} minutes of faults for {} rows, {}, {}, a {} build.{resumed}{missing} {agree}{short}{note}

The run had {fault_count} faults: `{fault_kinds}`.

{}

With seed 20261126, Sentinel and Cluster have `acks=all`. Other libraries get the same faults, with the settings that their documentation recommends. *Holds* for another library means that no fault was seen in so many sections.
A key from which tokens are drawn is not a key left: `RFencedLock` keeps one for each lock, for ever, and this library one for each server (`distributed-lock:clock`).
*All served after*: how long after the faults had ended every process had the lock, at most {:?}, or *never*. In a row that does not name an assumption, all of them held.

```sh
cargo lab lock-proof -- --minutes {} --seed {}   # the same faults in the same order
```

{}{}## What is promised, and what is not

| while | this library promises | if it is broken |
|---|---|---|
| clocks run alike, a server keeps acknowledged writes, the holder checks before it writes, a member that forgot its data does not count | never two holders | two holders, for at most one lease; the table shows it |
| the resource checks tokens | a late write never passes, also if everything else is broken | a late write passes; the table shows it |

## Our own failures

[Thirteen faults](../lab/proof/failures.md) were in this library although all of its tests were green. Each led to a rule and its test.

## If you see two holders

1. Keep the folder of the run. Otherwise keep the times, keys and tokens of both holders, and the log of the server.
2. Run `lock-proof check` on the history.
3. Open an issue with its output.

An overlap in a row whose assumptions are held is a fault of this library.
",
        options.seed,
        options.minutes,
        kept.rows.len(),
        kept.server.split(" sha").next().unwrap_or_default(),
        kept.machine,
        kept.build,
        table::table(&judged.verdicts, &kept.rows).replace(", all assumptions held |", " |"),
        harness::SERVED_WITHIN,
        options.minutes,
        options.seed,
        history,
        pictures,
    ))
}

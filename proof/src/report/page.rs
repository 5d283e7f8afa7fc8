//! Builds `docs/proof.md` from the files of a run.

use std::path::Path;

use serde::Deserialize;

use crate::check::Verdict;
use crate::harness;
use crate::kept::Kept;
use crate::report::{pictures, table};

/// How many seconds faults must strike a row for its figures to mean something.
const ENOUGH: f64 = 15.0;

/// The bugs that were found in this library.
const FAILURES: &str = include_str!("../../failures.md");

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
    let options = &kept.options;
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
            format!("{row}:\n\n![who held one lock: {row}](../proof/published/{name})\n\n")
        })
        .collect();
    let pictures = if pictures.is_empty() {
        String::new()
    } else {
        format!(
            "Who held one lock, a line for each process: holds in blue, what began while another still held it in red, faults as shades. `proof/published/report.html` has such a line for each row,
and names the call sites and tokens of whatever one points at.\n\n{}",
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
            format!(
                "\n\nThere was no room for the history of {}; `lock-proof` writes the whole of it.",
                names.join(", ")
            )
        };
        format!(
            "The history of {which} is in the repository. Whoever does not believe our checker reads the second one, and asks that:\n\n```sh
python3 proof/check.py proof/published/history.jsonl.xz   # what is right and wrong in it, a line for each row\n```{less}\n\n"
        )
    } else {
        String::new()
    };
    Ok(format!(
        "# Proof

Nobody should have to believe us: `cargo run --release -p lock-proof` takes some minutes, starts servers of its own, and prints the table below. [What its rows mean, how each
assumption is broken, and what is in its folder](../proof/README.md); [what a history is](../proof/schema.md), from which the second checker was written;
[how another lock takes part](../proof/peers/README.md).

## A run

Seed {}, {} minutes of faults for {} rows, {}, {}, a {} build.{resumed}{missing} {agree}{short}

Faults that happened, {}.

{}

For others the faults are the same in kind and number, none aimed at one of them, and settings are those that their documentation recommends. *Holds* for them says that nothing was seen
in so many sections, not that nothing can be. All served: within {:?} after the faults had ended, or *never*.

```sh
cargo run --release -p lock-proof -- --minutes {} --seed {}   # the same faults in the same order
```

{}{}## What is promised, and what is not

| while | ours | when it is broken |
|---|---|---|
| clocks run alike, a server keeps what it acknowledged, the holder looks before it writes, a member that forgot is left out | no two holders | two holders, for as long as a lease at most; the table shows it |
| the resource checks tokens | no late write passes, whatever else is broken | a late write passes; the table shows it |

{FAILURES}
## If you see two holders

Keep the folder of the run, or the times, keys and tokens of both holders with the log of the server, and open an issue with `lock-proof check` of the history. An overlap in a row whose
assumptions are held is a fault of ours: the answer is its cause, the rule that was missing, and a test that fails without it.
",
        options.seed,
        options.minutes,
        kept.rows.len(),
        kept.server.split(" sha").next().unwrap_or_default(),
        kept.machine,
        kept.build,
        judged.faults,
        table::table(&judged.verdicts, &kept.rows),
        harness::SERVED_WITHIN,
        options.minutes,
        options.seed,
        history,
        pictures,
    ))
}

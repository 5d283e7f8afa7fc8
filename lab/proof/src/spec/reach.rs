//! Counts which actions happened, and how often. A claim proves nothing if the actions that could break it never happen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::spec::config::{self, Config, Row, Wanted};

/// The number of states that each action led to, by the name of the action.
pub(super) type Counts = BTreeMap<String, u64>;

/// Reads TLC's coverage: `<Name line …>: new:all`. TLC prints it again every minute, so the last figure for a place counts.
pub(super) fn counts(said: &str) -> Counts {
    let place = |line: &str| {
        let (place, counts) = line.strip_prefix('<')?.rsplit_once(">: ")?;
        let all = counts.split_once(':')?.1.replace(',', "").parse::<u64>().ok()?;
        Some((place.to_owned(), all))
    };
    let places: BTreeMap<String, u64> = said.lines().filter_map(place).collect();
    let mut counts = Counts::new();
    for (place, all) in places {
        if let Some((name, _)) = place.split_once(" line ") {
            *counts.entry(name.to_owned()).or_default() += all;
        }
    }
    counts
}

/// The counts of one action over all rows.
#[derive(Default)]
struct Count {
    all: u64,
    claims: BTreeSet<String>,
    others: BTreeSet<String>,
}

/// A table of how often each action of each module happened over all rows, and the actions that never did.
pub(super) fn table(
    spec: &Path,
    configs: &[Config],
    rows: &[Row],
    happened: &[&Counts],
) -> Result<(String, Vec<String>), String> {
    let modules: BTreeSet<&str> = configs.iter().map(|config| config.module.as_str()).collect();
    let mut lines = vec![
        "| action | led to | in claims | without a rule, or broken |".to_owned(),
        "| --- | --- | --- | --- |".to_owned(),
    ];
    let mut never = Vec::new();
    for module in modules {
        let text = config::read(&spec.join(format!("{module}.tla")))?;
        for action in config::actions(&text) {
            let count = count(module, &action, rows, happened);
            let name = format!("{module}: {action}");
            lines.push(format!("| {name} | {} | {} | {} |", count.all, count.claims.len(), count.others.len()));
            if count.all == 0 {
                never.push(name);
            }
        }
    }
    Ok((lines.join("\n"), never))
}

fn count(module: &str, action: &str, rows: &[Row], happened: &[&Counts]) -> Count {
    let mut count = Count::default();
    for (row, counts) in rows.iter().zip(happened).filter(|(row, _)| row.module == module) {
        let all = counts.get(action).copied().unwrap_or(0);
        count.all += all;
        if all > 0 {
            let whole = row.wanted == Wanted::Holds;
            let _ = if whole { count.claims.insert(row.title()) } else { count.others.insert(row.title()) };
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lock_testing::limit;

    use super::{counts, table};
    use crate::spec::config::{Row, Wanted, read_all};

    /// TLC prints the coverage twice here: the last figure for a place counts, and an action in several places is summed.
    const SAID: &str = "\
Progress(9) at 2026-01-01 00:01:00: 500 states generated (500 s/min), 300 distinct states found (300 ds/min), 9 states left on queue.
The coverage statistics at 2026-01-01 00:01:00
<Init line 448, col 1 to line 448, col 4 of module Lock>: 1:1
<Acquire line 246, col 1 to line 246, col 10 of module Lock>: 5:9
  line 248, col 6 to line 248, col 30 of module Lock: 17
<Miss line 402, col 1 to line 402, col 4 of module Lock>: 0:0
End of statistics.
The coverage statistics at 2026-01-01 00:02:00
<Acquire line 246, col 1 to line 246, col 10 of module Lock>: 7:20
<Expire line 365, col 1 to line 365, col 6 of module Lock>: 0:3
<Expire line 366, col 1 to line 366, col 6 of module Lock>: 1:4
<Miss line 402, col 1 to line 402, col 4 of module Lock>: 0:0
End of statistics.
";

    #[test]
    #[limit]
    fn an_action_is_counted_by_what_was_told_last_of_each_of_its_places() {
        let counted = counts(SAID);
        let counted: Vec<(&str, u64)> = counted.iter().map(|(name, all)| (&**name, *all)).collect();
        assert_eq!(counted, [("Acquire", 20), ("Expire", 7), ("Init", 1), ("Miss", 0)]);
    }

    /// Counts are summed over all rows of a module. An action that stays at zero is reported.
    #[test]
    #[limit]
    fn an_action_that_happened_in_no_row_is_named() {
        let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("spec");
        let configs: Vec<_> =
            read_all(&spec).unwrap().into_iter().filter(|config| config.name == "Lock-fence").collect();
        let rows: Vec<Row> = configs[0].rows(false).into_iter().take(2).collect();
        assert_eq!([rows[0].wanted, rows[1].wanted], [Wanted::Holds, Wanted::CounterExample]);
        let other = counts("<Acquire line 246, col 1 to line 246, col 10 of module Lock>: 1:2\n");
        let (told, never) = table(&spec, &configs, &rows, &[&counts(SAID), &other]).unwrap();
        let line = |name: &str| told.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap().to_owned();
        assert_eq!(line("Lock: Acquire"), "| Lock: Acquire | 22 | 1 | 1 |");
        assert_eq!(line("Lock: Expire"), "| Lock: Expire | 7 | 1 | 0 |");
        assert_eq!(line("Lock: Miss"), "| Lock: Miss | 0 | 0 | 0 |");
        assert!(never.contains(&"Lock: Miss".to_owned()) && never.contains(&"Lock: Promote".to_owned()), "{never:?}");
        assert!(
            !never.contains(&"Lock: Acquire".to_owned()) && !never.contains(&"Lock: Expire".to_owned()),
            "{never:?}"
        );
    }
}

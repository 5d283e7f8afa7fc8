//! "Did you mean": the known word nearest to a misspelt one.

/// Names of options in other lock libraries, with the name in this library.
const SYNONYMS: &[(&str, &str)] = &[
    ("acks", "durability"),
    ("condition", "when"),
    ("expire", "ttl"),
    ("expiration", "ttl"),
    ("expiry", "ttl"),
    ("fsync", "durability"),
    ("lease", "ttl"),
    ("lease_time", "ttl"),
    ("lock_at_least_for", "min_hold"),
    ("lock_at_most_for", "ttl"),
    ("manager", "client"),
    ("name", "label"),
    ("on_contention", "on_busy"),
    ("on_failure", "on_error"),
    ("timeout", "wait"),
    ("wait_time", "wait"),
    ("watchdog", "renew"),
];

/// Returns the candidate that was most likely meant by an option name.
pub(crate) fn option<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let synonym = SYNONYMS.iter().find(|(word, _)| *word == typed).map(|(_, option)| *option);
    known.iter().copied().find(|candidate| Some(*candidate) == synonym).or_else(|| nearest(typed, known))
}

/// The longest name that is compared with others. The work grows with the product of their lengths.
const MAX_COMPARED: usize = 64;

/// Returns the candidate within a third of the typed word's length, counted in edits.
pub(crate) fn nearest<'a>(typed: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let limit = (typed.chars().count().max(3) / 3).max(1);
    if typed.len() > MAX_COMPARED {
        return None;
    }
    candidates
        .iter()
        .filter(|candidate| candidate.len() <= MAX_COMPARED)
        .map(|candidate| (distance(typed, candidate), *candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Counts insertions, deletions, replacements and swaps of neighbours.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![vec![0; right.len() + 1]; left.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest, option};

    #[test]
    fn counts_edits() {
        assert_eq!(distance("ttl", "ttl"), 0);
        assert_eq!(distance("tll", "ttl"), 1);
        assert_eq!(distance("wiat", "wait"), 1);
        assert_eq!(distance("", "wait"), 4);
    }

    #[test]
    fn suggests_near_words_only() {
        assert_eq!(nearest("usr_id", &["amount", "user_id"]), Some("user_id"));
        assert_eq!(nearest("x", &["user_id"]), None);
        let long = "x".repeat(100_000);
        assert_eq!((nearest(&long, &[&long, "x"]), nearest("x", &[&long])), (None, None));
        assert_eq!(option("timeout", &["ttl", "wait"]), Some("wait"));
        assert_eq!(option("tll", &["ttl", "wait"]), Some("ttl"));
    }
}

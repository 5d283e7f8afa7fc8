use std::sync::Arc;

use super::History;

#[test]
fn a_change_is_counted_and_silence_is_not() {
    let history = History::default();
    let [one, two] = ["one", "two"].map(Arc::<str>::from);
    for (found, changes) in [(Some(&one), 0), (None, 0), (Some(&one), 0), (Some(&two), 1), (None, 1), (Some(&one), 2)] {
        history.observe(found);
        assert_eq!(history.changes(), changes);
    }
}

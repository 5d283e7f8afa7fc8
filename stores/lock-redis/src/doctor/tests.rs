use std::time::Duration;

use lock_store::{Finding, FindingGrade};

use super::merged;
use super::settings::apart;

#[test]
fn what_all_servers_say_is_said_once() {
    let [same, other] = [Finding::works("a", "x"), Finding::warning("b", "y")];
    let all = vec![("one".to_owned(), vec![same.clone(), other.clone()]), ("two".to_owned(), vec![same.clone()])];
    let expected = [same.clone(), Finding::warning("b", "one: y")];
    assert_eq!(merged(&all), expected);
    assert_eq!(merged(&[("one".to_owned(), vec![same.clone()])]), [same]);
}

#[test]
fn clocks_are_apart_by_what_the_way_does_not_explain() {
    for (server, here, way, grade, says) in [
        (100_900, 100_000, 10, FindingGrade::Works, "within a second"),
        (105_000, 100_000, 4_500, FindingGrade::Works, "within a second"),
        (105_000, 100_000, 0, FindingGrade::Works, "5 s ahead of"),
        (100_000, 105_000, 0, FindingGrade::Works, "5 s behind"),
        (100_000, 200_000, 0, FindingGrade::Warning, "100 s behind"),
    ] {
        let [server, here, way] = [server, here, way].map(Duration::from_millis);
        let found = apart(server, here, way);
        assert!(found.grade == grade && found.says.contains(says), "{found:?}");
    }
}

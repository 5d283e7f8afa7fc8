use std::time::Duration;

use super::confirmed;

#[test]
fn who_has_confirmed_its_place_a_moment_ahead_of_the_estimate_does_not_sleep() {
    let second = 1_000_000;
    assert_eq!(confirmed(second, 3 * second), (false, Some(Duration::from_secs(2))));
    assert_eq!(confirmed(second + 1, second), (false, Some(Duration::ZERO)));
    assert_eq!(confirmed(4 * second, second), (true, None));
}

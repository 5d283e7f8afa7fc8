use lock_testing::limit;

use super::{MAX_SITE, check_holder, site};
use crate::lease::of_site;

#[test]
#[limit]
fn the_place_of_a_call_site_tells_holder_and_reason() {
    for (holder, reason) in [("ci-4711", ""), ("ann@ci:", "a b: c"), ("a:", ""), ("é", "é")] {
        assert_eq!(of_site(&site(holder, reason)), Some((holder, reason)));
    }
    let (holder, reason) = ("h".repeat(64), "é".repeat(200));
    let long = site(&holder, &reason);
    assert!(long.len() <= MAX_SITE && long.ends_with("é…") && of_site(&long).unwrap().0 == holder, "{long}");
    assert_eq!(of_site(&site("a", " two\nlines|x ")), Some(("a", "two lines x")));
    for other in ["shop::charge", "lease a b", "leases a", "lockctl run x"] {
        assert_eq!(of_site(other), None, "{other}");
    }
    for bad in ["", "a b", "a|b", "a\n", "a\u{a0}b", &"x".repeat(65)] {
        assert!(check_holder(bad).is_err(), "{bad:?}");
    }
}

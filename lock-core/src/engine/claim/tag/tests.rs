use lock_testing::limit;

use super::LeaseTag;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

fn tag(key: &str, holder: &str) -> LeaseTag {
    LeaseTag::of(&LockKey::new(key).unwrap(), holder)
}

#[test]
#[limit]
fn an_owner_tells_the_holder_and_the_grant() {
    let ci = tag("deploy:prod", "ci-4711");
    assert_eq!(&ci.0, b"c8aaf5dc7bbdf7c6", "processes of other versions compute this");
    let (one, other) = (ci.draw(), ci.draw());
    assert!(one != other && ci.is_of(Some(one)) && ci.is_of(Some(other)));
    for stranger in [tag("deploy:prod", "ci-4712"), tag("deploy:test", "ci-4711"), tag("deploy:prodci", "-4711")] {
        assert!(!stranger.is_of(Some(one)) && stranger != ci);
    }
    assert!(!ci.is_of(None) && !ci.is_of(Some(OwnerId::random())));
}

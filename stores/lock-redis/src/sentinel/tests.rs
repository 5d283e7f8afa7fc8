use super::Sentinels;
use crate::connection::connect::Settings;
use crate::connection::url::Address;
use crate::sentinel::one::View;
use lock_store::types::url::StoreUrl;

#[test]
fn a_decision_older_than_the_one_that_is_known_counts_only_while_that_is_in_doubt() {
    let sentinels = Sentinels::parse(&StoreUrl::read("redis+sentinel://h/mymaster"), Settings::default()).unwrap();
    let told = |port, epoch| {
        let master = Address { host: "m".to_owned(), port };
        let view = View { master, epoch, sentinels: Ok(Vec::new()), replicas: Ok(Vec::new()) };
        sentinels.believe(view).unwrap().node().to_owned()
    };
    assert_eq!(told(1, 1), "m:1");
    assert_eq!(told(2, 2), "m:2");
    assert_eq!(told(1, 1), "m:2", "one that was cut off has not heard of it");
    assert_eq!(told(2, 2), "m:2");
    let known = sentinels.believed().unwrap();
    sentinels.doubt(&known);
    assert_eq!(told(1, 1), "m:1", "nobody is there");
    assert_eq!(told(2, 2), "m:2");
}

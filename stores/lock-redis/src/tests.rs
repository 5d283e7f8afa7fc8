use std::time::Duration;

use crate::RedisStore;
use lock_store::contract::backend::{AcquireRequest, Claim, LockBackend as _, Release};
use lock_store::types::key::LockKey;
use lock_store::types::owner::HolderInfo;

/// They are made for every lock: what is rarely needed waits on the heap.
#[test]
fn the_futures_of_one_server_stay_small() {
    let store = RedisStore::new("redis://127.0.0.1:1/").unwrap();
    let claim = Claim::new(LockKey::new("k").unwrap(), Duration::from_secs(1));
    let request = AcquireRequest::new(claim.clone(), HolderInfo::new("h", 1, "s"));
    let release = Release::new(claim.clone());
    for (what, size, most) in [
        ("try_acquire", size_of_val(&store.try_acquire(&request)), 400),
        ("requeue", size_of_val(&store.requeue(&release, &request)), 416),
        ("release", size_of_val(&store.release(&release)), 240),
        ("withdraw", size_of_val(&store.withdraw(&claim)), 392),
        ("holder", size_of_val(&store.holder(&claim.key)), 680),
    ] {
        assert!(size <= most, "{what}: {size} bytes instead of {most}");
    }
}

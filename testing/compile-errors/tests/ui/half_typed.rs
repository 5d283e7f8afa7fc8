#![allow(unused)]

use lock_core::{LockError, distributed_lock};

struct Account {
    balance: u64,
}

#[distributed_lock(key = "k")]
async fn typing(account: &Account) -> Result<u64, LockError> {
    let balance = account.;
    Ok(balance)
}

fn main() {}

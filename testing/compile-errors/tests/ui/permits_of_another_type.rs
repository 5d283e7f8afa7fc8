use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", permits = "4")]
async fn permits() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

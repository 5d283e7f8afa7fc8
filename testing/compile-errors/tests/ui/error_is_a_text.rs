#![allow(unused)]

use lock_core::distributed_lock;

#[distributed_lock(key = "k")]
async fn string() -> Result<(), String> {
    Ok(())
}

#[distributed_lock(key = "k")]
fn text() -> Result<u32, &'static str> {
    Ok(1)
}

#[distributed_lock(key = "k", on_refused = "skip")]
async fn skipped() -> Result<(), String> {
    Ok(())
}

#[distributed_lock(key = "k", map_err = |error| error.to_string())]
async fn mapped() -> Result<(), String> {
    Ok(())
}

fn main() {}

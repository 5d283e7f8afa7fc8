//! A stream is polled when the function that made it has returned.

use std::pin::Pin;

use futures_util::stream::{self, BoxStream, Stream};
use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "feed:<id>")]
fn feed(id: u64) -> impl Stream<Item = u64> + Send {
    stream::iter([id])
}

#[distributed_lock(key = "feed:<id>")]
async fn later(id: u64) -> Result<impl Stream<Item = u64>, LockError> {
    Ok(stream::iter([id]))
}

#[distributed_lock(key = "feed:<id>")]
fn boxed(id: u64) -> Pin<Box<dyn futures_util::Stream<Item = u64> + Send>> {
    Box::pin(stream::iter([id]))
}

#[distributed_lock(key = "feed:<id>")]
async fn alias(id: u64) -> Result<BoxStream<'static, u64>, LockError> {
    Ok(Box::pin(stream::iter([id])))
}

#[distributed_lock(key = "feed:<id>")]
fn future(id: u64) -> impl Future<Output = Result<BoxStream<'static, u64>, LockError>> {
    async move { Ok(Box::pin(stream::iter([id])) as _) }
}

// The name of a socket only ends like one.
#[distributed_lock(key = "connect")]
async fn connect() -> Result<std::net::TcpStream, LockError> {
    unreachable!()
}

fn main() {}

//! One direction of one connection.

use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use crate::servers::proxy::Lane;
use lock_store::types::system::clock::{Clock, Timestamp};

/// Passes bytes on. Reading continues while earlier bytes are delayed, so that delays do not add up.
pub(super) async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    lane: &Lane,
    disguised: impl Fn(Vec<u8>) -> Vec<u8>,
) {
    let (arrived, mut due) = mpsc::unbounded_channel::<(Timestamp, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if arrived.send((Clock::system().now(), buffer[..length].to_vec())).is_err() {
                break;
            }
        }
        // Bytes that were read must still be passed on, so the writer ends both halves.
        drop(arrived);
        std::future::pending::<()>().await;
    };
    let write = async {
        let clock = Clock::system();
        let mut policy = lane.policy.subscribe();
        while let Some((at, bytes)) = due.recv().await {
            let delay = policy.borrow_and_update().delay;
            let due = at.after(delay);
            // A timer takes a millisecond even for a time that has passed, and such delays would add up.
            if due > clock.now() {
                clock.sleep_until(due).await;
            }
            if policy.wait_for(|policy| !policy.blocked).await.is_err() {
                return;
            }
            if lane.strands(&bytes) {
                std::future::pending::<()>().await;
            }
            let bytes = disguised(bytes);
            if bytes.is_empty() {
                continue;
            }
            let (length, ends) = lane.admit(bytes.len());
            // Counted before they arrive, so that a test that has seen them finds them counted.
            lane.passed.fetch_add(length as u64, Ordering::SeqCst);
            if to.write_all(&bytes[..length]).await.is_err() {
                return;
            }
            if !ends {
                continue;
            }
            if !lane.holds.load(Ordering::SeqCst) {
                return;
            }
            lane.policy.send_modify(|policy| policy.blocked = true);
            let resumed = policy.wait_for(|policy| !policy.blocked).await.is_ok();
            if !resumed || to.write_all(&bytes[length..]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}

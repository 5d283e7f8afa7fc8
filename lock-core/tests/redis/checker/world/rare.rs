//! States that a walk hardly ever meets: a lease ends, and somebody asks who cannot have what it leaves.

use std::sync::Arc;

use lock_core::{LockBackend, LockKey, Mode};
use tokio::time::{Instant, sleep_until};

use crate::checker::world::{Command, World};
use crate::support::MS;

impl<F: Fn() -> Arc<B>, B: LockBackend> World<F, B> {
    /// Makes those states, on keys that nobody has used yet. A busy machine may miss them.
    pub(in crate::checker) async fn rare(&mut self) -> Result<(), String> {
        self.faults = false;
        let [rw, sem, mix] = self.keys.clone();
        let permits = |units| Mode::permits(units, 3).unwrap();

        // One of two leases ends. The next claim wants all permits, and comes after one that fits.
        let began = Instant::now();
        self.send_new(0, &sem, permits(1)).await?;
        let stays = self.send_new(1, &sem, permits(2)).await?;
        sleep_until(began + 50 * MS).await;
        self.execute(stays, Command::Renew).await?;
        sleep_until(began + 100 * MS).await;
        self.send_new(2, &sem, permits(1)).await?;
        sleep_until(began + 165 * MS).await;
        self.send_new(3, &sem, Mode::Exclusive).await?;

        // The lease of a writer ends, and the first of two readers asks again.
        let began = Instant::now();
        self.send_new(0, &rw, Mode::Exclusive).await?;
        sleep_until(began + 100 * MS).await;
        let first = self.send_new(1, &rw, Mode::READ).await?;
        self.send_new(2, &rw, Mode::READ).await?;
        sleep_until(began + 165 * MS).await;
        self.execute(first, Command::Send(None)).await?;

        // A reader waits for a writer that becomes one.
        let writer = self.send_new(0, &mix, Mode::Exclusive).await?;
        self.send_new(1, &mix, Mode::READ).await?;
        self.execute(writer, Command::Downgrade).await?;
        self.faults = true;
        Ok(())
    }

    /// Sends a new claim. Returns its place.
    async fn send_new(&mut self, process: usize, key: &LockKey, mode: Mode) -> Result<usize, String> {
        let at = self.wish(self.processes[process].number, key.clone());
        let wish = &mut self.wishes[at];
        (wish.claim.mode, wish.waits) = (mode, true);
        self.execute(at, Command::Send(None)).await?;
        Ok(at)
    }
}

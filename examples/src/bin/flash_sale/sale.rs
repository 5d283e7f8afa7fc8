//! The sale: many buyers, and the one function that must never run twice at once for a product.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use lock_core::{LockError, distributed_lock};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::data::Order;
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::progress::Progress;

/// Buys `quantity` pieces of one product, if that many are left.
///
/// The attribute is all it takes: at most one call runs at a time for one product, in any number of
/// processes; calls for different products do not wait for each other.
#[distributed_lock(key = "sale:product:<product>", ttl = "10s", wait = "60s", when = locked)]
async fn purchase(ledger: &Ledger, product: &str, quantity: u32, locked: bool) -> Result<Answer, SaleError> {
    let before = ledger.read(product)?;
    let Some(after) = before.sell(quantity) else {
        return Ok(Answer::Refused);
    };
    payment(before).await;
    ledger.write(product, after)?;
    Ok(Answer::Sold { sale: after.sales, remaining: after.remaining })
}

/// Stands for the payment provider, which takes between 10 and 25 ms.
async fn payment(before: Entry) {
    let varied = 10 + u64::from(before.sales.wrapping_mul(7) % 16);
    tokio::time::sleep(Duration::from_millis(varied)).await;
}

/// The answer that a buyer got.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Answer {
    /// The order was filled.
    Sold {
        /// The number of the sale in the ledger of its product, from 1.
        sale: u32,
        /// The pieces left after it.
        remaining: u32,
    },
    /// There were not enough pieces left.
    Refused,
    /// Something went wrong, with the reason.
    Failed(String),
}

/// An order and its result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Answered {
    /// The number of the order.
    pub(crate) order: u32,
    pub(crate) answer: Answer,
}

/// The reason why an order was neither filled nor refused.
#[derive(Debug, thiserror::Error)]
enum SaleError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// One sale: the orders, the ledger and the buyers.
#[derive(Debug)]
pub(crate) struct Sale {
    pub(crate) ledger: Ledger,
    pub(crate) orders: Vec<Order>,
    pub(crate) buyers: u32,
    pub(crate) locked: bool,
}

/// The answers of one process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Takings {
    pub(crate) answers: Vec<Answered>,
    pub(crate) opened: SystemTime,
    pub(crate) closed: SystemTime,
}

impl Sale {
    /// Lets all buyers place orders until every order is answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops all buyers; purchases in progress are dropped and unlocked.
    pub(crate) async fn run(self, progress: &Progress) -> Takings {
        let opened = SystemTime::now();
        let (sale, next) = (Arc::new(self), Arc::new(AtomicUsize::new(0)));
        let mut buyers = JoinSet::new();
        for _ in 0..sale.buyers {
            let (sale, next, progress) = (Arc::clone(&sale), Arc::clone(&next), progress.clone());
            buyers.spawn(async move {
                let mut answers = Vec::new();
                while let Some(order) = sale.orders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    answers.push(sale.place(order).await);
                    progress.add(1);
                }
                answers
            });
        }
        let answers = buyers.join_all().await.into_iter().flatten().collect();
        Takings { answers, opened, closed: SystemTime::now() }
    }

    async fn place(&self, order: &Order) -> Answered {
        let bought = purchase(&self.ledger, &order.product, order.quantity, self.locked).await;
        let answer = bought.unwrap_or_else(|error| Answer::Failed(error.to_string()));
        Answered { order: order.number, answer }
    }
}

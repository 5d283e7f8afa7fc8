//! The audit: compares the buyers' answers with the ledger, independently of both.

use std::collections::{BTreeMap, HashMap};

use crate::data::{Order, Stock};
use crate::ledger::{Entry, Ledger};
use crate::sale::{Answer, Answered};

/// The result of the audit.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) sold: usize,
    pub(crate) pieces: u32,
    pub(crate) refused: usize,
    pub(crate) failed: usize,
    /// Pieces promised to buyers that never existed.
    pub(crate) oversold: u32,
    /// Sales that are missing in the ledger.
    pub(crate) lost_updates: u32,
    /// Inconsistencies, in sentences.
    pub(crate) problems: Vec<String>,
}

/// One sale as its buyer knows it.
#[derive(Clone, Copy, Debug)]
struct Receipt<'a> {
    sale: u32,
    remaining: u32,
    order: &'a Order,
}

/// The orders of one product.
#[derive(Debug, Default)]
struct Product<'a> {
    receipts: Vec<Receipt<'a>>,
    refused: Vec<&'a Order>,
}

impl Audit {
    /// Audits a sale whose orders have all been placed.
    pub(crate) fn of(orders: &[Order], answers: &[Answered], stock: &Stock, ledger: &Ledger) -> Self {
        let mut audit = Self::default();
        let mut products: BTreeMap<&str, Product<'_>> = BTreeMap::new();
        let mut first_failure = None;
        for (order, answer) in audit.pair(orders, answers) {
            let product = products.entry(&order.product).or_default();
            match *answer {
                Answer::Sold { sale, remaining } => product.receipts.push(Receipt { sale, remaining, order }),
                Answer::Refused => product.refused.push(order),
                Answer::Failed(ref why) => {
                    audit.failed += 1;
                    first_failure.get_or_insert_with(|| format!("{order}: {why}"));
                }
            }
        }
        if let Some(first) = first_failure {
            audit.problems.push(format!("{} orders failed, the first is {first}", audit.failed));
        }
        for (name, &opening) in stock {
            let product = products.remove(name.as_str()).unwrap_or_default();
            audit.sold += product.receipts.len();
            audit.refused += product.refused.len();
            match ledger.read(name) {
                Ok(entry) => audit.product(name, opening, product, entry),
                Err(error) => audit.problems.push(error.to_string()),
            }
        }
        audit
    }

    /// Finds the answer of each order, and reports orders answered twice or never, and answers
    /// without an order.
    fn pair<'a>(&mut self, orders: &'a [Order], answers: &'a [Answered]) -> Vec<(&'a Order, &'a Answer)> {
        let mut by_order: HashMap<u32, Vec<&Answer>> = HashMap::new();
        for answered in answers {
            by_order.entry(answered.order).or_default().push(&answered.answer);
        }
        let mut pairs = Vec::new();
        for order in orders {
            let answers = by_order.remove(&order.number).unwrap_or_default();
            if answers.len() != 1 {
                self.problems.push(format!("{order} was answered {} times", answers.len()));
            }
            pairs.extend(answers.into_iter().map(|answer| (order, answer)));
        }
        self.problems.extend(by_order.keys().map(|number| format!("order {number} was answered but never placed")));
        pairs
    }

    fn product(&mut self, name: &str, opening: u32, product: Product<'_>, entry: Entry) {
        let Product { mut receipts, refused } = product;
        let pieces: u32 = receipts.iter().map(|receipt| receipt.order.quantity).sum();
        self.pieces += pieces;

        let oversold = pieces.saturating_sub(opening);
        self.oversold += oversold;
        if oversold > 0 {
            self.problems.push(format!("{name}: {pieces} pieces sold, but there were {opening}"));
        }

        let sales = u32::try_from(receipts.len()).unwrap_or(u32::MAX);
        self.lost_updates += sales.saturating_sub(entry.sales);
        if sales != entry.sales {
            self.problems.push(format!("{name}: {sales} buyers have a receipt, the ledger has {} sales", entry.sales));
        }
        if opening.checked_sub(pieces) != Some(entry.remaining) {
            let left = entry.remaining;
            self.problems
                .push(format!("{name}: {opening} at the start, {pieces} sold, and the ledger has {left} left"));
        }

        // The receipts must form one sequence: first sale, second sale, each starting where the last
        // ended.
        receipts.sort_by_key(|receipt| receipt.sale);
        let (mut sale, mut left) = (0, Some(opening));
        for receipt in receipts {
            sale += 1;
            left = left.and_then(|left| left.checked_sub(receipt.order.quantity));
            if (receipt.sale, Some(receipt.remaining)) != (sale, left) {
                let Receipt { sale: claimed, remaining, order } = receipt;
                self.problems.push(format!(
                    "{order}: the receipt says sale {claimed} with {remaining} left, which the sales before it contradict"
                ));
                break;
            }
        }

        // Stock never grows, so an order that could be filled at the end could have been filled at
        // any time.
        if let Some(order) = refused.into_iter().find(|order| order.quantity <= entry.remaining) {
            self.problems.push(format!("{order} was refused although {} were left", entry.remaining));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Audit;
    use crate::data::{Order, Stock};
    use crate::ledger::{Entry, Ledger};
    use crate::sale::{Answer, Answered};

    fn order(number: u32, quantity: u32) -> Order {
        Order { number, buyer: "ada".to_owned(), product: "lamp".to_owned(), quantity }
    }

    fn sold(order: u32, sale: u32, remaining: u32) -> Answered {
        Answered { order, answer: Answer::Sold { sale, remaining } }
    }

    fn refused(order: u32) -> Answered {
        Answered { order, answer: Answer::Refused }
    }

    /// Three orders, of 2 + 1 + 2 pieces, from a stock of 3.
    fn audit(answers: &[Answered], remaining: u32, sales: u32) -> Audit {
        let folder = tempfile::tempdir().unwrap();
        let stock = Stock::from([("lamp".to_owned(), 3)]);
        let ledger = Ledger::create(folder.path(), &stock).unwrap();
        ledger.write("lamp", Entry { remaining, sales }).unwrap();
        Audit::of(&[order(1, 2), order(2, 1), order(3, 2)], answers, &stock, &ledger)
    }

    #[test]
    fn a_clean_sale_passes() {
        let audit = audit(&[sold(2, 2, 0), refused(3), sold(1, 1, 1)], 0, 2);
        assert_eq!(audit.problems, [""; 0]);
        assert_eq!((audit.sold, audit.pieces, audit.refused, audit.failed), (2, 3, 1, 0));
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        let cases: [(&str, Audit); 7] = [
            ("5 pieces sold", audit(&[sold(1, 1, 1), sold(2, 2, 0), sold(3, 2, 0)], 0, 2)),
            ("2 buyers have a receipt", audit(&[sold(1, 1, 1), sold(2, 1, 2), refused(3)], 2, 1)),
            ("contradict", audit(&[sold(1, 1, 1), sold(2, 1, 0), refused(3)], 0, 2)),
            ("answered 0 times", audit(&[sold(1, 1, 1), sold(2, 2, 0)], 0, 2)),
            ("answered 2 times", audit(&[sold(1, 1, 1), sold(2, 2, 0), refused(3), refused(3)], 0, 2)),
            ("never placed", audit(&[sold(1, 1, 1), sold(2, 2, 0), refused(3), refused(9)], 0, 2)),
            ("although 3 were left", audit(&[refused(1), refused(2), refused(3)], 3, 0)),
        ];
        for (expected, audit) in cases {
            assert!(audit.problems.iter().any(|problem| problem.contains(expected)), "{expected}: {audit:?}");
        }
    }

    #[test]
    fn damage_is_counted() {
        let audit = audit(&[sold(1, 1, 1), sold(2, 1, 2), sold(3, 1, 1)], 1, 1);
        assert_eq!((audit.oversold, audit.lost_updates), (2, 2));
    }
}

//! The input: the orders that arrive, and the stock there is.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

const ORDERS: &str = include_str!("../../../data/orders.csv");
const STOCK: &str = include_str!("../../../data/stock.csv");

/// Opening stock by product.
pub(crate) type Stock = BTreeMap<String, u32>;

/// What is on offer, and who wants it.
#[derive(Debug)]
pub(crate) struct Data {
    /// In the order of their arrival.
    pub(crate) orders: Vec<Order>,
    pub(crate) stock: Stock,
}

/// One line of the order file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    #[serde(rename = "order")]
    pub(crate) number: u32,
    pub(crate) buyer: String,
    pub(crate) product: String,
    pub(crate) quantity: u32,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {} ({}, {} × {})", self.number, self.buyer, self.quantity, self.product)
    }
}

#[derive(Debug, Deserialize)]
struct StockLine {
    product: String,
    stock: u32,
}

impl Data {
    /// Reads `orders.csv` and `stock.csv` from a folder, or takes the ones that ship with the example.
    pub(crate) fn load(folder: Option<&Path>) -> Result<Self> {
        let Some(folder) = folder else {
            return Self::parse(ORDERS.as_bytes(), STOCK.as_bytes());
        };
        let open = |name| {
            let path = folder.join(name);
            File::open(&path).with_context(|| format!("cannot open {}", path.display()))
        };
        Self::parse(open("orders.csv")?, open("stock.csv")?)
    }

    fn parse(orders: impl Read, stock: impl Read) -> Result<Self> {
        let lines: Vec<StockLine> =
            csv::Reader::from_reader(stock).into_deserialize().collect::<Result<_, _>>().context("stock.csv")?;
        let stock: Stock = lines.into_iter().map(|line| (line.product, line.stock)).collect();
        let orders: Vec<Order> =
            csv::Reader::from_reader(orders).into_deserialize().collect::<Result<_, _>>().context("orders.csv")?;
        for order in &orders {
            ensure!(stock.contains_key(&order.product), "{order}: stock.csv has no such product");
            ensure!(order.quantity > 0, "{order}: the quantity must be at least 1");
        }
        Ok(Self { orders, stock })
    }
}

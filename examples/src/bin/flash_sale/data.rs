//! The input: the incoming orders, and the stock.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

const STOCK: &str = include_str!("../../../data/stock.csv");

/// How many orders are drawn if no file is given, and from how many buyers.
const ORDERS: u32 = 3_000;
const BUYERS: u32 = 1_800;

/// The seed: every run draws the same orders.
const SEED: u64 = 20;

/// How many of a hundred orders are for each product. Eight products and the one first edition sell out, the others do
/// not. Both answers, sold and refused, are therefore checked.
const DEMAND: [(&str, u32); 14] = [
    ("aurora-headphones", 20),
    ("copper-kettle", 14),
    ("trail-runner-42", 11),
    ("desk-lamp-oak", 10),
    ("pixel-notebook", 8),
    ("folding-bike-lock", 6),
    ("wool-blanket", 6),
    ("ceramic-grinder", 6),
    ("field-thermos", 5),
    ("linen-apron", 4),
    ("chess-travel-set", 3),
    ("solar-charger", 3),
    ("rain-shell-m", 3),
    ("signed-first-edition", 1),
];

/// Opening stock by product.
pub(crate) type Stock = BTreeMap<String, u32>;

/// The products on offer, and the orders for them.
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
    /// Reads `orders.csv` and `stock.csv` from a folder, or draws orders for the stock that ships with the
    /// example.
    pub(crate) fn load(folder: Option<&Path>) -> Result<Self> {
        let Some(folder) = folder else {
            return Self::check(draw_orders(), read(STOCK.as_bytes(), "stock.csv")?);
        };
        let open = |name| {
            let path = folder.join(name);
            File::open(&path).with_context(|| format!("cannot open {}", path.display()))
        };
        Self::check(read(open("orders.csv")?, "orders.csv")?, read(open("stock.csv")?, "stock.csv")?)
    }

    fn check(orders: Vec<Order>, stock: Vec<StockLine>) -> Result<Self> {
        let stock: Stock = stock.into_iter().map(|line| (line.product, line.stock)).collect();
        for order in &orders {
            ensure!(stock.contains_key(&order.product), "{order}: stock.csv has no such product");
            ensure!(order.quantity > 0, "{order}: the quantity must be at least 1");
        }
        Ok(Self { orders, stock })
    }
}

fn read<T: DeserializeOwned>(lines: impl Read, name: &'static str) -> Result<Vec<T>> {
    csv::Reader::from_reader(lines).into_deserialize().collect::<Result<_, _>>().context(name)
}

fn draw_orders() -> Vec<Order> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let products: Vec<&str> = DEMAND.iter().flat_map(|(name, share)| (0..*share).map(move |_| *name)).collect();
    let mut draw = |number| Order {
        number,
        buyer: format!("buyer-{:04}", random.u32(1..=BUYERS)),
        product: products[random.usize(0..products.len())].to_owned(),
        quantity: match random.u8(0..100) {
            0..82 => 1,
            82..96 => 2,
            _ => 3,
        },
    };
    (1..=ORDERS).map(&mut draw).collect()
}

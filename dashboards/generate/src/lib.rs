//! Dashboards, alerts with their runbooks, and recording rules for `lock-metrics`. Tests compare them with its catalogue.
//!
//! `lockctl dashboards --to DIR` writes them. [`Installation`] does it from a program of your own:
//!
//! ```
//! # fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = lock_dashboards::Settings::default();
//! settings.set("scrapeSeconds=30")?;
//! let planned = lock_dashboards::Installation::plan("monitoring/locks".as_ref(), lock_dashboards::Form::Plain, &settings)?;
//! if planned.changed().next().is_none() {
//!     planned.write()?;
//! }
//! # Ok(())
//! # }
//! ```

mod generate;
mod installation;
mod runbooks;
#[cfg(test)]
mod tests;

pub use generate::settings::{Setting, Settings};
pub use generate::{Form, files, queries};
pub use installation::{Installation, State};

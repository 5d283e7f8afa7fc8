#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod calls;
mod doctor;
mod error;
mod hosts;
mod inspect;
mod listen;
mod pin;
mod runner;
mod senders;
mod session;
mod store;
mod url;

pub use pin::{Statement, admit, mark_done, pin};
pub use store::PostgresStore;

lock_store::register_store_scheme!(&["postgres", "postgresql"], |url| PostgresStore::new(url)
    .map(lock_core::AnyBackend::new));

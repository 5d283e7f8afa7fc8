#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod calls;
mod connection;
mod data;
mod doctor;
mod error;
mod held;
mod inspect;
mod known;
mod names;
mod record;
mod runner;
mod server_time;
mod shared;
mod store;
mod url;
mod waiters;
mod watch;

pub use store::Kubernetes;

lock_store::register_store_scheme!(&["kubernetes"], |url| Kubernetes::new(url).map(lock_store::AnyBackend::new));

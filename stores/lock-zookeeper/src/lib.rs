#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attend;
mod calls;
mod data;
mod doctor;
mod error;
mod inspect;
mod names;
mod places;
mod revoked;
mod runner;
mod session;
mod shared;
mod slot;
mod store;
mod sweep;
mod url;

pub use store::ZooKeeper;

lock_store::register_store_scheme!(&["zookeeper", "zookeepers"], |url| ZooKeeper::new(url)
    .map(lock_store::AnyBackend::new));

#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod calls;
mod inspect;
mod listen;
mod names;
mod scripts;
mod seen;
mod store;

pub use store::RedissonStore;

lock_store::register_store_scheme!(&["layout=redisson"], |url| RedissonStore::new(url)
    .map(lock_store::AnyBackend::new));

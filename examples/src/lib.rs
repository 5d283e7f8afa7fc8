//! Compiles the code in the README and in pages of `docs/`. `tests/it/testing_page.rs` runs the code of `docs/testing.md`.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/which-lock.md")]
struct WhichLock;

#[cfg(doctest)]
#[doc = include_str!("../../docs/leases.md")]
struct Leases;

#[cfg(doctest)]
#[doc = include_str!("../../docs/fencing.md")]
struct Fencing;

#[cfg(doctest)]
#[doc = include_str!("../../docs/tutorial.md")]
struct Tutorial;

#[cfg(doctest)]
#[doc = include_str!("../../docs/keys.md")]
struct Keys;

#[cfg(doctest)]
#[doc = include_str!("../../docs/troubleshooting.md")]
struct Troubleshooting;

#[cfg(doctest)]
#[doc = include_str!("../../docs/migrating.md")]
struct Migrating;

#[cfg(doctest)]
#[doc = include_str!("../../docs/cookbook.md")]
struct Cookbook;

#[cfg(doctest)]
#[doc = include_str!("../../docs/choosing-a-ttl.md")]
struct ChoosingATtl;

#[cfg(doctest)]
#[doc = include_str!("../../lock-macros/docs/distributed_lock.md")]
struct Attribute;

#[cfg(doctest)]
#[doc = include_str!("../../lock-macros/docs/options.md")]
struct AttributeOptions;

#[cfg(doctest)]
#[doc = include_str!("../../lock-macros/docs/lock_key.md")]
struct KeyMacro;

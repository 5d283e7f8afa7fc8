//! Compiles the code of the pages: of the README and of those in `docs/`.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/fencing.md")]
struct Fencing;

#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Testing;

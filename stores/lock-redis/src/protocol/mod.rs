//! The data in the server: the names of keys, the texts at them, the clock of the tokens, and the steps that change them.

pub(crate) mod clock;
pub(crate) mod keys;
pub(crate) mod steps;
pub(crate) mod value;

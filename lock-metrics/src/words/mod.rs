//! Basic parts: the values of labels, tables of names, times, traces, settings.

pub(crate) mod checked;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod settings;
pub(crate) mod time;
pub(crate) mod trace;

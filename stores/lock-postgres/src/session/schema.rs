//! The tables and functions that this version calls, as text.

/// The version whose functions this crate calls.
pub(crate) const VERSION: i32 = 6;

/// The files of `sql/`, in their order.
const FILES: [&str; 6] = [
    include_str!("../../sql/1-tables.sql"),
    include_str!("../../sql/2-locks.sql"),
    include_str!("../../sql/3-notes.sql"),
    include_str!("../../sql/4-pins.sql"),
    include_str!("../../sql/5-inspect.sql"),
    include_str!("../../sql/6-rights.sql"),
];

/// Returns the statements that make the schema, or bring an older one up to date.
pub(crate) fn sql(schema: &str) -> String {
    FILES
        .concat()
        .replace("lock_core.", &format!("{schema}."))
        .replace("'lock_core'", &format!("'{schema}'"))
        .replace("'lock_core_'", &format!("'{schema}_'"))
        .replace("SCHEMA lock_core", &format!("SCHEMA {schema}"))
}

/// The functions that a user of the store calls.
pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    let made = FILES.iter().flat_map(|file| file.split("\nCREATE OR REPLACE FUNCTION lock_core.").skip(1));
    let names = made.filter_map(|head| head.split('(').next());
    // The other functions are called by these, and belong to the owner of the schema.
    names.filter(|name| {
        name.ends_with("_v1")
            || name.ends_with("_v2")
            || ["pin", "pin_in_statement", "mark_done", "admit"].contains(name)
    })
}

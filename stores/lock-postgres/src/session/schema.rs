//! The tables and functions that this version calls, as text.

/// The version whose functions this crate calls.
pub(crate) const VERSION: i32 = 2;

/// What makes version 1 where there is nothing, and each next one of the one before.
const STEPS: [&str; 2] = [include_str!("../../sql/v1.sql"), include_str!("../../sql/v2.sql")];

/// The statements that lead to this version from another. From 0, where there is nothing, they are what
/// [`PostgresStore::schema`](crate::PostgresStore::schema) returns.
pub(crate) fn sql(schema: &str, from: i32) -> String {
    let steps: String = STEPS.iter().skip(usize::try_from(from).unwrap_or_default()).copied().collect();
    steps
        .replace("lock_core.", &format!("{schema}."))
        .replace("'lock_core_'", &format!("'{schema}_'"))
        .replace("SCHEMA lock_core", &format!("SCHEMA {schema}"))
}

/// The names of the files that lead to this version from another.
pub(crate) fn files(from: i32) -> String {
    let names: Vec<String> = (from.max(0) + 1..=VERSION).map(|version| format!("sql/v{version}.sql")).collect();
    names.join(" and then ")
}

/// The functions that a user of the store calls, as this version of the files makes them.
pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    let made = STEPS.iter().flat_map(|step| step.split("\nCREATE ").skip(1));
    let heads = made.filter_map(|rest| rest.trim_start_matches("OR REPLACE ").strip_prefix("FUNCTION lock_core."));
    let names = heads.filter_map(|head| head.split('(').next());
    // Those of the others call each other, and belong to whoever made them.
    names.filter(|name| name.ends_with("_v1") || ["pin", "pin_in_statement", "mark_done", "admit"].contains(name))
}

//! The work that is done for a version: as a table and as JSON.

use lock_core::store::text::human;
use serde_json::{Value, json};

use crate::listing::Listing;
use crate::output::Table;
use crate::record;

/// Returns a table, the latest first, or nothing.
pub(crate) fn table(listing: &Listing) -> Option<String> {
    let mut table = Table::new(&["LOCK", "DONE FOR", "DONE", "CALL SITE", "PROCESS"]);
    let mut done: Vec<_> = listing.done.iter().collect();
    done.sort_by_key(|(_, mark)| mark.ago);
    for (key, mark) in &done {
        table.row([
            key.as_str().to_owned(),
            mark.version.as_str().to_owned(),
            format!("{} ago", human(mark.ago)),
            mark.by.site.to_string(),
            record::process(&mark.by),
        ]);
    }
    (!done.is_empty()).then(|| table.render())
}

pub(crate) fn many_json(listing: &Listing) -> Vec<Value> {
    let one = |(key, mark): &(lock_core::LockKey, lock_core::store::DoneMark)| {
        json!({
            "key": key.as_str(),
            "version": mark.version.as_str(),
            "done_seconds_ago": mark.ago.as_secs_f64(),
            "site": &*mark.by.site,
            "host": &*mark.by.host,
            "pid": mark.by.pid,
        })
    };
    listing.done.iter().map(one).collect()
}

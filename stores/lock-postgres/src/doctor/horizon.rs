//! Transactions that keep dead rows from being removed: every update of a lock leaves one, and a call reads past all of them.

use lock_core::Result;
use lock_store::Finding;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::doctor::facts::{Facts, without};
use crate::session::Session;
use crate::url::Settings;

const NAME: &str = "old transactions";

/// For how long a transaction may be open without a warning, ms.
const OLD: i64 = 60_000;

/// How many transactions may have begun since: a pair of acquire and release is two.
const BEHIND: i64 = 20_000;

/// How many dead rows the table of locks has between two rounds of autovacuum, and no more.
const DEAD: i64 = 50_000;

/// The eldest of each kind. A session counts for its own database, all else for every one.
const LOOK: &str = "\
    SELECT * FROM (
        SELECT 'session' AS kind, a.pid::text AS name, coalesce(nullif(a.application_name, ''), a.usename::text, '') AS whose,
            floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint AS ms,
            age(coalesce(a.backend_xmin, a.backend_xid))::bigint AS behind
          FROM pg_stat_activity a
          WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
            AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.xact_start IS NOT NULL
          ORDER BY age(coalesce(a.backend_xmin, a.backend_xid)) DESC, a.xact_start LIMIT 1) session
    UNION ALL SELECT * FROM (
        SELECT 'prepared', p.gid, p.owner::text, floor(extract(epoch FROM clock_timestamp() - p.prepared) * 1000)::bigint, age(p.transaction)::bigint
          FROM pg_prepared_xacts p WHERE p.database = current_database() ORDER BY age(p.transaction) DESC LIMIT 1) prepared
    UNION ALL SELECT * FROM (
        SELECT 'slot', s.slot_name::text, CASE WHEN s.active THEN 'in use' ELSE 'used by nobody' END, 0::bigint, age(s.xmin)::bigint
          FROM pg_replication_slots s WHERE s.xmin IS NOT NULL ORDER BY age(s.xmin) DESC LIMIT 1) slot
    UNION ALL SELECT * FROM (
        SELECT 'standby', r.pid::text, coalesce(nullif(r.application_name, ''), ''), 0::bigint, age(r.backend_xmin)::bigint
          FROM pg_stat_replication r WHERE r.backend_xmin IS NOT NULL ORDER BY age(r.backend_xmin) DESC LIMIT 1) standby";

/// How many dead rows the table of locks has, and whether there are sessions about which this user is told nothing.
const ABOUT: &str = "\
    SELECT coalesce((SELECT n_dead_tup FROM pg_stat_all_tables WHERE schemaname = $1 AND relname = 'lock'), 0)::bigint,
        EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND state IS NULL AND backend_type IS NULL)";

pub(super) async fn old(session: &Session, settings: &Settings, facts: &Facts) -> Finding {
    if facts.follows {
        return Finding::unknown(NAME, "dead rows are removed at the primary, and this is found out there");
    }
    look(session, settings, facts).await.unwrap_or_else(|error| without(&error, NAME))
}

async fn look(session: &Session, settings: &Settings, facts: &Facts) -> Result<Finding> {
    let rows = session.look(LOOK, &[]).await?;
    if let Some(found) = rows.iter().find_map(finding) {
        return Ok(found);
    }
    let about = session.look(ABOUT, &[(&settings.schema, Type::TEXT)]).await?;
    let (dead, hidden) = about.first().map_or((0, false), |row| (row.get::<_, i64>(0), row.get::<_, bool>(1)));
    Ok(match (dead > DEAD, hidden) {
        (true, true) => {
            let says = format!(
                "{dead} dead rows of the locks were not removed, and what keeps them this user may not see: calls of a hot key are slow"
            );
            Finding::warning(NAME, says).with_remedy(format!("GRANT pg_read_all_stats TO {}", facts.user))
        }
        (true, false) => {
            let says =
                format!("{dead} dead rows of the locks wait for autovacuum: calls of a hot key are slow meanwhile");
            Finding::warning(NAME, says).with_remedy(format!("VACUUM {}.lock", settings.schema))
        }
        (false, true) => {
            Finding::works(NAME, format!("{dead} dead rows of the locks; sessions of other users are not seen"))
        }
        (false, false) => Finding::works(NAME, "none keeps dead rows from being removed"),
    })
}

fn finding(row: &Row) -> Option<Finding> {
    let (kind, name, whose): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
    let (ms, behind): (i64, i64) = (row.get(3), row.get(4));
    if ms < OLD && behind < BEHIND {
        return None;
    }
    let open = format!("has been open for {} s and {behind} other transactions", ms / 1000);
    let literal = name.replace('\'', "''");
    let (who, remedy) = match kind {
        "session" => (
            format!("the transaction of session {name} ({whose}) {open}"),
            format!("let it commit, or SELECT pg_terminate_backend({name})"),
        ),
        "prepared" => (
            format!("the prepared transaction {name} of {whose} {open}"),
            format!("COMMIT PREPARED '{literal}', or ROLLBACK PREPARED '{literal}'"),
        ),
        "slot" => (
            format!("the replication slot {name}, {whose}, is {behind} transactions behind"),
            format!("let its standby follow, or SELECT pg_drop_replication_slot('{literal}') if nothing needs it"),
        ),
        _ => (
            format!(
                "a query at the standby {whose} (session {name}) is {behind} transactions behind, by hot_standby_feedback"
            ),
            "end that query at the standby, or set hot_standby_feedback = off there".to_owned(),
        ),
    };
    let says = format!(
        "{who}: no row that died since can be removed, and every 1,000 acquires and releases of one key make its calls about half a \
         millisecond slower"
    );
    Some(Finding::warning(NAME, says).with_remedy(remedy))
}

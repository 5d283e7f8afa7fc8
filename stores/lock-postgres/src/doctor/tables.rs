//! The schema: whether it is there, of our version, usable by this user, and swept.

use lock_core::Result;
use lock_store::Finding;
use tokio_postgres::types::Type;

use crate::doctor::facts::{Facts, without};
use crate::error::RUN;
use crate::session::{Session, migrate, schema};
use crate::url::Settings;

/// Without these no lock is taken, kept or freed.
const CORE: [&str; 5] = ["version_v1", "acquire_v2", "renew_v2", "release_v2", "holder_v1"];

pub(super) async fn schema(session: &Session, settings: &Settings, facts: &Facts) -> Vec<Finding> {
    let name = &settings.schema;
    match migrate::exists(session, name).await {
        Err(error) => return vec![without(&error, "schema")],
        Ok(false) => return vec![missing(settings, facts)],
        Ok(true) => {}
    }
    let may_use = format!("SELECT has_schema_privilege('{name}', 'USAGE')");
    match session.look(&may_use, &[]).await {
        Err(error) => return vec![without(&error, "schema")],
        Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => {}
        Ok(_) => {
            let says = format!("this user may not use the schema {name}");
            let remedy = format!("GRANT USAGE ON SCHEMA {name} TO {}", facts.user);
            return vec![Finding::refused("schema", says).with_remedy(remedy)];
        }
    }
    let functions = functions(session, settings, facts).await.unwrap_or_else(|error| without(&error, "functions"));
    if functions.grade == lock_store::FindingGrade::Refused {
        return vec![functions];
    }
    let version = match migrate::version(session, name).await {
        Ok(version) => Finding::works("schema", format!("{name}, of version {version}")),
        Err(error) => without(&error, "schema"),
    };
    let rights = rights(session, name).await.unwrap_or_else(|error| without(&error, "rights"));
    vec![version, functions, rights]
}

/// Looks for roles that could write holders and tokens by themselves, or put their own functions beside those of the store.
async fn rights(session: &Session, name: &str) -> Result<Finding> {
    let look = "SELECT format('%s ON %s FROM %s', string_agg(DISTINCT t.may, ', '), t.what, coalesce(quote_ident(r.rolname), 'PUBLIC')) \
                FROM (SELECT 'TABLE ' || c.oid::regclass, a.grantee, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a \
                    WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r' \
                      AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT' \
                  UNION ALL SELECT 'SCHEMA ' || quote_ident(n.nspname), a.grantee, a.privilege_type FROM pg_namespace n, aclexplode(n.nspacl) a \
                    WHERE n.nspname = $1 AND a.grantee <> n.nspowner AND a.privilege_type = 'CREATE') t(what, grantee, may) \
                LEFT JOIN pg_roles r ON r.oid = t.grantee GROUP BY t.what, r.rolname ORDER BY 1";
    let rows = session.look(look, &[(&name, Type::TEXT)]).await?;
    let Some(first) = rows.first() else {
        return Ok(Finding::works("rights", "no role but the owner may write into the tables"));
    };
    let says =
        format!("a role may write into the tables or make objects beside them, {} such rights in all", rows.len());
    Ok(Finding::warning("rights", says).with_remedy(format!("REVOKE {}", first.get::<_, &str>(0))))
}

fn missing(settings: &Settings, facts: &Facts) -> Finding {
    let name = &settings.schema;
    if settings.migrate && facts.may_make && !facts.follows {
        return Finding::works("schema", format!("{name} is not there yet; whoever takes the first lock makes it"));
    }
    let why = if settings.migrate { "this user may not make it" } else { "migrate=never leaves it to you" };
    Finding::refused("schema", format!("{name} is not there, and {why}"))
        .with_remedy(format!("run {RUN} as a user who may create a schema"))
}

/// Looks for each function that a user calls: those of an older build may lack some.
async fn functions(session: &Session, settings: &Settings, facts: &Facts) -> Result<Finding> {
    let name = &settings.schema;
    let wanted: Vec<&str> = schema::functions().collect();
    let look = "SELECT w.name, bool_or(p.oid IS NOT NULL), coalesce(bool_or(has_function_privilege(p.oid, 'EXECUTE')), false) \
                FROM unnest($1) w(name) LEFT JOIN pg_proc p ON p.proname = w.name \
                  AND p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2) GROUP BY 1 ORDER BY 1";
    let rows = session.look(look, &[(&wanted, Type::TEXT_ARRAY), (name, Type::TEXT)]).await?;
    let named = |column: usize| -> Vec<&str> {
        rows.iter().filter(|row| !row.get::<_, bool>(column)).map(|row| row.get(0)).collect()
    };
    let (absent, mut barred) = (named(1), named(2));
    barred.retain(|name| !absent.contains(name));
    let grade = |names: &[&str], says: String| match names.iter().any(|name| CORE.contains(name)) {
        true => Finding::refused("functions", says),
        false => Finding::warning("functions", says),
    };
    if !absent.is_empty() {
        return match migrate::version(session, name).await {
            Err(error) => Ok(without(&error, "functions")),
            // Another process has made them in between.
            Ok(_) => Ok(Finding::works("functions", "all are there")),
        };
    }
    if !barred.is_empty() {
        let which = if barred.len() == wanted.len() { "any function".to_owned() } else { barred.join(", ") };
        let remedy = format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {name} TO {}", facts.user);
        return Ok(grade(&barred, format!("this user may not call {which}")).with_remedy(remedy));
    }
    Ok(Finding::works("functions", "all are there, and this user may call them"))
}

/// A lock is one row that is written again and again.
pub(super) async fn vacuum(session: &Session, settings: &Settings, facts: &Facts) -> Finding {
    const NAME: &str = "autovacuum";
    for setting in [NAME, "track_counts"] {
        if facts.setting(setting) != Some("on") {
            let says = format!("{setting} is off: what is left of old rows is never used again, and calls grow slow");
            return Finding::warning(NAME, says).with_remedy(format!("{setting} = on"));
        }
    }
    let look = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, unnest(c.reloptions) o(text) \
                WHERE n.nspname = $1 AND o.text IN ('autovacuum_enabled=false', 'autovacuum_enabled=off') ORDER BY 1";
    match session.look(look, &[(&settings.schema, Type::TEXT)]).await {
        Err(error) => without(&error, NAME),
        Ok(rows) => match rows.first() {
            None => Finding::works(NAME, "on, also for the tables of the store"),
            Some(row) => {
                let table = format!("{}.{}", settings.schema, row.get::<_, &str>(0));
                Finding::warning(NAME, format!("it is off for the table {table}, which grows without end"))
                    .with_remedy(format!("ALTER TABLE {table} RESET (autovacuum_enabled)"))
            }
        },
    }
}

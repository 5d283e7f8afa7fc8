//! A role that may create objects in a schema of the search path: nothing that it makes runs as another user.

use std::collections::BTreeSet;

use lock_core::{HolderInfo, LockBackend as _, LockKey};
use lock_postgres::PostgresStore;
use lock_store::{
    AcquireRequest, Blocked, BlockedNotes as _, Doctor as _, DoneMarks as _, FindingGrade, Freed, Inspector as _,
    JobRecords as _, JobVersion, Release, Renewal, Ticket,
};
use lock_testing::{EventLog, PostgresServer, inbox, limit};
use tokio_postgres::Client;

use crate::support::{LONG, ask, claim, granted, on_runtime, pin};

/// The schema that builds of the first version made.
const FIRST: &str = include_str!("../fixtures/v1.sql");

/// The statements that the store sends by itself.
const SENT: [&str; 10] = [
    include_str!("../../src/session/role.rs"),
    include_str!("../../src/doctor/horizon.rs"),
    include_str!("../../src/session/migrate.rs"),
    include_str!("../../src/session/open.rs"),
    include_str!("../../src/session/connection.rs"),
    include_str!("../../src/listen.rs"),
    include_str!("../../src/doctor/facts.rs"),
    include_str!("../../src/doctor/tables.rs"),
    include_str!("../../src/doctor/waiters.rs"),
    include_str!("../../src/calls/inspect.rs"),
];

/// Makes a twin of each function, table and type whose name is in `$1`, and of each operator for each pair of types that a statement may
/// compare. A twin fails the statement that runs it.
const TWINS: &str = r#"
DO $do$
DECLARE
  one record;
  op text;
  l text;
  r text;
  types text[] := '{int2,int4,int8,numeric,float8,text,name,bool,timestamptz,interval,oid,uuid,xid,xid8,text[],int4[],oidvector,pg_lsn}';
BEGIN
  FOR one IN
    SELECT DISTINCT p.proname, v.types, p.prorettype::regtype::text AS result, p.proretset AS many
    FROM pg_proc p, LATERAL (
      SELECT array_to_string(ARRAY(SELECT t::regtype::text FROM unnest(p.proargtypes) t), ', ') AS exact) e,
      LATERAL unnest(ARRAY[exact, replace(exact, 'bigint', 'integer'), replace(exact, 'anyarray', 'text[]'),
        replace(exact, 'anyelement', 'text'), replace(exact, '"any"', 'text'), replace(exact, 'double precision', 'integer')]) v(types)
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (string_to_array('NAMES', ' '))
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile %s''; END $f$',
        one.proname, one.types, CASE WHEN one.many THEN 'SETOF' ELSE '' END, one.result, one.proname);
    EXCEPTION WHEN OTHERS THEN
      NULL;
    END;
  END LOOP;
  FOREACH op IN ARRAY '{+,-,*,/,<,<=,>,>=,=,<>,||,<<,|,~~,&}'::text[] LOOP
    FOREACH l IN ARRAY types LOOP
      FOREACH r IN ARRAY types LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile %s''; END $f$',
          'op' || op, l, r, CASE WHEN op ~ '[<>=~]' AND op <> '<<' THEN 'bool' ELSE l END, op);
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)', op, l, r, 'op' || op);
      END LOOP;
    END LOOP;
  END LOOP;
  CREATE FUNCTION public.hostile() RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION 'hostile table or type'; END $f$;
  FOR one IN SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname = ANY (string_to_array('NAMES', ' '))
  LOOP
    EXECUTE format('CREATE VIEW public.%I AS SELECT * FROM pg_catalog.%1$I WHERE public.hostile(); GRANT SELECT ON public.%1$I TO PUBLIC',
      one.relname);
  END LOOP;
  FOREACH l IN ARRAY '{text,uuid,int4,int8,numeric,bool,timestamptz,interval,name,oid,xid,regclass,regprocedure,regnamespace}'::text[] LOOP
    EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.%1$I CHECK (public.hostile())', l);
  END LOOP;
END $do$;
"#;

/// All words of the statements. A word that is not the name of a function or table does not have a twin.
fn names() -> String {
    let sql = PostgresStore::schema("lock_core");
    let texts = SENT.into_iter().chain([sql.as_str()]);
    let words: BTreeSet<&str> =
        texts.flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))).collect();
    // Not what the test itself needs to make twins, nor what belongs to grammar.
    words.into_iter().filter(|word| word.len() > 2).collect::<Vec<_>>().join(" ")
}

fn url(server: &PostgresServer, user: &str, rest: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/postgres{rest}", server.port())
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A server whose application and whose owner of the locks look into `public` first.
fn server() -> PostgresServer {
    let server = PostgresServer::start();
    server.run(
        "CREATE ROLE attacker; CREATE ROLE app LOGIN; CREATE ROLE owner LOGIN; GRANT CREATE ON SCHEMA public TO attacker;
         GRANT CREATE ON DATABASE postgres TO owner; GRANT pg_read_all_stats TO app",
    );
    server.run(&format!("SET ROLE attacker; SET search_path = pg_catalog; {}", TWINS.replace("NAMES", &names())));
    let (functions, operators) = ("pg_proc WHERE pronamespace", "pg_operator WHERE oprnamespace");
    for (what, least) in [(functions, 100), (operators, 4000)] {
        let made = server.run(&format!("SELECT count(*) FROM {what} = 'public'::regnamespace"));
        assert!(made.parse::<u32>().unwrap() > least, "{made} of {what}");
    }
    server.run(
        "ALTER ROLE app SET search_path = public, pg_catalog; ALTER ROLE owner SET search_path = public, pg_catalog",
    );
    server
}

/// Calls everything there is as a user of this URL.
async fn use_it(server: &PostgresServer, url: &str) {
    let store = PostgresStore::new(url).unwrap();
    let (inbox, _reports) = inbox(EventLog::default());
    let held = claim("held", LONG);
    let calls = async {
        let token = granted(&store, &held).await;
        let mut next = AcquireRequest::new(claim("held", LONG), HolderInfo::new("here", 1, "test"));
        (next.execute_within, next.ticket) = (LONG, Some(Ticket::new(inbox.id().to_string().into(), 1, LONG)));
        store.try_acquire(&next).await.unwrap();
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        let user = client(url).await;
        for statement in ["pin($1, $2)", "admit($1, $2)"] {
            user.batch_execute("BEGIN").await.unwrap();
            let call = format!("SELECT lock_core.{statement}");
            user.execute(&call, &[&"held", &i64::try_from(token.get()).unwrap()]).await.unwrap();
            user.batch_execute("COMMIT").await.unwrap();
        }
        user.batch_execute("BEGIN; SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
        pin(&user, "held", token).await.unwrap();
        let call = "SELECT lock_core.mark_done($1, $2, 'v1')";
        user.execute(call, &[&"held", &i64::try_from(token.get()).unwrap()]).await.unwrap();
        user.batch_execute("COMMIT").await.unwrap();
        let key = LockKey::new("held").unwrap();
        let blocked = Blocked::new(held.owner, token, 1, LockKey::new("other").unwrap());
        store.set_blocked(&key, Some(&blocked)).await.unwrap();
        store.blocked(&key).await.unwrap();
        assert!(store.done(&key, &JobVersion::new("v1").unwrap()).await.unwrap().is_some());
        assert_eq!(store.mark_done(&held, &JobVersion::new("v2").unwrap(), Some(LONG)).await, Ok(true));
        assert_eq!(store.forget_done(&key, &JobVersion::new("v2").unwrap()).await, Ok(true));
        assert!(store.entry(&key).await.unwrap().is_some() && store.holder(&key).await.unwrap().is_some());
        assert_eq!(store.waiters(&key).await.unwrap().len(), 1);
        assert_eq!(store.scan("", 10, None).await.unwrap().entries.len(), 1);
        assert!(store.last_run(&key).await.unwrap().is_none());
        let mut release = Release::new(held.clone());
        release.run = Some(lock_store::JobRun::new(LONG, true));
        assert_eq!(store.release(&release).await, Ok(Freed::Released));
        assert_eq!(store.withdraw(&next.claim).await.map(drop), Ok(()));
        let several = [claim("one", LONG), claim("two", LONG)];
        let several = several.map(|claim| {
            let mut request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"));
            request.execute_within = LONG;
            request
        });
        store.try_acquire_all(&several).await.unwrap();
        ask(&store, &claim("one", LONG)).await;
        user.batch_execute("SELECT lock_core.sweep_v1(coalesce(lock_core.sweep_begin_v1(), 0))").await.unwrap();
        store.ping().await.unwrap();
        for one in store.examine().await {
            assert!(matches!(one.grade, FindingGrade::Works | FindingGrade::Warning), "{one:?}");
        }
    };
    tokio::select! {
        () = calls => {}
        error = store.drive(inbox.clone()) => panic!("{error}"),
    }
    for table in ["lock", "waiter", "fence", "done", "job", "blocked"] {
        server.run(&format!("DELETE FROM lock_core.{table}"));
    }
}

fn nothing_ran(server: &PostgresServer) {
    let said = server.log();
    let ran: Vec<&str> = said.lines().filter(|line| line.contains("ERROR:  hostile")).collect();
    assert!(ran.is_empty(), "{ran:#?}");
}

#[test]
#[limit(180)]
fn nothing_that_another_role_makes_runs_as_a_user_of_the_store_nor_as_its_owner() {
    on_runtime(async {
        let server = server();
        // A new schema, and one of the first version, each by its owner; as a tool for migrations runs it too.
        server.run(&format!("SET ROLE owner; {FIRST}"));
        granted(&PostgresStore::new(&url(&server, "owner", "")).unwrap(), &claim("migrates", LONG)).await;
        granted(&PostgresStore::new(&url(&server, "owner", "?schema=fresh")).unwrap(), &claim("makes", LONG)).await;
        let by_hand =
            format!("SET ROLE owner; SET search_path = public, pg_catalog; {}", PostgresStore::schema("by_hand"));
        assert_eq!(server.run(&format!("{by_hand}; SHOW search_path")), "public, pg_catalog", "it is put back");
        server.run("GRANT USAGE ON SCHEMA lock_core TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_core TO app");
        server.run("DELETE FROM lock_core.lock");
        use_it(&server, &url(&server, "app", "")).await;
        nothing_ran(&server);
    });
}

/// Another client of a pool has left a path in the session, and objects that are found before all others.
#[test]
#[limit(180)]
fn nothing_that_is_left_in_the_session_of_a_pool_runs() {
    on_runtime(async {
        let server = server();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes", LONG)).await;
        server.run("DELETE FROM lock_core.lock");
        server.run("ALTER ROLE test SET search_path = pg_temp, public, pg_catalog");
        let pooler = server.pooler();
        for _ in 0..4 {
            let other = client(&pooler.url()).await;
            for name in ["pg_namespace", "pg_proc", "pg_settings"] {
                let text = format!("CREATE TEMP VIEW {name} AS SELECT * FROM pg_catalog.{name} WHERE public.hostile()");
                // Another session of the pool may have it already.
                let _ = other.batch_execute(&text).await;
            }
            let _ = other.batch_execute("CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (public.hostile())").await;
        }
        let store = PostgresStore::new(&pooler.url()).unwrap();
        let held = claim("held", LONG);
        granted(&store, &held).await;
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        for one in store.examine().await {
            assert!(matches!(one.grade, FindingGrade::Works | FindingGrade::Warning), "{one:?}");
        }
        assert_eq!(store.release(&Release::new(held)).await, Ok(Freed::Released));
        nothing_ran(&server);
    });
}

/// Default privileges of the owner give others no right to write into the tables, and none to make objects beside them.
#[test]
#[limit]
fn default_privileges_open_no_table_to_others() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run("CREATE ROLE app LOGIN; CREATE ROLE owner LOGIN; GRANT CREATE ON DATABASE postgres TO owner");
        server.run(
            "SET ROLE owner; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO app; \
             ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app; ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO app",
        );
        let url = |user: &str| server.url().replace("test@", &format!("{user}@"));
        granted(&PostgresStore::new(&url("owner")).unwrap(), &claim("made", LONG)).await;
        let open = "SELECT count(*) FROM (SELECT a.grantee, c.relowner, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a \
                      WHERE c.relnamespace = 'lock_core'::regnamespace \
                    UNION ALL SELECT a.grantee, n.nspowner, 'CREATE' FROM pg_namespace n, aclexplode(n.nspacl) a \
                      WHERE n.nspname = 'lock_core' AND a.privilege_type = 'CREATE') r(who, own, may) WHERE who <> own AND may <> 'SELECT'";
        assert_eq!(server.run(open), "0");
        granted(&PostgresStore::new(&url("app")).unwrap(), &claim("the functions are for it", LONG)).await;
        let found = async || {
            let found = PostgresStore::new(&url("owner")).unwrap().examine().await;
            found.into_iter().find(|one| one.subject == "rights").unwrap()
        };
        assert_eq!(found().await.grade, FindingGrade::Works);
        // An administrator may give a right later. The examination names it, and its remedy takes it away.
        for right in ["UPDATE, DELETE ON TABLE lock_core.lock", "CREATE ON SCHEMA lock_core"] {
            server.run(&format!("GRANT {right} TO app"));
            let finding = found().await;
            assert_eq!(finding.grade, FindingGrade::Warning);
            server.run(finding.remedy.as_deref().unwrap());
            assert_eq!(found().await.grade, FindingGrade::Works);
        }
    });
}

//! Servers that follow a primary, and what is left when one of them takes its place.

use std::process::{Command, Stdio};
use std::time::Duration;

use lock_core::{HolderInfo, LockBackend as _, LockErrorKind, LockManager};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Doctor as _, FindingGrade};
use lock_testing::{FaultProxy, PostgresServer, Stopwatch, limit};

use crate::support::{LONG, claim, granted, on_runtime, pin, refusal, session};

/// A primary, what is between it and its standby, and the standby.
struct Pair {
    primary: PostgresServer,
    way: FaultProxy,
    standby: PostgresServer,
}

impl Pair {
    fn start(settings: &[(&str, &str)]) -> Self {
        let primary = PostgresServer::start_with(settings);
        let way = FaultProxy::start(primary.port());
        let standby = primary.standby("near", way.port());
        while primary.run("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "1" {}
        Self { primary, way, standby }
    }

    /// Every commit waits until the standby shows it.
    fn synchronous() -> Self {
        let pair = Self::start(&[]);
        let set = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf()";
        pair.primary.run(set);
        while pair.primary.run("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'") != "1" {}
        pair
    }

    /// The standby before the primary, as in the URL of a service.
    fn url(&self) -> String {
        format!("postgres://test@127.0.0.1:{},127.0.0.1:{}/postgres", self.standby.port(), self.primary.port())
    }

    /// Waits until the standby has all that was committed, releases too, which wait for no disk.
    fn caught_up(&self) {
        let lsn = self.primary.run("SELECT pg_current_wal_insert_lsn()");
        while self.standby.run(&format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'")) != "t" {}
    }

    fn cut(&self) {
        self.way.refuse(true);
        self.way.kill_connections();
    }
}

#[test]
#[limit]
fn a_standby_that_missed_writes_gives_no_token_again_and_takes_no_pin_of_them() {
    on_runtime(async {
        let pair = Pair::start(&[]);
        let [holder, other] =
            [LockManager::connect(&pair.url()).await.unwrap(), LockManager::connect(&pair.url()).await.unwrap()];
        let known = holder.lock("known").with_ttl(LONG).await.unwrap();
        known.release().await.unwrap();
        pair.caught_up();
        pair.cut();
        // Neither the grants nor the rows of these reach the standby.
        let missed =
            [holder.lock("known").with_ttl(LONG).await.unwrap(), holder.lock("new").with_ttl(LONG).await.unwrap()];
        let busy = other.lock("new").try_acquire().await.unwrap();
        assert!(busy.is_none(), "both speak to the primary, although the standby is named first");
        let Pair { primary, standby, .. } = pair;
        drop(primary);
        standby.promote();
        let watch = Stopwatch::start();
        for guard in &missed {
            let next = other.lock(guard.key().as_str()).with_wait(LONG).acquire().await.unwrap();
            assert!(next.token() > guard.token(), "{next:?} after {guard:?}");
            watch.assert_within(Duration::from_secs(2), "a grant after the failover");
            let client = session(&standby).await;
            client.batch_execute("BEGIN").await.unwrap();
            let (code, text) = refusal(pin(&client, guard.key().as_str(), guard.token()).await);
            assert_eq!(code, "LK001", "{text}");
            client.batch_execute("ROLLBACK").await.unwrap();
            pin_once(&standby, &next).await;
            guard.lost().await;
        }
    });
}

/// Its present holder may write.
async fn pin_once(server: &PostgresServer, guard: &lock_core::LockGuard) {
    let client = session(server).await;
    client.batch_execute("BEGIN").await.unwrap();
    pin(&client, guard.key().as_str(), guard.token()).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}

#[test]
#[limit(120)]
fn a_holder_that_is_cut_off_with_its_primary_has_lost_the_lock_before_the_standby_grants_it() {
    on_runtime(async {
        let pair = Pair::synchronous();
        let url = format!("{}?commit=remote_apply", pair.primary.url());
        let [holder, beside] = [LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap()];
        let guard = holder.lock("cut off").with_ttl(Duration::from_secs(4)).await.unwrap();
        pair.cut();
        pair.standby.promote();
        let there = LockManager::connect(&pair.standby.url()).await.unwrap();
        // On the side of the old primary nothing is granted any more, nor renewed.
        let (next, refused) = tokio::join!(
            there.lock("cut off").with_wait(LONG).acquire(),
            beside.lock("beside").with_wait(Duration::from_secs(1)).acquire()
        );
        let next = next.unwrap();
        assert!(guard.ensure_held().is_err(), "both have it");
        assert!(next.token() > guard.token());
        let refused = refused.unwrap_err();
        assert!(matches!(refused.kind(), LockErrorKind::Timeout | LockErrorKind::Unavailable), "{refused}");
        guard.lost().await;
    });
}

#[test]
#[limit]
fn with_remote_apply_a_grant_is_on_the_standby_when_it_counts() {
    on_runtime(async {
        let pair = Pair::synchronous();
        let store = PostgresStore::new(&format!("{}?commit=remote_apply", pair.url())).unwrap();
        for number in 0..20 {
            let held = claim(&format!("applied {number}"), LONG);
            let token = granted(&store, &held).await;
            let seen = pair.standby.run(&format!("SELECT token FROM lock_core.lock WHERE key = '{}'", held.key));
            assert_eq!(seen, token.get().to_string());
        }
    });
}

#[test]
#[limit]
fn a_grant_whose_wait_for_the_standby_was_cancelled_is_unknown() {
    on_runtime(async {
        let pair = Pair::synchronous();
        let store = PostgresStore::new(&pair.primary.url()).unwrap();
        granted(&store, &claim("before", LONG)).await;
        pair.cut();
        let mut request = AcquireRequest::new(claim("waits", LONG), HolderInfo::new("here", 1, "test"));
        request.execute_within = LONG;
        // A session that asks for nothing durable waits for nobody.
        let look = session(&pair.primary).await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let (answer, ()) = tokio::join!(store.try_acquire(&request), async {
            while look.query(cancel, &[]).await.unwrap().is_empty() {}
        });
        let error = answer.expect_err("the standby does not have it");
        assert_eq!(error.kind(), LockErrorKind::Unavailable);
        assert!(error.to_string().contains("whether the command survives a failover is not known"), "{error}");
        let there = pair.primary.run("SELECT count(*) FROM lock_core.lock WHERE key = 'waits' AND until > now()");
        assert_eq!(there, "1", "it was committed here, so it is not *not executed* either");
    });
}

#[test]
#[limit]
fn the_doctor_names_who_follows_and_who_is_waited_for() {
    on_runtime(async {
        let pair = Pair::start(&[]);
        let examine = async |url: &str| PostgresStore::new(url).unwrap().examine().await;
        let about = async |url: &str, subject: &str| {
            let found = examine(url).await;
            found.iter().find(|one| one.subject == subject).unwrap_or_else(|| panic!("{found:#?}")).clone()
        };
        let names = "synchronous_standby_names";
        // A backup that is taken follows nobody. It is slow here.
        let service = format!("host=127.0.0.1 port={} user=test dbname=postgres replication=1", pair.primary.port());
        let old = pair.primary.run("SELECT current_setting('server_version_num')::int < 150000") == "t";
        let slow = if old { "BASE_BACKUP MAX_RATE 32" } else { "BASE_BACKUP (MAX_RATE 32)" };
        let mut backup = Command::new("psql");
        backup.args(["-X", &service, "-c", slow]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut backup = backup.spawn().unwrap();
        // On a busy machine the standby may have lost its connection meanwhile.
        let both = "SELECT count(*) FROM pg_stat_replication WHERE state IN ('backup', 'streaming')";
        while pair.primary.run(both) != "2" {}
        let found = about(&pair.url(), names).await;
        assert!(found.grade == FindingGrade::Warning && found.says.contains("1 standby follows"), "{found:?}");
        backup.kill().unwrap();
        backup.wait().unwrap();
        let found = about(&pair.standby.url(), "primary").await;
        assert!(found.grade == FindingGrade::Refused && found.says.contains("is a standby"), "{found:?}");
        // As the doctor says.
        pair.primary.run("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'");
        pair.primary.run("SELECT pg_reload_conf(); CREATE ROLE app LOGIN");
        while pair.primary.run("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'") != "1" {}
        assert_eq!(about(&pair.url(), names).await.grade, FindingGrade::Works);
        let app = pair.primary.url().replace("test@", "app@");
        let found = about(&app, names).await;
        assert!(found.grade == FindingGrade::Unknown && found.says.contains("may not see"), "{found:?}");
        pair.primary.run(found.remedy.as_deref().unwrap());
        assert_eq!(about(&app, names).await.grade, FindingGrade::Works);
        pair.cut();
        while pair.primary.run("SELECT count(*) FROM pg_stat_replication") != "0" {}
        assert_eq!(about(&pair.url(), names).await.grade, FindingGrade::Refused);
    });
}

//! The output of `why`, `waiters`, `leader` and `jobs` for a quorum.

use std::time::Duration;

use lock_core::store::{MemberList, QuorumMember};
use lock_core::{LockManager, RedisStore};
use lock_testing::{RedisServer, Stopwatch, limit};
use serde_json::Value;

use crate::jobs::{HOUR, miss, run};
use crate::members::{node, quorum, row, take_part};
use crate::program::{Ended, lockctl, lockctl_at, watch_at};
use crate::why::{assert_says, observed};

const KEY: &str = "lock:job";

/// Asks until the answer is as it should be.
fn eventually(url: &str, arguments: &[&str], is_right: impl Fn(&Value) -> bool) -> Value {
    let watch = Stopwatch::start();
    loop {
        let json = lockctl_at(url, arguments).json();
        if is_right(&json) {
            return json;
        }
        assert!(watch.elapsed() < Duration::from_secs(30), "{json:#}");
    }
}

/// Returns what is said of a member.
fn member<'a>(ended: &'a Ended, server: &RedisServer) -> &'a str {
    let begins = format!("member   {}: ", node(server));
    let line = ended.stdout.lines().find_map(|line| line.trim_start().strip_prefix(&begins));
    line.unwrap_or_else(|| panic!("{begins} in {}", ended.stdout))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn why_tells_holder_members_and_callers() {
    let (servers, url, _locks, guard) = quorum().await;
    let ended = lockctl_at(&url, &["why", KEY]);
    ended.assert_code(0);
    let holder = format!(" by shop::report, pid {} on ", std::process::id());
    assert_says(&ended, &["lock:job is held for ", &holder, ", at 3 of 3 members\n", "seems alive: its lease was"]);
    assert_says(
        &ended,
        &[" of 1 min 00 s, renewed ", "3 of 3 members count, 2 must grant a lock: a minority may fail"],
    );
    assert_says(&ended, &["a quorum keeps no queue", "lockctl release 'lock:job' --expect-owner "]);
    for server in &servers {
        assert!(member(&ended, server).starts_with("has it, "), "{ended:?}");
    }
    // Waiters poll, and only their own process knows them.
    let other = observed(&url).await;
    let mut waiting = tokio::task::JoinSet::new();
    let request = other.locks.lock(KEY).with_site("api::pay").with_wait(Duration::from_secs(120));
    waiting.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    let arguments = ["why", KEY, "--json", "--live-view", &other.address];
    let json = eventually(&url, &arguments, |json| json["waiting"]["callers"] == 1);
    assert_eq!(
        (&json["waiting"]["sites"][0]["site"], &json["waiting"]["at_least"]),
        (&"api::pay".into(), &true.into())
    );
    assert_eq!((&json["majority"], &json["gives_locks"]), (&2.into(), &true.into()), "{json:#}");
    assert_eq!((&json["state"], &json["members"][2]["state"]), (&"held".into(), &"held".into()), "{json:#}");
    assert_eq!((&json["members"][2]["counts"], &json["process"]["life"]), (&true.into(), &"let_go".into()));
    guard.release().await.unwrap();
    waiting.join_all().await;
    let ended = lockctl_at(&url, &["why", KEY]);
    ended.assert_code(1);
    assert!(ended.stdout.starts_with("lock:job is free\n"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn why_tells_what_a_member_lost_and_when_it_counts_again() {
    let (mut servers, url, locks, guard) = quorum().await;
    guard.release().await.unwrap();
    let mut holder = watch_at(&url, &["run", KEY, "--ttl", "60s", "--", "sh", "-c", "echo runs; exec sleep 600"]);
    holder.wait_for("runs");
    // Killed, so that nobody gives the claim again to whom loses it.
    drop(holder);
    eventually(&url, &["show", KEY, "--json"], |json| {
        json["members"].as_array().unwrap().iter().all(|member| member["state"] == "held")
    });
    servers[0].command(&["FLUSHALL"]);
    let ended = lockctl_at(&url, &["why", KEY]);
    ended.assert_code(0);
    assert_says(&ended, &[", at 2 of 3 members\n", "2 of 3 members count, 2 must grant a lock: the next failure"]);
    let lost =
        "does not have it, until the next renewal gives it the claim again; its vote does not count until max_ttl";
    assert!(member(&ended, &servers[0]).starts_with(lost), "{ended:?}");

    locks.lock("lock:other").await.unwrap().release().await.unwrap();
    let json = eventually(&url, &["why", KEY, "--json"], |json| !json["members"][0]["excluded_for_ms"].is_null());
    assert_eq!((&json["members"][0]["counts"], &json["members"][1]["counts"]), (&false.into(), &true.into()));
    servers[1].kill();
    let ended = lockctl_at(&url, &["why", "lock:free"]);
    ended.assert_code(1);
    assert_says(
        &ended,
        &["lock:free is free\n", "1 of 3 members count, 2 must grant a lock: no lock is granted, for another"],
    );
    assert!(member(&ended, &servers[0]).starts_with("free; its vote does not count for another "), "{ended:?}");
    assert!(member(&ended, &servers[1]).starts_with("no answer: "), "{ended:?}");

    // The one that is left cannot tell.
    servers[0].kill();
    let ended = lockctl_at(&url, &["why", KEY]);
    ended.assert_code(3);
    assert_says(&ended, &["it is unknown whether lock:job is held: 1 of 3 members have it, and 2 must\n"]);
    assert_says(&ended, &["until the problems that are named are mended", "not before more members answer"]);
    let json = lockctl_at(&url, &["why", KEY, "--json"]).json();
    assert_eq!((&json["state"], &json["members"][0]["state"]), (&"unknown".into(), &"no_answer".into()), "{json:#}");
    assert_eq!((&json["gives_locks"], &json["members"][2]["counts"]), (&false.into(), &true.into()), "{json:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn why_names_whoever_does_not_use_the_same_quorum() {
    let (servers, url, _locks, guard) = quorum().await;
    let alone = LockManager::connect(&servers[1].url()).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(alone.lock(KEY).with_wait(Duration::from_secs(120)).acquire());
    eventually(&url, &["why", KEY, "--json"], |json| json["members"][1]["waiters"] == 1);
    let beware = format!("1 process stands in the queue of {}: it uses that server alone", node(&servers[1]));
    for command in ["why", "waiters"] {
        let ended = lockctl_at(&url, &[command, KEY]);
        ended.assert_code(0);
        assert_says(&ended, &[&beware]);
    }
    let other = MemberList::new(["a", "b"].map(String::from).into(), 2, Duration::from_secs(60));
    let store = RedisStore::new(&servers[2].url()).unwrap();
    store.remember(Some(&other), Duration::from_secs(60)).await.unwrap();
    take_part(&servers[0]);
    let ended = lockctl_at(&url, &["why", "lock:part"]);
    ended.assert_code(1);
    assert_says(&ended, &["lock:part is held by nobody: 1 of 3 members have it, and 2 must"]);
    assert!(member(&ended, &servers[0]).starts_with("has it for a client of another library, "), "{ended:?}");
    // No process works under it, so a release cannot be forced.
    assert!(!ended.stdout.contains("force"), "{ended:?}");
    let json = lockctl_at(&url, &["why", "lock:part", "--json"]).json();
    assert_eq!((&json["state"], &json["force"]), (&"minority".into(), &Value::Null), "{json:#}");
    // Two of three count, and yet no process gets a lock.
    assert_eq!((&json["gives_locks"], &json["members"][1]["counts"]), (&false.into(), &true.into()), "{json:#}");
    let disagrees = "free; its vote does not count: it also serves a quorum of 2 of the members a, b";
    assert_eq!(member(&ended, &servers[2]), disagrees);
    guard.release().await.unwrap();
    waiting.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn the_leader_and_the_holder_are_those_of_a_majority() {
    let (mut servers, url, locks, guard) = quorum().await;
    let nobody = lockctl_at(&url, &["leader", "billing"]);
    nobody.assert_code(1);
    assert!(nobody.stdout.starts_with("nobody leads billing\n"), "{nobody:?}");
    let leads = locks.elect("billing").with_ttl(Duration::from_secs(60)).announcing("10.0.0.3:8080");
    let leads = leads.campaign().await.unwrap();
    servers[0].kill();
    let ended = lockctl_at(&url, &["leader", "billing"]);
    ended.assert_code(0);
    assert_says(&ended, &["billing is led by 10.0.0.3:8080 (pid ", " of its lease, at 2 of 3 members\n"]);
    assert_says(&ended, &[&format!("{} gave no answer: ", node(&servers[0])), "a quorum keeps no queue"]);
    let json = lockctl_at(&url, &["leader", "billing", "--json"]).json();
    assert_eq!((&json["leader"]["announced"], &json["candidates"]), (&"10.0.0.3:8080".into(), &Value::Null));
    assert_eq!((&json["majority"], &json["members"][0]["state"]), (&2.into(), &"no_answer".into()), "{json:#}");

    let ended = lockctl_at(&url, &["waiters", KEY]);
    ended.assert_code(0);
    assert!(row(&ended.stdout, &node(&servers[1])).contains("shop::report"), "{ended:?}");
    assert_says(&ended, &["2 of 3 members have it, and 2 must", "a quorum keeps no queue"]);
    let json = lockctl_at(&url, &["waiters", KEY, "--json"]).json();
    assert_eq!((&json["holder"]["site"], &json["waiters"]), (&"shop::report".into(), &Value::Null), "{json:#}");
    lockctl_at(&url, &["waiters", "lock:free"]).assert_code(1);

    servers[1].kill();
    let ended = lockctl_at(&url, &["leader", "billing"]);
    ended.assert_code(3);
    assert!(ended.stdout.starts_with("it is unknown who leads billing\n"), "{ended:?}");
    assert_eq!(lockctl_at(&url, &["leader", "billing", "--json"]).json()["leader"], Value::Null);
    let json = lockctl_at(&url, &["waiters", KEY, "--json"]);
    json.assert_code(3);
    assert_eq!(json.json()["holder"], Value::Null);
    drop((leads, guard));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_job_has_the_newest_run_that_any_member_knows() {
    let (mut servers, url, locks, guard) = quorum().await;
    lockctl_at(&url, &["jobs"]).assert_code(0);
    run(&locks, "cron:report", Duration::from_secs(50), false).await;
    for server in &servers {
        eventually(&server.url(), &["jobs", "--json"], |json| json["jobs"][0]["key"] == "cron:report");
    }
    // A member that does not know the last run.
    miss(&servers[0], "cron:report", 3 * HOUR);
    assert_says(&lockctl(&servers[0], &["jobs"]), &["overdue by 2 h"]);
    let ended = lockctl_at(&url, &["jobs"]);
    ended.assert_code(0);
    assert_says(&ended, &["1 job on 3 of 3 members, on time"]);
    assert_eq!(lockctl_at(&url, &["list", "--json"]).json()["jobs"][0]["overdue_by_seconds"], Value::Null);
    for server in &servers[1..] {
        miss(server, "cron:report", 3 * HOUR);
        server.command(&["DEL", "cron:report"]);
    }
    servers[0].kill();
    let ended = lockctl_at(&url, &["jobs", "--prefix", "cron:"]);
    ended.assert_code(0);
    assert_says(&ended, &["shop::report", "1 job on 2 of 3 members, overdue", " gave no answer: "]);
    for (command, code) in [("show", 1), ("why", 1), ("list", 0)] {
        let arguments: &[&str] = if command == "list" { &[command] } else { &[command, "cron:report"] };
        let ended = lockctl_at(&url, arguments);
        ended.assert_code(code);
        assert_says(&ended, &["overdue", "cron:report"]);
    }
    let json = lockctl_at(&url, &["jobs", "--json"]).json();
    assert!(json["jobs"][0]["overdue_by_seconds"].as_f64().unwrap() > 7200.0, "{json:#}");
    assert_eq!((&json["majority"], &json["members"][1]["jobs"]), (&2.into(), &1.into()), "{json:#}");
    servers[1].kill();
    let ended = lockctl_at(&url, &["jobs"]);
    ended.assert_code(3);
    assert_says(&ended, &["1 job on 1 of 3 members, overdue; members that gave no answer may know of later runs"]);
    drop(guard);
}

/// A quorum answers everything that one server answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn names_limits_and_filters_choose_among_the_locks_of_a_quorum() {
    let (servers, url, locks, guard) = quorum().await;
    let take = |key| locks.lock(key).with_label("order:<id>").with_ttl(Duration::from_secs(60)).acquire();
    let orders = [take("order:1").await.unwrap(), take("order:2").await.unwrap()];
    take_part(&servers[0]);
    let ended = lockctl_at(&url, &["list", "--limit", "1"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout.lines().filter(|line| line.contains("3 of 3")).count(), 1, "{ended:?}");
    assert_says(&ended, &["1 lock is held by 2 or more of 3 members, and 2 more that --limit leaves out"]);
    let json = lockctl_at(&url, &["list", "--lock", "order:<id>", "--json"]).json();
    assert_eq!(json["locks"].as_array().unwrap().len(), 2, "{json:#}");
    assert_eq!((&json["members"][2]["locks"], &json["locks"][0]["lock"]), (&2.into(), &"order:<id>".into()));
    // The name that an alert shows.
    for command in ["why", "show", "waiters"] {
        let ended = lockctl_at(&url, &[command, "order:<id>"]);
        ended.assert_code(0);
        assert!(ended.stderr.contains("order:<id> is the name of 2 locks that are held"), "{ended:?}");
        assert_says(&ended, &["order:", "3 of 3 members"]);
    }
    let mut command = watch_at(
        &url,
        &["run", "slow", "--ttl", "60s", "--stuck-after", "1s", "--", "sh", "-c", "echo runs; sleep 60"],
    );
    command.wait_for("runs");
    eventually(&url, &["list", "--stuck", "--json"], |json| json["locks"][0]["key"] == "slow");
    let ended = lockctl_at(&url, &["list", "--stuck"]);
    assert!(row(&ended.stdout, "slow").contains("stuck  3 of 3"), "{ended:?}");
    drop((guard, orders));
}

/// A member that cannot be asked may still have a lock that was taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_release_names_the_member_that_may_still_have_the_lock() {
    let (mut servers, url, _locks, guard) = quorum().await;
    let owner = lockctl_at(&url, &["show", KEY, "--json"]).json()["owner"].as_str().unwrap().to_owned();
    servers[2].kill();
    let arguments = ["release", KEY, "--expect-owner", &owner, "--reason", "a test", "--json"];
    let ended = lockctl_at(&url, &arguments);
    ended.assert_code(0);
    assert!(ended.stderr.contains(&format!("{} may still have it: ", node(&servers[2]))), "{ended:?}");
    let json = ended.json();
    assert_eq!((&json["outcome"], &json["was"]["site"]), (&"released".into(), &"shop::report".into()), "{json:#}");
    assert_eq!((&json["members"][0]["state"], &json["members"][2]["state"]), (&"free".into(), &"no_answer".into()));
    drop(guard);
}

//! Tests on a real Redis, with a server for each test. Without `redis-server` these tests fail; they
//! never skip.

use std::time::Duration;

use lock_testing::{RedisSentinels, RedisServer, limit};

use crate::flash_sale::{assert_nothing_went_wrong, wait_for_sales};
use crate::program::{eventually, http, run, start};
use crate::{small, web_service};

const FLASH_SALE: &str = env!("CARGO_BIN_EXE_flash_sale");

#[test]
#[limit]
fn four_processes_sell_without_losing_anything() {
    let server = RedisServer::start();
    let ended = run(FLASH_SALE, &["--processes=4", "--orders=800", "--redis", &server.url()], &[]);
    assert_nothing_went_wrong(&ended, 800);
    assert!(ended.number("refused") > 0, "some products sell out: {ended:#?}");
}

#[test]
#[limit]
fn a_sale_goes_on_while_a_replica_takes_over() {
    let ended = run(FLASH_SALE, &["--store=sentinel", "--failover", "--processes=2", "--orders=1200"], &[]);
    assert_nothing_went_wrong(&ended, 1200);
    assert!(ended.stderr.contains("was killed"), "{ended:#?}");
}

/// A failover without confirmation may lose locks in mid-sale.
#[test]
#[limit]
fn locks_that_are_lost_are_counted_and_explained() {
    let servers = RedisSentinels::start();
    for (url, is_explained) in [(servers.url(), true), (format!("{}?acks=1", servers.url()), false)] {
        // A single buyer for each of two processes, so that the sale is not over before.
        let mut program = start(FLASH_SALE, &["--processes=2", "--buyers=2", "--orders=300"], &[("LOCK_URL", &url)]);
        wait_for_sales(&program);
        let master = &servers.servers()[0];
        let mut flushed = 0;
        while program.is_running() {
            master.command(&["FLUSHALL"]);
            flushed += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        let ended = program.end();
        ended.assert_failure(1, "orders failed");
        assert!(ended.row("ledger").contains("NOT PASSED"), "{flushed} {ended:#?}");
        assert_eq!(ended.stderr.contains("add acks=all"), is_explained, "{ended:#?}");
    }
}

#[test]
#[limit]
fn a_sale_runs_on_a_cluster_of_its_own() {
    let ended = run(FLASH_SALE, &["--store=cluster", "--processes=2", "--orders=600"], &[]);
    assert_nothing_went_wrong(&ended, 600);
    // A user does not watch a terminal that prints nothing.
    for said in ["starting three masters and three replicas", "ready: LOCK_URL=redis+"] {
        assert!(ended.stderr.contains(said), "{said}: {ended:#?}");
    }
}

#[test]
#[limit]
fn a_quorum_that_loses_a_member_in_mid_sale_sells_on() {
    let ended = run(FLASH_SALE, &["--store=quorum", "--failover", "--processes=2", "--orders=300"], &[]);
    assert_nothing_went_wrong(&ended, 300);
    for said in ["was killed, with its data", "is back, empty"] {
        assert!(ended.stderr.contains(said), "{ended:#?}");
    }
}

#[test]
#[limit]
fn one_host_does_the_nightly_job() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let (job, url) = (env!("CARGO_BIN_EXE_nightly_job"), server.url());
    let start_job = || start(job, &[folder.path().to_str().unwrap()], &[("LOCK_URL", &url)]);
    let hosts = [start_job(), start_job(), start_job()].map(crate::program::Program::end);
    // A host whose clock is behind starts when the others are done.
    let late = start_job().end();
    let wrote = |ended: &crate::program::Ended| ended.stdout.starts_with("wrote ");
    for host in hosts.iter().chain([&late]) {
        host.assert_success();
        assert!(wrote(host) || host.stdout.contains("another host"), "{host:#?}");
    }
    assert_eq!((hosts.iter().filter(|host| wrote(host)).count(), wrote(&late)), (1, false), "{hosts:#?} {late:#?}");
    let reports: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(std::fs::read_to_string(&reports[0]).unwrap().lines().count(), 4);
}

/// Sold out to the last piece, by three lock managers, over one lock and over several.
#[test]
#[limit]
fn segments_sell_what_there_is_and_no_more() {
    let server = RedisServer::start();
    let arguments = ["--segments=1,5", "--processes=3", "--buyers=9", "--stock=61", "--seconds=60", "--hold=0.1"];
    let ended = run(env!("CARGO_BIN_EXE_segments"), &arguments, &[("LOCK_URL", &server.url())]);
    ended.assert_success();
    assert!(ended.stdout.ends_with("the books agree with every sale\n"), "{ended:#?}");
    assert_eq!(ended.stdout.lines().count(), 4, "{ended:#?}");
}

#[test]
#[limit]
fn a_migration_with_both_locks_loses_nothing() {
    let server = RedisServer::start();
    let ended = run(env!("CARGO_BIN_EXE_migration"), &[], &[("LOCK_URL", &server.url())]);
    ended.assert_success();
    assert_eq!(ended.stdout.matches("counted to 40 of 40").count(), 3, "{ended:#?}");
    run(env!("CARGO_BIN_EXE_migration"), &[], &[]).assert_failure(2, "set LOCK_URL");
}

#[test]
#[limit]
fn the_environment_names_the_store_and_its_password_stays_unsaid() {
    let server = RedisServer::builder().with_password("open-sesame").start();
    let ended = run(FLASH_SALE, &["--processes=2", "--orders=100"], &[("LOCK_URL", &server.url())]);
    assert_nothing_went_wrong(&ended, 100);
    assert!(!ended.stderr.contains("sesame") && ended.stderr.contains("redis://127.0.0.1"), "{ended:#?}");
}

#[test]
#[limit]
fn a_process_that_fails_fails_the_sale() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill();
    let ended = run(FLASH_SALE, &["--processes=3", "--redis", &url], &[]);
    ended.assert_failure(1, "its message is above");
    assert!(ended.stderr.contains("cannot use the lock store"), "{ended:#?}");
}

#[test]
#[limit]
fn ctrl_c_ends_every_process() {
    let server = RedisServer::start();
    // One buyer per process, so that the sale is not over before it is interrupted.
    let mut program = start(FLASH_SALE, &["--processes=3", "--buyers=3", "--redis", &server.url()], &[]);
    wait_for_sales(&program);
    let clients = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    eventually("three processes and this question are connected", || (clients() > 3).then_some(()));
    program.interrupt();
    program.end().assert_failure(1, "interrupted");
    eventually("only this question is connected", || (clients() == 1).then_some(()));
}

#[test]
#[limit]
fn the_small_examples_run_on_redis() {
    let server = RedisServer::start();
    small::run_all(&[("LOCK_URL", &server.url())]);
}

#[test]
#[limit]
fn the_web_service_says_503_while_redis_is_away() {
    let mut server = RedisServer::start();
    let (mut program, service) = web_service::serve(&[("LOCK_URL", &server.url())]);
    web_service::charge_at_once(&service);
    server.kill();
    let charge = || http(&service, "POST", "/users/42/charge");
    // A service that lacks processor time, and so gets no answer in time, cannot tell what has
    // failed.
    let answer =
        eventually("the service says that Redis is away", || Some(charge()).filter(|(status, _)| *status == 503));
    assert!(answer.1.to_lowercase().contains("retry-after: 5"), "{answer:?}");
    server.restart();
    eventually("it recovers by itself", || Some(charge()).filter(|(status, _)| *status == 200));
    program.interrupt();
    program.end().assert_success();
}

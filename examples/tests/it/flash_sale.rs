use lock_testing::limit;
use std::fs;

use crate::program::{Ended, Program, eventually, http, run, start};

const FLASH_SALE: &str = env!("CARGO_BIN_EXE_flash_sale");

fn sale(arguments: &[&str]) -> Ended {
    run(FLASH_SALE, arguments, &[])
}

/// Checks a report of a sale under the lock.
pub(crate) fn assert_nothing_went_wrong(ended: &Ended, orders: u32) {
    ended.assert_success();
    assert_eq!((ended.number("oversold"), ended.number("lost updates")), (0, 0), "{ended:#?}");
    assert_eq!((ended.number("orders"), ended.number("grants")), (orders, orders), "{ended:#?}");
    assert_eq!(ended.number("sold") + ended.number("refused"), orders, "{ended:#?}");
    assert_eq!(ended.row("ledger"), "agrees with every order");
    for timing in ["wait", "hold", "contention", "throughput"] {
        assert!(ended.row(timing).contains(char::is_numeric), "{ended:#?}");
    }
}

#[test]
#[limit]
fn with_the_lock_nothing_goes_wrong() {
    let ended = sale(&["--orders=500"]);
    assert_nothing_went_wrong(&ended, 500);
    assert!(ended.number("refused") > 0, "some products sell out: {ended:#?}");
    assert!(ended.stderr.contains("orders answered"), "progress is told: {ended:#?}");
}

#[test]
#[limit]
fn without_the_lock_the_damage_is_shown() {
    let ended = sale(&["--orders=1000", "--without-lock"]);
    ended.assert_success();
    assert!(ended.number("lost updates") > 0 && ended.number("oversold") > 0, "{ended:#?}");
    assert_eq!(ended.number("grants"), 0);
    assert!(ended.row("ledger").starts_with("damaged"));
    assert!(ended.stderr.contains("buyers have a receipt"), "{ended:#?}");
}

#[test]
#[limit]
fn without_the_lock_and_without_a_store_processes_do_damage_too() {
    let ended = sale(&["--orders=400", "--processes=4", "--without-lock"]);
    ended.assert_success();
    assert!(ended.number("lost updates") > 0, "{ended:#?}");
}

#[test]
#[limit]
fn a_run_that_could_not_go_wrong_proves_nothing() {
    let ended = sale(&["--orders=20", "--buyers=1", "--without-lock"]);
    ended.assert_failure(1, "proves nothing");
}

#[test]
#[limit]
fn senseless_arguments_are_refused() {
    sale(&["--processes=4"]).assert_failure(2, "add --redis");
    sale(&["--processes=4", "--redis", "memory://"]).assert_failure(2, "add --redis");
    sale(&["--processes=2", "--without-lock", "--serve"]).assert_failure(2, "leave out --processes");
    sale(&["--buyers=0"]).assert_failure(2, "--buyers");
    sale(&["--orders=many"]).assert_failure(2, "--orders");
    sale(&["--orders=3001"]).assert_failure(1, "there are only 3000 orders");
    sale(&["--redis", "http://127.0.0.1"]).assert_failure(1, "the URL of a web service");
    let help = sale(&["--help"]);
    assert!(help.stdout.contains("--without-lock") && help.stdout.contains("Examples:"), "{help:#?}");
}

#[test]
#[limit]
fn data_of_ones_own_is_read_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    sale(&["--data", path]).assert_failure(1, "orders.csv");

    let write = |orders: &str| {
        fs::write(folder.path().join("stock.csv"), "product,stock\ntea,2\n").unwrap();
        fs::write(folder.path().join("orders.csv"), format!("order,buyer,product,quantity\n{orders}")).unwrap();
        sale(&["--data", path])
    };
    write("1,ada,cake,1\n").assert_failure(1, "stock.csv has no such product");
    write("1,ada,tea,0\n").assert_failure(1, "at least 1");
    write("1,ada,tea,some\n").assert_failure(1, "orders.csv");
    let ended = write("1,ada,tea,1\n2,bob,tea,2\n3,eve,tea,1\n");
    assert_nothing_went_wrong(&ended, 3);
}

#[test]
#[limit]
fn metrics_are_served_until_ctrl_c() {
    let mut program = start(FLASH_SALE, &["--orders=60", "--serve=127.0.0.1:0"], &[]);
    let rest = program.wait_for_line("serving ");
    let server = rest.strip_suffix("/metrics until Ctrl-C").unwrap();
    let (status, text) = http(server, "GET", "/metrics");
    assert_eq!(status, 200);
    let acquired = r#"distributed_lock_acquisitions_total{lock="sale:product:<product>",store="memory",outcome="acquired",mode="write"} 60"#;
    assert!(text.contains(acquired), "{text}");
    program.interrupt();
    assert_nothing_went_wrong(&program.end(), 60);
}

#[test]
#[limit]
fn ctrl_c_ends_a_sale_and_removes_its_ledger() {
    // A single buyer takes most of a minute, so that the sale is not over before it is interrupted.
    let mut program = start(FLASH_SALE, &["--buyers=1"], &[]);
    wait_for_sales(&program);
    program.interrupt();
    program.end().assert_failure(1, "interrupted");
}

/// Waits until something is sold.
pub(crate) fn wait_for_sales(program: &Program) {
    let sold = || {
        let folder = program.temporary_folder().read_dir().unwrap().next()?.ok()?;
        let files = folder.path().read_dir().ok()?.filter_map(Result::ok).map(|entry| entry.path());
        let stocks = files.filter(|path| path.extension().is_some_and(|ending| ending == "stock"));
        let texts = stocks.filter_map(|path| fs::read_to_string(path).ok());
        texts.into_iter().find(|text| !text.is_empty() && !text.contains("sales 0"))
    };
    eventually("a sale", sold);
}

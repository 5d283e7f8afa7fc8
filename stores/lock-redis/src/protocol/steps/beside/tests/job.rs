use std::time::Duration;

use redis::Value;

use super::{read_job, read_last_run};

#[test]
fn a_record_is_read() {
    let record = read_job(b"60000|1000|0|5000|10000|web-1|7|app::report|cron:report", 9_000).unwrap();
    let ago = (record.started_ago, record.without_success_for, record.every);
    assert_eq!(ago, (Duration::from_secs(4), Duration::from_secs(8), Duration::from_secs(60)));
    assert_eq!(record.info.to_string(), "app::report (pid 7 on web-1)");
    assert!(!record.succeeded && record.info.lock.is_some_and(|lock| lock.as_str() == "cron:report"));
}

#[test]
fn what_makes_no_sense_says_nothing() {
    for bad in
        ["", "60000", "x|1|1|1|1|h|1|s", "1|x|1|1|1|h|1|s", "1|1|1|x|1|h|1|s", "1|1|1|1|1|h|x|s", "1|1|1|1|1|h|1"]
    {
        assert_eq!(read_job(bad.as_bytes(), 1), None, "{bad}");
    }
    assert_eq!(read_last_run(&Value::Array(Vec::new())), None);
    assert_eq!(read_last_run(&Value::Nil), None);
}

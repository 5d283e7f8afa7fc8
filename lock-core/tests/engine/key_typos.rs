//! Characters of a key that nobody sees, of which each is another lock.

use lock_core::{KeyBuilder, LockKey, LockManager};
use lock_testing::limit;
use tracing::Level;

use crate::collector::Collector;

fn warnings(log: &Collector) -> usize {
    log.everything().matches("is another lock").count()
}

#[tokio::test]
#[limit]
async fn an_invisible_character_of_a_key_is_warned_of_once_and_named() {
    let (log, _installed) = Collector::install(Level::WARN);
    let locks = LockManager::builder(lock_core::MemoryStore::new()).key_prefix("prod:").build().unwrap();
    for key in ["report", "ann@example.org", "two words", "übung", "日本 語", "a/b:c-d_e"] {
        locks.lock(key).await.unwrap().release().await.unwrap();
    }
    assert_eq!(warnings(&log), 0, "{}", log.everything());
    let mut expected = 0;
    // Each stands on a line of its own, as in a program.
    macro_rules! warned_once {
        ($key:expr, $escaped:expr) => {
            expected += 1;
            for _ in 0..3 {
                locks.lock(LockKey::new($key).unwrap()).await.unwrap().release().await.unwrap();
            }
            let told = log.everything();
            assert_eq!(warnings(&log), expected, "{:?}: {told}", $key);
            assert!(told.contains(&$escaped.replace('\\', r"\\")), "{:?}: {told}", $key);
        };
    }
    warned_once!("report\r", r"report\r");
    warned_once!("report1\n", r"report1\n");
    warned_once!(" report2", " report2");
    warned_once!("report3\t", r"report3\t");
    warned_once!("report4\u{a0}", r"report4\u{a0}");
    warned_once!("re\u{200b}port5", r"re\u{200b}port5");
    warned_once!("\u{feff}report6", r"\u{feff}report6");
    warned_once!("report7\u{3000}", r"report7\u{3000}");
    warned_once!("rep\u{0}ort8", r"rep\0ort8");
    drop(locks.lock_all(["x1", "x2 "]).await.unwrap());
    assert_eq!(warnings(&log), expected + 1);
}

#[tokio::test]
#[limit]
async fn an_invisible_character_at_an_end_of_a_value_is_warned_of_once_for_its_template() {
    let (log, _installed) = Collector::install(Level::WARN);
    let locks = LockManager::in_memory();
    let key = |id: &str| KeyBuilder::new("typo:<id>").text("typo:").segment("id", id).finish();
    for id in ["7", "two words"] {
        locks.lock(key(id)).await.unwrap().release().await.unwrap();
    }
    assert_eq!(warnings(&log), 0, "{}", log.everything());
    for id in ["7\r", "8\r", " 9"] {
        locks.lock(key(id)).await.unwrap().release().await.unwrap();
    }
    assert_eq!(warnings(&log), 1, "{}", log.everything());
}

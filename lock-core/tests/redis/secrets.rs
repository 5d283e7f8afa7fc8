//! No password of a URL comes out anywhere, in whichever part of the URL it stands and however the URL is misspelt.

use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use lock_core::inspect::FleetReader;
use lock_core::{Durability, LockBackend, LockError, LockEvent, LockManager, LockObserver, Quorum, RedisStore};
use lock_testing::{RedisServer, limit};
use tracing::Level;

use crate::collector::Collector;

/// Stands for the password in what follows. No host has a `~`: what may be a host is one, and is shown.
const PASSWORD: &str = "~k7q~";

/// The texts that must not come out: each half, because a part of the password may end up in another part of the URL.
const HALVES: [&str; 2] = ["~k7", "q~"];

/// A URL of each kind, with the password in each of its places.
const URLS: [&str; 34] = [
    "redis://:P@h:1",
    "redis://u:P@h:1/2?acks=1",
    "redis://P@h:1",
    "redis://P",
    "P@h:6379",
    ":P@h:6379",
    "u:P@h:6379",
    "P",
    "P://h",
    "u:P@redis://h",
    "redis:P@h",
    "redis://h:P",
    "redis://h:1/P",
    "redis://h:1/0?P=1",
    "redis://h?acks=P",
    "redis://h?fsync=P",
    "redis://h?key_prefix=P",
    "redis://:a?acks=P@h",
    "redis://:a?fsync=P@h",
    "redis://:a?key_prefix=P@h",
    "redis://:a?P@h",
    "redis://:a#P@h",
    "rediss://:P@h:1",
    "redis+unix:///run/r.sock?db=1&user=u&pass=P",
    "unix:///run/r.sock?P=1",
    "redis+sentinel://u:P@h,i/s/1?sentinel_user=u&sentinel_password=P",
    "redis+sentinel://h,P/s?nat=a>P&sentinel_tls=P",
    "redis+cluster://u:P@h,i?nat=10.0.0.1:1>a:2&fsync=1",
    "redis+cluster://h,i?nat=P",
    "redlock://u:P@h,i,j/1?max_ttl=10s&restarts=forget",
    "redlock://h,i,j?max_ttl=P",
    "redlock://h,i,j?restarts=P&P=1",
    "redlocks://:P@h,i,j?key_prefix=P",
    "memory://P?key_prefix=P&acks=P",
];

/// Changes a URL at a few places, and sometimes breaks the password in two.
fn misspell(url: &str, random: &mut fastrand::Rng) -> String {
    let mut url: Vec<char> = url.chars().collect();
    let special: Vec<char> = ":/?#@,&=%[] +1a".chars().collect();
    for _ in 0..random.usize(0..4) {
        let at = random.usize(0..=url.len());
        let drawn = special[random.usize(..special.len())];
        match (random.u8(0..3), url.get(at)) {
            (0, _) | (_, None) => url.insert(at, drawn),
            (1, Some(c)) if *c != 'P' => drop(url.remove(at)),
            (_, Some(c)) if *c != 'P' => url[at] = drawn,
            _ => {}
        }
    }
    let inside = match random.u8(0..4) {
        0 => String::from(special[random.usize(..10)]),
        _ => String::new(),
    };
    url.into_iter().collect::<String>().replace('P', &format!("{}{inside}{}", HALVES[0], HALVES[1]))
}

/// Everything that a program could print of an outcome.
fn shown<T: Debug>(outcome: &Result<T, LockError>) -> String {
    let mut text = match outcome {
        Ok(made) => return format!("{made:?}\n{made:#?}"),
        Err(_) => String::new(),
    };
    let mut error: Option<&dyn Error> = outcome.as_ref().err().map(|error| error as &dyn Error);
    while let Some(this) = error {
        text += &format!("{this}\n{this:#}\n{this:?}\n{this:#?}\n");
        error = this.source();
    }
    text
}

#[track_caller]
fn assert_hidden(shown: &str, context: &dyn Debug) {
    assert!(!HALVES.iter().any(|half| shown.contains(half)), "a password is shown: {context:?}: {shown}");
}

/// Returns all that can be shown of a URL without a connection.
fn all_shown(url: &str) -> Option<String> {
    let manager = LockManager::builder_for(url);
    let mut all = shown(&manager);
    let manager = manager.and_then(lock_core::LockManagerBuilder::build);
    if manager.as_ref().is_ok_and(|locks| HALVES.iter().any(|half| locks.key_prefix().contains(half))) {
        // It is a name, of a valid form, and comes before every key.
        return None;
    }
    all += &shown(&manager);
    let builder = RedisStore::builder(url).addresses([url, "h:1"]).client_name(url);
    all += &format!("{builder:?}{builder:#?}");
    all += &shown(&builder.build());
    let store = RedisStore::new(url);
    all += &shown(&store);
    if let Ok(store) = store {
        all += store.node(0);
    }
    all += &shown(&Quorum::new(url));
    all += &shown(&FleetReader::new(url).map(|reader| reader.node().to_owned()));
    all += &shown(&url.parse::<Durability>());
    Some(all)
}

#[test]
#[limit]
fn no_misspelt_url_shows_its_password() {
    for url in URLS {
        let url = url.replace('P', PASSWORD);
        if let Some(all) = all_shown(&url) {
            assert_hidden(&all, &url);
        }
    }
    let seed = std::env::var("LOCK_TEST_SEED").map_or(13, |seed| seed.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..3_000 {
        let url = misspell(URLS[random.usize(..URLS.len())], &mut random);
        if let Some(all) = all_shown(&url) {
            assert_hidden(&all, &(url, seed));
        }
    }
}

/// Writes every event down as text.
struct Told(Arc<Mutex<String>>);

impl LockObserver for Told {
    fn on_event(&self, event: &LockEvent<'_>) {
        self.0.lock().unwrap().push_str(&format!("{event:?}"));
    }
}

#[tokio::test]
#[limit]
async fn no_password_is_shown_while_locks_are_used() {
    let (collected, _installed) = Collector::install(Level::TRACE);
    let server = RedisServer::builder().with_password(PASSWORD).start();
    let right = format!("redis://:{PASSWORD}@127.0.0.1:{}", server.port());
    let wrong = format!("redis://{PASSWORD}:{PASSWORD}@127.0.0.1:{}", server.port());
    let closed = format!("redis://:{PASSWORD}@127.0.0.1:1");
    let mut all = String::new();
    for url in [&right, &wrong, &closed, &format!("redlock://:{PASSWORD}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")] {
        all += &shown(&LockManager::connect(url).await);
        let events = Arc::new(Mutex::new(String::new()));
        let locks = LockManager::builder_for(url).unwrap().observer(Told(Arc::clone(&events))).build().unwrap();
        let guard = locks.lock("k").without_waiting().await;
        all += &shown(&guard);
        if let Ok(guard) = guard {
            all += &shown(&guard.release().await);
        }
        all += &format!("{locks:?} {}", events.lock().unwrap());
    }
    all += &collected.everything();
    assert!(all.contains("Acquired") && all.contains("user or password is wrong"), "{all}");
    assert_hidden(&all, &"in use");
}

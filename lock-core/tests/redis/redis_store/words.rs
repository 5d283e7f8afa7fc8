//! The words of a server, a proxy or a service reach the user, for any first word.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use lock_core::{LockErrorKind, LockManager};
use lock_testing::{RedisServer, limit};

use crate::support::eventually;

/// Starts a service that answers every command with one line, and perhaps ends the connection after the first.
fn service(line: &'static str, hangs_up: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let commands = buffer[..length].windows(2).filter(|pair| pair == b"\n*").count() + 1;
                    for _ in 0..commands {
                        let _ = stream.write_all(format!("{line}\r\n").as_bytes());
                        if hangs_up {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
#[limit]
async fn the_words_of_a_service_are_told_whatever_the_first_is() {
    for (line, words) in [
        (
            "-ERR tenant blue is suspended, see https://status.example",
            "tenant blue is suspended, see https://status.example",
        ),
        ("-QUOTA the daily quota of blue is used up", "QUOTA: the daily quota of blue is used up"),
        ("-Error: invalid API key", "invalid API key"),
        ("-ERR command 'HELLO' is not permitted by policy 7", "is not permitted by policy 7"),
        ("-BACKEND_DOWN", "BACKEND_DOWN"),
        ("-ERR Proxy error: upstream 10.0.0.7:6379 timed out", "upstream 10.0.0.7:6379 timed out"),
        ("-ERR max number of clients + cluster connections reached", "raise maxclients"),
        ("-LOADING tenant blue is being moved", "tenant blue is being moved"),
    ] {
        for hangs_up in [false, true] {
            let address = service(line, hangs_up);
            for path in ["", "/1"] {
                let url = format!("redis://app:s3cret@{address}{path}");
                let error = LockManager::connect(&url).await.unwrap_err();
                let told = error.to_string();
                assert!(told.contains(words), "{line}{path}, hangs up: {hangs_up}: {told}");
                assert!(!told.contains("another service"), "{line}: {told}");
            }
        }
    }
}

#[tokio::test]
#[limit]
async fn a_service_that_repeats_the_password_does_not_have_it_told() {
    for line in ["-ERR cannot log in with HELLO 3 AUTH app s3cret", "-s3cret what", "-ERR syntax error near 's3cret'"] {
        for hangs_up in [false, true] {
            for shape in ["redis://app:s3cret@", "redis+sentinel://h:p@HOST/s?sentinel_password=s3cret"] {
                let address = service(line, hangs_up);
                let url =
                    if shape.contains("HOST") { shape.replace("HOST", &address) } else { format!("{shape}{address}") };
                let told = format!("{:?}", LockManager::connect(&url).await.unwrap_err());
                assert!(!told.contains("s3cret"), "{told}");
            }
        }
    }
}

#[tokio::test]
#[limit]
async fn a_server_that_has_no_connection_left_says_so() {
    let server = RedisServer::start();
    let mut last = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    last.write_all(b"CONFIG SET maxclients 1\r\n").unwrap();
    last.read_exact(&mut [0; 5]).unwrap();
    for path in ["", "/1"] {
        let told = std::cell::RefCell::new(String::new());
        // The connection by which the test asked the server before may still be there.
        let url = format!("{}{path}", server.url());
        let error = LockManager::connect(&url).await.unwrap_err();
        told.replace(error.to_string());
        eventually("it is told", || {
            let told = told.borrow();
            told.contains("raise maxclients") && told.contains("max number of clients reached")
        })
        .await;
        assert_eq!(error.kind(), LockErrorKind::Unavailable);
    }
    last.write_all(b"CONFIG SET maxclients 10000\r\n").unwrap();
    last.read_exact(&mut [0; 5]).unwrap();
    drop(LockManager::connect(&server.url()).await.unwrap());
}

#[tokio::test]
#[limit]
async fn a_mistake_in_a_url_is_named_without_repeating_it() {
    let server = RedisServer::start();
    let address = format!("127.0.0.1:{}", server.port());
    // Characters that a file or a copy leaves around a URL are removed.
    for url in [format!("redis://{address}\n"), format!("  redis://{address}\r\n"), format!("REDIS://{address}")] {
        drop(LockManager::connect(&url).await.unwrap_or_else(|error| panic!("{url:?}: {error}")));
    }
    for (url, says) in [
        ("\"redis://:s3cret@h\"", "quotation marks"),
        ("'redis://:s3cret@h'", "quotation marks"),
        ("“redis://:s3cret@h”", "quotation marks"),
        ("<redis://:s3cret@h>", "quotation marks"),
        ("LOCK_URL=redis://:s3cret@h", "the name of a variable"),
        ("export REDIS_URL=redis://:s3cret@h", "the name of a variable"),
        ("REDIS_URL=\"redis://:s3cret@h\"", "the name of a variable"),
        ("LOCK_URL: redis://:s3cret@h", "the name of a variable"),
        ("redis-cli -u redis://:s3cret@h", "a command line"),
        ("redis://:s3cret@h :6379", "a blank"),
        ("redis: //:s3cret@h", "write ://"),
        ("redis://:s3cret@h\u{200b}", "a character that cannot be seen"),
        ("redis://:s3cret@h;", "cannot be one"),
        ("s3cret.example:6379", "has no scheme"),
        ("localhost:6379", "has no scheme"),
        ("127.0.0.1", "has no scheme"),
        ("app:s3cret@localhost:6379", "has no scheme"),
        (":s3cret@localhost:6379", "has no scheme"),
        ("//localhost:6379", "has no scheme"),
        ("/run/s3.sock", "redis+unix://"),
        ("redis:/localhost:6379", "://"),
        ("redis:localhost:6379", "://"),
        ("redis//localhost:6379", "://"),
        ("redis:///localhost:6379", "no host"),
        ("redis://redis://:s3cret@h", "more than one"),
        ("http://:s3cret@h", "web"),
        ("https://s3cret.example", "web"),
        ("tcp://s3cret:6379", "redis:// instead of tcp://"),
        ("redis+tls://:s3cret@h", "rediss://"),
        ("redis-sentinel://:s3cret@h/service", "redis+sentinel://"),
        ("redis-cluster://:s3cret@h", "redis+cluster://"),
        ("redis-socket:///run/s3.sock", "redis+unix://"),
        ("jdbc:redis://:s3cret@h", "jdbc:"),
        ("${REDIS_URL}", "was not replaced"),
        ("$REDIS_URL", "was not replaced"),
        ("{{ redis_url }}", "was not replaced"),
        ("redis://${REDIS_HOST}:6379", "was not replaced"),
        ("redis://$REDIS_HOST:6379", "was not replaced"),
    ] {
        let errors = [
            LockManager::builder_for(url).map(drop).unwrap_err(),
            lock_core::RedisStore::new(url).map(drop).unwrap_err(),
        ];
        for error in errors {
            let told = format!("{error:?} {error}");
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}: {told}");
            assert!(told.contains(says), "{url}: {told}");
            assert!(!told.contains("s3"), "{url}: {told}");
        }
    }
}

use std::io;

use redis::{ErrorKind, RedisError, ServerErrorKind, make_extension_error};

use super::{CODES, answered, connecting, executing, without};
use lock_store::types::error::{LockError, LockErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    NotExecuted,
    Unknown,
    Misconfigured,
}

fn class(error: &LockError) -> Class {
    match error.kind() {
        LockErrorKind::Misconfigured => Class::Misconfigured,
        LockErrorKind::Unavailable if error.is_ambiguous() => Class::Unknown,
        LockErrorKind::Unavailable => Class::NotExecuted,
        kind => panic!("{kind:?}"),
    }
}

fn server_error(code: &str, detail: &str) -> RedisError {
    make_extension_error(code.to_owned(), Some(detail.to_owned()))
}

#[test]
fn every_code() {
    let table = [
        ("LOADING Redis is loading the dataset in memory", Class::NotExecuted),
        ("READONLY You can't write against a read only replica.", Class::NotExecuted),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to", Class::NotExecuted),
        ("OOM command not allowed when used memory > 'maxmemory'.", Class::NotExecuted),
        ("NOREPLICAS Not enough good replicas to write.", Class::NotExecuted),
        ("CLUSTERDOWN Hash slot not served", Class::NotExecuted),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Class::NotExecuted),
        ("MOVED 3999 127.0.0.1:6381", Class::NotExecuted),
        ("ASK 3999 127.0.0.1:6381", Class::NotExecuted),
        ("BUSY Redis is busy running a script.", Class::NotExecuted),
        ("CLEARING more leases have ended than can be taken out at once", Class::NotExecuted),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Class::NotExecuted),
        ("ERR max number of clients reached", Class::NotExecuted),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Class::Misconfigured),
        ("NOPERM this user has no permissions to run the 'eval' command", Class::Misconfigured),
        ("NOAUTH Authentication required.", Class::Misconfigured),
        ("WRONGPASS invalid username-password pair or user is disabled.", Class::Misconfigured),
        ("DENIED Redis is running in protected mode", Class::Misconfigured),
        ("NOPROTO unsupported protocol version", Class::Misconfigured),
        ("CROSSSLOT Keys in request don't hash to the same slot", Class::Misconfigured),
        ("ERR unknown command `EVALSHA`, with args beginning with:", Class::Misconfigured),
        ("ERR DB index is out of range", Class::Misconfigured),
        ("ERR invalid DB index", Class::Misconfigured),
        ("ERR SELECT is not allowed in cluster mode", Class::Misconfigured),
        ("ERR AUTH <password> called without any password configured for the default user.", Class::Misconfigured),
        ("ERR Client sent AUTH, but no password is set", Class::Misconfigured),
        ("ERR invalid client certificate", Class::Misconfigured),
        ("ERR value is not an integer or out of range", Class::Unknown),
        ("UNBLOCKED client unblocked", Class::Unknown),
        ("", Class::Unknown),
    ];
    for (text, expected) in table {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        for error in [executing("node", "acquire", &server_error(code, detail)), answered("node", "renew", text)] {
            assert_eq!(class(&error), expected, "{text}");
            let said = error.to_string();
            assert!(said.contains("node") && said.contains(';'), "{said}");
        }
    }
    for (code, _) in CODES {
        assert!(table.iter().any(|(text, _)| text.starts_with(code)), "{code} is not in the table");
    }
}

#[test]
fn codes_that_the_client_knows() {
    for (kind, expected) in [
        (ServerErrorKind::BusyLoading, Class::NotExecuted),
        (ServerErrorKind::ReadOnly, Class::NotExecuted),
        (ServerErrorKind::ClusterDown, Class::NotExecuted),
        (ServerErrorKind::MasterDown, Class::NotExecuted),
        (ServerErrorKind::TryAgain, Class::NotExecuted),
        (ServerErrorKind::Moved, Class::NotExecuted),
        (ServerErrorKind::Ask, Class::NotExecuted),
        (ServerErrorKind::NoPerm, Class::Misconfigured),
        (ServerErrorKind::CrossSlot, Class::Misconfigured),
        (ServerErrorKind::ResponseError, Class::Unknown),
    ] {
        let error = RedisError::from((ErrorKind::Server(kind), "text"));
        assert_eq!(class(&executing("node", "acquire", &error)), expected, "{kind:?}");
    }
}

#[test]
fn codes_inside_the_errors_of_scripts() {
    for (text, expected) in [
        // Redis 7
        ("OOM command not allowed when used memory > 'maxmemory'. script: 1f0, on @user_script:7.", Class::NotExecuted),
        ("NOPERM ACL failure in script: User x has no permissions to run the 'time' command", Class::Misconfigured),
        // Redis 7.2 and Valkey
        ("ERR ACL failure in script: User x has no permissions to run the 'time' command", Class::Misconfigured),
        // Redis 6.2
        ("ERR Error running script (call to f_1f0): @user_script:7: -OOM command not allowed", Class::NotExecuted),
        ("ERR Error running script (call to f_1f0): @user_script:7: -READONLY You can't write", Class::NotExecuted),
        ("ERR Error running script (call to f_1f0): @user_script:7: WRONGTYPE Operation", Class::Misconfigured),
        ("@user_script: 7: -MISCONF Redis is configured to save RDB snapshots", Class::NotExecuted),
        ("ERR The user executing the script can't run this command or subcommand", Class::Misconfigured),
        ("ERR Error running script (call to f_1f0): user_script:7: attempt to index a nil value", Class::Unknown),
        // Redis 7, 6.2, and a script that may not leave its slot
        ("ERR Script attempted to access a non local key in a cluster node script: 1f0", Class::NotExecuted),
        (
            "@user_script: 7: @user_script: 7: Lua script attempted to access a non local key in a cluster node",
            Class::NotExecuted,
        ),
        ("ERR Script attempted to access keys that do not hash to the same slot", Class::NotExecuted),
    ] {
        assert_eq!(class(&answered("node", "acquire", text)), expected, "{text}");
    }
}

/// The service refuses before it runs anything, so a retry cannot help.
#[test]
fn refusals_of_services_name_what_to_set() {
    for (text, says) in [
        (
            "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
            "script_check_enable to 0",
        ),
        (
            "ERR bad lua script for redis cluster, first parameter of redis.call/redis.pcall must be a single literal string",
            "script_check_enable to 0",
        ),
        ("ERR eval/evalsha command keys must be in same slot", "script_check_enable to 0"),
        ("ERR eval/evalsha command keys must in same slot", "redis+cluster://"),
        ("ERR for redis cluster, eval/evalsha number of keys can't be negative or zero", "script_check_enable to 0"),
        ("ERR command eval not support for normal user", "script_check_enable to 0"),
        ("ERR script tried accessing undeclared key", "allow-undeclared-keys"),
        ("ERR unknown command 'XADD', with args beginning with:", "no streams (XADD)"),
        ("ERR unknown command `xadd`, with args beginning with:", "no streams (XADD)"),
        ("ERR unknown command 'EVALSHA'", "no scripts (EVAL)"),
        ("ERR unknown command", "lockctl doctor"),
        ("ERR Unknown Redis command called from script script: 1f0, on @user_script:7.", "lockctl doctor"),
    ] {
        let (code, detail) = text.split_once(' ').unwrap();
        for error in [executing("node", "acquire", &server_error(code, detail)), answered("node", "acquire", text)] {
            assert_eq!(class(&error), Class::Misconfigured, "{text}");
            assert!(error.to_string().contains(says) && !error.to_string().contains("use Redis 6.2"), "{error}");
        }
    }
}

/// Before 7.2 the server does not say which key it was.
#[test]
fn a_key_that_the_user_may_not_touch_is_a_matter_of_patterns() {
    for (text, of_keys) in [
        ("NOPERM this user has no permissions to access one of the keys used as arguments", true),
        ("ERR The user executing the script can't access at least one of the keys mentioned in the command", true),
        ("NOPERM User app has no permissions to run the 'evalsha' command", false),
    ] {
        let said = answered("node", "acquire", text).to_string();
        assert!(said.contains("docs/operations.md#permissions"), "{said}");
        assert_eq!(said.contains("patterns of keys, such as ~lock:* ~{lock:*"), of_keys, "{said}");
    }
}

#[test]
fn broken_connections_are_unknown_once_a_command_was_sent() {
    for kind in [
        io::ErrorKind::TimedOut,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::ConnectionAborted,
    ] {
        let error = RedisError::from(io::Error::from(kind));
        assert_eq!(class(&executing("node", "acquire", &error)), Class::Unknown, "{kind:?}");
        assert_eq!(class(&connecting("node", &error)), Class::NotExecuted, "{kind:?}");
    }
    let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
    assert_eq!(class(&connecting("node", &refused)), Class::NotExecuted);
}

#[test]
fn mistakes_seen_while_connecting() {
    for error in [
        RedisError::from((ErrorKind::AuthenticationFailed, "Password authentication failed")),
        RedisError::from((ErrorKind::InvalidClientConfig, "no address")),
        RedisError::from((ErrorKind::RESP3NotSupported, "no HELLO")),
        server_error("WRONGPASS", "invalid username-password pair or user is disabled."),
        server_error("NOAUTH", "HELLO must be called with the client already authenticated"),
    ] {
        assert_eq!(class(&connecting("node", &error)), Class::Misconfigured, "{error}");
    }
}

#[test]
fn nothing_the_server_echoes_while_connecting_is_repeated() {
    for detail in ["unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 's3cret'", "s3cret what"] {
        let told = without(server_error("ERR", detail), Some("s3cret"));
        let said = connecting("node", &told).to_string();
        assert!(!said.contains("s3cret"), "{said}");
    }
    let told = connecting("node", &without(server_error("s3cret", "what"), Some("s3cret")));
    assert_eq!((class(&told), told.to_string().contains("s3cret")), (Class::NotExecuted, false), "{told}");
    assert!(told.to_string().contains("what"), "{told}");
}

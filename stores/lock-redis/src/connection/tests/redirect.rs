use super::Refusal;
use crate::connection::url::Address;

#[test]
fn every_definite_refusal_is_read() {
    let read = |code: &str, detail: &str| Refusal::read(code, detail, "asked");
    let address = |host: &str| Address { host: host.to_owned(), port: 7001 };
    assert_eq!(read("MOVED", "866 10.0.0.2:7001"), Some(Refusal::Moved(address("10.0.0.2"))));
    assert_eq!(read("MOVED", "866 :7001"), Some(Refusal::Moved(address("asked"))));
    assert_eq!(read("ASK", "866 ::1:7001"), Some(Refusal::Ask(address("::1"))));
    for bad in ["", "866", "866 h", "866 h:x"] {
        assert_eq!(read("MOVED", bad), None, "{bad}");
    }
    for (codes, refusal) in [
        (&["TRYAGAIN"][..], Refusal::TryAgain),
        (&["CLUSTERDOWN", "MASTERDOWN", "READONLY"], Refusal::NoMaster),
        (&["LOADING", "BUSY", "MISCONF", "OOM", "NOREPLICAS"], Refusal::NotNow),
        (&["NOAUTH", "NOPERM", "WRONGPASS"], Refusal::NotAllowed),
    ] {
        assert!(codes.iter().all(|code| read(code, "") == Some(refusal.clone())), "{refusal:?}");
    }
    for text in [
        "Script attempted to access a non local key in a cluster node script: 1f0, on @user_script:12.",
        "Error running script (call to f_1f0): @user_script:7: @user_script: 7: Lua script attempted to access a non \
         local key in a cluster node",
        "Script attempted to access keys that do not hash to the same slot",
    ] {
        assert_eq!(read("ERR", text), Some(Refusal::NotHere), "{text}");
    }
    for other in ["ERR", "WRONGTYPE", "CROSSSLOT", "NOSCRIPT", ""] {
        assert_eq!(read(other, "MOVED 1 h:1"), None, "{other}");
    }
}

//! How a holder describes itself in a row.

use lock_core::{HolderInfo, LockLabel};

/// Between the parts, which may have any other character.
const BETWEEN: char = '\u{1f}';

/// Writes host, process, call site and the name of the lock.
pub(crate) fn write(info: &HolderInfo) -> String {
    let plain = |text: &str| text.replace(['\0', BETWEEN], " ");
    let lock = info.lock.as_ref().map(|lock| plain(lock.as_str())).unwrap_or_default();
    [plain(&info.host), info.pid.to_string(), plain(&info.site), lock].join(&BETWEEN.to_string())
}

/// Reads what [`write`] has written. `None` for anything else.
pub(crate) fn read(text: &str) -> Option<HolderInfo> {
    let mut parts = text.split(BETWEEN);
    let (host, pid, site, lock) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let info = HolderInfo::new(host, pid, site);
    Some(if lock.is_empty() { info } else { info.with_lock(LockLabel::new(lock.to_owned())) })
}

#[cfg(test)]
mod tests {
    use lock_core::{HolderInfo, LockLabel};

    use super::{read, write};

    #[test]
    fn what_is_written_is_read() {
        for info in [
            HolderInfo::new("h|1", 7, "a::b"),
            HolderInfo::new("", 0, "é").with_lock(LockLabel::from_static("lock:<id>")),
        ] {
            assert_eq!(read(&write(&info)), Some(info));
        }
        assert_eq!(read("nonsense"), None);
    }
}

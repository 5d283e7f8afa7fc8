//! A wall clock that can be moved. The servers end leases by it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lock_testing::RedisServerBuilder;

/// How many seconds the clock jumps ahead each time: more than any lease.
const LEAP: i64 = 60;

pub(crate) struct MovableClock {
    folder: PathBuf,
    ahead: i64,
}

impl MovableClock {
    pub(crate) fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("lock-proof-clock-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("cannot write {}: {error}", folder.display()))?;
        let clock = Self { folder, ahead: 0 };
        fs::write(clock.path("shim.c"), include_str!("../../../../../lock-core/tests/support/shim.c")).unwrap();
        fs::write(clock.path("offset"), 0i64.to_ne_bytes()).unwrap();
        // `cc` is the compiler that Rust links with, so it is installed.
        let (shim, source) = (clock.path("shim.so"), clock.path("shim.c"));
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(shim).arg(source).status();
        match built {
            Ok(status) if status.success() => Ok(clock),
            _ => Err("no clock can be moved: cc, the compiler that Rust links with, is missing".to_owned()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn of(&self, server: RedisServerBuilder) -> RedisServerBuilder {
        let (shim, offset) = (self.path("shim.so"), self.path("offset"));
        server
            .with_env("LD_PRELOAD", &shim.display().to_string())
            .with_env("CLOCK_OFFSET", &offset.display().to_string())
    }

    pub(crate) fn leap(&mut self) {
        use std::os::unix::fs::FileExt as _;
        self.ahead += LEAP;
        // The offset is overwritten in place: the servers have the file mapped.
        let file = fs::OpenOptions::new().write(true).open(self.path("offset")).unwrap();
        file.write_all_at(&self.ahead.to_ne_bytes(), 0).unwrap();
    }
}

impl Drop for MovableClock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

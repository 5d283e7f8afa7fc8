//! A server whose wall clock jumps.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use lock_testing::{RedisServer, Reply};

use crate::support::Scratch;

/// A server whose wall clock can be moved.
pub(crate) struct Movable {
    pub(crate) server: RedisServer,
    scratch: Scratch,
}

impl Movable {
    pub(crate) fn start() -> Self {
        let scratch = Scratch::new();
        let (source, shim, offset) = (scratch.path("shim.c"), scratch.path("shim.so"), scratch.path("offset"));
        fs::write(&source, include_str!("shim.c")).unwrap();
        // Built with the compiler that Rust uses for linking.
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]).status();
        assert!(built.unwrap().success());
        fs::write(&offset, 0i64.to_ne_bytes()).unwrap();
        let server = RedisServer::builder().with_env("LD_PRELOAD", &shim).with_env("CLOCK_OFFSET", &offset).start();
        Self { server, scratch }
    }

    /// Sets how far the clock is ahead, in seconds, and does not wait.
    pub(crate) fn set(&self, seconds: i64) {
        let file = fs::OpenOptions::new().write(true).open(self.scratch.path("offset")).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// Returns the server's time, in seconds.
    pub(crate) fn time(&self) -> i64 {
        let Reply::List(time) = self.server.command(&["TIME"]) else { panic!("no time") };
        time[0].text().parse().unwrap()
    }
}

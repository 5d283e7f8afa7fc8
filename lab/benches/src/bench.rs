//! State that all rows share: the server, the network, and how thoroughly to measure.

use std::time::Duration;

use serde::Serialize;

use crate::Result;
use crate::process::instructions::Counter;
use crate::process::work::Pace;
use crate::servers::proxy::Proxy;
use crate::servers::server::Server;
use crate::servers::site::Site;

/// The one-way delay of the proxy.
pub(crate) const ONE_WAY: Duration = Duration::from_micros(2500);

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// For published figures.
    Full,
    /// For a quick look.
    Quick,
    /// For the test of the benchmark itself.
    Smoke,
}

impl Scale {
    /// Chooses one of three values.
    pub(crate) fn pick<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }
}

/// One run of the benchmark.
pub(crate) struct Bench {
    pub(crate) program: String,
    pub(crate) scale: Scale,
    pub(crate) rounds: u32,
    pub(crate) pace: Pace,
    pub(crate) site: Site,
    /// Counts instructions, if requested.
    pub(crate) counter: Option<Counter>,
    proxy: Option<Proxy>,
}

impl Bench {
    pub(crate) fn start(program: String, scale: Scale, rounds: Option<u32>, instructions: bool) -> Result<Self> {
        let millis = Duration::from_millis;
        Ok(Self {
            counter: instructions.then(|| Counter::new(&program)).transpose()?,
            site: Site::alone(&program)?,
            program,
            scale,
            rounds: rounds.unwrap_or(scale.pick(5, 3, 1)).max(1),
            pace: Pace {
                warm_up: scale.pick(millis(400), millis(60), millis(40)),
                window: scale.pick(millis(1000), millis(150), millis(60)),
            },
            proxy: None,
        })
    }

    /// Returns the server of the rows that need only one.
    pub(crate) fn server(&mut self) -> &mut Server {
        &mut self.site.servers[0]
    }

    pub(crate) fn port(&self) -> u16 {
        self.site.port()
    }

    /// Returns a longer window, in which every waiter of a held lock gets several turns.
    pub(crate) fn long(&self) -> Pace {
        Pace { window: self.pace.window * self.scale.pick(2, 3, 1), ..self.pace }
    }

    /// Prints the current step on the error output: a row takes minutes.
    pub(crate) fn progress(&self, what: &str) {
        if self.scale != Scale::Smoke {
            eprintln!("lock-bench: {what}");
        }
    }

    /// Returns the proxy in front of the server.
    pub(crate) fn proxy(&mut self) -> Result<&Proxy> {
        if self.proxy.is_none() {
            self.proxy = Some(Proxy::start(self.port(), ONE_WAY)?);
        }
        self.proxy.as_ref().ok_or_else(|| "the proxy is gone".into())
    }
}

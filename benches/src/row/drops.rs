//! Guards dropped as fast as they come: the store frees locks more slowly than that.

use std::time::{Duration, Instant};

use crate::Result;
use crate::bench::Bench;
use crate::drops::{Dropped, Drops};
use crate::job::Job;
use crate::outcome::{Figure, Outcome};
use crate::target::Target;
use crate::worker::Worker;

/// How long locks that nobody holds are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// 64 tasks drop a million guards.
pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let guards = bench.scale.pick(1_000_000, 200_000, 6_400);
    let rounds = bench.scale.pick(bench.rounds.min(2), 1, 1);
    let [mut memory, mut rate, mut outlived] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        bench.server.flush()?;
        let mut worker = Worker::start(&Job::Drops(Drops { port: bench.server.port(), tasks: 64, guards }))?;
        let dropped: Dropped = worker.answer()?;
        let ended = Instant::now();
        // The clock, from which tokens come, is the one key that stays.
        while bench.server.keys()? > 1 && ended.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        outlived.push(ended.elapsed().as_secs_f64());
        memory.push(dropped.bytes as f64 / f64::from(1 << 20));
        rate.push(f64::from(guards) / dropped.seconds);
    }
    let figures = vec![
        Figure::new("guards dropped", "", vec![f64::from(guards)]),
        Figure::new("guards dropped per second", "", rate),
        Figure::new("most memory above idle", "MiB", memory),
        Figure::new("last lock outlives the run by", "s", outlived),
    ];
    let targets = vec![
        Target::at_most("most memory above idle, MiB", figures[2].median, 32.0),
        Target::at_most("last lock outlives the run by, s", figures[3].median, 1.0),
    ];
    Ok(Outcome { figures, targets, ..Outcome::default() })
}

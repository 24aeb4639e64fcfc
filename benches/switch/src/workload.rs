//! What is measured, and how one child measures it.

use std::fmt;
use std::time::{Duration, Instant};

/// Goroutines in the crowded yield and in one batch of spawns.
pub const CROWD: u64 = 1_000;

/// One thing to do many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// One goroutine that yields; nobody else wants to run. Per yield.
    Yield1,
    /// A thousand goroutines that yield. Per yield.
    Yield1000,
    /// Batches of a thousand goroutines that do nothing, each joined by its handle. Per goroutine.
    SpawnJoin,
    /// The same, joined by one wait group.
    SpawnGroup,
    /// Two goroutines, two channels without a buffer. Per round trip.
    PingPong,
    /// One goroutine that locks and unlocks. Per pair.
    Mutex,
}

impl Workload {
    /// All of them, in the order of the report.
    pub const ALL: [Workload; 6] = [
        Workload::Yield1,
        Workload::Yield1000,
        Workload::SpawnJoin,
        Workload::SpawnGroup,
        Workload::PingPong,
        Workload::Mutex,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Workload::Yield1 => "yield-1",
            Workload::Yield1000 => "yield-1000",
            Workload::SpawnJoin => "spawn-join",
            Workload::SpawnGroup => "spawn-group",
            Workload::PingPong => "ping-pong",
            Workload::Mutex => "mutex",
        }
    }

    /// The workload of a word.
    pub fn of(word: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.word() == word)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Workload::Yield1 => "yield, one goroutine",
            Workload::Yield1000 => "yield, 1,000 goroutines",
            Workload::SpawnJoin => "spawn + join, batches of 1,000",
            Workload::SpawnGroup => "spawn + wait group, 1,000",
            Workload::PingPong => "ping-pong, round trip",
            Workload::Mutex => "mutex, uncontended",
        })
    }
}

/// A measured workload.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Per operation, in the last and longest run.
    pub ns: f64,
    /// Operations in all runs, the short ones before it included.
    pub ops_all: u64,
}

/// The next number of operations after a run that was too short: what it would have taken, and a little more.
pub fn next_ops(ops: u64, took: Duration, at_least: Duration) -> u64 {
    let short_by = 1.2 * at_least.as_secs_f64() / took.as_secs_f64().max(1e-9);
    // By small steps, so that the last run is warm and not many times too long.
    let ops = (ops as f64 * short_by.clamp(1.5, 10.0)) as u64;
    ops.next_multiple_of(CROWD)
}

/// Runs more and more operations until one run has taken `at_least` so long; that one counts.
pub fn measure(at_least: Duration, mut run: impl FnMut(u64)) -> Measured {
    let (mut ops, mut ops_all) = (CROWD, 0);
    loop {
        let start = Instant::now();
        run(ops);
        let took = start.elapsed();
        ops_all += ops;
        if took >= at_least {
            return Measured { ns: took.as_nanos() as f64 / ops as f64, ops_all };
        }
        ops = next_ops(ops, took, at_least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        assert!(Workload::ALL.into_iter().all(|workload| Workload::of(workload.word()) == Some(workload)));
        assert_eq!(Workload::of("nap"), None);
    }

    #[test]
    fn runs_grow_by_whole_crowds() {
        let (ms, at_least) = (Duration::from_millis(1), Duration::from_millis(100));
        assert_eq!(next_ops(1_000, ms, at_least), 10_000);
        assert_eq!(next_ops(10_000, 99 * ms, at_least), 15_000);
        assert_eq!(next_ops(1_500, Duration::ZERO, at_least), 15_000);
    }

    #[test]
    fn the_last_run_is_long_enough() {
        let at_least = Duration::from_millis(5);
        let measured = measure(at_least, |ops| std::thread::sleep(Duration::from_nanos(ops * 100)));
        assert!(measured.ns >= 100.0 && measured.ops_all > 5_000);
    }
}

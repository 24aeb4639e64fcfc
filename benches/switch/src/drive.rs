//! How a child measures: the same for all Rust contenders. `go/main.go` does the same.

use crate::probe;
use crate::workload::{CROWD, Kind, NAP, NAPS, SLEEPERS, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a library has to do.
pub trait Rival {
    /// `ops` operations of a workload that is a rate or a burst; returns when all are done.
    fn run(&self, workload: Workload, ops: u64);

    /// `SLEEPERS` goroutines that sleep `NAPS` times and note each time; returns when all have ended.
    fn sleep_all(&self, lateness: &Arc<Lateness>);

    /// Lets so many goroutines wait for one channel; returns when each is about to. The answer closes the channel and
    /// returns when all have ended.
    fn park(&self, count: usize, stacks: Stacks) -> Box<dyn FnOnce() + '_>;

    /// Lets the caller of all these wait, as waiting is done where it runs.
    fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// What stacks are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stacks {
    /// As the library has them.
    Default,
    /// Of 64 KiB.
    Small,
}

/// What a child measured.
#[derive(Debug)]
pub struct Outcome {
    /// A value for each column of the workload.
    pub values: Vec<f64>,
    /// Operations in all runs, the short ones before it included.
    pub ops_all: u64,
}

/// Measures one workload.
pub fn drive(rival: &impl Rival, workload: Workload, at_least: Duration) -> Outcome {
    match workload.spec().kind {
        Kind::Rate if workload == Workload::Cores => {
            // The time of threads that come and go shows in a longer run.
            let measured = measure(at_least.max(Duration::from_secs(1)), CROWD, |ops| rival.run(workload, ops));
            Outcome { values: vec![measured.cores, measured.ns], ops_all: measured.ops_all }
        }
        Kind::Rate => measure(at_least, CROWD, |ops| rival.run(workload, ops)).outcome(),
        Kind::Burst(ops) => {
            rival.run(workload, CROWD);
            let measured = timed(ops, &mut |ops| rival.run(workload, ops)).1;
            Measured { ops_all: ops + CROWD, ..measured }.outcome()
        }
        Kind::Sleepers => sleepers(rival),
        Kind::Parked(count) => parked(rival, count, workload),
        Kind::Idle(count) => idle(rival, count),
        Kind::Heap(objects) => {
            // Some thousands start what a program starts once.
            rival.run(workload, 10 * CROWD);
            let measured = timed(objects, &mut |ops| rival.run(workload, ops)).1;
            let values = vec![measured.ns, probe::memory_at_most() as f64 / 1e6, measured.cores];
            Outcome { values, ops_all: objects + 10 * CROWD }
        }
        Kind::Pauses(_) => unreachable!("only a collector has pauses"),
        Kind::Net(_) | Kind::Http => unreachable!("of another suite"),
    }
}

/// A measured rate.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Per operation, in the last and longest run.
    pub ns: f64,
    /// Processor time by real time, likewise.
    pub cores: f64,
    /// Operations in all runs.
    pub ops_all: u64,
}

impl Measured {
    /// Its two columns.
    pub fn outcome(self) -> Outcome {
        Outcome { values: vec![self.ns, self.cores], ops_all: self.ops_all }
    }
}

/// One run.
pub fn timed(ops: u64, run: &mut impl FnMut(u64)) -> (Duration, Measured) {
    let (busy, start) = (probe::cpu_time(), Instant::now());
    run(ops);
    let took = start.elapsed();
    let busy = probe::cpu_time() - busy;
    let ns = took.as_nanos() as f64 / ops as f64;
    (took, Measured { ns, cores: busy.as_secs_f64() / took.as_secs_f64(), ops_all: ops })
}

/// Runs more and more operations, multiples of `unit`, until one run has taken `at_least` so long; that one counts. The
/// first never does: threads start in it, on a busy machine for long.
pub fn measure(at_least: Duration, unit: u64, mut run: impl FnMut(u64)) -> Measured {
    let (mut ops, mut ops_all) = (unit, 0);
    loop {
        let (took, measured) = timed(ops, &mut run);
        ops_all += ops;
        if took >= at_least && ops > unit {
            return Measured { ops_all, ..measured };
        }
        ops = next_ops(ops, unit, took, at_least);
    }
}

/// The next number of operations after a run that was too short: what it would have taken, and a little more.
fn next_ops(ops: u64, unit: u64, took: Duration, at_least: Duration) -> u64 {
    let short_by = 1.2 * at_least.as_secs_f64() / took.as_secs_f64().max(1e-9);
    // By small steps, so that the last run is warm and not many times too long.
    let ops = (ops as f64 * short_by.clamp(1.5, 10.0)) as u64;
    ops.next_multiple_of(unit)
}

/// By how much each sleep was too long, in microseconds.
#[derive(Debug)]
pub struct Lateness(Vec<AtomicU32>);

impl Lateness {
    fn new() -> Lateness {
        Lateness((0..SLEEPERS * NAPS).map(|_| AtomicU32::new(u32::MAX)).collect())
    }

    /// Notes one sleep.
    pub fn note(&self, sleeper: usize, nap: usize, took: Duration) {
        let late = took.saturating_sub(NAP).as_micros() as u32;
        // ORDER: Relaxed; each place has one writer, and is read after all have been waited for.
        self.0[sleeper * NAPS + nap].store(late, Ordering::Relaxed);
    }

    fn sorted_ms(&self) -> Vec<f64> {
        let mut all: Vec<u32> = self.0.iter().map(|late| late.load(Ordering::Relaxed)).collect();
        all.sort_unstable();
        assert_ne!(all.last(), Some(&u32::MAX), "somebody has not slept");
        all.into_iter().map(|late| f64::from(late) / 1e3).collect()
    }
}

fn sleepers(rival: &impl Rival) -> Outcome {
    let lateness = Arc::new(Lateness::new());
    let start = Instant::now();
    rival.sleep_all(&lateness);
    let took = start.elapsed();
    let late = lateness.sorted_ms();
    let values = vec![took.as_secs_f64(), late[late.len() * 999 / 1000], late[late.len() - 1]];
    Outcome { values, ops_all: late.len() as u64 }
}

/// Until what has just been started or ended has come to rest.
pub const SETTLE: Duration = Duration::from_millis(500);

fn parked(rival: &impl Rival, count: usize, workload: Workload) -> Outcome {
    let stacks = if workload == Workload::Memory64K { Stacks::Small } else { Stacks::Default };
    rival.park(CROWD as usize, stacks)();
    rival.pause(SETTLE);
    let before = probe::memory();
    let end = rival.park(count, stacks);
    rival.pause(SETTLE);
    let parked = probe::memory();
    end();
    rival.pause(Duration::from_secs(10));
    let after = probe::memory();
    let each = parked.all().saturating_sub(before.all()) as f64 / count as f64;
    Outcome { values: vec![each, after.resident as f64 / before.resident as f64], ops_all: count as u64 }
}

fn idle(rival: &impl Rival, count: usize) -> Outcome {
    let end = rival.park(count, Stacks::Default);
    rival.pause(2 * SETTLE);
    let (busy, start) = (probe::cpu_time(), Instant::now());
    rival.pause(Duration::from_secs(3));
    let busy = probe::cpu_time() - busy;
    let percent = 100.0 * busy.as_secs_f64() / start.elapsed().as_secs_f64();
    end();
    Outcome { values: vec![percent], ops_all: count as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_by_whole_crowds() {
        let (ms, at_least) = (Duration::from_millis(1), Duration::from_millis(100));
        assert_eq!(next_ops(1_000, CROWD, ms, at_least), 10_000);
        assert_eq!(next_ops(10_000, CROWD, 99 * ms, at_least), 15_000);
        assert_eq!(next_ops(1_500, CROWD, Duration::ZERO, at_least), 15_000);
    }

    #[test]
    fn the_last_run_is_long_enough() {
        let (at_least, mut runs) = (Duration::from_millis(5), Vec::new());
        let measured = measure(at_least, CROWD, |ops| {
            runs.push(ops);
            std::thread::sleep(Duration::from_nanos(ops * 100));
        });
        let last = *runs.last().expect("there is one");
        assert!(runs.len() >= 2, "the first does not count");
        assert!(measured.ns >= 100.0 && measured.ns * last as f64 >= 4.999e6, "{measured:?}");
        assert_eq!(measured.ops_all, runs.iter().sum::<u64>());
    }

    #[test]
    fn lateness_is_sorted() {
        let lateness = Lateness::new();
        for i in 0..SLEEPERS {
            (0..NAPS).for_each(|nap| lateness.note(i, nap, NAP + Duration::from_millis((i == 7) as u64)));
        }
        let late = lateness.sorted_ms();
        assert_eq!((late[0], late[late.len() - 1]), (0.0, 1.0));
    }
}

//! What the contenders on plain threads have in common.

use crate::drive::{Lateness, Outcome, Rival, Stacks, drive};
use crate::probe;
use crate::workload::Workload;
use std::sync::Arc;
use std::time::Duration;

/// Measures one workload. `once` does so many operations of it.
pub fn run(workload: Workload, procs: usize, at_least: Duration, once: fn(Workload, u64)) -> Outcome {
    probe::confine(procs);
    drive(&Threads(once), workload, at_least)
}

struct Threads(fn(Workload, u64));

impl Rival for Threads {
    fn run(&self, workload: Workload, ops: u64) {
        (self.0)(workload, ops);
    }

    fn sleep_all(&self, _: &Arc<Lateness>) {
        unreachable!("threads do not take part in it");
    }

    fn park(&self, _: usize, _: Stacks) -> Box<dyn FnOnce()> {
        unreachable!("threads do not take part in it");
    }
}

/// Starts so many threads with one function and waits for all.
pub fn share_out(count: u64, part: impl FnOnce() + Send + Clone) {
    std::thread::scope(|scope| (0..count).for_each(|_| _ = scope.spawn(part.clone())));
}

//! The collector's goroutines: how they wait, and who marks when.
//!
//! - W1: a goroutine of the collector's waits at its [`Bell`]. A ring that comes while it works is there when it waits.
//! - W2: as Go does, a quarter of the Ps is for marking while it lasts: so many *dedicated* workers as that is, in whole Ps, and one
//!   *fractional* one for the rest, which works its share of the time. *Idle* ones work while their Ps have nothing else to do.
//!
//! A dedicated worker keeps its P until there is nothing to do: it does not look whether it is to give others a turn. What queues on that P
//! others steal.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracer::record::Fixed;
use tracer::wire::reason;

use super::mark;
use crate::sched::SCHED;
use crate::sched::g::{G, Kind, Wait};
use crate::sched::park::{Caller, Inside};
use crate::sync::waiter::Waiter;

/// What a goroutine of the collector's waits at.
pub(super) struct Bell {
    waiting: Mutex<Option<&'static G>>,
    rung: AtomicBool,
}

impl Bell {
    pub(super) const fn new() -> Bell {
        Bell { waiting: Mutex::new(None), rung: AtomicBool::new(false) }
    }

    /// Outside a window.
    pub(super) fn ring(&self) {
        if self.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        let waiting = self.waiting.lock().take();
        if let Some(g) = waiting {
            Caller::here().wake(Waiter::Goroutine(g));
        }
    }

    /// Waits until it rings, or has rung since the last wait.
    pub(super) fn wait(&self, reason: Fixed) {
        if !self.rung.load(Ordering::SeqCst) {
            let inside = Inside::enter().expect("the collector's own are goroutines");
            inside.park(Wait { reason, kind: Kind::None, object: 0 }, |_, g| {
                *self.waiting.lock() = Some(g);
                // A ring that came before nobody was there to hear; so listen once more, now that there is.
                if !self.rung.load(Ordering::SeqCst) {
                    return true;
                }
                // Whoever took it readies it; if it is still there it goes on by itself.
                self.waiting.lock().take().is_none()
            });
        }
        self.rung.store(false, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Dedicated,
    Fractional,
    Idle,
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Dedicated => reason::GC_DEDICATED,
            Class::Fractional => reason::GC_FRACTIONAL,
            Class::Idle => reason::GC_IDLE,
        }
    }
}

pub(super) struct Worker {
    pub(super) class: Class,
    bell: Bell,
}

/// All workers that there are. They are never ended.
static WORKERS: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());
/// How many of them wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Who marks, with so many Ps (W2): dedicated workers, and the fractional one's share of a P's time, in percent.
fn shares(procs: usize) -> (usize, usize) {
    (procs / 4, procs % 4 * 25)
}

/// The workers that are missing for so many Ps, for the caller to start them.
pub(super) fn missing(procs: usize) -> Vec<&'static Worker> {
    let mut workers = WORKERS.lock();
    let (dedicated, _) = shares(procs);
    let mut new = Vec::new();
    for (class, wanted) in [(Class::Dedicated, dedicated), (Class::Fractional, 1), (Class::Idle, procs.min(64))] {
        let there = workers.iter().filter(|w| w.class == class).count();
        for _ in there..wanted {
            let worker: &'static Worker = Box::leak(Box::new(Worker { class, bell: Bell::new() }));
            workers.push(worker);
            new.push(worker);
        }
    }
    new
}

fn workers_of(class: Class) -> usize {
    WORKERS.lock().iter().filter(|w| w.class == class).count()
}

/// There is more work: calls those who wait. Outside a window.
pub(super) fn call_more() {
    if WAITING.load(Ordering::SeqCst) != 0 {
        call();
    }
}

/// There is work: calls those whose turn it is, also if they are about to wait (W1). Outside a window.
pub(super) fn call() {
    let procs = SCHED.gomaxprocs();
    let (mut dedicated, fractional) = shares(procs);
    // Should there be more Ps by now than workers were made for, the fractional one has to do.
    let is_short = workers_of(Class::Dedicated) < dedicated;
    let mut idle = (SCHED.searchers.idle_ps() as usize).min(mark::left());
    let called: Vec<&'static Worker> = {
        let workers = WORKERS.lock();
        workers
            .iter()
            .filter(|w| {
                let left = match w.class {
                    Class::Dedicated => &mut dedicated,
                    Class::Fractional => return fractional != 0 || is_short,
                    Class::Idle => &mut idle,
                };
                let is_for_it = *left != 0;
                *left = left.saturating_sub(1);
                is_for_it
            })
            .copied()
            .collect()
    };
    called.into_iter().for_each(|w| w.bell.ring());
}

/// A worker's life.
pub(super) fn main(worker: &'static Worker) {
    loop {
        WAITING.fetch_add(1, Ordering::SeqCst);
        worker.bell.wait(Fixed::System);
        WAITING.fetch_sub(1, Ordering::SeqCst);
        work(worker.class);
    }
}

/// Marks until there is nothing to do, for now.
fn work(class: Class) {
    loop {
        let began = Instant::now();
        if !mark::work(SLICE_BYTES, class == Class::Dedicated) {
            return;
        }
        // Others want this P.
        let wanted = SCHED.has_work();
        match class {
            Class::Dedicated => {}
            Class::Idle if wanted => return,
            Class::Idle => {}
            Class::Fractional if wanted => {
                let (_, share) = shares(SCHED.gomaxprocs());
                let rest = began.elapsed() * (100 - share.clamp(1, 100) as u32) / share.max(1) as u32;
                crate::time::sleep(rest.min(Duration::from_millis(10)));
            }
            Class::Fractional => {}
        }
    }
}

/// Bytes that a worker marks in one go: some hundred microseconds.
const SLICE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_a_quarter_of_the_ps_marks() {
        assert_eq!([1, 2, 4, 8].map(shares), [(0, 25), (0, 50), (1, 0), (2, 0)]);
    }
}

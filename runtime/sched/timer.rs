//! Timers of one P: a heap of sleeping goroutines, in the order of their times.
//!
//! - T-1: `next_ns` is the earliest time in the heap, `u64::MAX` for none; written under the lock, read by anybody who wants
//!   to know whether a look is worth it.
//! - T-2: an entry's goroutine is Waiting and nobody else readies it; whoever takes the entry out does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sched::g::{G, GList};

/// The heap with its earliest time.
pub(crate) struct Timers {
    next_ns: AtomicU64,
    heap: Mutex<Heap>,
}

struct Heap {
    entries: BinaryHeap<Reverse<Entry>>,
    /// Breaks ties: sleepers with the same time wake in the order in which they went to sleep.
    serial: u64,
}

struct Entry {
    when_ns: u64,
    serial: u64,
    g: &'static G,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.when_ns, self.serial) == (other.when_ns, other.serial)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.when_ns, self.serial).cmp(&(other.when_ns, other.serial))
    }
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers { next_ns: AtomicU64::new(u64::MAX), heap: Mutex::new(Heap { entries: BinaryHeap::new(), serial: 0 }) }
    }

    /// When the earliest one is due, in CLOCK_MONOTONIC nanoseconds; `u64::MAX` for never.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.heap.lock().entries.len()
    }

    /// Adds a sleeping goroutine.
    pub(crate) fn add(&self, when_ns: u64, g: &'static G) {
        let mut heap = self.heap.lock();
        heap.serial += 1;
        let serial = heap.serial;
        heap.entries.push(Reverse(Entry { when_ns, serial, g }));
        self.publish(&heap);
    }

    /// Takes out everything that is due at `now_ns`, earliest first.
    pub(crate) fn take_due(&self, now_ns: u64, into: &mut GList) {
        let mut heap = self.heap.lock();
        while heap.entries.peek().is_some_and(|e| e.0.when_ns <= now_ns) {
            let Reverse(e) = heap.entries.pop().expect("peeked");
            into.push_back(e.g);
        }
        self.publish(&heap);
    }

    fn publish(&self, heap: &Heap) {
        let next = heap.entries.peek().map_or(u64::MAX, |e| e.0.when_ns);
        self.next_ns.store(next, Ordering::Relaxed);
    }
}

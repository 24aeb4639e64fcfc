//! Threads that are not the runtime's: they use channels, locks and `go` too, and wait on a futex.
//!
//! - F1: a thread's place is made at its first use of the runtime, given back when the thread ends, and reused. It is never
//!   freed, so a wake-up that comes late touches live memory.
//! - F2: `asleep` is set while the thread waits in a primitive of ours, and cleared by whoever wakes it, before the wake-up:
//!   for the deadlock report, which must know whether any thread is left that could wake a goroutine.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracer::clock::mono_ns;
use tracer::record::{self, Slot, thread_id};

use crate::prim::parker::Parker;

/// One such thread.
pub(crate) struct Foreign {
    pub(crate) slot: Slot,
    pub(crate) parker: Parker,
    asleep: AtomicBool,
}

/// All places there are.
static ALL: Mutex<Vec<&'static Foreign>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<&'static Foreign>> = Mutex::new(Vec::new());
static ASLEEP: AtomicUsize = AtomicUsize::new(0);
static WAKES: AtomicU64 = AtomicU64::new(0);

impl Foreign {
    /// A place for the calling thread.
    pub(crate) fn adopt() -> &'static Foreign {
        let tid = thread_id();
        if let Some(f) = FREE.lock().pop() {
            f.slot.set_m_id(tid);
            return f;
        }
        let f: &'static Foreign = Box::leak(Box::new(Foreign {
            slot: Slot::new(tid),
            parker: Parker::new(),
            asleep: AtomicBool::new(false),
        }));
        record::register(&f.slot);
        ALL.lock().push(f);
        f
    }

    /// The thread ends (or needs its place no more).
    pub(crate) fn retire(&'static self) {
        self.slot.retire();
        FREE.lock().push(self);
    }

    /// Sleeps until `done` says so; [`Foreign::wake`] makes it look again.
    pub(crate) fn sleep_until(&self, done: impl Fn() -> bool) {
        if done() {
            return;
        }
        loop {
            // Again in each turn: a wake-up that was meant for an earlier wait has counted the thread awake.
            if !self.asleep.swap(true, Ordering::SeqCst) {
                ASLEEP.fetch_add(1, Ordering::SeqCst);
            }
            if done() {
                break;
            }
            self.parker.park();
        }
        self.count_awake();
    }

    /// As [`Foreign::sleep_until`], until `until_ns` on CLOCK_MONOTONIC at most; answers whether `done` said so. A thread that will wake
    /// up by itself does not count as asleep.
    pub(crate) fn sleep_until_time(&self, done: impl Fn() -> bool, until_ns: Option<u64>) -> bool {
        let Some(until_ns) = until_ns else {
            self.sleep_until(done);
            return true;
        };
        loop {
            if done() {
                return true;
            }
            let left = until_ns.saturating_sub(mono_ns());
            if left == 0 {
                return false;
            }
            self.parker.park_timeout(Duration::from_nanos(left));
        }
    }

    /// Wakes the thread, after what it waits for was made true.
    pub(crate) fn wake(&self) {
        // F2: from now on it counts as awake, though it may take a while to run.
        self.count_awake();
        self.parker.unpark();
    }

    fn count_awake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            WAKES.fetch_add(1, Ordering::SeqCst);
            ASLEEP.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Threads of the program's own that wait in a primitive.
pub(crate) fn asleep() -> usize {
    ASLEEP.load(Ordering::SeqCst)
}

/// How often one of them stopped waiting.
pub(crate) fn wakes() -> u64 {
    WAKES.load(Ordering::SeqCst)
}

/// Whether the thread `tid` waits in a primitive.
pub(crate) fn is_asleep(tid: u64) -> bool {
    ALL.lock().iter().any(|f| f.slot.m_id() == tid && f.asleep.load(Ordering::SeqCst))
}

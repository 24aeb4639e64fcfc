//! The gate: how an event finds its generation, and how a generation ends without stopping anybody.
//!
//! Every thread that records owns a [`Gate`] with one flag, `writing`. The generation number is shared; 0 means off.
//!
//! ```text
//! acquire (writer):   writing = true;  light fence;  gen = GEN        (0: writing = false, record nothing)
//! release (writer):   writing = false (Release)
//! publish (advancer): GEN = next;  heavy fence;  for each gate: wait until writing was seen false (Acquire)
//! ```
//!
//! - G1: after `publish` and `drain` of a gate, that gate's owner MUST NOT hold a guard of the old generation. Either the
//!   advancer saw `writing == false` after the heavy fence -- then a later acquire runs its load after the fence and
//!   reads the new number -- or it saw true and waited for the release. Otherwise a late event would land in a buffer
//!   that has been taken.
//! - G2: a guard is taken *after* its owner has learned of the last transition of whatever it is about to move. So if
//!   that transition was recorded in generation n, this guard reads n or later: the loads of GEN are ordered by the
//!   hand-over of the resource (read-read coherence). Otherwise a goroutine's events could run backwards in generations.
//! - G3: between `acquire` and `release` the owner MUST NOT wait for anything that a generation change waits for.
//!
//! [`Gate::acquire`] holds the gate even when the trace is off, so that a start waits for those who saw "off": what they
//! move is then moved before the first event. [`Gate::acquire_if_on`] does not: one relaxed load when off. It is for threads that a stopped world holds still (they
//! own a P), because tracing starts in a stopped world only.
//!
//! Rejected: a sequentially consistent `writing` store (8 ns per event for something that changes once a second); a
//! reader-writer lock (the same, and writers would wait).

use crate::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::barrier;

/// One writer's half of the gate.
#[derive(Debug, Default)]
pub struct Gate {
    writing: AtomicBool,
}

impl Gate {
    /// A gate whose owner is not writing.
    #[cfg(not(loom))]
    pub const fn new() -> Gate {
        Gate { writing: AtomicBool::new(false) }
    }

    /// A gate whose owner is not writing.
    #[cfg(loom)]
    pub fn new() -> Gate {
        Gate { writing: AtomicBool::new(false) }
    }

    /// Opens the gate and answers the present generation, 0 when tracing is off. Followed by one [`Gate::release`] in either
    /// case: a start waits for those who saw "off" as for anybody else.
    ///
    /// Called by the gate's owner only.
    #[inline]
    pub fn acquire(&self, r#gen: &AtomicU64) -> u64 {
        debug_assert!(!self.writing.load(Ordering::Relaxed), "gate acquired twice by its owner");
        self.writing.store(true, Ordering::Relaxed);
        // ORDER: pairs with the heavy fence in publish(): store `writing`, then load `gen` (G1).
        barrier::light();
        // ORDER: Acquire; pairs with the store in publish(): what the advancer did to buffers and tables of this parity
        // before it opened the generation is visible.
        r#gen.load(Ordering::Acquire)
    }

    /// As [`Gate::acquire`] for an owner that a stopped world holds still: one load when tracing is off, and `None` then,
    /// with the gate closed.
    #[inline]
    pub fn acquire_if_on(&self, r#gen: &AtomicU64) -> Option<u64> {
        if cfg!(rt_untraced) {
            // To measure what the look below costs: nothing is ever recorded.
            return None;
        }
        if r#gen.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.acquire(r#gen) {
            0 => {
                self.release();
                None
            }
            now => Some(now),
        }
    }

    /// Closes the gate.
    #[inline]
    pub fn release(&self) {
        debug_assert!(self.writing.load(Ordering::Relaxed), "gate released but not held");
        // ORDER: Release; pairs with the Acquire in is_quiet(): publishes the events of this guard to the advancer.
        self.writing.store(false, Ordering::Release);
    }

    /// Whether the owner was seen outside the gate. True once after [`publish`] is enough (G1).
    pub fn is_quiet(&self) -> bool {
        // ORDER: Acquire; pairs with release().
        !self.writing.load(Ordering::Acquire)
    }
}

/// Makes `next` the generation that gates open for. Afterwards each gate must be seen quiet once.
pub fn publish(r#gen: &AtomicU64, next: u64) {
    r#gen.store(next, Ordering::SeqCst);
    // ORDER: pairs with light() in acquire() (G1).
    barrier::heavy();
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A writer adds to the buffer of the generation it was given; the advancer takes the old one after draining.
    /// loom reports a concurrent access to the cell if G1 is broken.
    #[test]
    fn loom_gate_old_buffer_is_quiet_after_drain() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicU64::new(1), [UnsafeCell::new(0u32), UnsafeCell::new(0u32)]));
            let writer = {
                let s = shared.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let g = s.0.acquire(&s.1);
                        s.2[(g % 2) as usize].with_mut(|p| unsafe { *p += 1 });
                        s.0.release();
                    }
                })
            };
            publish(&shared.1, 2);
            while !shared.0.is_quiet() {
                thread::yield_now();
            }
            let taken = shared.2[1].with_mut(|p| unsafe { std::mem::take(&mut *p) });
            writer.join().unwrap();
            let late = shared.2[1].with(|p| unsafe { *p });
            let rest = shared.2[0].with(|p| unsafe { *p });
            assert_eq!((taken + rest, late), (2, 0), "an event was lost or written to a closed generation");
        });
    }

    /// Switching off: after the drain nobody writes.
    #[test]
    fn loom_gate_off_is_off_after_drain() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicU64::new(1), UnsafeCell::new(0u32)));
            let writer = {
                let s = shared.clone();
                thread::spawn(move || {
                    if s.0.acquire_if_on(&s.1).is_some() {
                        s.2.with_mut(|p| unsafe { *p += 1 });
                        s.0.release();
                    }
                })
            };
            publish(&shared.1, 0);
            while !shared.0.is_quiet() {
                thread::yield_now();
            }
            let before = shared.2.with(|p| unsafe { *p });
            writer.join().unwrap();
            let after = shared.2.with(|p| unsafe { *p });
            assert_eq!(before, after);
        });
    }
}

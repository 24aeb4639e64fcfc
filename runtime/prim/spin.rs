//! The lock of the primitives' short sections.
//!
//! A goroutine that blocks locks the object on its own stack and has it unlocked on the M's stack after the switch, so
//! guards that borrow do not fit. The critical sections are a few list operations, never a call into user code, never a wait.
//!
//! - S1: unlocking is a plain store. So it cannot tell whether anybody waits, and nobody is woken: a waiter looks again by itself,
//!   first at once, then after giving up the rest of its time slice, then after sleeping for ever longer, a millisecond at most. A
//!   section is so short that more than the first only happens when the kernel has taken the holder off its core.
//! - S2: it looks ever less often. While it looks away, whoever uses the object has its lines to itself: two cores that pass one
//!   channel to and fro for every message take several times as long as if each sends a few in a row.
//!
//! Rejected: parking_lot's raw mutex. Its unlock is an exchange, which is a quarter of a channel operation here, and parking, for
//! which the exchange is, is what these sections are too short for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::prim::chaos;

pub(crate) struct RawLock(AtomicBool);

/// Looks before the time slice is given up, each after twice as long as the one before: a thousand pauses in all.
const LOOKS: u32 = 10;
/// Time slices given up before the waiter sleeps.
const YIELDS: u32 = 20;

/// Tries something so many times, each after twice as many pauses as the time before (S2); answers whether it worked.
pub(crate) fn look_away(looks: u32, mut works: impl FnMut() -> bool) -> bool {
    (0..looks).any(|look| {
        for _ in 0..1 << look {
            std::hint::spin_loop();
        }
        works()
    })
}

impl RawLock {
    pub(crate) const fn new() -> RawLock {
        RawLock(AtomicBool::new(false))
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in unlock(): what the last holder did is visible.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self) {
        chaos::window();
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        let mut rounds = 0;
        loop {
            if look_away(LOOKS, || !self.0.load(Ordering::Relaxed) && self.try_lock()) {
                return;
            }
            // S1
            if rounds < YIELDS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(20 << (rounds - YIELDS).min(5)));
            }
            rounds += 1;
        }
    }

    /// Unlocks.
    ///
    /// # Safety
    ///
    /// The lock is held, and this is its holder's only unlock.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        debug_assert!(self.0.load(Ordering::Relaxed));
        self.0.store(false, Ordering::Release);
        chaos::window();
    }
}

impl Default for RawLock {
    fn default() -> RawLock {
        RawLock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Counter(RawLock, UnsafeCell<u64>);
    // SAFETY: the count is touched under the lock only.
    unsafe impl Sync for Counter {}

    #[test]
    fn stress_excludes() {
        let n = if cfg!(miri) { 50 } else { 100_000 };
        let counter = Counter(RawLock::new(), UnsafeCell::new(0));
        let counter = &counter;
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(move || {
                    for _ in 0..n {
                        counter.0.lock();
                        // SAFETY: the lock is held, and let go of once.
                        unsafe {
                            *counter.1.get() += 1;
                            counter.0.unlock();
                        }
                    }
                });
            }
        });
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *counter.1.get() }, 4 * n);
    }
}

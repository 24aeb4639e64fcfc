//! The Ps there are, and how many of them are in use.
//!
//! ```text
//!   0 .. active      GOMAXPROCS of them: with an M, on the idle list, or on the way between the two (P1)
//!   active .. made   away: GOMAXPROCS was larger once
//! ```
//!
//! - X1: a P is made at a place of its own and never moves or goes, so a reference to one is good for ever.
//! - X2: `active` changes in a stopped world only (see [`crate::sched::resize`]).
//! - X3: a P that is away is with no M, on no list, and has neither goroutines nor anything in its caches. Its timers stay: they
//!   may be many, and somebody may be about to take one out. So whoever looks for work or for an M looks at the active Ps, and whoever
//!   looks at timers, or adds up counters, looks at all.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::sched::p::P;

/// GOMAXPROCS at most.
pub(crate) const PROCS_MAX: usize = 1024;

/// All Ps.
pub(crate) struct Procs {
    /// The first of [`PROCS_MAX`] places. Memory is used as far as there are Ps.
    first: AtomicPtr<P>,
    active: AtomicUsize,
    made: AtomicUsize,
}

impl Procs {
    pub(crate) const fn new() -> Procs {
        Procs { first: AtomicPtr::new(std::ptr::null_mut()), active: AtomicUsize::new(0), made: AtomicUsize::new(0) }
    }

    /// How many are active: GOMAXPROCS. 0 before the runtime is started.
    #[inline]
    pub(crate) fn active_len(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// The active ones.
    #[inline]
    pub(crate) fn active(&self) -> &'static [P] {
        // ORDER: Acquire; pairs with the Release in set_active(): the Ps are made.
        self.slice(0, self.active.load(Ordering::Acquire))
    }

    /// All there are, those that are away too.
    #[inline]
    pub(crate) fn all(&self) -> &'static [P] {
        // ORDER: as in active().
        self.slice(0, self.made.load(Ordering::Acquire))
    }

    /// Those that are away.
    #[inline]
    pub(crate) fn away(&self) -> &'static [P] {
        let active = self.active.load(Ordering::Acquire);
        let made = self.made.load(Ordering::Acquire);
        self.slice(active.min(made), made)
    }

    #[inline]
    fn slice(&self, from: usize, to: usize) -> &'static [P] {
        let first = self.first.load(Ordering::Relaxed);
        if first.is_null() {
            return &[];
        }
        // SAFETY: the caller has read `to` from a counter that was stored after so many Ps were made; they are never moved or freed
        // (X1).
        unsafe { std::slice::from_raw_parts(first.add(from), to - from) }
    }

    /// Makes the first `n` the active ones, and those of them that there are not yet. By one thread at a time: at the start of
    /// the runtime, then in a stopped world (X2).
    pub(crate) fn set_active(&self, n: usize) {
        assert!((1..=PROCS_MAX).contains(&n));
        let mut first = self.first.load(Ordering::Relaxed);
        if first.is_null() {
            first = Box::leak(Box::<[P]>::new_uninit_slice(PROCS_MAX)).as_mut_ptr().cast();
            self.first.store(first, Ordering::Relaxed);
        }
        for i in self.made.load(Ordering::Relaxed)..n {
            // SAFETY: the place is one of PROCS_MAX, and nobody looks at it before `made` is stored.
            unsafe { first.add(i).cast::<MaybeUninit<P>>().write(MaybeUninit::new(P::new(i as u32))) };
            // ORDER: Release; pairs with the Acquire in all(): publishes the P.
            self.made.store(i + 1, Ordering::Release);
        }
        // ORDER: Release; pairs with the Acquire in active().
        self.active.store(n, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks_in_place() {
        static PROCS: Procs = Procs::new();
        assert!(PROCS.active().is_empty() && PROCS.all().is_empty() && PROCS.away().is_empty());
        PROCS.set_active(3);
        let third = &raw const PROCS.active()[2];
        PROCS.set_active(1);
        assert_eq!((PROCS.active_len(), PROCS.all().len(), PROCS.away().len()), (1, 3, 2));
        PROCS.set_active(4);
        assert_eq!(&raw const PROCS.active()[2], third);
        assert!(PROCS.active().iter().enumerate().all(|(i, p)| p.id as usize == i));
        assert!(PROCS.away().is_empty());
    }
}

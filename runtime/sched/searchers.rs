//! How many Ms look for work, and who wakes the next: the counters behind sleeping and waking. The proof is in PARKING.md.
//!
//! - I1: a submitter pushes, passes a full fence, and only then reads the counters ([`Searchers::claim`]).
//! - I2: a searcher that gives up first gives its P back (`idle += 1`), then stops being counted, passes a full fence, and
//!   only then looks at all queues once more ([`Searchers::give_up`]). Otherwise a push could fall between its last look and
//!   its sleep, with nobody awake to see it.
//! - I3: at most one searcher is woken per submission: the claim is an exchange 0 -> 1. A searcher that finds work and was
//!   the last one claims again and wakes the next ([`Searchers::found`]), so that a burst wakes as many as it needs, one
//!   after the other.

use crate::prim::atomic::{AtomicU32, Ordering, fence};
use crate::prim::chaos;

/// Counters of Ps without an M and of Ms that search.
#[derive(Debug)]
pub(crate) struct Searchers {
    idle: AtomicU32,
    searching: AtomicU32,
}

/// Evidence that one searcher is counted. Exactly one of [`Searchers::found`] and [`Searchers::give_up`] consumes it.
#[derive(Debug)]
#[must_use = "a searcher that is counted and does not search keeps all others asleep"]
pub(crate) struct Searching(());

impl Drop for Searching {
    fn drop(&mut self) {
        debug_assert!(std::thread::panicking(), "a searcher was dropped without saying how the search ended");
    }
}

impl Searchers {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Searchers {
        Searchers { idle: AtomicU32::new(0), searching: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Searchers {
        Searchers { idle: AtomicU32::new(0), searching: AtomicU32::new(0) }
    }

    /// A P was put on the idle list.
    pub(crate) fn p_idle(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// A P was taken off the idle list.
    pub(crate) fn p_taken(&self) {
        // ORDER: SeqCst; pairs with sysmon's look before it sleeps: count, then read whether it sleeps.
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ps without an M, roughly.
    pub(crate) fn idle_ps(&self) -> u32 {
        self.idle.load(Ordering::SeqCst)
    }

    /// After a submission: whether the caller is to wake a searcher (I1, I3).
    #[inline]
    pub(crate) fn claim(&self) -> Option<Searching> {
        // ORDER: SeqCst; pairs with the fence in give_up(): push, then read the counters (I1).
        fence(Ordering::SeqCst);
        chaos::window();
        if self.idle.load(Ordering::Relaxed) == 0 || self.searching.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.searching.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(Searching(()))
    }

    /// An M with a P starts to search of its own accord.
    pub(crate) fn join(&self) -> Searching {
        self.searching.fetch_add(1, Ordering::Relaxed);
        Searching(())
    }

    /// Whether the caller is the only searcher: only that one spins for long.
    pub(crate) fn is_alone(&self) -> bool {
        self.searching.load(Ordering::Relaxed) <= 1
    }

    /// The search found work. If the caller was the last searcher, it is to wake another (I3): there may be more.
    #[must_use]
    pub(crate) fn found(&self, searching: Searching) -> Option<Searching> {
        std::mem::forget(searching);
        chaos::window();
        let before = self.searching.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0);
        if before == 1 { self.claim() } else { None }
    }

    /// The search found nothing and the P is on the idle list, or a claim found no P. The caller MUST look at all queues once more now (I2).
    pub(crate) fn give_up(&self, searching: Searching) {
        std::mem::forget(searching);
        chaos::window();
        let before = self.searching.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0);
        // ORDER: SeqCst; pairs with the fence in claim(): leave the counters, then read the queues (I2).
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A submitter and a searcher that gives up: either the searcher's last look sees the work or the submitter wakes
    /// somebody.
    #[test]
    fn loom_searchers_no_lost_work() {
        loom::model(|| {
            let s = Arc::new((Searchers::new(), AtomicU32::new(0)));
            let searching = s.0.join();
            let submitter = {
                let s = s.clone();
                thread::spawn(move || {
                    s.1.store(1, Ordering::Relaxed);
                    match s.0.claim() {
                        Some(w) => {
                            s.0.give_up(w);
                            true
                        }
                        None => false,
                    }
                })
            };
            s.0.p_idle();
            s.0.give_up(searching);
            let seen = s.1.load(Ordering::Relaxed) == 1;
            let woke = submitter.join().unwrap();
            assert!(seen || woke, "work was submitted, the searcher slept, and nobody was woken");
        });
    }

    /// Two submissions at once wake at most one searcher at a time.
    #[test]
    fn loom_searchers_one_claim() {
        loom::model(|| {
            let s = Arc::new(Searchers::new());
            s.p_idle();
            let other = {
                let s = s.clone();
                thread::spawn(move || s.claim().map(std::mem::forget).is_some())
            };
            let mine = s.claim().map(std::mem::forget).is_some();
            let theirs = other.join().unwrap();
            assert!(mine != theirs, "exactly one of two claims wins");
        });
    }
}

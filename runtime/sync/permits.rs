//! The permits of a semaphore. Pure: it knows no waiters, only that there are some.
//!
//! ```text
//!   permits << 1 | QUEUED
//! ```
//!
//! - M1: QUEUED is set under the list's lock, before a node is added, and cleared under it when the list is empty. While it is set the
//!   word changes under that lock only, and newcomers queue: first come, first served.
//! - M2: whoever changes what the first of the queue has to wait for (brings permits, or leaves the queue) deals out what there is,
//!   under the list's lock, to as many of the first as it is enough for. So nobody waits while there are enough permits and nobody
//!   is before him.
//! - M3: who was dealt permits has them: they are taken from the word under the lock, with the node. Who left for lack of time was
//!   dealt none.

use crate::prim::atomic::{AtomicUsize, Ordering};

const QUEUED: usize = 1;
const ONE: usize = 2;

/// Permits at most.
pub(crate) const PERMITS_MAX: usize = usize::MAX >> 3;

/// The word.
pub(crate) struct Permits(AtomicUsize);

/// How giving permits back came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Put {
    Done,
    /// Somebody waits: deal, under the list's lock (M2).
    Queued,
    /// There would be more than [`PERMITS_MAX`]. Nothing was done.
    TooMany,
}

impl Permits {
    #[cfg(not(loom))]
    pub(crate) const fn new(n: usize) -> Permits {
        Permits(AtomicUsize::new(n * ONE))
    }

    #[cfg(loom)]
    pub(crate) fn new(n: usize) -> Permits {
        Permits(AtomicUsize::new(n * ONE))
    }

    /// How many there are to be had.
    pub(crate) fn available(&self) -> usize {
        self.0.load(Ordering::Relaxed) / ONE
    }

    /// Takes `n` if there are so many and nobody waits.
    #[inline]
    pub(crate) fn try_take(&self, n: usize) -> bool {
        let mut s = self.0.load(Ordering::Relaxed);
        loop {
            if s & QUEUED != 0 || s / ONE < n {
                return false;
            }
            // ORDER: Acquire; pairs with the Release in put() and settle(): what was done with the permits before is visible.
            match self.0.compare_exchange_weak(s, s - n * ONE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => s = now,
            }
        }
    }

    /// As [`Permits::try_take`]; otherwise says that somebody waits (M1). Under the list's lock.
    pub(crate) fn take_or_queue(&self, n: usize) -> bool {
        loop {
            if self.try_take(n) {
                return true;
            }
            let queue = |s: usize| (s & QUEUED != 0 || s / ONE < n).then_some(s | QUEUED);
            if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, queue).is_ok() {
                return false;
            }
        }
    }

    /// Brings `n`, if nobody waits.
    #[inline]
    pub(crate) fn put(&self, n: usize) -> Put {
        let mut s = self.0.load(Ordering::Relaxed);
        loop {
            if n > PERMITS_MAX.saturating_sub(s / ONE) {
                return Put::TooMany;
            }
            if s & QUEUED != 0 {
                return Put::Queued;
            }
            // ORDER: Release; pairs with the Acquire in try_take().
            match self.0.compare_exchange_weak(s, s + n * ONE, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Put::Done,
                Err(now) => s = now,
            }
        }
    }

    /// What there is to deal, if anybody waits; then [`Permits::settle`] MUST follow. Under the list's lock.
    pub(crate) fn to_deal(&self) -> Option<usize> {
        // ORDER: Acquire; pairs with the Release in put(), by somebody who came before there was a queue.
        let s = self.0.load(Ordering::Acquire);
        (s & QUEUED != 0).then_some(s / ONE)
    }

    /// Says what is left after dealing, and whether anybody waits still. Under the list's lock, by who found QUEUED set under it
    /// (M1).
    pub(crate) fn settle(&self, left: usize, queued: bool) {
        // ORDER: Release; pairs with the Acquire in try_take().
        self.0.store((left * ONE) | usize::from(queued), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::race::{Race, TIME_UP};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    struct Seat {
        need: usize,
        race: Race,
        woken: Mutex<bool>,
        bell: Condvar,
    }

    impl Seat {
        fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.bell.notify_one();
        }
    }

    struct Model {
        permits: Permits,
        list: Mutex<Vec<Arc<Seat>>>,
    }

    /// M2
    fn deal(m: &Model, list: &mut Vec<Arc<Seat>>, bring: usize) -> Option<Vec<Arc<Seat>>> {
        let mut left = m.permits.to_deal()? + bring;
        let mut taken = Vec::new();
        while let Some(first) = list.first() {
            if first.need > left {
                break;
            }
            let first = list.remove(0);
            if first.race.win(0) {
                left -= first.need;
                taken.push(first);
            }
        }
        m.permits.settle(left, !list.is_empty());
        Some(taken)
    }

    fn put(m: &Model, n: usize) {
        loop {
            match m.permits.put(n) {
                Put::Done => return,
                Put::TooMany => unreachable!(),
                Put::Queued => {}
            }
            let taken = deal(m, &mut m.list.lock().unwrap(), n);
            if let Some(taken) = taken {
                taken.iter().for_each(|s| s.wake());
                return;
            }
        }
    }

    /// Takes `n`; `timed`: a timer may end the wait. Answers whether it got them.
    fn take(m: &Model, n: usize, timed: bool) -> bool {
        if m.permits.try_take(n) {
            return true;
        }
        let seat = {
            let mut list = m.list.lock().unwrap();
            if m.permits.take_or_queue(n) {
                return true;
            }
            let seat = Arc::new(Seat { need: n, race: Race::new(), woken: Mutex::new(false), bell: Condvar::new() });
            list.push(seat.clone());
            seat
        };
        // The timer fires as early as it can, for fewer threads.
        if timed && seat.race.win(TIME_UP) {
            let taken = {
                let mut list = m.list.lock().unwrap();
                list.retain(|s| !Arc::ptr_eq(s, &seat));
                deal(m, &mut list, 0)
            };
            taken.iter().flatten().for_each(|s| s.wake());
            return false;
        }
        // A wake-up that is lost is a deadlock, which loom reports.
        let mut woken = seat.woken.lock().unwrap();
        while !*woken {
            woken = seat.bell.wait(woken).unwrap();
        }
        true
    }

    #[test]
    fn loom_permits_are_conserved() {
        loom::model(|| {
            let m = Arc::new(Model { permits: Permits::new(1), list: Mutex::new(Vec::new()) });
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let m = m.clone();
                    thread::spawn(move || {
                        assert!(take(&m, 1, false));
                        put(&m, 1);
                    })
                })
                .collect();
            assert!(take(&m, 1, false));
            put(&m, 1);
            others.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!((m.permits.available(), m.permits.to_deal()), (1, None));
        });
    }

    /// A big request queues before a small one and leaves: the small one, which there are permits for, must not be left waiting, by
    /// the one that leaves or by one that `brings` another permit.
    fn leaves(brings: usize) {
        loom::model(move || {
            let m = Arc::new(Model { permits: Permits::new(1), list: Mutex::new(Vec::new()) });
            let big = {
                let m = m.clone();
                thread::spawn(move || {
                    let got = take(&m, 2, true);
                    if got {
                        put(&m, 2);
                    }
                })
            };
            let small = {
                let m = m.clone();
                thread::spawn(move || {
                    assert!(take(&m, 1, false));
                    put(&m, 1);
                })
            };
            if brings != 0 {
                put(&m, brings);
            }
            big.join().unwrap();
            small.join().unwrap();
            assert_eq!((m.permits.available(), m.permits.to_deal()), (1 + brings, None));
        });
    }

    #[test]
    fn loom_permits_the_one_who_leaves_passes_on() {
        leaves(0);
    }

    #[test]
    fn loom_permits_the_one_who_leaves_and_another_brings() {
        leaves(1);
    }
}

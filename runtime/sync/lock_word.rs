//! The word of a mutex, and its two ways to unlock. Pure: it knows no waiters, only that there are some.
//!
//! ```text
//!   state    0          free                        LOCKED             held
//!            WAITERS    free, somebody was woken    LOCKED | WAITERS   held, somebody waits
//!   contended           NEVER: nobody has ever waited for this mutex
//! ```
//!
//! A mutex that nobody ever waited for is unlocked by a plain store, without an atomic exchange: half the cost of a lock and
//! unlock. The first waiter of a mutex's life pays for it:
//!
//! ```text
//!   unlock, not contended:  state = 0;  light fence;  contended? -> Recheck
//!   first waiter:           contended = ANNOUNCING;  heavy fence;  contended = ANNOUNCED;  then look at the state, and only
//!                           then set WAITERS
//! ```
//!
//! - C1: `contended` is never cleared, so that only the first waiter pays for the heavy fence.
//! - C2: an unlocker that had seen NEVER may wipe out a WAITERS that was set meanwhile. Then its store comes after the
//!   waiter's exchange, which comes after the heavy fence; so its second look sees `contended`, and [`Unlocked::Recheck`]
//!   tells it to wake somebody and to set WAITERS again if more wait.
//! - C3: otherwise the waiter, after the heavy fence, sees the unlocked state.
//! - C4: LOCKED is cleared by the holder alone.

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::barrier;

pub(crate) const LOCKED: u32 = 1;
pub(crate) const WAITERS: u32 = 2;

/// Values of `contended`. A waiter that comes while the first one's fence is under way needs a fence of its own.
const NEVER: u32 = 0;
const ANNOUNCING: u32 = 1;
const ANNOUNCED: u32 = 2;

/// The word.
pub(crate) struct LockWord {
    state: AtomicU32,
    contended: AtomicU32,
}

/// What an unlock has to do yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Unlocked {
    /// Nothing.
    Done,
    /// It is unlocked, and somebody may wait whose WAITERS was wiped out (C2): wake one.
    Recheck,
    /// It is still locked: somebody waits. Unlock under the list's lock.
    Waiters,
}

impl LockWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> LockWord {
        LockWord { state: AtomicU32::new(0), contended: AtomicU32::new(NEVER) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> LockWord {
        LockWord { state: AtomicU32::new(0), contended: AtomicU32::new(NEVER) }
    }

    /// Takes a lock that is free and that nobody was woken for.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // ORDER: Acquire; pairs with the Release of every unlock: the last holder's writes are visible.
        self.state.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes a lock that is free, whoever was woken for it.
    pub(crate) fn try_lock_any(&self) -> bool {
        // ORDER: as in try_lock().
        let free = |s: u32| (s & LOCKED == 0).then_some(s | LOCKED);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    /// Unlocks, as far as that is possible without a look at the waiters.
    #[inline]
    pub(crate) fn unlock(&self) -> Unlocked {
        if self.contended.load(Ordering::Relaxed) == NEVER {
            self.clear();
            // ORDER: pairs with the heavy fence in contend(): store the state, then load `contended` (C2, C3).
            barrier::light();
            if self.contended.load(Ordering::Relaxed) == NEVER {
                return Unlocked::Done;
            }
            return Unlocked::Recheck;
        }
        // ORDER: Release; as above.
        match self.state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Unlocked::Done,
            Err(_) => Unlocked::Waiters,
        }
    }

    #[inline]
    fn clear(&self) {
        // ORDER: Release; pairs with the Acquire in try_lock().
        #[cfg(not(loom))]
        self.state.store(0, Ordering::Release);
        // loom lets a load after a store and an exchange that raced read either, though the exchange, which read the value
        // before the store, must come first in the word's order. As an exchange itself the store gets its place.
        #[cfg(loom)]
        self.state.swap(0, Ordering::Release);
    }

    /// Somebody is about to wait. MUST come before [`LockWord::mark_waiting`].
    pub(crate) fn contend(&self) {
        // ORDER: Acquire; pairs with the Release below: somebody's heavy fence lies before this waiter's next steps.
        if self.contended.load(Ordering::Acquire) != ANNOUNCED {
            // Threads may lock before the runtime has started.
            barrier::init();
            self.contended.store(ANNOUNCING, Ordering::Relaxed);
            barrier::heavy();
            self.contended.store(ANNOUNCED, Ordering::Release);
        }
    }

    /// Says that somebody waits; false if the lock is free, and then the caller tries to take it. Under the list's lock.
    pub(crate) fn mark_waiting(&self) -> bool {
        let held = |s: u32| (s & LOCKED != 0).then_some(s | WAITERS);
        self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, held).is_ok()
    }

    /// Under the list's lock, by the holder: unlocks (or, `handed`, leaves it locked for the waiter that was taken off the
    /// list), and says whether more wait.
    pub(crate) fn unlock_to_waiter(&self, handed: bool, more: bool) {
        let state = if handed { LOCKED } else { 0 } | if more { WAITERS } else { 0 };
        // ORDER: Release; pairs with the Acquire in try_lock(). C4, and WAITERS is changed under the list's lock only.
        self.state.store(state, Ordering::Release);
    }

    /// Under the list's lock, after [`Unlocked::Recheck`]: more wait than the one that was taken off (C2).
    pub(crate) fn mark_more(&self) {
        self.state.fetch_or(WAITERS, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// The word, the list (here: flags of who waits), and what the lock protects.
    struct Model {
        word: LockWord,
        list: Mutex<Vec<usize>>,
        woken: [(Mutex<bool>, Condvar); 2],
        owned: UnsafeCell<u32>,
    }

    fn lock(m: &Model, me: usize) {
        assert!(lock_for(m, me, usize::MAX));
    }

    /// Waits so many times at most; answers whether it locked.
    fn lock_for(m: &Model, me: usize, waits: usize) -> bool {
        if m.word.try_lock() {
            return true;
        }
        m.word.contend();
        for left in (0..=waits).rev() {
            {
                let mut list = m.list.lock().unwrap();
                if m.word.try_lock_any() {
                    return true;
                }
                if left == 0 {
                    return false;
                }
                // Once more, without having waited.
                if !m.word.mark_waiting() {
                    drop(list);
                    return lock_for(m, me, left);
                }
                list.push(me);
            }
            // A wake-up that is lost is a deadlock, which loom reports.
            let mut woken = m.woken[me].0.lock().unwrap();
            while !std::mem::take(&mut *woken) {
                woken = m.woken[me].1.wait(woken).unwrap();
            }
        }
        unreachable!("the last turn returns")
    }

    fn unlock(m: &Model) {
        let how = m.word.unlock();
        if how == Unlocked::Done {
            return;
        }
        let mut list = m.list.lock().unwrap();
        let first = if list.is_empty() { None } else { Some(list.remove(0)) };
        if how == Unlocked::Waiters {
            m.word.unlock_to_waiter(false, !list.is_empty());
        } else if !list.is_empty() {
            m.word.mark_more();
        }
        drop(list);
        if let Some(w) = first {
            *m.woken[w].0.lock().unwrap() = true;
            m.woken[w].1.notify_one();
        }
    }

    fn model() -> Arc<Model> {
        Arc::new(Model {
            word: LockWord::new(),
            list: Mutex::new(Vec::new()),
            woken: [(Mutex::new(false), Condvar::new()), (Mutex::new(false), Condvar::new())],
            owned: UnsafeCell::new(0),
        })
    }

    /// One that was woken and then runs out of time: it may leave if the lock is held, and the other, who waits without a limit,
    /// must get it all the same.
    #[test]
    fn loom_lock_word_woken_and_out_of_time() {
        loom::model(|| {
            let m = model();
            lock(&m, 0);
            let threads = [0, 1].map(|me| {
                let m = m.clone();
                thread::spawn(move || {
                    let locked = if me == 0 { lock_for(&m, me, 1) } else { lock_for(&m, me, usize::MAX) };
                    if locked {
                        m.owned.with_mut(|p| unsafe { *p += 1 });
                        unlock(&m);
                    }
                    locked
                })
            });
            unlock(&m);
            let locked = threads.map(|t| t.join().unwrap());
            assert!(locked[1]);
            assert!(m.word.try_lock());
            assert_eq!(m.owned.with(|p| unsafe { *p }), locked.iter().filter(|l| **l).count() as u32);
        });
    }

    #[test]
    fn loom_lock_word_two_threads() {
        loom::model(|| {
            let m = model();
            let other = {
                let m = m.clone();
                thread::spawn(move || {
                    lock(&m, 1);
                    m.owned.with_mut(|p| unsafe { *p += 1 });
                    unlock(&m);
                })
            };
            for _ in 0..2 {
                lock(&m, 0);
                m.owned.with_mut(|p| unsafe { *p += 1 });
                unlock(&m);
            }
            other.join().unwrap();
            assert_eq!(m.owned.with(|p| unsafe { *p }), 3);
        });
    }
}

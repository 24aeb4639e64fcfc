//! A condition variable.
//!
//! ```text
//!   wait:     [list's lock: enlist, unlock the mutex, wake its next]  sleep  lock the mutex again
//!   notify:   anybody?  [list's lock: take off the first (all) whose wait has not ended]  wake
//! ```
//!
//! - V1: a waiter is listed before it unlocks the mutex. So whoever locks the mutex after that, changes the condition and notifies,
//!   finds it, and there is no gap in which a notification is lost.
//! - V2: the list's lock is let go of when the waiter is off its stack (K2), though the mutex is unlocked before: a notifier that comes
//!   in between waits for the list's lock. Waking the mutex's next one under it is the exception to Q2: who is woken does not
//!   need this lock to get on, and nobody who holds the mutex's lock ever wants it.
//! - V3: `anybody` says whether the list is not empty. It is set before the mutex is unlocked, and cleared under the list's lock, so
//!   a notifier that has to find the waiter sees it through the mutex.
//! - V4: a notification ends exactly one wait, or finds nobody: a waiter whose time ran out first has lost nothing, one that was
//!   notified first has not timed out (Z1, Q4).

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracer::record::Fixed;

use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::park::{Caller, Turn};
use crate::sync::mutex::MutexGuard;
use crate::sync::waiter::{Node, Nodes, Taken};
use crate::time;

/// A place to wait for a condition of something that a [`Mutex`](crate::sync::Mutex) protects: std's `Condvar`, for goroutines and
/// threads.
///
/// A wait ends by a notification or by its time limit, not by itself. All the same the condition has to be looked at again:
/// somebody else may have had the mutex in between. [`wait_while`](Condvar::wait_while) does that.
///
/// A notification that comes at the same moment as a time limit is not lost: either the wait counts as notified, or another one
/// ends.
///
/// ```
/// use std::sync::Arc;
/// use rt::sync::{Condvar, Mutex};
///
/// let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
/// let theirs = shared.clone();
/// rt::go(move || {
///     theirs.0.lock().push("job");
///     theirs.1.notify_one();
/// });
/// let mut jobs = shared.1.wait_while(shared.0.lock(), |jobs| jobs.is_empty());
/// assert_eq!(jobs.pop(), Some("job"));
/// ```
#[derive(Default)]
pub struct Condvar {
    /// V3
    anybody: AtomicBool,
    lock: RawLock,
    waiting: UnsafeCell<Nodes>,
}

// SAFETY: the list is touched under its lock only.
unsafe impl Sync for Condvar {}
// SAFETY: as above.
unsafe impl Send for Condvar {}

/// Whether a wait with a time limit ended by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up before a notification came (or, with a condition, before that was so).
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { anybody: AtomicBool::new(false), lock: RawLock::new(), waiting: UnsafeCell::new(Nodes::new()) }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(guard, None).0
    }

    /// Waits as long as `condition` is true of the value; it is asked with the mutex locked.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut *guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`wait`](Condvar::wait), for a limited time. Locking the mutex again may take longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rt::sync::{Condvar, Mutex};
    /// let (m, c) = (Mutex::new(false), Condvar::new());
    /// let (done, result) = c.wait_timeout(m.lock(), Duration::from_millis(2));
    /// assert!(!*done && result.timed_out());
    /// ```
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_until(guard, Some(time::after_ns(timeout)))
    }

    /// As [`wait`](Condvar::wait), until a point in time. Locking the mutex again may take longer.
    pub fn wait_deadline<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_until(guard, Some(time::at_ns(deadline)))
    }

    /// As [`wait_while`](Condvar::wait_while), for a limited time in all. If the condition is still true at the end, it has timed
    /// out.
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let until = Some(time::after_ns(timeout));
        let mut over = false;
        loop {
            if !condition(&mut *guard) {
                return (guard, WaitTimeoutResult(false));
            }
            if over {
                return (guard, WaitTimeoutResult(true));
            }
            (guard, WaitTimeoutResult(over)) = self.wait_until(guard, until);
        }
    }

    fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        until_ns: Option<u64>,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let mutex = MutexGuard::mutex(&guard);
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        let enlist = |node: &Node| {
            // V1, V3
            // SAFETY: the lock is held; the node stays where it is until it is taken off.
            unsafe { (*self.waiting.get()).push_back(node) };
            // ORDER: Relaxed: the mutex's Release, below, and the notifier's Acquire of the mutex order it.
            self.anybody.store(true, Ordering::Relaxed);
            // V2
            if let Some(w) = MutexGuard::unlock_inside(guard) {
                caller.wake(w);
            }
        };
        let wait = Wait { reason: Fixed::CondWait, kind: Kind::Condvar, object: std::ptr::from_ref(self) as usize };
        // SAFETY: locked above; unlocked once, by this closure.
        let unlock = || unsafe { self.lock.unlock() };
        let leave = |node: &Node| self.locked(|waiting| waiting.remove(node));
        let in_time = caller.wait_in(until_ns, wait, enlist, unlock, leave).is_some();
        drop(caller);
        (mutex.lock(), WaitTimeoutResult(!in_time))
    }

    /// Ends the wait of the one that has waited longest, if anybody waits.
    ///
    /// The mutex need not be locked for this, but what was changed must have been changed with it locked.
    pub fn notify_one(&self) {
        self.notify(1, Turn::Next);
    }

    /// Ends all waits.
    pub fn notify_all(&self) {
        self.notify(usize::MAX, Turn::Last);
    }

    fn notify(&self, most: usize, turn: Turn) {
        // V3
        if self.anybody.load(Ordering::Relaxed) {
            let mut taken = Taken::new();
            self.locked(|waiting| taken.take(waiting, most));
            taken.wake(turn);
        }
    }

    fn locked(&self, f: impl FnOnce(&mut Nodes)) {
        self.lock.lock();
        // SAFETY: the lock is held.
        let waiting = unsafe { &mut *self.waiting.get() };
        f(waiting);
        self.anybody.store(!waiting.is_empty(), Ordering::Relaxed);
        // SAFETY: locked above; `f` does not unlock.
        unsafe { self.lock.unlock() };
    }
}

// What a panic leaves of it is whole: nothing of the program's own runs while it is being changed.
impl std::panic::RefUnwindSafe for Condvar {}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

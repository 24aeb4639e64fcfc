//! A counting semaphore.
//!
//! The word, and who gets what when: [`crate::sync::permits`].
//!
//! - S1: a node's slot says how many permits its waiter wants.
//! - S2: a waiter that leaves deals, after it has taken its node off, in the same step under the lock: those behind it may have waited
//!   for it only.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracer::clock::mono_ns;
use tracer::record::Fixed;

use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::park::{Caller, Turn};
use crate::sync::permits::{PERMITS_MAX, Permits, Put};
use crate::sync::waiter::{Node, Nodes, Taken};
use crate::time;

/// A number of permits that can be taken and given back: a limit to how many do something at a time.
///
/// Who asks first is served first, also if it wants more than those behind it: a large request is not overtaken by small ones.
///
/// ```
/// use std::sync::Arc;
/// use rt::sync::{Semaphore, WaitGroup};
///
/// let connections = Arc::new(Semaphore::new(2));
/// let wg = WaitGroup::new();
/// for _ in 0..10 {
///     let connections = connections.clone();
///     wg.go(move || {
///         let _one = connections.acquire();
///         // At most two at a time are here.
///         rt::yield_now();
///     });
/// }
/// wg.wait();
/// assert_eq!(connections.available_permits(), 2);
/// ```
pub struct Semaphore {
    permits: Permits,
    lock: RawLock,
    waiting: UnsafeCell<Nodes>,
}

// SAFETY: the list is touched under its lock only.
unsafe impl Sync for Semaphore {}
// SAFETY: as above.
unsafe impl Send for Semaphore {}

impl Semaphore {
    /// Permits at most.
    pub const MAX_PERMITS: usize = PERMITS_MAX;

    /// A semaphore with so many permits.
    ///
    /// # Panics
    ///
    /// If they are more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
    pub const fn new(permits: usize) -> Semaphore {
        assert!(permits <= PERMITS_MAX, "more permits than a semaphore can have");
        Semaphore { permits: Permits::new(permits), lock: RawLock::new(), waiting: UnsafeCell::new(Nodes::new()) }
    }

    /// How many permits can be had now. There may be some, and yet whoever comes has to wait: for one that wants more.
    pub fn available_permits(&self) -> usize {
        self.permits.available()
    }

    /// Adds permits, for good.
    ///
    /// # Panics
    ///
    /// If more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS) were available then.
    pub fn add_permits(&self, n: usize) {
        assert!(self.put(n), "more permits than a semaphore can have");
    }

    /// Waits for a permit and holds it until the guard is dropped.
    #[inline]
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Waits for `n` permits, all at once.
    ///
    /// If there are never so many it waits for ever, and so do those who come after it.
    #[inline]
    pub fn acquire_many(&self, n: usize) -> SemaphorePermit<'_> {
        self.take(n);
        SemaphorePermit { semaphore: self, n }
    }

    /// Takes a permit if there is one and nobody waits for it.
    #[inline]
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits if there are so many and nobody waits for some.
    #[inline]
    pub fn try_acquire_many(&self, n: usize) -> Option<SemaphorePermit<'_>> {
        // Not `then_some`: a permit that is made and dropped would give back what it did not take.
        if self.permits.try_take(n) { Some(SemaphorePermit { semaphore: self, n }) } else { None }
    }

    /// Takes a permit, waiting for it for a limited time.
    pub fn try_acquire_for(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many_for(1, timeout)
    }

    /// Takes a permit, waiting for it until a point in time.
    pub fn try_acquire_until(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many_until(1, deadline)
    }

    /// Takes `n` permits, all at once, waiting for them for a limited time.
    ///
    /// ```
    /// use std::time::Duration;
    /// let s = rt::sync::Semaphore::new(2);
    /// assert!(s.try_acquire_many_for(3, Duration::from_millis(2)).is_none());
    /// assert_eq!(s.available_permits(), 2);
    /// ```
    pub fn try_acquire_many_for(&self, n: usize, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.try_take_until(n, || time::after_ns(timeout)).then(|| SemaphorePermit { semaphore: self, n })
    }

    /// Takes `n` permits, all at once, waiting for them until a point in time.
    pub fn try_acquire_many_until(&self, n: usize, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.try_take_until(n, || time::at_ns(deadline)).then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Semaphore::acquire), with a guard that keeps the semaphore alive and can be sent anywhere.
    pub fn acquire_owned(self: Arc<Semaphore>) -> OwnedSemaphorePermit {
        self.acquire_many_owned(1)
    }

    /// As [`acquire_many`](Semaphore::acquire_many), with a guard that keeps the semaphore alive and can be sent anywhere.
    pub fn acquire_many_owned(self: Arc<Semaphore>, n: usize) -> OwnedSemaphorePermit {
        self.take(n);
        OwnedSemaphorePermit { semaphore: self, n }
    }

    /// As [`try_acquire`](Semaphore::try_acquire), with a guard that keeps the semaphore alive and can be sent anywhere.
    pub fn try_acquire_owned(self: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        self.try_acquire_many_owned(1)
    }

    /// As [`try_acquire_many`](Semaphore::try_acquire_many), with a guard that keeps the semaphore alive and can be sent
    /// anywhere.
    pub fn try_acquire_many_owned(self: Arc<Semaphore>, n: usize) -> Option<OwnedSemaphorePermit> {
        if self.permits.try_take(n) { Some(OwnedSemaphorePermit { semaphore: self, n }) } else { None }
    }

    #[inline]
    fn take(&self, n: usize) {
        if !self.permits.try_take(n) {
            self.take_slow(n, None);
        }
    }

    fn try_take_until(&self, n: usize, until_ns: impl FnOnce() -> u64) -> bool {
        if self.permits.try_take(n) {
            return true;
        }
        let until_ns = until_ns();
        // Whoever queues keeps others out, so not without time to wait.
        until_ns > mono_ns() && self.take_slow(n, Some(until_ns))
    }

    #[cold]
    fn take_slow(&self, n: usize, until_ns: Option<u64>) -> bool {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        if self.permits.take_or_queue(n) {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return true;
        }
        let enlist = |node: &Node| {
            // S1
            node.slot.set(ptr::without_provenance_mut(n));
            // SAFETY: the lock is held; the node stays where it is until it is taken off.
            unsafe { (*self.waiting.get()).push_back(node) };
        };
        // SAFETY: locked above; unlocked once, by this closure.
        let unlock = || unsafe { self.lock.unlock() };
        let mut others = None;
        let leave = |node: &Node| {
            self.lock.lock();
            // S2
            // SAFETY: the lock is held, and let go of once.
            unsafe {
                (*self.waiting.get()).remove(node);
                others = self.deal(0);
                self.lock.unlock();
            }
        };
        let wait = Wait { reason: Fixed::Sync, kind: Kind::Semaphore, object: ptr::from_ref(self) as usize };
        let taken = caller.wait_in(until_ns, wait, enlist, unlock, leave).is_some();
        if let Some(others) = others {
            others.wake_by(&caller, Turn::Next);
        }
        taken
    }

    /// Gives permits; false if there would be too many, and then nothing was done.
    #[inline]
    fn put(&self, n: usize) -> bool {
        self.permits.put(n) == Put::Done || self.put_slow(n)
    }

    #[cold]
    fn put_slow(&self, n: usize) -> bool {
        loop {
            match self.permits.put(n) {
                Put::Done => return true,
                Put::TooMany => return false,
                Put::Queued => {}
            }
            self.lock.lock();
            // Again, under the lock: others may have brought some since.
            let fits = self.permits.to_deal().is_none_or(|left| n <= PERMITS_MAX.saturating_sub(left));
            // SAFETY: the lock is held.
            let others = if fits { unsafe { self.deal(n) } } else { None };
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            if let Some(others) = others {
                others.wake(Turn::Next);
                return true;
            }
            if !fits {
                return false;
            }
        }
    }

    /// Deals what there is and `bring` more to those whose turn it is (M2); `None` if nobody waits, and then nothing was done.
    ///
    /// # Safety
    ///
    /// The caller holds the list's lock.
    unsafe fn deal(&self, bring: usize) -> Option<Taken> {
        let mut left = self.permits.to_deal()? + bring;
        // SAFETY: passed on to the caller.
        let waiting = unsafe { &mut *self.waiting.get() };
        let wants = |node: &Node| node.slot.get().addr();
        let mut taken = Taken::new();
        while let Some(node) = waiting.pop_front_if(|node| wants(node) <= left) {
            left -= wants(node);
            taken.push(node);
        }
        self.permits.settle(left, !waiting.is_empty());
        Some(taken)
    }
}

// What a panic leaves of it is whole: nothing of the program's own runs while it is being changed.
impl std::panic::RefUnwindSafe for Semaphore {}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available_permits", &self.available_permits()).finish_non_exhaustive()
    }
}

/// Permits of a [`Semaphore`]; dropping it gives them back, up to [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
#[derive(Debug)]
#[must_use = "a permit that is dropped at once is given back at once"]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    n: usize,
}

/// As [`SemaphorePermit`], with a share in the semaphore.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once is given back at once"]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    n: usize,
}

impl SemaphorePermit<'_> {
    /// How many permits it stands for.
    pub fn num_permits(&self) -> usize {
        self.n
    }

    /// Lets the permits go without giving them back: the semaphore has fewer from now on.
    ///
    /// ```
    /// let s = rt::sync::Semaphore::new(3);
    /// s.acquire_many(2).forget();
    /// assert_eq!(s.available_permits(), 1);
    /// ```
    pub fn forget(self) {
        let _forgotten = ManuallyDrop::new(self);
    }
}

impl OwnedSemaphorePermit {
    /// How many permits it stands for.
    pub fn num_permits(&self) -> usize {
        self.n
    }

    /// Lets the permits go without giving them back: the semaphore has fewer from now on.
    pub fn forget(mut self) {
        self.n = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    #[inline]
    fn drop(&mut self) {
        // If permits were added meanwhile, up to the most there can be, these are too many, and go.
        self.semaphore.put(self.n);
    }
}

impl Drop for OwnedSemaphorePermit {
    #[inline]
    fn drop(&mut self) {
        // If permits were added meanwhile, up to the most there can be, these are too many, and go.
        self.semaphore.put(self.n);
    }
}

//! Waiting for a number of goroutines to be done.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tracer::record::Fixed;
use tracer::unwind::Regs;

use crate::sched::g::Kind;
use crate::sched::park::{Caller, Turn};
use crate::sched::spawn::{Settings, spawn};
use crate::sched::task::{JoinHandle, start_of};
use crate::sync::waiter::WaitList;
use crate::time;

/// A counter that can be waited for: Go's `sync.WaitGroup`.
///
/// Clones share the counter.
///
/// ```
/// let wg = rt::sync::WaitGroup::new();
/// for _ in 0..3 {
///     wg.go(|| rt::yield_now());
/// }
/// wg.wait();
/// ```
#[derive(Clone, Default)]
pub struct WaitGroup {
    inner: Arc<Inner>,
}

struct Inner {
    count: AtomicUsize,
    waiters: WaitList,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner { count: AtomicUsize::new(0), waiters: WaitList::new() }
    }
}

impl WaitGroup {
    /// A group with nothing to wait for.
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Adds `n` to the counter. Call it before what is to be waited for begins.
    ///
    /// # Panics
    ///
    /// If the counter overflows.
    pub fn add(&self, n: usize) {
        let added = self.inner.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |c| c.checked_add(n));
        assert!(added.is_ok(), "WaitGroup counter overflow");
    }

    /// Takes one from the counter; at zero everybody who waits goes on.
    ///
    /// # Panics
    ///
    /// If the counter is zero already.
    pub fn done(&self) {
        // ORDER: AcqRel; pairs with itself and with the load in wait(): what was done before is visible to the waiter.
        let by_one = |c: usize| if c > 1 { Some(c - 1) } else { None };
        match self.inner.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, by_one) {
            Ok(_) => {}
            Err(1) => self.last(),
            Err(_) => panic!("WaitGroup::done without an add"),
        }
    }

    /// One to zero, and everybody who waits is taken off the list, in one step under its lock. Otherwise somebody who waits
    /// for the next round, after an add, could be woken by the end of this one.
    #[cold]
    fn last(&self) {
        let mut misused = false;
        self.inner.waiters.wake_all_if(Turn::Next, || {
            let before = self.inner.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |c| c.checked_sub(1));
            misused = before.is_err();
            before == Ok(1)
        });
        assert!(!misused, "WaitGroup::done without an add");
    }

    /// Waits until the counter is zero.
    pub fn wait(&self) {
        if !self.is_zero() {
            self.wait_slow(None);
        }
    }

    /// Waits until the counter is zero, for a limited time; answers whether it was.
    ///
    /// ```
    /// use std::time::Duration;
    /// let wg = rt::sync::WaitGroup::new();
    /// wg.add(1);
    /// assert!(!wg.wait_timeout(Duration::from_millis(2)));
    /// wg.done();
    /// assert!(wg.wait_timeout(Duration::from_millis(2)));
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.is_zero() || self.wait_slow(Some(time::after_ns(timeout)))
    }

    fn is_zero(&self) -> bool {
        self.inner.count.load(Ordering::Acquire) == 0
    }

    fn wait_slow(&self, until_ns: Option<u64>) -> bool {
        let zero = || self.is_zero();
        Caller::here().wait_until_time(&self.inner.waiters, until_ns, Fixed::Sync, Kind::WaitGroup, zero)
    }

    /// Starts a goroutine that counts: adds one, runs `f`, and is done, also when `f` panics.
    ///
    /// # Panics
    ///
    /// As [`go`](crate::go).
    #[track_caller]
    #[inline(never)]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        struct Done(WaitGroup);
        impl Drop for Done {
            fn drop(&mut self) {
                self.0.done();
            }
        }
        self.add(1);
        let done = Done(self.clone());
        // The trace names the goroutine after the user's function, not after the wrapper.
        let wrapped = move || {
            let _done = done;
            f()
        };
        let settings = Settings { start: Some(start_of::<F>()), ..Settings::default() };
        match spawn(settings, Regs::here(), Location::caller(), wrapped) {
            Ok(handle) => handle,
            Err(e) => panic!("WaitGroup::go: {e}"),
        }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup").field("count", &self.inner.count.load(Ordering::Relaxed)).finish()
    }
}

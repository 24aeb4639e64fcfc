//! Goroutines that borrow: [`scope`] waits for those that were made in it, so they may use what lives around it.
//!
//! - SC1: a goroutine of a scope is counted before it is made, and counted off as the last thing it does: after its
//!   closure and everything that it captured are gone, and its result is gone or lies with the handle. Nothing of the lifetimes
//!   'scope and 'env is touched by it afterwards.
//! - SC2: `scope` does not return, nor unwind, before the count is zero. Whatever could make it (a panic of the closure, of
//!   the wait itself) is caught first, or ends the process.
//! - SC3: a handle can hold a result with borrows in it. Its type names 'scope, so it cannot outlive the closure
//!   of `scope` and the goroutines that are counted.
//! - SC4: 'scope and 'env are invariant. If 'scope could shrink, a goroutine could be made that borrows what lives in the
//!   closure of `scope` only; if 'env could, what is around would seem to live for less than it must.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracer::unwind::Regs;

use crate::sched::id::Id;
use crate::sched::locals;
use crate::sched::run;
use crate::sched::spawn::{Builder, Settings, spawn};
use crate::sched::task::{Packet, start_of};
use crate::stack::header::current_g;
use crate::sync::WaitGroup;

/// Runs `f`, which can start goroutines that borrow from around it, and waits for all of them: std's `thread::scope`.
///
/// Works from goroutines and from threads.
///
/// # Panics
///
/// With the panic of `f`, or if a goroutine panicked whose handle was not joined; in both cases after all have ended.
///
/// ```
/// let mut sum = 0;
/// let words = ["a", "bc", "def"];
/// rt::scope(|s| {
///     let longest = s.go(|| words.iter().map(|w| w.len()).max());
///     s.go(|| sum += words.len());
///     assert_eq!(longest.join().unwrap(), Some(3));
/// });
/// assert_eq!(sum, 3);
/// ```
///
/// What they borrow must live around the call:
///
/// ```compile_fail,E0373
/// rt::scope(|s| {
///     let inner = 1;
///     s.go(|| println!("{inner}"));
/// });
/// ```
///
/// Two of them cannot change the same thing:
///
/// ```compile_fail,E0499
/// let mut n = 0;
/// rt::scope(|s| {
///     s.go(|| n += 1);
///     s.go(|| n += 1);
/// });
/// ```
///
/// A handle stays inside:
///
/// ```compile_fail
/// let n = 1;
/// let handle = rt::scope(|s| s.go(|| n + 1));
/// ```
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { data: Arc::default(), scope: PhantomData, env: PhantomData };
    // SC2
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let abort = AbortOnUnwind;
    scope.data.running.wait();
    std::mem::forget(abort);
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.data.has_unhandled_panic() => panic!("a scoped goroutine panicked"),
        Ok(value) => value,
    }
}

/// SC2: unwinding would free what goroutines still use.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Where goroutines are made that borrow; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<Data>,
    // SC4
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What outlives the scope by the moment in which the last goroutine counts itself off.
#[derive(Default)]
struct Data {
    running: WaitGroup,
    /// Panics, and those that a join has given to somebody.
    panics: AtomicUsize,
    handled: AtomicUsize,
}

impl Data {
    /// Asked when all have ended, which is what makes the counts visible.
    fn has_unhandled_panic(&self) -> bool {
        self.panics.load(Ordering::Relaxed) != self.handled.load(Ordering::Relaxed)
    }
}

/// Counts a goroutine off when it is dropped (SC1).
struct Done(Arc<Data>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.running.done();
    }
}

/// A result on its way to a handle.
struct Slot<T> {
    result: UnsafeCell<Option<std::thread::Result<T>>>,
    packet: Packet,
}

// SAFETY: the goroutine writes the result before the packet is complete, the one handle takes it afterwards (J2); T crosses
// threads.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<'scope> Scope<'scope, '_> {
    /// Starts a goroutine that may borrow what lives around the scope. Dropping the handle detaches it; the scope waits for it
    /// in any case.
    ///
    /// # Panics
    ///
    /// As [`go`](crate::go).
    #[track_caller]
    #[inline(never)]
    pub fn go<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        match self.start(Settings::default(), Regs::here(), Location::caller(), f) {
            Ok(handle) => handle,
            Err(e) => panic!("Scope::go: {e}"),
        }
    }

    fn start<F, T>(
        &'scope self,
        settings: Settings<'_>,
        regs: Regs,
        at: &'static Location<'static>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        if current_g().is_none() {
            // What this says, it must say before anything is counted: a goroutine that is not made is not counted off.
            run::start_default();
        }
        let slot = Arc::new(Slot { result: UnsafeCell::new(None), packet: Packet::new() });
        let data = self.data.clone();
        data.running.add(1);
        let done = Done(data.clone());
        let theirs = slot.clone();
        let life: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            // Dropped last, when all that is below is gone (SC1).
            let done = done;
            live(f, theirs, &done.0);
        });
        // SAFETY: only the lifetime changes. The closure is called or dropped, with all that it captured, before the
        // goroutine is counted off, which is before 'scope ends (SC1, SC2). Where it is never called because spawn() fails,
        // it is dropped in here, which is inside 'scope as well.
        let life: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(life) };
        // The trace names the goroutine after the user's function, not after the wrapper.
        let settings = Settings { start: Some(start_of::<F>()), ..settings };
        let id = spawn(settings, regs, at, life)?.id();
        Ok(ScopedJoinHandle { slot, data, id, scope: PhantomData })
    }
}

/// The goroutine's life: all of `f` and what it gives is gone when this returns, or lies with the handle.
fn live<F, T>(f: F, slot: Arc<Slot<T>>, data: &Data)
where
    F: FnOnce() -> T,
{
    let g = current_g().expect("a goroutine runs its life");
    slot.packet.begin();
    let result = catch_unwind(AssertUnwindSafe(|| {
        g.begin_here();
        f()
    }));
    locals::destroy_all(g);
    if result.is_err() {
        data.panics.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the packet is not complete: the handle does not look yet.
    unsafe { *slot.result.get() = Some(result) };
    slot.packet.complete();
    // If the handle is gone, this drops the result, which is user code. Its panic must not get past `done`'s drop unseen
    // by anybody, and its payload could panic again.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(slot))) {
        std::mem::forget(payload);
    }
}

impl Builder {
    /// Starts a goroutine with these settings in a [`scope`].
    ///
    /// # Errors
    ///
    /// As [`spawn`](Builder::spawn).
    #[track_caller]
    #[inline(never)]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.start(self.settings()?, Regs::here(), Location::caller(), f)
    }
}

/// The right to wait for a goroutine of a [`scope`] and take its value.
pub struct ScopedJoinHandle<'scope, T> {
    slot: Arc<Slot<T>>,
    data: Arc<Data>,
    id: Id,
    // SC3
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits until the goroutine has ended and gives its value.
    ///
    /// # Errors
    ///
    /// The payload of its panic, which then is not the scope's business any more.
    pub fn join(self) -> Result<T, Box<dyn Any + Send + 'static>> {
        self.slot.packet.wait();
        // SAFETY: the packet is complete, so the result is written and the goroutine does not touch it; this is the one
        // handle, consumed.
        let result = unsafe { (*self.slot.result.get()).take() };
        let result = result.expect("a result is taken once, after it is there");
        if result.is_err() {
            self.data.handled.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Whether the goroutine has ended, so that [`join`](ScopedJoinHandle::join) would not wait.
    pub fn is_finished(&self) -> bool {
        self.slot.packet.is_done()
    }

    /// The goroutine's id, which the trace and dumps show.
    pub fn id(&self) -> Id {
        self.id
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle")
            .field("id", &self.id.get())
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

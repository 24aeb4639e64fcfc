//! What a goroutine runs and where its result goes: one allocation per goroutine, shared with its [`JoinHandle`].
//!
//! - J1: the closure is taken once, by the goroutine. A goroutine that never runs leaks nothing when the process lives on:
//!   the task is dropped with its last reference.
//! - J2: the result is written before `done` is set (Release) and read after it was seen (Acquire).
//! - J3: a waiter registers under the lock after it has seen `done` false; completion sets `done`, then takes the waiters
//!   under the lock. So either the waiter sees `done`, or completion sees the waiter.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracer::record::{Fixed, Start};

use crate::sched::g::{G, Kind};
use crate::sched::id::Id;
use crate::sched::locals;
use crate::sched::owner::Owner;
use crate::sched::park::{Caller, Turn};
use crate::sync::waiter::WaitList;

/// A task of any type, owned once.
#[derive(Clone, Copy)]
pub(crate) struct RawTask {
    data: *const (),
    run: unsafe fn(*const (), &'static G),
}

struct Task<F, T> {
    stage: UnsafeCell<Stage<F, T>>,
    packet: Packet,
}

enum Stage<F, T> {
    Closure(F),
    Running,
    Result(std::thread::Result<T>),
    Taken,
}

/// The part that waiting needs, whatever the type.
#[repr(C)]
pub(crate) struct Packet {
    /// First: whoever waits for the goroutine's end waits with the address of this list.
    waiters: WaitList,
    /// The goroutine, from its begin on.
    runner: Owner,
    done: AtomicBool,
}

/// From the list to the goroutine that ends the wait (N4 of [`crate::sched::g`]).
pub(crate) const RUNNER_OFFSET: usize = offset_of!(Packet, runner) - offset_of!(Packet, waiters);

// SAFETY: the stage is touched by the goroutine until `done`, then by the one handle (J2); F and T cross threads.
unsafe impl<F: Send, T: Send> Sync for Task<F, T> {}
// SAFETY: as above.
unsafe impl<F: Send, T: Send> Send for Task<F, T> {}

/// The name under which the trace shows a goroutine that begins in `F`.
pub(crate) trait HasStart {
    const START: Start;
}

impl<F> HasStart for F {
    const START: Start = Start { name: std::any::type_name::<F> };
}

/// The start of `F`, in static memory.
pub(crate) fn start_of<F>() -> &'static Start {
    const { &<F as HasStart>::START }
}

/// Makes the task and both its ends.
pub(crate) fn new<F, T>(f: F) -> (RawTask, JoinHandle<T>)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let task = Arc::new(Task { stage: UnsafeCell::new(Stage::Closure(f)), packet: Packet::new() });
    let handle: Arc<dyn Join<T>> = task.clone();
    let raw = RawTask { data: Arc::into_raw(task).cast(), run: run::<F, T> };
    (raw, JoinHandle { task: handle, id: 0 })
}

impl RawTask {
    /// Runs the closure, keeps its result or its panic, and wakes who waits.
    ///
    /// # Safety
    ///
    /// Called once per task, outside the border, by goroutine `g` on its stack.
    pub(crate) unsafe fn run(self, g: &'static G) {
        // SAFETY: `data` came with `run` from new(); once, by the caller.
        unsafe { (self.run)(self.data, g) }
    }
}

/// # Safety
///
/// `data` is the raw form of an `Arc<Task<F, T>>` and this consumes it. The caller is `g`.
unsafe fn run<F, T>(data: *const (), g: &'static G)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: passed on to the caller.
    let task = unsafe { Arc::from_raw(data.cast::<Task<F, T>>()) };
    task.packet.runner.set();
    // SAFETY: before `done` only the goroutine touches the stage (J2).
    let stage = unsafe { &mut *task.stage.get() };
    let Stage::Closure(f) = std::mem::replace(stage, Stage::Running) else {
        unreachable!("a task ran twice");
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        g.begin_here();
        f()
    }));
    locals::destroy_all(g);
    // SAFETY: as above; the closure is gone and held no reference to the stage.
    unsafe { *task.stage.get() = Stage::Result(result) };
    task.packet.complete();
    // The last reference may drop the result here, in user code's place: on the goroutine, outside the border. A result
    // whose drop panics must not take the goroutine's stack with it.
    let task = ManuallyDrop::new(task);
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: dropped once, here.
        drop(unsafe { std::ptr::read(&*task) });
    }));
    if let Err(payload) = dropped {
        // Dropping the payload could panic again, with nobody left to catch it.
        std::mem::forget(payload);
    }
}

impl Packet {
    pub(crate) fn new() -> Packet {
        Packet { waiters: WaitList::new(), runner: Owner::new(), done: AtomicBool::new(false) }
    }

    /// Whether the result is there; then it is visible (J2).
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// The result is there.
    pub(crate) fn complete(&self) {
        // ORDER: SeqCst; pairs with the load under the lock in wait() (J3); publishes the result (J2).
        self.done.store(true, Ordering::SeqCst);
        // Whoever joins many in order would otherwise be pulled to the front by the first that ends, only to find that the
        // next one has not run yet.
        self.waiters.wake_all(Turn::Last);
    }

    /// Waits until the result is there.
    pub(crate) fn wait(&self) {
        if !self.is_done() {
            // N4: the runner is found from the list's address.
            std::ptr::from_ref(self).expose_provenance();
            let done = || self.done.load(Ordering::SeqCst);
            Caller::here().wait_until(&self.waiters, Fixed::Sync, Kind::GoroutineEnd, done);
        }
    }
}

/// What a handle needs of its task.
trait Join<T>: Send + Sync {
    fn packet(&self) -> &Packet;
    /// # Safety
    ///
    /// `done` was seen, and this is called by the only handle, once.
    unsafe fn take(&self) -> std::thread::Result<T>;
}

impl<F: Send, T: Send> Join<T> for Task<F, T> {
    fn packet(&self) -> &Packet {
        &self.packet
    }

    unsafe fn take(&self) -> std::thread::Result<T> {
        // SAFETY: J2, passed on to the caller.
        let stage = unsafe { &mut *self.stage.get() };
        match std::mem::replace(stage, Stage::Taken) {
            Stage::Result(r) => r,
            _ => unreachable!("a result is taken once, after it is there"),
        }
    }
}

/// The right to wait for a goroutine and take its value.
///
/// Dropping the handle detaches the goroutine: it runs on.
pub struct JoinHandle<T> {
    task: Arc<dyn Join<T>>,
    id: u64,
}

impl<T> JoinHandle<T> {
    /// The same, for the goroutine of this id.
    #[inline]
    pub(crate) fn of(self, id: u64) -> JoinHandle<T> {
        JoinHandle { id, ..self }
    }

    /// The goroutine's id, which the trace and dumps show.
    ///
    /// ```
    /// let h = rt::go(|| rt::goroutine::id());
    /// let id = h.id();
    /// assert_eq!(h.join().unwrap(), Some(id));
    /// ```
    pub fn id(&self) -> Id {
        Id::new(self.id)
    }

    /// Waits until the goroutine has ended and gives its value.
    ///
    /// Works from goroutines and from threads.
    ///
    /// # Errors
    ///
    /// The payload of its panic, as [`std::thread::JoinHandle::join`] gives it.
    pub fn join(self) -> std::thread::Result<T> {
        self.task.packet().wait();
        // SAFETY: `done` was seen; `self` is consumed, so this is the only time.
        unsafe { self.task.take() }
    }

    /// Whether the goroutine has ended, so that [`join`](JoinHandle::join) would not wait.
    pub fn is_finished(&self) -> bool {
        self.task.packet().is_done()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id)
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

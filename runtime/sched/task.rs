//! What a goroutine runs and where its result goes: one piece of memory per goroutine, shared with its [`JoinHandle`].
//!
//! - J1: the closure is taken once, by the goroutine. A goroutine that never runs leaks nothing when the process lives on:
//!   the task is dropped with its last reference.
//! - J2: the result is written before `done` is set (Release) and read after it was seen (Acquire).
//! - J3: a waiter registers under the lock after it has seen `done` false; completion sets `done`, then takes the waiters
//!   under the lock. So either the waiter sees `done`, or completion sees the waiter.
//! - J4: two own a task: the goroutine and the handle. Who lets go last drops what is left in it, outside the border, and frees
//!   its memory; if it then is, or comes, inside as a goroutine, the memory goes to its P, which has it ready for the next spawn.
//!   Dropping a handle does not go inside for that: it MUST NOT be a place where a goroutine migrates.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracer::record::{Fixed, Start};

use crate::sched::block::Block;
use crate::sched::g::{G, Kind};
use crate::sched::id::Id;
use crate::sched::locals;
use crate::sched::owner::Owner;
use crate::sched::park::{Caller, Inside, Turn};
use crate::sync::waiter::WaitList;

/// A task of any type, owned once.
#[derive(Clone, Copy)]
pub(crate) struct RawTask {
    data: NonNull<()>,
    run: unsafe fn(NonNull<()>, &'static G) -> Option<Block>,
}

struct Task<F, T> {
    /// How many own it (J4).
    owners: AtomicU32,
    packet: Packet,
    stage: UnsafeCell<Stage<F, T>>,
}

impl<F, T> Task<F, T> {
    const LAYOUT: Layout = Layout::new::<Task<F, T>>();

    /// One of the two lets go; answers whether it was the last one, and so has to call [`Task::end`] (J4).
    fn let_go(this: NonNull<Task<F, T>>) -> bool {
        // SAFETY: the caller owns it until here.
        // ORDER: AcqRel; the last one sees what the other did before it let go.
        unsafe { this.as_ref() }.owners.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Drops what is left in it. The memory comes back if it is a block, and is freed otherwise, even if the drop panics.
    ///
    /// # Safety
    ///
    /// Nobody owns the task any more; called once.
    unsafe fn end(this: NonNull<Task<F, T>>) -> Option<Block> {
        struct Memory<F, T>(NonNull<Task<F, T>>);
        impl<F, T> Drop for Memory<F, T> {
            fn drop(&mut self) {
                // SAFETY: made by new(), as a block or with this layout; what was in it is dropped, or was given up by a panic.
                unsafe {
                    if Block::fits(Task::<F, T>::LAYOUT) {
                        Block::of_memory(self.0.cast()).free();
                    } else {
                        dealloc(self.0.cast().as_ptr(), Task::<F, T>::LAYOUT);
                    }
                }
            }
        }
        let memory = Memory(this);
        // SAFETY: passed on to the caller.
        unsafe { this.drop_in_place() };
        if Block::fits(Self::LAYOUT) {
            std::mem::forget(memory);
            // SAFETY: new() made it of a block, and nobody uses it any more.
            return Some(unsafe { Block::of_memory(this.cast()) });
        }
        None
    }
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

/// Makes the task and both its ends, in `block`, if it fits.
pub(crate) fn new<F, T>(f: F, block: impl FnOnce() -> Block) -> (RawTask, JoinHandle<T>)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let layout = Task::<F, T>::LAYOUT;
    let memory: NonNull<u8> = if Block::fits(layout) {
        block().into_memory()
    } else {
        // SAFETY: a task is not of size zero.
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    };
    let task: NonNull<Task<F, T>> = memory.cast();
    // SAFETY: the memory is new or nobody's, and large enough.
    unsafe {
        task.write(Task {
            owners: AtomicU32::new(2),
            packet: Packet::new(),
            stage: UnsafeCell::new(Stage::Closure(f)),
        });
    }
    let raw = RawTask { data: task.cast(), run: run::<F, T> };
    (raw, JoinHandle { task, id: 0 })
}

impl RawTask {
    /// Runs the closure, keeps its result or its panic, and wakes who waits. What comes back is for the caller's P.
    ///
    /// # Safety
    ///
    /// Called once per task, outside the border, by goroutine `g` on its stack.
    pub(crate) unsafe fn run(self, g: &'static G) -> Option<Block> {
        // SAFETY: `data` came with `run` from new(); once, by the caller.
        unsafe { (self.run)(self.data, g) }
    }
}

/// # Safety
///
/// `data` is a `Task<F, T>` of which the caller is an owner, and this lets go of it. The caller is `g`.
unsafe fn run<F, T>(data: NonNull<()>, g: &'static G) -> Option<Block>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let this: NonNull<Task<F, T>> = data.cast();
    // SAFETY: passed on to the caller: alive until it lets go.
    let task = unsafe { this.as_ref() };
    task.packet.begin();
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
    if !Task::let_go(this) {
        return None;
    }
    // The result is dropped here, in user code's place: on the goroutine, outside the border. One whose drop panics must not take
    // the goroutine's stack with it.
    // SAFETY: the last owner has let go.
    catch_unwind(AssertUnwindSafe(|| unsafe { Task::end(this) })).unwrap_or_else(|payload| {
        // Dropping the payload could panic again, with nobody left to catch it.
        std::mem::forget(payload);
        None
    })
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

    /// The calling goroutine is the one that is waited for.
    pub(crate) fn begin(&self) {
        self.runner.set();
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

/// Lets go of a task that its handle owned. The memory comes back if it is a block that nobody uses now. Called once, last.
type Release = unsafe fn(NonNull<()>) -> Option<Block>;

/// What a handle needs of its task.
trait Join<T>: Send + Sync {
    fn packet(&self) -> &Packet;
    /// # Safety
    ///
    /// `done` was seen, and this is called by the only handle, once.
    unsafe fn take(&self) -> std::thread::Result<T>;
    /// The function that lets go of the task, whose address it takes: no reference to it may live when it is freed.
    fn release(&self) -> Release;
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

    fn release(&self) -> Release {
        |task| {
            let this: NonNull<Task<F, T>> = task.cast();
            // SAFETY: the last owner has let go.
            if Task::let_go(this) { unsafe { Task::end(this) } } else { None }
        }
    }
}

/// The right to wait for a goroutine and take its value.
///
/// Dropping the handle detaches the goroutine: it runs on.
pub struct JoinHandle<T> {
    /// One of its two owners (J4).
    task: NonNull<dyn Join<T>>,
    id: u64,
}

// SAFETY: the task may be used from any thread (see there); its result crosses threads.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: as above; a shared handle can only ask whether it is done.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // SAFETY: the handle is an owner, and gives that up once, here.
        if let Some(block) = unsafe { (self.task.as_ref().release())(self.task.cast()) } {
            block.free();
        }
    }
}

impl<T> JoinHandle<T> {
    /// The same, for the goroutine of this id.
    #[inline]
    pub(crate) fn of(self, id: u64) -> JoinHandle<T> {
        let mut this = self;
        this.id = id;
        this
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
        let this = ManuallyDrop::new(self);
        // SAFETY: the handle owns the task until it lets go, below.
        let task = unsafe { this.task.as_ref() };
        task.packet().wait();
        // SAFETY: `done` was seen; the handle is consumed, so this is the only time.
        let result = unsafe { task.take() };
        // SAFETY: as above, and last.
        if let Some(block) = unsafe { (task.release())(this.task.cast()) } {
            match Inside::enter() {
                Some(inside) => inside.m().must_p().put_block(block),
                None => block.free(),
            }
        }
        result
    }

    /// Whether the goroutine has ended, so that [`join`](JoinHandle::join) would not wait.
    pub fn is_finished(&self) -> bool {
        // SAFETY: the handle is an owner.
        unsafe { self.task.as_ref() }.packet().is_done()
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

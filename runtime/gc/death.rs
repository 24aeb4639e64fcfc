//! What happens to objects that were found dead and have something to say: finalisers, and `Drop`.
//!
//! Each has a goroutine of the runtime's own, so that one that blocks does not hold up the other. User code runs there, outside all windows; it
//! may do whatever it likes.
//!
//! - X1: what is dead and not dropped yet is in no goal: so those who allocate wait while it is a large part of the heap, as long as it
//!   becomes less. The goroutine that drops does not wait for itself. Whoever has waited in vain, because somebody's `Drop` blocks, has done so
//!   for all.
//! - X2: what a panic carried is forgotten: dropping it could panic again, and end the goroutine that all others' drops need.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracer::record::Fixed;

use super::object::Object;
use super::pace;
use super::special::Finalizer;
use super::sweep;
use super::trace::Visitor;
use super::window::Window;
use super::worker::Bell;
use crate::stack::header::current_g;

/// Objects whose `Drop` is to run.
static DOOMED: Mutex<Vec<(Object, usize)>> = Mutex::new(Vec::new());
/// Bytes of those, and of the ones in hand.
static DOOMED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// So many were left when somebody had waited in vain: nobody waits again until it is less.
static STUCK_AT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The goroutine that drops, by its address.
static DROPS: AtomicUsize = AtomicUsize::new(0);
/// So many are dropped for each look at the heap.
const TOGETHER: usize = 64;
/// That much may always wait.
const BACKLOG_BYTES: usize = 4 << 20;
static DROPPER: Bell = Bell::new();

/// Finalisers that are to run; each has a count of its object.
static FINALIZERS: Mutex<VecDeque<(Object, Finalizer)>> = Mutex::new(VecDeque::new());
static FINALIZER: Bell = Bell::new();

/// The object, of so many bytes, is dead. By its sweeper.
pub(super) fn doom(object: Object, bytes: usize) {
    DOOMED_BYTES.fetch_add(bytes, Ordering::AcqRel);
    DOOMED.lock().push((object, bytes));
}

/// The object's finaliser is to run. By its sweeper, who has raised its count.
pub(super) fn finalize(object: Object, finalizer: Finalizer) {
    FINALIZERS.lock().push_back((object, finalizer));
}

/// There may be something to do. Outside a window.
pub(super) fn ring() {
    DROPPER.ring();
    FINALIZER.ring();
}

/// For somebody who needs memory: lets the dead be dropped.
pub(super) fn wait_a_little() {
    wait_until_left(0);
}

/// For somebody who allocates: X1.
#[inline]
pub(super) fn keep_pace() {
    let left = DOOMED_BYTES.load(Ordering::Relaxed);
    if left > BACKLOG_BYTES {
        let fair = BACKLOG_BYTES.max(pace::goal() / 2);
        if left > fair && left < STUCK_AT.load(Ordering::Relaxed) {
            STUCK_AT.store(wait_until_left(fair / 2), Ordering::Relaxed);
        }
    }
}

/// Waits until so many bytes are left, or they have not become less for a while: somebody's `Drop` takes long (or is what the caller does). Answers
/// how many that are, if it was in vain.
#[cold]
fn wait_until_left(bytes: usize) -> usize {
    const PATIENCE: u32 = 100;
    if current_g().is_some_and(|g| std::ptr::from_ref(g).addr() == DROPS.load(Ordering::Relaxed)) {
        return usize::MAX;
    }
    let (mut least, mut patience) = (usize::MAX, PATIENCE);
    loop {
        let left = DOOMED_BYTES.load(Ordering::Acquire);
        if left <= bytes {
            return usize::MAX;
        }
        if patience == 0 {
            return left;
        }
        patience = if left < least { PATIENCE } else { patience - 1 };
        least = least.min(left);
        ring();
        crate::time::sleep(Duration::from_micros(200));
    }
}

/// The life of the goroutine that drops.
pub(super) fn drop_main() {
    DROPS.store(current_g().map_or(0, |g| std::ptr::from_ref(g).addr()), Ordering::Relaxed);
    loop {
        if !drop_some() {
            DROPPER.wait(Fixed::System);
        }
    }
}

/// Drops what is doomed by now; answers whether there was any.
pub(super) fn drop_some() -> bool {
    let batch = std::mem::take(&mut *DOOMED.lock());
    for some in batch.chunks(TOGETHER) {
        some.iter().for_each(|(object, _)| drop_value(*object));
        let window = Window::open();
        some.iter().for_each(|(object, _)| sweep::free(&window, *object));
        drop(window);
        DOOMED_BYTES.fetch_sub(some.iter().map(|(_, bytes)| bytes).sum(), Ordering::AcqRel);
    }
    !batch.is_empty()
}

/// Runs what is the user's. A panic was reported by the hook, and is of no interest to others.
fn run_theirs(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload); // X2
    }
}

fn drop_value(object: Object) {
    // SAFETY: the object is dead and keeps its slot until it is dropped.
    let kind = unsafe { object.header() }.kind();
    let Some(kind) = kind else { return };
    run_theirs(|| {
        // SAFETY: nothing leads to it, so it is this goroutine's; it is doomed once. Its edges are emptied first (H9).
        unsafe {
            kind.trace(object, &mut Visitor::empty());
            kind.drop(object);
        }
    });
}

/// The life of the goroutine that finalises.
pub(super) fn finalize_main() {
    loop {
        finalize_some();
        FINALIZER.wait(Fixed::System);
    }
}

/// Runs the finalisers that are due.
pub(super) fn finalize_some() {
    loop {
        let next = FINALIZERS.lock().pop_front();
        let Some((object, finalizer)) = next else { return };
        run_theirs(|| finalizer(object));
    }
}

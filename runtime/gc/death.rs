//! What happens to objects that were found dead and have something to say: finalisers, and `Drop`.
//!
//! Each has a goroutine of the runtime's own, so that one that blocks does not hold up the other. User code runs there, outside all windows; it
//! may do whatever it likes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tracer::record::Fixed;

use super::object::Object;
use super::special::Finalizer;
use super::sweep;
use super::trace::Visitor;
use super::window::Window;
use super::worker::Bell;

/// Objects whose `Drop` is to run.
static DOOMED: Mutex<Vec<Object>> = Mutex::new(Vec::new());
/// Those, and the ones in hand.
static DOOMED_LEN: AtomicUsize = AtomicUsize::new(0);
static DROPPER: Bell = Bell::new();

/// Finalisers that are to run; each has a count of its object.
static FINALIZERS: Mutex<VecDeque<(Object, Finalizer)>> = Mutex::new(VecDeque::new());
static FINALIZER: Bell = Bell::new();

/// The object is dead. By its sweeper.
pub(super) fn doom(object: Object) {
    DOOMED_LEN.fetch_add(1, Ordering::AcqRel);
    DOOMED.lock().push(object);
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

/// For somebody who needs memory: lets the dead be dropped, unless that takes long (or is what the caller does).
pub(super) fn wait_a_little() {
    for _ in 0..100 {
        if DOOMED_LEN.load(Ordering::Acquire) == 0 {
            return;
        }
        crate::time::sleep(std::time::Duration::from_micros(200));
    }
}

/// The life of the goroutine that drops.
pub(super) fn drop_main() {
    loop {
        let batch = std::mem::take(&mut *DOOMED.lock());
        if batch.is_empty() {
            DROPPER.wait(Fixed::System);
        }
        for object in batch {
            drop_value(object);
            sweep::free(&Window::open(), object);
            DOOMED_LEN.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn drop_value(object: Object) {
    // SAFETY: the object is dead and keeps its slot until it is dropped.
    let kind = unsafe { object.header() }.kind();
    let Some(kind) = kind else { return };
    // A panic was reported by the hook, and is of no interest to others.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: nothing leads to it, so it is this goroutine's; it is doomed once. Its edges are emptied first (H9).
        unsafe {
            kind.trace(object, &mut Visitor::empty());
            kind.drop(object);
        }
    }));
}

/// The life of the goroutine that finalises.
pub(super) fn finalize_main() {
    loop {
        let next = FINALIZERS.lock().pop_front();
        match next {
            Some((object, finalizer)) => {
                let _ = catch_unwind(AssertUnwindSafe(|| finalizer(object)));
            }
            None => FINALIZER.wait(Fixed::System),
        }
    }
}

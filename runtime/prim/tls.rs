//! The one file with a `thread_local!`: which thread of the program's own this is, and what such a thread has in
//! goroutine-locals.
//!
//! - After a goroutine migrates, the address of a thread-local computed before is another thread's, at every optimisation
//!   level. So this file hands out values, never addresses; and a goroutine
//!   finds itself through its stack pointer and its M through itself.

use std::cell::Cell;

use crate::sched::foreign::Foreign;
use crate::sched::locals::{self, Locals};

struct Entry(Cell<Option<&'static Foreign>>);

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f.retire();
        }
    }
}

/// Ends the thread's goroutine-locals.
struct LocalsEnd;

impl Drop for LocalsEnd {
    fn drop(&mut self) {
        // The block stays in its place meanwhile: destructors may use locals again.
        let block = LOCALS.get();
        // SAFETY: the thread's own block, set once, together with this; destroyed here, once.
        unsafe { locals::destroy(block) };
        LOCALS.set(locals::GONE);
        // SAFETY: as above; nobody finds it any more.
        unsafe { locals::free(block) };
    }
}

thread_local! {
    static FOREIGN: Entry = const { Entry(Cell::new(None)) };
    /// Without a destructor of its own, so it can be asked for to the very end.
    static LOCALS: Cell<*mut Locals> = const { Cell::new(std::ptr::null_mut()) };
    static LOCALS_END: LocalsEnd = const { LocalsEnd };
    static THREAD_ID: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is unwinding a panic.
#[inline(never)]
pub(crate) fn is_unwinding() -> bool {
    std::thread::panicking()
}

/// This thread's place in the runtime, made at first use; `None` while the thread is being destroyed.
#[inline(never)]
pub(crate) fn foreign() -> Option<&'static Foreign> {
    FOREIGN
        .try_with(|e| {
            if let Some(f) = e.0.get() {
                return f;
            }
            let f = Foreign::adopt();
            e.0.set(Some(f));
            f
        })
        .ok()
}

/// This thread's goroutine-locals: null for none yet, [`locals::GONE`] when the thread has destroyed them.
#[inline(never)]
pub(crate) fn locals() -> *mut Locals {
    LOCALS.get()
}

/// Gives this thread a block for its goroutine-locals; false if the thread ends already. [`locals`] has just said that it has
/// none.
#[inline(never)]
#[must_use]
pub(crate) fn set_locals(block: *mut Locals) -> bool {
    // From now on the thread's end destroys what is in the block.
    let ends = LOCALS_END.try_with(|_| ()).is_ok();
    if ends {
        LOCALS.set(block);
    }
    ends
}

/// The kernel's id of this thread, asked for once.
#[inline(never)]
pub(crate) fn thread_id() -> u64 {
    THREAD_ID.with(|id| {
        if id.get() == 0 {
            id.set(tracer::record::thread_id());
        }
        id.get()
    })
}

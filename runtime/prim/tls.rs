//! The one file with a `thread_local!`: which thread of the program's own this is.
//!
//! - After a goroutine migrates, the address of a thread-local computed before is another thread's, at every optimisation
//!   level. So this file hands out values, never addresses; and a goroutine
//!   finds itself through its stack pointer and its M through itself.

use std::cell::Cell;

use crate::sched::foreign::Foreign;

struct Entry(Cell<Option<&'static Foreign>>);

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f.retire();
        }
    }
}

thread_local! {
    static FOREIGN: Entry = const { Entry(Cell::new(None)) };
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

//! A child of `fork()`: a copy of the process with one thread, the one that called it, and with none of the runtime's others.
//!
//! - FK1: in a child no goroutine runs but the one that has called. As soon as that waits, gives up its turn or ends, the process ends with a
//!   sentence: another goroutine that went on here would do a second time what it does in the parent. So does a goroutine that was being visited at
//!   its border at the moment of the fork, as soon as it enters the runtime: it would wait for the visitor, who is not here.
//! - FK2: a child records nothing: the trace is the parent's, whose file it has open, too.
//! - FK3: between fork and exec nothing here takes a lock; one that another thread held then is never let go of.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::prim::say::say;
use crate::sched::SCHED;

static CHILD: AtomicBool = AtomicBool::new(false);

/// Sees to it that children know what they are. When the runtime starts.
pub(crate) fn install() {
    #[cfg(unix)]
    // SAFETY: the handler does nothing but store to atomics, which is all that a child of a process with threads may do.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    CHILD.store(true, Ordering::Relaxed);
    // FK2
    tracer::record::forsake();
    // FK1: it finds that the world is to stand still, and then why.
    SCHED.stopping.store(true, Ordering::Relaxed);
}

/// Whether this process is one.
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Ends this process if it is one (FK1): its goroutine is about to need others, or locks that others may have held (FK3).
#[inline]
pub(crate) fn end_child() {
    if is_child() {
        end();
    }
}

#[cold]
fn end() -> ! {
    say(format_args!(
        "fatal error: in a child of fork() a goroutine has waited, given up its turn, or ended: the scheduler's other threads are not here. \
         Such a child can exec, or exit (rt::process::Command starts programs from goroutines)"
    ));
    // SAFETY: ends the process at once, without what the parent has registered for its own end.
    unsafe { libc::_exit(crate::sched::quit::EXIT_CODE) }
}

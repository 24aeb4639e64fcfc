//! Something that is done once.
//!
//! ```text
//!   INCOMPLETE --exchange--> RUNNING --done--> COMPLETE        for good
//!        ^----------panic-------'
//! ```
//!
//! - O-1: who made it RUNNING runs the function, alone, outside the runtime. It ends RUNNING in any case, and wakes everybody.
//! - O-2: COMPLETE is stored (Release) after the function has returned: who sees it (Acquire) sees what that did.
//! - O-3: who waits looks under the list's lock whether it is still RUNNING. RUNNING ends under that lock, or, when it ends for good,
//!   by Q3.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use tracer::record::Fixed;

use crate::sched::g::Kind;
use crate::sched::park::{Caller, Turn};
use crate::sync::waiter::WaitList;

const INCOMPLETE: u32 = 0;
const RUNNING: u32 = 1;
const COMPLETE: u32 = 2;

/// Runs a function once, however many ask for it; the others wait until it has returned.
///
/// There is no poisoning: if the function panics, the panic goes to its caller, and the next one who asks (or one of those who
/// wait) tries again.
///
/// ```
/// use rt::sync::Once;
///
/// static SETUP: Once = Once::new();
/// SETUP.call_once(|| println!("once"));
/// SETUP.call_once(|| unreachable!());
/// assert!(SETUP.is_completed());
/// ```
// repr(C): its address is the one that dumps show.
#[repr(C)]
pub struct Once {
    waiting: WaitList,
    state: AtomicU32,
}

impl Once {
    /// Nothing has been done yet.
    pub const fn new() -> Once {
        Once { waiting: WaitList::new(), state: AtomicU32::new(INCOMPLETE) }
    }

    /// Runs `f` if no such call has returned yet, or waits for the one that runs. Afterwards it has been done, and what it did is
    /// visible.
    ///
    /// If `f` itself calls this again it waits for ever.
    ///
    /// # Panics
    ///
    /// If `f` does.
    #[inline]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            let Ok(()) = self.run(|| {
                f();
                Ok::<(), std::convert::Infallible>(())
            });
        }
    }

    /// Whether a call has returned.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // ORDER: Acquire; pairs with the SeqCst store in End::drop() (O-2).
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Waits until a call has returned, without making one.
    pub fn wait(&self) {
        while !self.is_completed() {
            self.wait_unless(|state| state == COMPLETE);
        }
    }

    /// As [`Once::call_once`], with a function that can fail; then the next one tries again.
    #[cold]
    pub(super) fn run<E>(&self, f: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        loop {
            // ORDER: Acquire; as in is_completed(). A try that failed may have done things, too.
            match self.state.compare_exchange(INCOMPLETE, RUNNING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                Err(COMPLETE) => return Ok(()),
                Err(_) => self.wait_unless(|state| state != RUNNING),
            }
        }
        // O-1
        let mut end = End { once: self, state: INCOMPLETE };
        let result = f();
        if result.is_ok() {
            end.state = COMPLETE;
        }
        result
    }

    fn wait_unless(&self, done: impl Fn(u32) -> bool) {
        // O-3
        let done = || done(self.state.load(Ordering::SeqCst));
        Caller::here().wait_until(&self.waiting, Fixed::Sync, Kind::Once, done);
    }

    /// Begins anew; nobody else has a reference.
    pub(super) fn reset(&mut self) {
        *self.state.get_mut() = INCOMPLETE;
    }
}

/// Ends RUNNING, also when the function panics.
struct End<'a> {
    once: &'a Once,
    state: u32,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let once = self.once;
        if self.state == COMPLETE {
            // ORDER: SeqCst; for Q3, and as Release (O-2).
            once.state.store(COMPLETE, Ordering::SeqCst);
            once.waiting.wake_all(Turn::Last);
            return;
        }
        // Not for good: another may begin and end at once, and must not be slept through.
        once.waiting.wake_all_if(Turn::Last, || {
            once.state.store(INCOMPLETE, Ordering::SeqCst);
            true
        });
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("completed", &self.is_completed()).finish()
    }
}

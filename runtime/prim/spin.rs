//! The lock of the primitives' short sections: a parking_lot raw mutex that can be unlocked from another stack.
//!
//! A goroutine that blocks locks the object on its own stack and has it unlocked on the M's stack after the switch, so
//! guards that borrow do not fit. The critical sections are a few list operations, never a call into user code.

use parking_lot::lock_api::RawMutex as _;

use crate::prim::chaos;

pub(crate) struct RawLock(parking_lot::RawMutex);

impl RawLock {
    pub(crate) const fn new() -> RawLock {
        RawLock(parking_lot::RawMutex::INIT)
    }

    #[inline]
    pub(crate) fn lock(&self) {
        chaos::window();
        self.0.lock();
    }

    /// Unlocks.
    ///
    /// # Safety
    ///
    /// The lock is held, and this is its holder's only unlock.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: passed on to the caller; parking_lot's raw mutex is not tied to the thread that locked it.
        unsafe { self.0.unlock() };
        chaos::window();
    }
}

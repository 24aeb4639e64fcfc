//! A value that is set once.
//!
//! - The cell is written in the [`Once`]'s function, and read once that is complete.

use std::cell::UnsafeCell;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::sync::once::Once;

/// A value that is set once and can be read by anybody afterwards, without a lock: std's `OnceLock`, for goroutines and threads.
///
/// If an initialiser panics, the panic goes to its caller and the next one tries again.
///
/// ```
/// use rt::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
/// assert_eq!(CONFIG.get(), None);
/// assert_eq!(CONFIG.get_or_init(|| "from a file".into()), "from a file");
/// assert_eq!(CONFIG.set("too late".into()), Err("too late".into()));
/// ```
#[repr(C)]
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
    /// It drops a T.
    _owns: PhantomData<T>,
}

// SAFETY: the value is shared after it was set (Sync), by whoever was first (Send).
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for OnceLock<T> {}
// A panic leaves no half of a value: it is written after its initialiser has returned.
impl<T: std::panic::RefUnwindSafe + std::panic::UnwindSafe> std::panic::RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Without a value.
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()), _owns: PhantomData }
    }

    /// The value, if it was set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: it is complete, so the value is there, and is not written again.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// The value, if it was set, through the only reference there is.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: it is complete, so the value is there.
        self.once.is_completed().then(|| unsafe { self.value.get_mut().assume_init_mut() })
    }

    /// Waits until the value is set.
    pub fn wait(&self) -> &T {
        self.once.wait();
        self.get().expect("it is complete")
    }

    /// Sets the value. If another is being set at the same time, waits for that.
    ///
    /// # Errors
    ///
    /// The value, if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("it is called once"));
        match value {
            None => Ok(()),
            Some(v) => Err(v),
        }
    }

    /// The value; if there is none, `init` makes it. Who comes meanwhile waits for it.
    ///
    /// If `init` needs the same value it waits for ever.
    ///
    /// # Panics
    ///
    /// If `init` does. Then there is no value yet, and the next call tries again.
    #[inline]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let Ok(value) = self.get_or_try_init(|| Ok::<T, Infallible>(init()));
        value
    }

    /// As [`get_or_init`](OnceLock::get_or_init), with an initialiser that can fail.
    ///
    /// # Errors
    ///
    /// Those of `init`. Then there is no value yet, and the next call tries again.
    ///
    /// # Panics
    ///
    /// If `init` does.
    #[inline]
    pub fn get_or_try_init<E>(&self, init: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        self.once.run(|| {
            let value = init()?;
            // SAFETY: the function of a Once runs alone, and nobody reads before it is complete.
            unsafe { (*self.value.get()).write(value) };
            Ok(())
        })?;
        Ok(self.get().expect("it is complete"))
    }

    /// The value, if it was set.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out; it can be set again.
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        self.once.reset();
        // SAFETY: it was complete, so the value is there; from now on it counts as absent.
        Some(unsafe { self.value.get_mut().assume_init_read() })
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        self.take();
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let cell = OnceLock::new();
        let set = cell.set(value);
        debug_assert!(set.is_ok());
        cell
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get().cloned().map_or_else(OnceLock::new, OnceLock::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(v) => f.debug_tuple("OnceLock").field(v).finish(),
            None => f.debug_tuple("OnceLock").field(&format_args!("<not set>")).finish(),
        }
    }
}

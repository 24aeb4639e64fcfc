//! A value that is made at its first use.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Deref;

use crate::sync::once_lock::OnceLock;

/// A value that is made at its first use: std's `LazyLock`, for goroutines and threads.
///
/// If the initialiser panics, the panic goes to whoever used the value first, and the next one tries again. Therefore, unlike std's,
/// it is an `FnMut`, and lives as long as the value.
///
/// ```
/// use rt::sync::LazyLock;
///
/// static PRIMES: LazyLock<Vec<u32>> = LazyLock::new(|| {
///     (2..30).filter(|n| (2..*n).all(|d| n % d != 0)).collect()
/// });
/// assert_eq!(PRIMES.len(), 10);
/// ```
#[repr(C)]
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    /// Called by the one who initialises.
    init: UnsafeCell<F>,
}

// SAFETY: the initialiser is used by one at a time, whoever that is (Send); the value is OnceLock's business.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}

impl<T, F: FnMut() -> T> LazyLock<T, F> {
    /// A value that `init` will make.
    pub const fn new(init: F) -> LazyLock<T, F> {
        LazyLock { value: OnceLock::new(), init: UnsafeCell::new(init) }
    }

    /// The value, which is made if it was not yet. What dereferencing does.
    ///
    /// # Panics
    ///
    /// If the initialiser does.
    #[inline]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        // SAFETY: one at a time initialises; nothing else touches the initialiser.
        this.value.get_or_init(|| unsafe { (*this.init.get())() })
    }
}

impl<T, F: FnMut() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.get() {
            Some(v) => f.debug_tuple("LazyLock").field(v).finish(),
            None => f.debug_tuple("LazyLock").field(&format_args!("<not made yet>")).finish(),
        }
    }
}

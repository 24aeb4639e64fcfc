//! `goroutine_local!`: values that each goroutine has of its own.

use std::cell::{Cell, RefCell};
use std::fmt;

use crate::sched::locals::{self, Found};

/// Declares values that each goroutine has of its own: std's `thread_local!` for goroutines.
///
/// A reference to a value stays good across everything that a goroutine can do, waiting included: it is the
/// goroutine's, not the thread's. On a thread that is no goroutine each thread has its own.
///
/// A value is made at its first use in a goroutine, by the expression on the right, and is dropped when the goroutine ends:
/// after its closure has returned or panicked, before [`join`](crate::JoinHandle::join) returns, the last one made first. A
/// value's destructor may use other goroutine-locals, and may wait. (When [`run`](crate::run) returns, goroutines that
/// still are there are not unwound, and their values not dropped.)
///
/// The names are `static`s of type [`LocalKey`](crate::goroutine::LocalKey).
///
/// ```
/// use std::cell::{Cell, RefCell};
///
/// rt::goroutine_local! {
///     /// Of whom this goroutine thinks.
///     static REQUEST: RefCell<String> = RefCell::new(String::from("nobody"));
///     pub static DEPTH: Cell<u32> = const { Cell::new(0) };
/// }
///
/// rt::run(|| {
///     REQUEST.set("17".into());
///     DEPTH.set(3);
///     rt::go(|| assert_eq!((REQUEST.take().as_str(), DEPTH.get()), ("nobody", 0))).join().unwrap();
///     REQUEST.with_borrow_mut(|r| {
///         rt::yield_now(); // Perhaps on another thread now; `r` is this goroutine's all the same.
///         r.push('!');
///     });
///     assert_eq!((REQUEST.take().as_str(), DEPTH.get()), ("17!", 3));
/// });
/// ```
///
/// A value goes with its goroutine from thread to thread, so its type must be [`Send`]:
///
/// ```compile_fail,E0277
/// rt::goroutine_local! {
///     static SHARED: std::rc::Rc<u32> = std::rc::Rc::new(1);
/// }
/// ```
///
/// A reference does not leave the closure:
///
/// ```compile_fail
/// rt::goroutine_local! {
///     static NUMBER: u32 = 1;
/// }
/// let number: &u32 = NUMBER.with(|n| n);
/// ```
#[macro_export]
macro_rules! goroutine_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const $init:block; $($rest:tt)*) => {
        $crate::goroutine_local!(@key [$(#[$attr])*] $vis $name, $t, const $init);
        $crate::goroutine_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const $init:block) => {
        $crate::goroutine_local!(@key [$(#[$attr])*] $vis $name, $t, const $init);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr; $($rest:tt)*) => {
        $crate::goroutine_local!(@key [$(#[$attr])*] $vis $name, $t, $init);
        $crate::goroutine_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr) => {
        $crate::goroutine_local!(@key [$(#[$attr])*] $vis $name, $t, $init);
    };
    (@key [$(#[$attr:meta])*] $vis:vis $name:ident, $t:ty, $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::goroutine::LocalKey<$t> = {
            fn __rt_goroutine_local_init() -> $t {
                $init
            }
            // SAFETY: the key is a static, so nothing else has its address.
            unsafe { $crate::goroutine::LocalKey::new(__rt_goroutine_local_init) }
        };
    };
}

/// A value that each goroutine has of its own, declared by [`goroutine_local!`](crate::goroutine_local).
pub struct LocalKey<T: Send + 'static> {
    init: fn() -> T,
}

impl<T: Send + 'static> LocalKey<T> {
    /// For the macro.
    ///
    /// # Safety
    ///
    /// What this makes is the initial value of a static of type `LocalKey<T>`.
    #[doc(hidden)]
    pub const unsafe fn new(init: fn() -> T) -> LocalKey<T> {
        LocalKey { init }
    }

    /// The address of the static, which no other key has: it is not of size zero.
    #[inline]
    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Runs `f` with the calling goroutine's value, which is made if this is its first use.
    ///
    /// # Panics
    ///
    /// If the value was dropped already (see [`try_with`](LocalKey::try_with)), or if making it panics.
    #[inline]
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(r) => r,
            Err(e) => panic!("{e}"),
        }
    }

    /// As [`with`](LocalKey::with).
    ///
    /// # Errors
    ///
    /// The goroutine ends, and the value is being dropped or was dropped. Only a destructor, of another goroutine-local or of
    /// the goroutine's result, can see that.
    #[inline]
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let value = self.get_or_make(|| (self.init)())?;
        // SAFETY: the value lies in its box until it is destroyed (L-1), and that is after the goroutine's closure (L-3), in
        // which this call is; or in a destructor after this one, since find() does not give a value whose own has begun. Only
        // the goroutine reaches it, so it need not be Sync.
        Ok(f(unsafe { &*value }))
    }

    #[inline]
    fn get_or_make(&'static self, make: impl FnOnce() -> T) -> Result<*const T, AccessError> {
        // SAFETY: the key is this static's address, which is used with this T only.
        match unsafe { locals::find::<T>(self.key()) } {
            Found::Here(value) => Ok(value),
            Found::Gone => Err(AccessError(())),
            Found::NotYet => self.make(make()),
        }
    }

    #[cold]
    fn make(&'static self, value: T) -> Result<*const T, AccessError> {
        // SAFETY: as in get_or_make().
        match unsafe { locals::find::<T>(self.key()) } {
            // The initialiser has used the value that it was to make: that one stays.
            Found::Here(made) => Ok(made),
            Found::Gone => Err(AccessError(())),
            // SAFETY: as above.
            Found::NotYet => unsafe { locals::put(self.key(), value) }.map_err(|_| AccessError(())),
        }
    }

    /// Gives `value` to the first use, or to `or` if this is not the first.
    #[track_caller]
    fn first_or(&'static self, value: T, or: impl FnOnce(&T, T)) {
        let mut value = Some(value);
        let made = match self.get_or_make(|| value.take().expect("called once")) {
            Ok(made) => made,
            Err(e) => panic!("{e}"),
        };
        if let Some(value) = value {
            // SAFETY: as in try_with().
            or(unsafe { &*made }, value);
        }
    }
}

impl<T: Send + 'static> LocalKey<Cell<T>> {
    /// Sets the value. If this is the first use, the initialiser does not run.
    ///
    /// # Panics
    ///
    /// As [`with`](LocalKey::with); so do the other methods.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.first_or(Cell::new(value), |cell, value| cell.set(value.into_inner()));
    }

    /// A copy of the value.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the value and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Sets the value and gives the old one.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: Send + 'static> LocalKey<RefCell<T>> {
    /// Runs `f` with the value. It may wait: the borrow is the goroutine's.
    ///
    /// # Panics
    ///
    /// As [`with`](LocalKey::with), and if the value is borrowed mutably; so do the other methods.
    #[track_caller]
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Runs `f` with the value, which it may change.
    #[track_caller]
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value. If this is the first use, the initialiser does not run.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.first_or(RefCell::new(value), |cell, value| drop(cell.replace(value.into_inner())));
    }

    /// Takes the value and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Sets the value and gives the old one.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: Send + 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// A goroutine-local was used after it was dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccessError(());

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a goroutine-local was used during or after its destruction")
    }
}

impl fmt::Debug for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessError").finish()
    }
}

impl std::error::Error for AccessError {}

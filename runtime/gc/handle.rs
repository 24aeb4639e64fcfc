//! [`Gc`]: a handle to an object, and its making.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::arena::{Kind, LARGE};
use super::heap;
use super::object::{Object, Of, value_offset};
use super::size::class_of;
use super::special;
use super::trace::{Trace, Visitor};
use super::window::Window;
use crate::prim::chaos;

/// A handle to a value in the collected heap.
///
/// As long as there is a handle, the value stays, with everything that its [edges](super::Edge) lead to. Cloning one and dropping one
/// counts; it frees nothing by itself.
///
/// It can be used on goroutines and on plain threads, and go from one to another if `T` can be used by both at once.
pub struct Gc<T> {
    object: Object,
    kind: PhantomData<(*const T, T)>,
}

// SAFETY: a handle gives out `&T`, and whoever has the last one decides where T is dropped.
unsafe impl<T: Send + Sync> Send for Gc<T> {}
// SAFETY: as above: cloning one through `&` gives another.
unsafe impl<T: Send + Sync> Sync for Gc<T> {}

/// There is no memory for a value in the heap: it is full of objects that are reachable, and [the limit](super::set_memory_limit), or the system,
/// gives no more.
pub struct AllocError<T> {
    /// The value that did not fit.
    pub value: T,
}

impl<T> AllocError<T> {
    /// Bytes of the value.
    const BYTES: usize = size_of::<T>();
}

impl<T> fmt::Display for AllocError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = super::stats();
        write!(f, "no memory in the heap for {} bytes: {} are in use", Self::BYTES, stats.used_bytes)?;
        match stats.memory_limit {
            Some(limit) => write!(f, " of the {limit} that rt::gc::set_memory_limit allows"),
            None => f.write_str(", and the system gives no more"),
        }
    }
}

impl<T> fmt::Debug for AllocError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllocError({self})")
    }
}

impl<T> std::error::Error for AllocError<T> {}

impl<T: Trace + Send + 'static> Gc<T> {
    const BYTES: usize = value_offset::<T>() + size_of::<T>();
    const CLASS: Option<usize> = class_of(Self::BYTES, value_offset::<T>());
    const KIND: Kind = Kind {
        class: match Self::CLASS {
            Some(class) => class,
            None => LARGE,
        },
        drops: T::NEEDS_DROP,
        edges: T::HAS_EDGES,
    };
    const CHECK: () = assert!(align_of::<T>() <= 4096, "values in the heap are aligned to 4096 bytes at most");

    /// Moves a value into the heap.
    ///
    /// Value and edges travel over the caller's stack; box what is large.
    ///
    /// # Panics
    ///
    /// If there is no memory for it, even after a collection: see [`Gc::try_new`]. If `GOGC` or `GOMEMLIMIT` in the environment says what cannot be
    /// understood.
    #[inline]
    #[track_caller]
    pub fn new(value: T) -> Gc<T> {
        match Gc::try_new(value) {
            Ok(gc) => gc,
            Err(e) => no_memory(&e),
        }
    }

    /// As [`Gc::new`].
    ///
    /// # Errors
    ///
    /// If there is no memory for it, even after a collection, with the value.
    #[inline]
    pub fn try_new(value: T) -> Result<Gc<T>, AllocError<T>> {
        const { Self::CHECK };
        if const { Self::CLASS.is_some() && T::IS_FLAT } {
            // All in one window: no code of the user's runs, and it is soon done.
            let window = Window::open();
            if let Some(object) = heap::take_claimed(&window, Self::KIND) {
                // SAFETY: a slot of this kind, the caller's.
                let gc = unsafe { Gc::fill(object, value) };
                if T::HAS_EDGES {
                    gc.trace(&mut Visitor::adopt(Some(&window)));
                }
                return Ok(gc);
            }
        }
        Gc::try_new_slow(value)
    }

    /// The same where it is more than to take a slot.
    fn try_new_slow(value: T) -> Result<Gc<T>, AllocError<T>> {
        let object = match Self::CLASS {
            Some(_) => heap::allocate(Self::KIND, Of::<T>::TYPE),
            None => heap::allocate_large(Self::KIND, Of::<T>::TYPE, Self::BYTES),
        };
        let Some(object) = object else { return Err(AllocError { value }) };
        // SAFETY: a slot of this kind, the caller's.
        let gc = unsafe { Gc::fill(object, value) };
        // H8
        if T::HAS_EDGES {
            gc.trace(&mut Visitor::adopt(None));
        }
        Ok(gc)
    }

    /// Makes a slot an object. Its edges are still counted.
    ///
    /// # Safety
    ///
    /// The slot is of [`Gc::KIND`], prepared, and the caller's.
    #[inline]
    unsafe fn fill(object: Object, value: T) -> Gc<T> {
        // SAFETY: it is as large and aligned as T and its header want, and nobody looks at the value before it is published (H12).
        unsafe {
            object.0.as_ptr().byte_add(value_offset::<T>()).cast::<T>().write(value);
            chaos::window();
            object.header().publish(Of::<T>::TYPE);
            Gc::from_object(object)
        }
    }
}

#[cold]
#[track_caller]
fn no_memory(e: &dyn fmt::Display) -> ! {
    panic!("rt::gc::Gc::new: {e}");
}

impl<T> Gc<T> {
    /// # Safety
    ///
    /// The object holds a `T`, and a count of its is the caller's.
    #[inline]
    pub(super) unsafe fn from_object(object: Object) -> Gc<T> {
        Gc { object, kind: PhantomData }
    }

    #[inline]
    pub(super) fn object(&self) -> Object {
        self.object
    }

    /// Whether two handles are of the same object.
    #[inline]
    pub fn ptr_eq(a: &Gc<T>, b: &Gc<T>) -> bool {
        a.object == b.object
    }

    /// Sets a function that gets a handle to the object when nothing leads to it any more, in place of the one that was
    /// set before, if any.
    ///
    /// It runs once, on a goroutine of the runtime's own, one after the other with those of other objects; while it blocks, they wait. If
    /// it panics, that is the end of it. It may put the handle where it likes: then the object, which is as it was, lives
    /// on, and is found unreachable again some day; without a finaliser, unless one is set anew. Weak handles do not lead to it any more.
    ///
    /// What the object leads to is kept until the finaliser has run. So an object that leads to itself, by whatever
    /// way, is never found unreachable. At the program's end finalisers are not run.
    pub fn set_finalizer(this: &Gc<T>, finalizer: impl FnOnce(Gc<T>) + Send + 'static)
    where
        T: Send + Sync + 'static,
    {
        // SAFETY: the object is this one, with a count for the finaliser.
        let run = move |object| finalizer(unsafe { Gc::from_object(object) });
        drop(special::set_finalizer(this.object, Some(Box::new(run))));
    }

    /// Takes the finaliser off, if there is one.
    pub fn clear_finalizer(this: &Gc<T>) {
        drop(special::set_finalizer(this.object, None));
    }
}

impl<T> Clone for Gc<T> {
    #[inline]
    fn clone(&self) -> Gc<T> {
        // SAFETY: this handle keeps it.
        unsafe { self.object.header() }.retain();
        Gc { object: self.object, kind: PhantomData }
    }
}

impl<T> Drop for Gc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle has kept it until now.
        unsafe { self.object.header() }.release();
    }
}

impl<T> Deref for Gc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a handle is made when the value is there, which stays as long as there is one.
        unsafe { &*self.object.0.as_ptr().byte_add(value_offset::<T>()).cast::<T>() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Gc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Gc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

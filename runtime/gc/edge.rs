//! [`Edge`]: the pointer inside objects.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::arena::ARENA;
use super::handle::Gc;
use super::mark;
use super::object::{Object, check};
use super::trace::{TRACED, Trace, Visitor, is_traced, target};
use super::window::Window;
use crate::prim::chaos;

/// A pointer from an object of the heap to another one, or to nothing, which the collector follows.
///
/// Reading it gives a handle. It can be changed through `&`, by several goroutines and threads at once; a read sees what one of them has
/// stored, and everything that was done to that object before.
///
/// Outside an object an edge keeps its target, as a handle does.
///
/// Each operation is a crossing into the runtime: the goroutine may be on another thread afterwards.
pub struct Edge<T> {
    /// The header, and [`TRACED`] (H8).
    word: AtomicPtr<u8>,
    kind: PhantomData<Invariant<T>>,
}

/// Invariant in `T`: what is stored through one reference is read through another.
type Invariant<T> = (Gc<T>, fn(T) -> T);

// SAFETY: it gives out `&T` on any thread, and the last handle may go there.
unsafe impl<T: Send + Sync> Send for Edge<T> {}
// SAFETY: as above; the word is atomic, and each operation lies in a window.
unsafe impl<T: Send + Sync> Sync for Edge<T> {}

impl<T> Edge<T> {
    /// An edge to nothing.
    pub const fn null() -> Edge<T> {
        Edge { word: AtomicPtr::new(std::ptr::null_mut()), kind: PhantomData }
    }

    /// An edge to `target`.
    pub fn new(target: &Gc<T>) -> Edge<T> {
        Edge::from(target.clone())
    }

    /// A handle to the target, if there is one.
    #[inline]
    pub fn get(&self) -> Option<Gc<T>> {
        // What is nothing now needs no window to be seen as nothing.
        target(self.word.load(Ordering::Relaxed))?;
        let window = Window::open();
        // ORDER: Acquire; pairs with the Release of whoever stored: the object.
        let object = target(self.word.load(Ordering::Acquire))?;
        chaos::window();
        Some(handle(&window, object))
    }

    /// Whether it leads to nothing.
    #[inline]
    pub fn is_null(&self) -> bool {
        target(self.word.load(Ordering::Relaxed)).is_none()
    }

    /// Whether it leads to this object.
    #[inline]
    pub fn is(&self, to: &Gc<T>) -> bool {
        target(self.word.load(Ordering::Relaxed)) == Some(to.object())
    }

    /// Lets it lead to `to`.
    #[inline]
    pub fn set(&self, to: Option<&Gc<T>>) {
        let window = Window::open();
        let new = self.stored(&window, to);
        chaos::window();
        // ORDER: Release; pairs with get() and the marker: the object.
        let old = self.word.swap(new, Ordering::AcqRel);
        self.forget(old);
    }

    /// Takes the target, and leaves nothing.
    pub fn take(&self) -> Option<Gc<T>> {
        self.replace(None)
    }

    /// Lets it lead to `to`, and gives what it led to.
    pub fn replace(&self, to: Option<&Gc<T>>) -> Option<Gc<T>> {
        let window = Window::open();
        let new = self.stored(&window, to);
        let old = self.word.swap(new, Ordering::AcqRel);
        let taken = target(old).map(|object| handle(&window, object));
        self.forget(old);
        taken
    }

    /// Lets it lead to `new` if it leads to `current`.
    ///
    /// # Errors
    ///
    /// If it does not: what it leads to.
    pub fn compare_exchange(&self, current: Option<&Gc<T>>, new: Option<&Gc<T>>) -> Result<(), Option<Gc<T>>> {
        let window = Window::open();
        let was = self.with_mode(current.map(Gc::object));
        let wanted = self.stored(&window, new);
        match self.word.compare_exchange(was, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(old) => {
                self.forget(old);
                Ok(())
            }
            Err(old) => {
                // It is not stored after all.
                self.forget(wanted);
                Err(target(old).map(|object| handle(&window, object)))
            }
        }
    }

    /// The word for an object in an edge like this. Whether one is traced changes only while nobody else has it.
    #[inline]
    fn with_mode(&self, object: Option<Object>) -> *mut u8 {
        let mode = self.word.load(Ordering::Relaxed).addr() & TRACED;
        match object {
            None => std::ptr::without_provenance_mut(mode),
            Some(object) => object.0.as_ptr().cast::<u8>().map_addr(|a| a | mode),
        }
    }

    /// The word for `to`, which is about to be stored.
    #[inline]
    fn stored(&self, window: &Window, to: Option<&Gc<T>>) -> *mut u8 {
        let word = self.with_mode(to.map(Gc::object));
        if let Some(to) = to {
            // SAFETY: the caller has a handle.
            let header = unsafe { to.object().header() };
            if is_traced(word) {
                header.link();
                // H4
                mark::shade(window, to.object());
            } else {
                header.retain();
            }
        }
        word
    }

    /// A word that was taken out by `&self`. In the window in which it was.
    #[inline]
    fn forget(&self, word: *mut u8) {
        if let Some(object) = counted(word) {
            // SAFETY: a counted edge has kept it.
            let header = unsafe { object.header() };
            // N3: somebody may have read the word and be about to raise the count.
            header.link();
            header.release();
        }
    }
}

/// The target of a counted edge, if this word is of one.
#[inline]
fn counted(word: *mut u8) -> Option<Object> {
    target(word).filter(|_| !is_traced(word))
}

/// A handle to what an edge led to in this window (H6).
#[inline]
fn handle<T>(window: &Window, object: Object) -> Gc<T> {
    let (block, i) = ARENA.place(object);
    // SAFETY: H2, H6.
    check(block.rooted.raise(i, unsafe { &object.header().count }));
    // H3
    mark::shade(window, object);
    // SAFETY: edges to T lead to objects that hold a T; the count was raised.
    unsafe { Gc::from_object(object) }
}

impl<T> Drop for Edge<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = counted(*self.word.get_mut()) {
            // SAFETY: a counted edge has kept it.
            unsafe { object.header() }.release();
        }
    }
}

impl<T> Default for Edge<T> {
    fn default() -> Edge<T> {
        Edge::null()
    }
}

impl<T> From<Gc<T>> for Edge<T> {
    #[inline]
    fn from(target: Gc<T>) -> Edge<T> {
        // The handle's count becomes the edge's.
        let word = target.object().0.cast::<u8>();
        std::mem::forget(target);
        Edge { word: AtomicPtr::new(NonNull::as_ptr(word)), kind: PhantomData }
    }
}

impl<T> From<Option<Gc<T>>> for Edge<T> {
    fn from(target: Option<Gc<T>>) -> Edge<T> {
        target.map_or_else(Edge::null, Edge::from)
    }
}

// SAFETY: shows itself, which changes by its own operations only. Empty, it has nothing to drop; traced, neither.
unsafe impl<T> Trace for Edge<T> {
    const HAS_EDGES: bool = true;
    const NEEDS_DROP: bool = false;
    const IS_FLAT: bool = true;
    #[inline]
    fn trace(&self, visitor: &mut Visitor<'_>) {
        visitor.edge(&self.word);
    }
}

impl<T> fmt::Debug for Edge<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the target: there may be cycles.
        match target(self.word.load(Ordering::Relaxed)) {
            None => f.write_str("Edge(null)"),
            Some(object) => write!(f, "Edge({:#x})", object.addr()),
        }
    }
}

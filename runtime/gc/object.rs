//! An object: a header, then the value.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::objects::Shape;
use super::size::HEADER_BYTES;
use super::trace::{Trace, Visitor};

/// What lies before each value.
#[repr(C, align(16))]
pub(super) struct Header {
    /// Handles, and counted edges (H8).
    pub(super) count: AtomicU32,
    flags: AtomicU32,
    /// Null until the value is written (H12).
    kind: AtomicPtr<Type>,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// It is dead, and its `Drop` is yet to run or runs.
pub(super) const DOOMED: u32 = 1;
/// Its `Drop` has run: the next sweep frees the slot.
pub(super) const DROPPED: u32 = 2;
/// It has a finaliser.
pub(super) const FINALIZER: u32 = 4;
/// There are weak handles.
pub(super) const WEAK: u32 = 8;

/// More handles to one object are a leak in a loop; before the count could wrap the process ends, as with `Arc`.
const COUNT_MAX: u32 = u32::MAX / 2;

impl Header {
    /// A new object with one handle and without a value.
    #[inline]
    pub(super) fn prepare(&self) {
        self.kind.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.count.store(1, Ordering::Release);
    }

    /// The value is there.
    #[inline]
    pub(super) fn publish(&self, kind: &'static Type) {
        // ORDER: Release; pairs with the Acquire in kind(): the value.
        self.kind.store(std::ptr::from_ref(kind).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub(super) fn kind(&self) -> Option<&'static Type> {
        // SAFETY: null or a static.
        unsafe { self.kind.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub(super) fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flags != 0
    }

    pub(super) fn set(&self, flags: u32) {
        self.flags.fetch_or(flags, Ordering::AcqRel);
    }

    pub(super) fn unset(&self, flags: u32) {
        self.flags.fetch_and(!flags, Ordering::AcqRel);
    }

    /// A handle more, by somebody who has one.
    #[inline]
    pub(super) fn retain(&self) {
        check(self.count.fetch_add(1, Ordering::Relaxed));
    }

    /// A handle less.
    #[inline]
    pub(super) fn release(&self) {
        // ORDER: Release; pairs with the Acquire in is_root(): what was done with the handle comes before the object's end.
        self.count.fetch_sub(1, Ordering::Release);
    }
}

/// Ends the process if there are too many handles.
#[inline]
pub(super) fn check(count: u32) {
    if count > COUNT_MAX {
        too_many();
    }
}

#[cold]
fn too_many() -> ! {
    crate::prim::say::say(format_args!("fatal error: more than {COUNT_MAX} handles to one object of the heap"));
    std::process::abort()
}

/// What is known of the values.
pub(super) struct Type {
    /// From the header to the value.
    value_offset: usize,
    trace: unsafe fn(*const (), &mut Visitor<'_>),
    drop: unsafe fn(*mut ()),
    pub(super) shape: Shape,
}

impl Type {
    /// Shows the value's edges.
    ///
    /// # Safety
    ///
    /// `object` has this type, and its value is there.
    #[inline]
    pub(super) unsafe fn trace(&self, object: Object, visitor: &mut Visitor<'_>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.trace)(object.0.as_ptr().byte_add(self.value_offset).cast(), visitor) }
    }

    /// Drops the value.
    ///
    /// # Safety
    ///
    /// As for [`Type::trace`]; once, and nobody uses the value any more.
    pub(super) unsafe fn drop(&self, object: Object) {
        // SAFETY: passed on to the caller.
        unsafe { (self.drop)(object.0.as_ptr().byte_add(self.value_offset).cast()) }
    }
}

/// The [`Type`] of values `T`.
pub(super) struct Of<T>(PhantomData<T>);

impl<T: Trace> Of<T> {
    pub(super) const TYPE: &'static Type = &Type {
        value_offset: value_offset::<T>(),
        trace: trace_value::<T>,
        drop: drop_value::<T>,
        shape: Shape { bytes: size_of::<T>(), has_edges: T::HAS_EDGES, name: std::any::type_name::<T> },
    };
}

/// From the header to a value `T`.
pub(super) const fn value_offset<T>() -> usize {
    if align_of::<T>() > HEADER_BYTES { align_of::<T>() } else { HEADER_BYTES }
}

unsafe fn trace_value<T: Trace>(value: *const (), visitor: &mut Visitor<'_>) {
    // SAFETY: passed on to the caller: a T that lives.
    unsafe { &*value.cast::<T>() }.trace(visitor);
}

unsafe fn drop_value<T>(value: *mut ()) {
    // SAFETY: passed on to the caller: a T of the caller's own.
    unsafe { value.cast::<T>().drop_in_place() }
}

/// An object of the heap, by address. Whether it lives is the business of whoever has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Object(pub(super) NonNull<Header>);

// SAFETY: an address; what may be done with it is argued where it is done.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// # Safety
    ///
    /// Its slot is an object, and stays one as long as the reference is used (H2).
    #[inline]
    pub(super) unsafe fn header<'a>(self) -> &'a Header {
        // SAFETY: passed on to the caller.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn addr(self) -> usize {
        self.0.as_ptr().addr()
    }
}

//! An object: a header, then the value.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use super::counts::Counts;
use super::objects::Shape;
use super::size::HEADER_BYTES;
use super::trace::{Opaque, Trace, Visitor};

/// What lies before each value: handles, flags, and above these where its [`Type`] is: its distance from [`ORIGIN`]. That is 0 until the value
/// is written (H12).
#[repr(C, align(8))]
pub(super) struct Header(Counts);

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// A new object with one handle and without a value.
    #[inline]
    pub(super) fn prepare(&self) {
        self.0.prepare();
    }

    /// The value is there. By whoever has made the object, the only one to know it.
    #[inline]
    pub(super) fn publish(&self, kind: &'static Type) {
        self.0.publish(kind.place());
    }

    #[inline]
    pub(super) fn kind(&self) -> Option<&'static Type> {
        match self.0.payload() {
            0 => None,
            // SAFETY: publish() had it from the type.
            place => Some(unsafe { Type::at(place) }),
        }
    }

    /// A handle more, by somebody who has one.
    #[inline]
    pub(super) fn retain(&self) {
        check(self.0.retain());
    }
}

impl Deref for Header {
    type Target = Counts;

    #[inline]
    fn deref(&self) -> &Counts {
        &self.0
    }
}

/// More handles to one object are a leak in a loop; before the count could wrap the process ends, as with `Arc`.
const COUNT_MAX: u32 = u32::MAX / 2;

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

#[cold]
fn too_far() -> ! {
    crate::prim::say::say(format_args!(
        "fatal error: the program spans more than 2 GiB of addresses, too many for its heap"
    ));
    std::process::abort()
}

/// What is known of the values. Aligned so that the distance of two has no bit in common with [`FLAGS`](super::counts::FLAGS).
#[repr(align(32))]
pub(super) struct Type {
    /// From the header to the value.
    value_offset: usize,
    trace: unsafe fn(*const (), &mut Visitor<'_>),
    drop: unsafe fn(*mut ()),
    pub(super) shape: Shape,
}

/// Types are told by how far they are from here: all are constants of one program, which is linked to lie within 2 GiB. This is the type
/// of no object, and has an offset as no other, so that the compiler cannot make one of the two.
static ORIGIN: Type = Type {
    value_offset: 0,
    trace: trace_value::<Opaque<()>>,
    drop: drop_value::<()>,
    shape: Shape { bytes: 0, has_edges: false, name: std::any::type_name::<()> },
};

impl Type {
    /// The distance from [`ORIGIN`], which is not 0.
    #[inline]
    fn place(&'static self) -> u32 {
        let distance = std::ptr::from_ref(self).expose_provenance().wrapping_sub(ORIGIN.addr()) as isize;
        match i32::try_from(distance) {
            Ok(distance) => distance as u32,
            Err(_) => too_far(),
        }
    }

    /// # Safety
    ///
    /// The place is that of a type.
    #[inline]
    unsafe fn at(place: u32) -> &'static Type {
        let at = ORIGIN.addr().wrapping_add_signed(place as i32 as isize);
        // SAFETY: that type's address, which place() exposed; a type is a constant.
        unsafe { &*std::ptr::with_exposed_provenance(at) }
    }

    #[inline]
    pub(super) fn addr(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

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

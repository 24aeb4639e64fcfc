//! Goroutine-locals: the values that a goroutine has of its own, by key.
//!
//! ```text
//!   G.locals -> Locals [ (key, box) (key, box) (key, destroyed) ... ]     in the order of their first use
//! ```
//!
//! - L-1: a value lies in a box of its own from its first use until it is destroyed, so its address stays, whatever else is
//!   added and wherever the goroutine goes on.
//! - L-2: the block belongs to the goroutine's own code (N4), on a thread to that thread. So no lock and no crossing; and
//!   no reference to the block itself is held while a value's own code runs (its initialiser, its destructor), since that may
//!   use locals again.
//! - L-3: values are destroyed on the goroutine, outside the border, after its closure has returned or panicked and before
//!   anybody learns that it ended: the last one used first goes first, those that destructors make included. A key whose
//!   value was destroyed stays marked, so each is made at most once, and this comes to an end.
//!
//! A key is the address of its static. They are found by looking through the list: a program that has so many in one
//! goroutine that this matters would do better with one that is a struct. Rejected: an index per key and an array per goroutine
//! (a goroutine that uses one key would pay for all there are).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::prim::tls;
use crate::sched::g::G;
use crate::stack::header::current_g;

/// A goroutine's (or thread's) values.
#[derive(Default)]
pub(crate) struct Locals {
    slots: Vec<Slot>,
}

struct Slot {
    key: usize,
    /// The box; null when it was destroyed.
    value: *mut (),
    drop: unsafe fn(*mut ()),
}

/// What a key stands for just now.
pub(crate) enum Found<T> {
    Here(*const T),
    /// Not used yet.
    NotYet,
    /// Destroyed, or nothing can be made any more: the thread ends.
    Gone,
}

/// # Safety
///
/// `value` came from `Box::into_raw` of a `Box<T>` and is not used afterwards.
unsafe fn drop_box<T>(value: *mut ()) {
    // SAFETY: passed on to the caller.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}

/// In the place of a block that was destroyed with its thread.
pub(crate) const GONE: *mut Locals = std::ptr::without_provenance_mut(align_of::<Locals>());

/// The caller's block: null for none, or [`GONE`].
#[inline]
fn block() -> *mut Locals {
    match current_g() {
        Some(g) => g.locals.get(),
        None => tls::locals(),
    }
}

/// Looks for the caller's value of `key`.
///
/// # Safety
///
/// `key` is used with this `T` only.
#[inline]
pub(crate) unsafe fn find<T>(key: usize) -> Found<T> {
    let block = block();
    if block == GONE {
        return Found::Gone;
    }
    // SAFETY: null, or the caller's own block (L-2); the reference ends in this function, which calls nobody.
    let Some(block) = (unsafe { block.as_ref() }) else { return Found::NotYet };
    match block.slots.iter().find(|s| s.key == key) {
        None => Found::NotYet,
        Some(s) if s.value.is_null() => Found::Gone,
        Some(s) => Found::Here(s.value.cast()),
    }
}

/// Gives the caller its value of `key`, for which [`find`] has just said [`Found::NotYet`]; back if the thread ends.
///
/// # Safety
///
/// As for [`find`].
#[cold]
pub(crate) unsafe fn put<T>(key: usize, value: T) -> Result<*const T, T> {
    let mut block = block();
    if block.is_null() {
        block = Box::into_raw(Box::default());
        if let Some(g) = current_g() {
            g.locals.set(block);
        } else if !tls::set_locals(block) {
            // SAFETY: made above and known to nobody.
            unsafe { free(block) };
            return Err(value);
        }
    }
    let value = Box::into_raw(Box::new(value));
    // SAFETY: the caller's own block (L-2); the reference ends here.
    unsafe { &mut *block }.slots.push(Slot { key, value: value.cast(), drop: drop_box::<T> });
    Ok(value)
}

/// The goroutine's closure is over: destroys its values (L-3). Called by the goroutine, outside.
#[inline]
pub(crate) fn destroy_all(g: &'static G) {
    let block = g.locals.get();
    if !block.is_null() {
        // SAFETY: its own block (L-2).
        unsafe { destroy(block) };
    }
}

/// The goroutine's last act outside: what has been used since is destroyed, and the block freed.
#[inline]
pub(crate) fn end(g: &'static G) {
    let block = g.locals.get();
    if !block.is_null() {
        // SAFETY: its own block (L-2), which stays in its place as long as destructors may ask for it.
        unsafe { destroy(block) };
        g.locals.set(std::ptr::null_mut());
        // SAFETY: as above; nobody finds it any more.
        unsafe { free(block) };
    }
}

/// Frees a block.
///
/// # Safety
///
/// It is the caller's own, was destroyed, and nobody asks for it any more.
#[cold]
pub(crate) unsafe fn free(block: *mut Locals) {
    // SAFETY: blocks are made by put(), as boxes.
    drop(unsafe { Box::from_raw(block) });
}

/// Destroys the values that are left (L-3).
///
/// # Safety
///
/// The block is the caller's own, and nobody holds a reference into it.
#[cold]
pub(crate) unsafe fn destroy(block: *mut Locals) {
    loop {
        let last = {
            // SAFETY: passed on to the caller; the reference ends before user code runs.
            let slots = unsafe { &mut (*block).slots };
            slots
                .iter_mut()
                .rev()
                .find(|s| !s.value.is_null())
                .map(|s| (std::mem::replace(&mut s.value, std::ptr::null_mut()), s.drop))
        };
        let Some((value, drop)) = last else { return };
        // SAFETY: the slot's own box, taken out, so dropped once. No reference to the value lives: those of `with` end
        // with its closure, and the goroutine's closure is over.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { drop(value) }));
        if let Err(payload) = dropped {
            // The panic was told by the hook. The others are destroyed all the same; dropping the payload could panic again.
            std::mem::forget(payload);
        }
    }
}

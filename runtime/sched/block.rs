//! Blocks: the memory of small tasks.
//!
//! A million goroutines leave a million tasks, which an allocator gives back to the system in part, or late, or not. So they
//! lie in slots of our own, whose pages go back as those of goroutines do (L4).
//!
//! - BL1: a block is with whoever holds it: a task, a P's cache, or nobody (and then it is free).
//! - BL2: if there is no place for more the allocator gives one. Its address tells which it is.
//!
//! The lock is held for a few instructions, with nothing in between that could switch. So blocks may be made and freed anywhere,
//! outside the border, too.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::prim::slots::Slots;

/// Bytes of a block.
const BYTES: usize = 128;
/// Blocks for which address space is reserved, if it can be had: as many as goroutines.
const WANTED: usize = 1 << 26;
const MIN: usize = 1 << 16;
/// Pages that are given back at a time.
const PAGES: usize = 2;

/// The memory of a small task. MUST be given to a P, used, or freed.
#[must_use]
pub(crate) struct Block(NonNull<u8>);

// SAFETY: memory that nobody uses.
unsafe impl Send for Block {}

/// All blocks there are.
pub(crate) struct Blocks {
    slots: Mutex<Slots>,
    /// Where they begin; 0 before there is a reservation.
    base: AtomicUsize,
    /// Bytes from there on.
    bytes: AtomicUsize,
}

pub(crate) static BLOCKS: Blocks =
    Blocks { slots: Mutex::new(Slots::new(BYTES, PAGES)), base: AtomicUsize::new(0), bytes: AtomicUsize::new(0) };

impl Block {
    pub(crate) const LAYOUT: Layout = match Layout::from_size_align(BYTES, 16) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    /// Whether a task of this layout fits into a block.
    pub(crate) const fn fits(layout: Layout) -> bool {
        layout.size() <= BYTES && layout.align() <= Block::LAYOUT.align()
    }

    /// One for somebody who has no P to ask.
    pub(crate) fn new() -> Block {
        let mut one = None;
        BLOCKS.take(1, |block| one = Some(block));
        one.expect("one at least")
    }

    /// A block that was [made into memory](Block::into_memory).
    ///
    /// # Safety
    ///
    /// It was, and nobody uses it any more.
    pub(crate) unsafe fn of_memory(memory: NonNull<u8>) -> Block {
        Block(memory)
    }

    /// Memory of [`Block::LAYOUT`], for the caller.
    pub(crate) fn into_memory(self) -> NonNull<u8> {
        self.0
    }

    /// Gives it back.
    pub(crate) fn free(self) {
        BLOCKS.put(std::iter::once(self));
    }
}

impl Blocks {
    /// Reserves the address space. Called once, before the first goroutine.
    pub(crate) fn init(&self) -> io::Result<()> {
        let mut slots = self.slots.lock();
        let base = slots.reserve(WANTED, MIN).map_err(|e| {
            io::Error::new(e.kind(), format!("cannot reserve address space for closures: {e} (is `ulimit -v` set?)"))
        })?;
        self.base.store(base, Ordering::Relaxed);
        self.bytes.store(slots.max() * BYTES, Ordering::Relaxed);
        Ok(())
    }

    /// Takes up to `n`, one at least.
    pub(crate) fn take(&self, n: usize, mut each: impl FnMut(Block)) {
        let taken = {
            let mut slots = self.slots.lock();
            let base = self.base.load(Ordering::Relaxed);
            slots.take(n, |i| {
                let block = std::ptr::with_exposed_provenance_mut(base + i * BYTES);
                each(Block(NonNull::new(block).expect("a reservation does not begin at 0")));
            })
        };
        if taken.is_err() {
            // BL2
            // SAFETY: a block is not of size zero.
            let block = NonNull::new(unsafe { alloc(Block::LAYOUT) });
            each(Block(block.unwrap_or_else(|| handle_alloc_error(Block::LAYOUT))));
        }
    }

    /// Gives some back.
    pub(crate) fn put(&self, blocks: impl Iterator<Item = Block>) {
        let (base, bytes) = (self.base.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let mut slots = self.slots.lock();
        for block in blocks {
            let at = block.0.addr().get().wrapping_sub(base);
            if at < bytes {
                slots.put(at / BYTES);
            } else {
                // SAFETY: BL2: it was allocated with this layout, and nobody uses it.
                unsafe { dealloc(block.0.as_ptr(), Block::LAYOUT) }
            }
        }
    }

    /// An interval is over.
    pub(crate) fn age(&self) {
        self.slots.lock().age();
    }

    /// Gives the pages of up to `most` stretches back; answers of how many. Sysmon's alone.
    pub(crate) fn trim(&self, most: usize) -> usize {
        let Some(trimming) = self.slots.lock().begin_trim(most) else { return 0 };
        // SAFETY: nobody has these blocks (BL1).
        unsafe { trimming.give_back() };
        self.slots.lock().end_trim(trimming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BL2
    #[test]
    fn without_a_place_the_allocator_gives_one() {
        static NONE: Blocks = Blocks {
            slots: Mutex::new(Slots::new(BYTES, PAGES)),
            base: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        };
        let mut some = Vec::new();
        NONE.take(64, |block| some.push(block));
        assert_eq!(some.len(), 1);
        let memory = some.pop().unwrap().into_memory();
        // SAFETY: the test's own, of so many bytes.
        unsafe { memory.write_bytes(7, BYTES) };
        // SAFETY: nobody uses it any more.
        NONE.put(std::iter::once(unsafe { Block::of_memory(memory) }));
        assert_eq!(NONE.slots.lock().len(), 0);
        assert_eq!(NONE.trim(1), 0);
    }
}

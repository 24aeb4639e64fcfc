//! Slots of one size in one reservation of address space: which of them are free, and which stretches were not used for a while, so that
//! their pages can go.
//!
//! ```text
//!   one reservation of address space:  | . . . ... . | . . . ... . | . . . ... . |   not yet usable ...
//!                                       block                                   len
//! ```
//!
//! - L1: the reservation never moves and never goes, and from its begin to `len` it is readable and writable.
//! - L2: slots are taken from the lowest address on, so that those in use gather there and whole blocks become free above.
//! - L3: `blank` blocks are all zeros: never used, or their pages were given back. All their slots are free; whoever takes one takes the
//!   block out of `blank`.
//! - L4: pages are given back in blocks of which nothing was used for an interval. Meanwhile their slots are not free ([`Trimming`]).
//!
//! A list through the slots themselves would be shorter, but would keep a page of each block in use, or be lost with it.

use std::io;

use crate::prim::bits::{Bits, WORD};
use crate::prim::pages;

/// Slots made usable at a time: whole blocks and pages, whatever the page size (4 KiB to 64 KiB).
const GROW: usize = 1024;

/// The slots. Whoever owns this sees to locks, and to what the slots hold.
pub(crate) struct Slots {
    slot_bytes: usize,
    block_pages: usize,
    /// Where the reservation begins; 0 before there is one.
    base: usize,
    /// Slots of the reservation.
    max: usize,
    /// Slots made usable so far.
    len: usize,
    /// Slots that nobody has.
    free: Bits,
    /// L3
    blank: Bits,
    /// Blocks that were wholly free a while ago, and nothing of them was taken since.
    idle: Bits,
    /// Blocks that were so for an interval: to be given back.
    due: Bits,
}

/// Blocks whose pages are being given back (L4).
#[must_use = "their slots are nobody's until end_trim()"]
pub(crate) struct Trimming {
    blocks: Vec<usize>,
    base: usize,
    block_bytes: usize,
}

impl Slots {
    /// Slots of so many bytes, in blocks of so many pages: the fewest that hold a multiple of 64 slots exactly.
    pub(crate) const fn new(slot_bytes: usize, block_pages: usize) -> Slots {
        assert!(slot_bytes * WORD == block_pages << 12 && (GROW * slot_bytes).is_multiple_of(block_pages << 16));
        Slots {
            slot_bytes,
            block_pages,
            base: 0,
            max: 0,
            len: 0,
            free: Bits::new(),
            blank: Bits::new(),
            idle: Bits::new(),
            due: Bits::new(),
        }
    }

    /// Reserves address space, once, for `wanted` slots, or fewer if so much cannot be had, but for `least`. Answers where it begins.
    pub(crate) fn reserve(&mut self, wanted: usize, least: usize) -> io::Result<usize> {
        let mut max = wanted;
        while self.max == 0 {
            match pages::reserve(max * self.slot_bytes) {
                Ok(base) => (self.base, self.max) = (base, max),
                Err(_) if max > least => max /= 2,
                Err(e) => return Err(e),
            }
        }
        Ok(self.base)
    }

    /// How many there can be.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// How many were made usable so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Slots of a block: whole words of the sets, since pages are of 4 KiB at least.
    #[inline]
    pub(crate) fn block_slots(&self) -> usize {
        pages::page_bytes() * self.block_pages / self.slot_bytes
    }

    /// Blocks that are all zeros, as the words of a set (L3).
    pub(crate) fn blank(&self) -> Vec<u64> {
        self.blank.words()
    }

    /// Takes up to `n` free slots, one at least, making more usable if there are none.
    ///
    /// # Errors
    ///
    /// If there are none, and no memory for more, or no place (then of kind [`io::ErrorKind::StorageFull`]).
    pub(crate) fn take(&mut self, n: usize, mut each: impl FnMut(usize)) -> io::Result<()> {
        let mut left = n;
        while left != 0 {
            let Some(w) = self.free.first_word() else {
                if left < n {
                    break;
                }
                self.grow()?;
                continue;
            };
            let block = w * WORD / self.block_slots();
            self.blank.remove(block);
            self.idle.remove(block);
            self.due.remove(block);
            let mut word = self.free.word(w);
            while left != 0 && word != 0 {
                each(w * WORD + word.trailing_zeros() as usize);
                word &= word - 1;
                left -= 1;
            }
            self.free.set_word(w, word);
        }
        Ok(())
    }

    /// Gives one back.
    pub(crate) fn put(&mut self, i: usize) {
        debug_assert!(i < self.len && !self.free.contains(i));
        self.free.insert(i);
    }

    fn grow(&mut self) -> io::Result<()> {
        if self.len + GROW > self.max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        pages::make_usable(self.base + self.len * self.slot_bytes, GROW * self.slot_bytes)?;
        for w in self.len / WORD..(self.len + GROW) / WORD {
            self.free.set_word(w, !0);
        }
        for block in self.len / self.block_slots()..(self.len + GROW) / self.block_slots() {
            self.blank.insert(block);
        }
        self.len += GROW;
        Ok(())
    }

    /// The words of `free` that are the block's.
    fn words_of(&self, block: usize) -> std::ops::Range<usize> {
        let words = self.block_slots() / WORD;
        block * words..(block + 1) * words
    }

    /// An interval is over: finds the blocks that were free throughout.
    pub(crate) fn age(&mut self) {
        let block_slots = self.block_slots();
        if self.free.len() - self.blank.len() * block_slots < block_slots {
            return;
        }
        for block in 0..self.len / block_slots {
            let is_free = self.words_of(block).all(|w| self.free.word(w) == !0);
            if !is_free || self.blank.contains(block) {
                continue;
            }
            if self.idle.contains(block) {
                self.due.insert(block);
            } else {
                self.idle.insert(block);
            }
        }
    }

    /// Takes out up to `most` blocks that are due, for their pages to be given back; `None` if there are none.
    pub(crate) fn begin_trim(&mut self, most: usize) -> Option<Trimming> {
        let mut blocks = Vec::new();
        while blocks.len() < most
            && let Some(block) = self.due.pop_first()
        {
            self.idle.remove(block);
            for w in self.words_of(block) {
                self.free.set_word(w, 0);
            }
            blocks.push(block);
        }
        let block_bytes = self.block_slots() * self.slot_bytes;
        (!blocks.is_empty()).then_some(Trimming { blocks, base: self.base, block_bytes })
    }

    /// Their slots are free again; answers how many blocks these are.
    pub(crate) fn end_trim(&mut self, trimming: Trimming) -> usize {
        for &block in &trimming.blocks {
            for w in self.words_of(block) {
                self.free.set_word(w, !0);
            }
            self.blank.insert(block);
        }
        trimming.blocks.len()
    }
}

impl Trimming {
    /// Gives the pages back, neighbours in one call. No lock need be held.
    ///
    /// # Safety
    ///
    /// Nobody uses the slots, or but reads them by atomics and is content with zeros.
    pub(crate) unsafe fn give_back(&self) {
        for run in self.blocks.chunk_by(|a, b| a + 1 == *b) {
            // SAFETY: whole usable blocks (L1), whose slots are not free, so nobody takes one (L4); the rest is passed on to the caller.
            unsafe { pages::give_back_zeroed(self.base + run[0] * self.block_bytes, run.len() * self.block_bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::rng::Rng;
    use std::collections::BTreeSet;

    fn trim(slots: &mut Slots) -> usize {
        let Some(trimming) = slots.begin_trim(usize::MAX) else { return 0 };
        // SAFETY: the test's own.
        unsafe { trimming.give_back() };
        slots.end_trim(trimming)
    }

    /// No slot is given twice, none is lost, and the lowest come first.
    #[test]
    fn agrees_with_a_set_of_std() {
        let mut slots = Slots::new(128, 2);
        slots.reserve(4 * GROW, GROW).unwrap();
        let (mut rng, mut taken) = (Rng::new(11), BTreeSet::new());
        for _ in 0..if cfg!(miri) { 50 } else { 3_000 } {
            match rng.below(4) {
                0 | 1 => {
                    let mut new = Vec::new();
                    match slots.take(1 + rng.below(100), |i| new.push(i)) {
                        Ok(()) => assert!(!new.is_empty()),
                        Err(e) => {
                            assert_eq!((e.kind(), taken.len()), (io::ErrorKind::StorageFull, 4 * GROW));
                        }
                    }
                    assert!(new.is_sorted());
                    for i in new {
                        assert!((0..i).rev().take_while(|j| !taken.contains(j)).next().is_none() && taken.insert(i));
                    }
                }
                2 => {
                    for _ in 0..rng.below(200) {
                        let at = rng.below(4 * GROW);
                        let Some(&i) = taken.range(at..).next() else { break };
                        taken.remove(&i);
                        slots.put(i);
                    }
                }
                _ => {
                    slots.age();
                    trim(&mut slots);
                }
            }
            assert_eq!(slots.free.len() + taken.len(), slots.len());
        }
    }

    /// L4: what was used within an interval stays; what was given back holds zeros.
    #[test]
    fn what_lies_idle_is_given_back() {
        let mut slots = Slots::new(128, 2);
        let base = slots.reserve(GROW, GROW).unwrap();
        let at = |i: usize| std::ptr::with_exposed_provenance_mut::<u64>(base + i * 128);
        let mut all = Vec::new();
        slots.take(GROW, |i| all.push(i)).unwrap();
        assert_eq!(all.len(), GROW);
        for &i in &all {
            // SAFETY: L1, and taken by the test.
            unsafe { at(i).write_volatile(7) };
        }
        // One in the middle stays in use, and with it its block.
        let blocks = GROW / slots.block_slots();
        all.iter().filter(|i| **i != GROW / 2).for_each(|i| slots.put(*i));
        slots.age();
        assert_eq!(trim(&mut slots), 0, "no interval is over");
        // The first block is used meanwhile.
        slots.take(1, |i| assert_eq!(i, 0)).unwrap();
        slots.put(0);
        slots.age();
        assert_eq!(trim(&mut slots), blocks - 2);
        // SAFETY: as above.
        let values = [0, GROW / 2, GROW - 1].map(|i| unsafe { at(i).read_volatile() });
        assert_eq!(values, [7, 7, 0]);
        slots.age();
        assert_eq!(trim(&mut slots), 1);
    }
}

//! Where objects live: blocks of slots in one stretch of address space, and what is known of each block, apart from it.
//!
//! - A1: a block belongs to whoever took it from [`Space`] until it is given back there, by its sweeper.
//! - A2: what is known of blocks is never unmapped and valid as zeros, so anybody may look at any block below [`Arena::len`].
//! - A3: a block that is being made sets `swept_in` before `kind`, which is Release: whoever sees a kind sees that.
//!
//! An object that is too large for a slot has a run of blocks; the first speaks for all.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::bits::{Bits, WORD};
use super::object::{Header, Object};
use super::size::{BLOCK_BYTES, BLOCK_SHIFT, CLASSES_LEN, SLOTS_MAX, reciprocal, slot_at, slot_bytes};
use crate::prim::pages;

/// Blocks for which address space is reserved, if it can be had: 256 GiB.
const BLOCKS_WANTED: usize = if cfg!(miri) { 1 << 5 } else { 1 << 23 };
const BLOCKS_MIN: usize = 1 << 12;
/// Blocks that are made usable at a time.
const GROW: usize = if cfg!(miri) { 8 } else { 128 };

/// What a block's objects are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    /// The size class, or [`CLASSES_LEN`]: one object in a run of blocks.
    pub(super) class: usize,
    /// Their values have something to drop (H9).
    pub(super) drops: bool,
    /// Their values have edges.
    pub(super) edges: bool,
}

pub(super) const LARGE: usize = CLASSES_LEN;
/// Kinds of small objects.
pub(super) const KINDS: usize = CLASSES_LEN * 4;

impl Kind {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.class * 4 + usize::from(self.drops) * 2 + usize::from(self.edges)
    }

    fn from_index(i: usize) -> Kind {
        Kind { class: i / 4, drops: i & 2 != 0, edges: i & 1 != 0 }
    }
}

const WORDS: usize = SLOTS_MAX.div_ceil(WORD);

/// What is known of a block.
#[repr(C, align(64))]
pub(super) struct Block {
    /// One more than the kind's index; 0 while there are no objects.
    kind: AtomicU32,
    /// The cycle after which it was swept, or did not need to be.
    swept_in: AtomicU32,
    slots: AtomicU32,
    reciprocal: AtomicU32,
    slot_bytes: AtomicUsize,
    /// Blocks of the run.
    run: AtomicU32,
    /// Some object has, or had, a finaliser or weak handles.
    pub(super) specials: AtomicU32,
    pub(super) bits: [Bits<WORDS>; 2],
    pub(super) rooted: Bits<WORDS>,
}

impl Block {
    #[inline]
    pub(super) fn kind(&self) -> Option<Kind> {
        // ORDER: Acquire; pairs with begin() (A3).
        match self.kind.load(Ordering::Acquire) {
            0 => None,
            k => Some(Kind::from_index(k as usize - 1)),
        }
    }

    #[inline]
    pub(super) fn swept_in(&self) -> u32 {
        self.swept_in.load(Ordering::Acquire)
    }

    /// Whether its objects have edges.
    #[inline]
    pub(super) fn has_edges(&self) -> bool {
        self.kind.load(Ordering::Acquire).wrapping_sub(1) & 1 != 0
    }

    pub(super) fn set_swept(&self, cycle: u32) {
        self.swept_in.store(cycle, Ordering::Release);
    }

    #[inline]
    pub(super) fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes.load(Ordering::Relaxed)
    }

    /// Blocks of the run.
    pub(super) fn run(&self) -> u32 {
        self.run.load(Ordering::Relaxed)
    }

    pub(super) fn words(&self) -> usize {
        self.slots().div_ceil(WORD)
    }

    /// The bits of word `w` that are slots.
    #[inline]
    pub(super) fn valid(&self, w: usize) -> usize {
        match self.slots() - w * WORD {
            n if n < WORD => (1 << n) - 1,
            _ => usize::MAX,
        }
    }

    fn begin(&self, kind: Kind, slots: usize, slot_bytes: usize, run: usize, swept_in: u32) {
        self.slots.store(slots as u32, Ordering::Relaxed);
        self.slot_bytes.store(slot_bytes, Ordering::Relaxed);
        self.reciprocal.store(if slots == 1 { 0 } else { reciprocal(slot_bytes) }, Ordering::Relaxed);
        self.run.store(run as u32, Ordering::Relaxed);
        self.swept_in.store(swept_in, Ordering::Relaxed);
        // A3
        self.kind.store(kind.index() as u32 + 1, Ordering::Release);
    }

    /// No objects any more. By its sweeper, before it goes back.
    fn end(&self) {
        for w in 0..self.words() {
            self.bits[0].reset_word(w);
            self.bits[1].reset_word(w);
            self.rooted.reset_word(w);
        }
        self.specials.store(0, Ordering::Relaxed);
        self.kind.store(0, Ordering::Release);
    }
}

/// The address space, and its first block.
pub(super) struct Arena {
    base: AtomicPtr<u8>,
    blocks: AtomicPtr<Block>,
    /// Blocks that were ever used.
    len: AtomicUsize,
    /// Blocks that are in use.
    used: AtomicUsize,
    space: Mutex<Space>,
}

struct Space {
    max: usize,
    usable: usize,
    /// Free runs: where, and how many blocks. No two touch.
    free: BTreeMap<usize, usize>,
    /// Free blocks whose pages may be in memory, by the sets' bits.
    dirty: Vec<u64>,
    dirty_len: usize,
}

pub(super) static ARENA: Arena = Arena {
    base: AtomicPtr::new(std::ptr::null_mut()),
    blocks: AtomicPtr::new(std::ptr::null_mut()),
    len: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    space: Mutex::new(Space { max: 0, usable: 0, free: BTreeMap::new(), dirty: Vec::new(), dirty_len: 0 }),
};

impl Arena {
    /// Blocks that were ever used.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Where the first block is, if there was ever one.
    #[inline]
    pub(super) fn base_addr(&self) -> usize {
        self.base.load(Ordering::Relaxed).addr()
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed) * BLOCK_BYTES
    }

    /// What is known of block `i`, below [`Arena::len`].
    #[inline]
    pub(super) fn block(&self, i: usize) -> &'static Block {
        debug_assert!(i < self.len());
        // SAFETY: A2.
        unsafe { &*self.blocks.load(Ordering::Relaxed).add(i) }
    }

    /// The block of an object, and the number of its slot.
    #[inline]
    pub(super) fn place(&self, object: Object) -> (&'static Block, usize) {
        let offset = self.offset(object);
        let block = self.block(offset >> BLOCK_SHIFT);
        (block, slot_at(offset & (BLOCK_BYTES - 1), block.reciprocal.load(Ordering::Relaxed)))
    }

    /// From the first block to an object.
    #[inline]
    pub(super) fn offset(&self, object: Object) -> usize {
        object.addr() - self.base_addr()
    }

    /// The number of an object's block.
    pub(super) fn number(&self, object: Object) -> usize {
        self.offset(object) >> BLOCK_SHIFT
    }

    /// The object in slot `i` of block `b`.
    #[inline]
    pub(super) fn object(&self, b: usize, i: usize, slot_bytes: usize) -> Object {
        // SAFETY: within the reservation, since the block was used and has the slot.
        let at = unsafe { self.base.load(Ordering::Relaxed).add(b * BLOCK_BYTES + i * slot_bytes) };
        Object(NonNull::new(at.cast::<Header>()).expect("the arena is not at 0"))
    }

    /// Takes blocks for a kind of small objects, if they fit below `limit_bytes`.
    pub(super) fn take(&self, kind: Kind, swept_in: u32, limit_bytes: usize) -> Option<usize> {
        let i = self.take_run(1, limit_bytes)?;
        let bytes = slot_bytes(kind.class);
        self.block(i).begin(kind, BLOCK_BYTES / bytes, bytes, 1, swept_in);
        Some(i)
    }

    /// Takes blocks for one object of so many bytes, if they fit below `limit_bytes`.
    pub(super) fn take_large(&self, kind: Kind, bytes: usize, swept_in: u32, limit_bytes: usize) -> Option<usize> {
        let run = bytes.div_ceil(BLOCK_BYTES);
        let i = self.take_run(run, limit_bytes)?;
        self.block(i).begin(kind, 1, run * BLOCK_BYTES, run, swept_in);
        Some(i)
    }

    fn take_run(&self, run: usize, limit_bytes: usize) -> Option<usize> {
        let mut space = self.space.lock();
        if space.max == 0 {
            self.reserve(&mut space).ok()?;
        }
        let used = self.used.load(Ordering::Relaxed);
        if used.checked_add(run)?.checked_mul(BLOCK_BYTES)? > limit_bytes {
            return None;
        }
        let i = match space.free.iter().find(|(_, len)| **len >= run).map(|(at, len)| (*at, *len)) {
            Some((at, len)) => {
                space.free.remove(&at);
                if len > run {
                    space.free.insert(at + run, len - run);
                }
                space.clean(at, run);
                at
            }
            None => self.fresh(&mut space, run)?,
        };
        self.used.store(used + run, Ordering::Relaxed);
        Some(i)
    }

    /// Blocks that were never used.
    fn fresh(&self, space: &mut Space, run: usize) -> Option<usize> {
        let at = self.len.load(Ordering::Relaxed);
        let end = at.checked_add(run).filter(|end| *end <= space.max)?;
        if end > space.usable {
            let usable = end.next_multiple_of(GROW).min(space.max);
            let (base, blocks) = (self.base.load(Ordering::Relaxed).addr(), self.blocks.load(Ordering::Relaxed).addr());
            pages::make_usable(base + space.usable * BLOCK_BYTES, (usable - space.usable) * BLOCK_BYTES).ok()?;
            // Whole pages: the first was rounded up by the step before.
            let page = |blocks: usize| (blocks * size_of::<Block>()).next_multiple_of(pages::page_bytes());
            let (old, new) = (page(space.usable), page(usable));
            if new > old {
                pages::make_usable(blocks + old, new - old).ok()?;
            }
            space.usable = usable;
            space.dirty.resize(usable.div_ceil(64), 0);
        }
        // ORDER: Release; pairs with the Acquire in len(): usable.
        self.len.store(end, Ordering::Release);
        Some(at)
    }

    fn reserve(&self, space: &mut Space) -> io::Result<()> {
        // Aligned to a block, so that slots lie as the table of sizes has them, and to a page.
        let align = BLOCK_BYTES.max(pages::page_bytes());
        let mut max = BLOCKS_WANTED;
        loop {
            let blocks = pages::reserve((max * size_of::<Block>()).next_multiple_of(pages::page_bytes()));
            match blocks.and_then(|blocks| Ok((blocks, pages::reserve(max * BLOCK_BYTES + align)?))) {
                Ok((blocks, base)) => {
                    self.blocks.store(std::ptr::with_exposed_provenance_mut(blocks), Ordering::Release);
                    let base = base.next_multiple_of(align);
                    self.base.store(std::ptr::with_exposed_provenance_mut(base), Ordering::Release);
                    space.max = max;
                    return Ok(());
                }
                Err(_) if max > BLOCKS_MIN => max /= 2,
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives a block back, with the rest of its run (A1).
    pub(super) fn give(&self, i: usize) {
        let block = self.block(i);
        let run = block.run() as usize;
        block.end();
        let mut space = self.space.lock();
        self.used.store(self.used.load(Ordering::Relaxed) - run, Ordering::Relaxed);
        space.soil(i, run);
        space.insert(i, run);
    }

    /// Gives the pages of free blocks back to the system, but for so many bytes. Does a part of it; answers whether there is more.
    pub(super) fn trim(&self, keep_bytes: usize) -> bool {
        const MOST: usize = 256;
        let (at, len) = {
            let mut space = self.space.lock();
            if space.dirty_len * BLOCK_BYTES <= keep_bytes {
                return false;
            }
            // The last ones: the first are used first.
            let Some(i) = space.last_dirty() else { return false };
            let (start, len) =
                space.free.range(..=i).next_back().map(|(s, l)| (*s, *l)).expect("dirty blocks are free");
            // In nobody's hands meanwhile.
            space.free.remove(&start);
            let from = start.max((i + 1).saturating_sub(MOST));
            if from > start {
                space.free.insert(start, from - start);
            }
            if start + len > i + 1 {
                space.free.insert(i + 1, start + len - i - 1);
            }
            space.clean(from, i + 1 - from);
            (from, i + 1 - from)
        };
        let begin = self.base.load(Ordering::Relaxed).addr() + at * BLOCK_BYTES;
        // SAFETY: whole pages (a block is at least as large, or else nothing is done) of blocks that were taken out above.
        if BLOCK_BYTES.is_multiple_of(pages::page_bytes()) {
            unsafe { pages::give_back(begin, len * BLOCK_BYTES) };
        }
        self.space.lock().insert(at, len);
        true
    }
}

impl Space {
    fn insert(&mut self, mut at: usize, mut len: usize) {
        if let Some((&before, &n)) = self.free.range(..at).next_back()
            && before + n == at
        {
            self.free.remove(&before);
            (at, len) = (before, n + len);
        }
        if let Some(n) = self.free.remove(&(at + len)) {
            len += n;
        }
        self.free.insert(at, len);
    }

    fn soil(&mut self, at: usize, len: usize) {
        for i in at..at + len {
            self.dirty[i / 64] |= 1 << (i % 64);
        }
        self.dirty_len += len;
    }

    fn clean(&mut self, at: usize, len: usize) {
        for i in at..at + len {
            let (word, bit) = (&mut self.dirty[i / 64], 1 << (i % 64));
            self.dirty_len -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    fn last_dirty(&self) -> Option<usize> {
        let w = self.dirty.iter().rposition(|w| *w != 0)?;
        Some(w * 64 + 63 - self.dirty[w].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_free_runs_join_and_know_what_is_dirty() {
        let mut space = Space { max: 100, usable: 100, free: BTreeMap::new(), dirty: vec![0; 2], dirty_len: 0 };
        for (at, len) in [(10, 5), (20, 5), (0, 10), (15, 5), (60, 4)] {
            space.soil(at, len);
            space.insert(at, len);
        }
        assert_eq!(space.free.into_iter().collect::<Vec<_>>(), [(0, 25), (60, 4)]);
        space.free = BTreeMap::new();
        assert_eq!(space.dirty_len, 29);
        assert_eq!(space.last_dirty(), Some(63));
        space.clean(60, 4);
        space.clean(60, 4);
        assert_eq!((space.dirty_len, space.last_dirty()), (25, Some(24)));
    }

    #[test]
    fn gc_kinds_have_numbers() {
        for i in 0..KINDS {
            assert_eq!(Kind::from_index(i).index(), i);
        }
    }
}

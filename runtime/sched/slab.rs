//! The slab: where all Gs live.
//!
//! ```text
//!   one reservation of address space:  | G G G ... G | G G G ... G | G G G ... G |   not yet usable ...
//!                                       block: 3 pages                            len
//! ```
//!
//! - B1: the reservation never moves and never goes, and from its begin to `len` it is readable and writable (N1).
//! - B2: a slot is in exactly one place: a goroutine, a P's cache, or `free`. Slots are taken from the lowest address on, so that
//!   those in use gather there and whole blocks become free above.
//! - B3: `blank` blocks are all zeros, which is a slab of dead goroutines (N5): never used, or their pages were given back. All their slots
//!   are in `free`; whoever takes one takes the block out of `blank`. So who looks at all goroutines passes over them,
//!   as over those that are made later.
//! - B4: pages are given back by [`Slab::trim`] alone, in blocks of which nothing was used for an interval. While it does so, their
//!   slots are not in `free`; nobody else touches them, but for reading: a dead slot stays a dead one.
//! - B5: not while somebody holds a [`Still`]. The census needs to know, until it is over, who was named in a generation,
//!   and a dead goroutine's slot says so.
//!
//! A list through the slots themselves would be shorter, but would keep a page of each block in use, or be lost with it.

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::prim::bits::{Bits, WORD};
use crate::prim::pages;
use crate::sched::g::{G, GList};

/// Slots for which address space is reserved, if it can be had.
const SLOTS_WANTED: usize = 1 << 26;
/// Below this the slab is of no use.
const SLOTS_MIN: usize = 1 << 16;
/// Slots made usable at a time: whole blocks and pages, whatever the page size (4 KiB to 64 KiB).
const GROW: usize = 1024;
/// Pages of a block: the fewest that hold whole slots only.
const BLOCK_PAGES: usize = 3;

const _: () = assert!(size_of::<G>() == 64 * BLOCK_PAGES && (GROW * size_of::<G>()).is_multiple_of(BLOCK_PAGES << 16));

/// Ids are handed to Ps in blocks of so many.
pub(crate) const ID_BLOCK: u64 = 32;

/// All goroutine slots there are.
pub(crate) struct Slab {
    /// The first; null before there is a reservation.
    base: AtomicPtr<G>,
    /// Slots made usable so far.
    len: AtomicUsize,
    inner: Mutex<Inner>,
    next_id: AtomicU64,
}

struct Inner {
    /// Slots of the reservation.
    max: usize,
    /// Slots that nobody has (B2).
    free: Bits,
    /// Blocks that are all zeros (B3).
    blank: Bits,
    /// Blocks that were wholly free a while ago, and nothing of them was taken since.
    idle: Bits,
    /// Blocks that were so for an interval: to be given back.
    due: Bits,
    /// Those that rely on the pages to stay (B5).
    still: usize,
    /// Some pages are being given back (B4).
    trimming: bool,
}

pub(crate) static SLAB: Slab = Slab {
    base: AtomicPtr::new(std::ptr::null_mut()),
    len: AtomicUsize::new(0),
    inner: Mutex::new(Inner {
        max: 0,
        free: Bits::new(),
        blank: Bits::new(),
        idle: Bits::new(),
        due: Bits::new(),
        still: 0,
        trimming: false,
    }),
    next_id: AtomicU64::new(ID_BLOCK + 1),
};

impl Slab {
    /// Reserves the address space. Called once, before the first goroutine.
    pub(crate) fn init(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        if inner.max != 0 {
            return Ok(());
        }
        let mut max = SLOTS_WANTED;
        let base = loop {
            match pages::reserve(max * size_of::<G>()) {
                Ok(base) => break base,
                Err(_) if max > SLOTS_MIN => max /= 2,
                Err(e) => {
                    let text = format!("cannot reserve address space for goroutines: {e} (is `ulimit -v` set?)");
                    return Err(io::Error::new(e.kind(), text));
                }
            }
        };
        inner.max = max;
        self.base.store(std::ptr::with_exposed_provenance_mut(base), Ordering::Release);
        Ok(())
    }

    /// Slots made usable so far.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// A block of [`ID_BLOCK`] ids.
    pub(crate) fn ids(&self) -> u64 {
        self.next_id.fetch_add(ID_BLOCK, Ordering::Relaxed)
    }

    /// Takes up to `n` free slots, making more if there are none.
    pub(crate) fn take(&self, n: usize, into: &mut GList) {
        let mut inner = self.inner.lock();
        let mut left = n;
        while left != 0 {
            let Some(w) = inner.free.first_word() else {
                if left < n {
                    break;
                }
                self.grow(&mut inner);
                continue;
            };
            inner.in_use(w * WORD / block_slots());
            let mut word = inner.free.word(w);
            while left != 0 && word != 0 {
                into.push_back(self.get(w * WORD + word.trailing_zeros() as usize));
                word &= word - 1;
                left -= 1;
            }
            inner.free.set_word(w, word);
        }
    }

    /// Gives slots back.
    pub(crate) fn put(&self, list: &mut GList) {
        let base = self.base.load(Ordering::Relaxed).addr();
        let mut inner = self.inner.lock();
        while let Some(g) = list.pop_front() {
            inner.free.insert((std::ptr::from_ref(g).addr() - base) / size_of::<G>());
        }
    }

    /// Makes more slots usable.
    fn grow(&self, inner: &mut Inner) {
        let len = self.len.load(Ordering::Relaxed);
        assert!(len + GROW <= inner.max, "more than {} goroutines", inner.max);
        let begin = self.base.load(Ordering::Relaxed).wrapping_add(len);
        if let Err(e) = pages::make_usable(begin.addr(), GROW * size_of::<G>()) {
            panic!("no memory for more than {len} goroutines: {e}");
        }
        for w in len / WORD..(len + GROW) / WORD {
            inner.free.set_word(w, !0);
        }
        for block in len / block_slots()..(len + GROW) / block_slots() {
            inner.blank.insert(block);
        }
        // ORDER: Release; pairs with the Acquire of who looks at all slots: they are usable.
        self.len.store(len + GROW, Ordering::Release);
    }

    /// Slot `i`, which was made usable.
    pub(crate) fn get(&self, i: usize) -> &'static G {
        debug_assert!(i < self.len.load(Ordering::Relaxed));
        // SAFETY: B1; zeros are a G (N5), and so is whatever was made of them.
        unsafe { &*self.base.load(Ordering::Acquire).add(i) }
    }

    /// All slots that may be alive, dead ones too. Those that come alive later may be missed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static G> + '_ {
        let (blank, len) = {
            let inner = self.inner.lock();
            (inner.blank.words(), self.len.load(Ordering::Acquire))
        };
        let is_blank = move |block: usize| blank.get(block / WORD).is_some_and(|w| w & 1 << (block % WORD) != 0);
        (0..len / block_slots())
            .filter(move |&block| !is_blank(block))
            .flat_map(move |block| (block * block_slots()..(block + 1) * block_slots()).map(|i| self.get(i)))
    }

    /// Keeps what dead slots say from being given back (B5).
    pub(crate) fn hold_still(&self) -> Still {
        loop {
            let mut inner = self.inner.lock();
            if !inner.trimming {
                inner.still += 1;
                return Still(());
            }
            drop(inner);
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// An interval is over: finds the blocks that were free throughout.
    pub(crate) fn age(&self) {
        let mut inner = self.inner.lock();
        if inner.free.len() - inner.blank.len() * block_slots() < block_slots() {
            return;
        }
        let words = block_slots() / WORD;
        for block in 0..self.len.load(Ordering::Relaxed) / block_slots() {
            let is_free = (block * words..(block + 1) * words).all(|w| inner.free.word(w) == !0);
            if !is_free || inner.blank.contains(block) {
                continue;
            }
            if inner.idle.contains(block) {
                inner.due.insert(block);
            } else {
                inner.idle.insert(block);
            }
        }
    }

    /// Gives the pages of up to `most` blocks back that are due; answers of how many. Sysmon's alone.
    pub(crate) fn trim(&self, most: usize) -> usize {
        let words = block_slots() / WORD;
        let mut batch = Vec::new();
        {
            let mut inner = self.inner.lock();
            if inner.still != 0 || inner.due.len() == 0 {
                return 0;
            }
            while batch.len() < most
                && let Some(block) = inner.due.pop_first()
            {
                inner.idle.remove(block);
                for w in block * words..(block + 1) * words {
                    inner.free.set_word(w, 0);
                }
                batch.push(block);
            }
            inner.trimming = true;
        }
        let bytes = block_slots() * size_of::<G>();
        let base = self.base.load(Ordering::Relaxed).addr();
        for run in batch.chunk_by(|a, b| a + 1 == *b) {
            // SAFETY: whole blocks, all of whose slots are dead and in nobody's hands (B4), so that zeros are as good (N5).
            unsafe { pages::give_back_zeroed(base + run[0] * bytes, run.len() * bytes) };
        }
        let mut inner = self.inner.lock();
        inner.trimming = false;
        for &block in &batch {
            for w in block * words..(block + 1) * words {
                inner.free.set_word(w, !0);
            }
            inner.blank.insert(block);
        }
        batch.len()
    }
}

impl Inner {
    /// Something of the block is about to be used.
    #[inline]
    fn in_use(&mut self, block: usize) {
        self.blank.remove(block);
        self.idle.remove(block);
        self.due.remove(block);
    }
}

/// Evidence that no slot loses what it says (B5).
pub(crate) struct Still(());

impl Still {
    /// As [`Slab::iter`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static G> {
        SLAB.iter()
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        SLAB.inner.lock().still -= 1;
    }
}

/// Slots of a block: whole words of the sets, since pages are of 4 KiB at least.
#[inline]
fn block_slots() -> usize {
    pages::page_bytes() * BLOCK_PAGES / size_of::<G>()
}

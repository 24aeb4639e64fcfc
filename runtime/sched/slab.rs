//! The slab: where all Gs live.
//!
//! - B1: from its begin to `len` it is readable and writable, for ever (N1, L1).
//! - B2: a slot is in exactly one place: a goroutine, a P's cache, or free.
//! - B3: zeros are a dead goroutine (N5), so a blank block (L3) is a slab of those, and who looks at all goroutines passes over it, as
//!   over those that are made later.
//! - B4: while pages are given back (L4) nobody else touches their slots, but for reading: a dead slot stays a dead one.
//! - B5: none are while somebody holds a [`Still`]. The census needs to know, until it is over, who was named in a generation,
//!   and a dead goroutine's slot says so.

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::prim::bits::WORD;
use crate::prim::slots::Slots;
use crate::sched::g::{G, GList};

/// Slots for which address space is reserved, if it can be had.
pub(crate) const SLOTS_WANTED: usize = 1 << 26;
/// Below this the slab is of no use.
const SLOTS_MIN: usize = 1 << 16;
/// Pages of a block.
const BLOCK_PAGES: usize = 3;

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
    slots: Slots,
    /// Those that rely on the pages to stay (B5).
    still: usize,
    /// Some pages are being given back (B4).
    trimming: bool,
}

pub(crate) static SLAB: Slab = Slab {
    base: AtomicPtr::new(std::ptr::null_mut()),
    len: AtomicUsize::new(0),
    inner: Mutex::new(Inner { slots: Slots::new(size_of::<G>(), BLOCK_PAGES), still: 0, trimming: false }),
    next_id: AtomicU64::new(ID_BLOCK + 1),
};

impl Slab {
    /// Reserves the address space. Called once, before the first goroutine.
    pub(crate) fn init(&self) -> io::Result<()> {
        let base = self.inner.lock().slots.reserve(SLOTS_WANTED, SLOTS_MIN).map_err(|e| {
            io::Error::new(e.kind(), format!("cannot reserve address space for goroutines: {e} (is `ulimit -v` set?)"))
        })?;
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
        let base = self.base.load(Ordering::Relaxed);
        // SAFETY: B1; zeros are a G (N5), and so is whatever was made of them.
        let taken = inner.slots.take(n, |i| into.push_back(unsafe { &*base.add(i) }));
        let len = inner.slots.len();
        match taken {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::StorageFull => panic!("more than {} goroutines", inner.slots.max()),
            Err(e) => panic!("no memory for more than {len} goroutines: {e}"),
        }
        if len != self.len.load(Ordering::Relaxed) {
            // ORDER: Release; pairs with the Acquire of who looks at all slots: they are usable.
            self.len.store(len, Ordering::Release);
        }
    }

    /// Gives slots back.
    pub(crate) fn put(&self, list: &mut GList) {
        let base = self.base.load(Ordering::Relaxed).addr();
        let mut inner = self.inner.lock();
        while let Some(g) = list.pop_front() {
            inner.slots.put((std::ptr::from_ref(g).addr() - base) / size_of::<G>());
        }
    }

    /// Slot `i`, which was made usable.
    pub(crate) fn get(&self, i: usize) -> &'static G {
        debug_assert!(i < self.len.load(Ordering::Relaxed));
        // SAFETY: B1; zeros are a G (N5), and so is whatever was made of them.
        unsafe { &*self.base.load(Ordering::Acquire).add(i) }
    }

    /// Somebody looks at slot `i` soon, if there is one: asks the cache for what says who it is, and what of it is traced.
    #[inline]
    pub(crate) fn prefetch(&self, i: usize) {
        G::prefetch(self.base.load(Ordering::Relaxed).wrapping_add(i));
    }

    /// All slots that may be alive, dead ones too. Those that come alive later may be missed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static G> + '_ {
        self.numbered().map(|(_, g)| g)
    }

    /// As [`Slab::iter`], with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (usize, &'static G)> + '_ {
        let (blank, len, block_slots) = {
            let slots = &self.inner.lock().slots;
            (slots.blank(), slots.len(), slots.block_slots())
        };
        let is_blank = move |block: usize| blank.get(block / WORD).is_some_and(|w| w & 1 << (block % WORD) != 0);
        (0..len / block_slots)
            .filter(move |&block| !is_blank(block))
            .flat_map(move |block| (block * block_slots..(block + 1) * block_slots).map(|i| (i, self.get(i))))
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

    /// An interval is over.
    pub(crate) fn age(&self) {
        self.inner.lock().slots.age();
    }

    /// Gives the pages of up to `most` blocks back that are due; answers of how many. Sysmon's alone.
    pub(crate) fn trim(&self, most: usize) -> usize {
        let trimming = {
            let mut inner = self.inner.lock();
            if inner.still != 0 {
                return 0;
            }
            let Some(trimming) = inner.slots.begin_trim(most) else { return 0 };
            inner.trimming = true;
            trimming
        };
        // SAFETY: all these slots are dead and in nobody's hands (B4), so that zeros are as good (N5).
        unsafe { trimming.give_back() };
        let mut inner = self.inner.lock();
        inner.trimming = false;
        inner.slots.end_trim(trimming)
    }
}

/// Evidence that no slot loses what it says (B5).
pub(crate) struct Still(());

impl Still {
    /// As [`Slab::iter`], with the number of each slot.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &'static G)> {
        SLAB.numbered()
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        SLAB.inner.lock().still -= 1;
    }
}

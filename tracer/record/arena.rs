//! Where the tables keep their nodes: one bounded region, filled from the bottom, never freed piecemeal.
//!
//! An arena is one reservation of address space of the table's byte limit. Handing out room is one `fetch_add`; pages
//! become memory when they are first written. A *node* is a hash, an id, four child slots and a slice of words, all but
//! the slots immutable; it is named by its offset in 8-byte granules, so that a slot is a `u32` and 0 means "none".
//! A node is *published* when some slot holds its name.
//!
//! # Invariants
//! A1  A node MUST be written in full before a slot holds its name, and the store of the name releases it, the load
//!     acquires it. Otherwise a reader sees a name before the words behind it.
//! A2  A slot MUST hold only 0 or the name of a node of the same arena, and names come only from [`Arena::alloc`].
//!     Otherwise [`Arena::node`] reads nonsense. `Name` has no public constructor and slots live in nodes or in the
//!     table's root, beside their arena.
//! A3  A slot MUST change only from 0 to a name, once, until [`Arena::reset`]. Otherwise a walk could turn back.
//! A4  [`Arena::reset`] MUST run alone, and every name and slot from before it is dead. Otherwise a reader looks at
//!     memory that is being filled again.
//!
//! # Rejected
//! - The global allocator: a put happens inside a trace event, which may be inside the program's own allocator.
//! - A list of chunks: a second atomic on the fast path and a race for the next chunk, to save address space, of which
//!   there is plenty. If the reservation is refused, half is asked for, and so on.
//! - Pointers in the slots: a node would grow from 32 bytes of header to 48.
//! - Huge pages: their first touch clears 2 MiB, in the middle of somebody's event.
//!
//! Under loom the same interface stands on checked cells and a fixed set of nodes.

#[cfg(loom)]
pub(super) use model::Arena;
#[cfg(not(loom))]
pub(super) use real::Arena;

use crate::atomic::{AtomicU32, Ordering};

/// Child slots of a node: the trie consumes two bits of the hash per level.
pub(super) const FANOUT: usize = 4;

/// The name of a node: its offset in its arena, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

/// Nothing, or the name of a node.
pub(super) struct Slot(AtomicU32);

impl Slot {
    /// An empty slot.
    pub(super) fn new() -> Slot {
        Slot(AtomicU32::new(0))
    }

    /// The published node, if there is one.
    #[inline]
    pub(super) fn get(&self) -> Option<Name> {
        // ORDER: Acquire; pairs with the Release in publish(); what the node's writer wrote is visible (A1).
        match self.0.load(Ordering::Acquire) {
            0 => None,
            name => Some(Name(name)),
        }
    }

    /// Puts `name` into the slot if it is still empty; says whether it did.
    #[must_use]
    pub(super) fn publish(&self, name: Name) -> bool {
        // ORDER: Release on success; pairs with the Acquire in get(); publishes the node's contents (A1). Relaxed on
        // failure: the loser comes back through get().
        self.0.compare_exchange(0, name.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Empties the slot again. Only as part of a reset (A4), whose caller orders it against everybody else.
    pub(super) fn clear(&self) {
        // ORDER: Relaxed; the generation protocol orders a reset after the last use and before the next (A4).
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
mod real {
    use super::{FANOUT, Name, Ordering, Slot};
    use std::{marker::PhantomData, ptr::NonNull, sync::atomic::AtomicUsize};

    /// Bytes per unit of a name.
    const GRANULE: usize = 8;

    /// A bump arena of nodes. See the module's header.
    pub(in super::super) struct Arena {
        region: Region,
        /// Granules handed out, counting those that did not fit any more; starts at 1, as 0 is no name.
        used: AtomicUsize,
    }

    /// The fixed part of a node in memory; its words follow.
    #[repr(C)]
    struct Header {
        hash: u64,
        id: u32,
        len: u32,
        children: [Slot; FANOUT],
    }

    const HEADER: usize = size_of::<Header>();
    const _: () = assert!(HEADER == 32 && align_of::<Header>() == GRANULE && align_of::<u64>() == GRANULE);

    /// A look at one node.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Node<'a> {
        at: NonNull<Header>,
        arena: PhantomData<&'a Arena>,
    }

    impl<'a> Node<'a> {
        #[inline]
        fn header(self) -> &'a Header {
            // SAFETY: `at` is where alloc() wrote a Header, aligned, in the region, and this thread sees it: it wrote it
            // itself, or the Acquire in Slot::get() came in between (A1). Nobody writes it before a reset, which the
            // borrow of the arena forbids (A4); the slots are atomics.
            unsafe { self.at.as_ref() }
        }

        #[inline]
        pub(in super::super) fn hash(self) -> u64 {
            self.header().hash
        }

        #[inline]
        pub(in super::super) fn id(self) -> u32 {
            self.header().id
        }

        #[inline]
        pub(in super::super) fn child(self, i: usize) -> &'a Slot {
            &self.header().children[i]
        }

        #[inline]
        pub(in super::super) fn words(self) -> &'a [u64] {
            // SAFETY: alloc() wrote `len` words right after the header, in the same region, from which `at` is derived;
            // they are aligned, as HEADER is a multiple of 8; visibility and life as in header().
            unsafe { std::slice::from_raw_parts(self.at.add(1).cast::<u64>().as_ptr(), self.header().len as usize) }
        }
    }

    impl Arena {
        /// An arena of at most `limit` bytes, fewer if the system refuses so much address space.
        pub(in super::super) fn new(limit: usize) -> Arena {
            // A name is 32 bits of granules.
            let limit = limit.min(u32::MAX as usize * GRANULE);
            Arena { region: Region::reserve(limit), used: AtomicUsize::new(1) }
        }

        /// Writes a new node, not yet published. `None`: the arena is full, and `id` was not called.
        pub(in super::super) fn alloc(&self, hash: u64, id: impl FnOnce() -> u32, words: &[u64]) -> Option<Name> {
            let need = HEADER / GRANULE + words.len();
            let end = self.region.len / GRANULE;
            // ORDER: Relaxed, both: only the uniqueness of the range matters, which the read-modify-write gives. The
            // load keeps a full arena from counting on for ever.
            if self.used.load(Ordering::Relaxed).saturating_add(need) > end {
                return None;
            }
            let at = self.used.fetch_add(need, Ordering::Relaxed);
            if at + need > end {
                return None;
            }
            let len = u32::try_from(words.len()).ok()?;
            let header = Header { hash, id: id(), len, children: std::array::from_fn(|_| Slot::new()) };
            // SAFETY: granules [at, at + need) lie in the region by the check above, which are whole granules of a
            // page-aligned region, so aligned; and nobody else has them: the fetch_add gave them to us alone, and the
            // region starts over only in reset() (A4).
            unsafe {
                let node = self.region.base.add(at * GRANULE);
                node.cast::<Header>().write(header);
                node.add(HEADER).cast::<u64>().copy_from_nonoverlapping(NonNull::from(words).cast(), words.len());
            }
            Some(Name(at as u32))
        }

        /// The node called `name`.
        #[inline]
        pub(in super::super) fn node(&self, name: Name) -> Node<'_> {
            // SAFETY: by A2 the name came from alloc() of this arena, so that the offset lies in the region.
            let at = unsafe { self.region.base.add(name.0 as usize * GRANULE) }.cast();
            Node { at, arena: PhantomData }
        }

        /// Forgets every node; gives the pages past the first `keep` bytes back to the system.
        ///
        /// # Safety
        /// A4: nobody else uses the arena during the call, no [`Node`] is alive, and every slot that holds a name is
        /// cleared before it is read again.
        pub(in super::super) unsafe fn reset(&self, keep: usize) {
            let dirty = self.bytes();
            // ORDER: Relaxed; as in Slot::clear().
            self.used.store(1, Ordering::Relaxed);
            // SAFETY: every byte belongs to dead nodes, by the caller's promise.
            unsafe { self.region.discard(keep, dirty + GRANULE) };
        }

        /// Bytes handed out since the last reset.
        pub(in super::super) fn bytes(&self) -> usize {
            // ORDER: Relaxed; a statistic.
            ((self.used.load(Ordering::Relaxed) - 1) * GRANULE).min(self.region.len)
        }
    }

    /// A range of zeroed, private memory, page-aligned, of which untouched pages cost nothing.
    struct Region {
        base: NonNull<u8>,
        len: usize,
    }

    // SAFETY: a Region is plain memory without an owner thread; Arena governs who writes where (A1 to A4).
    unsafe impl Send for Region {}
    // SAFETY: as above.
    unsafe impl Sync for Region {}

    const PAGE: usize = 4096;

    #[cfg(all(unix, not(miri)))]
    impl Region {
        fn reserve(limit: usize) -> Region {
            let mut len = limit / PAGE * PAGE;
            while len > 0 {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
                let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
                if base != libc::MAP_FAILED
                    && let Some(base) = NonNull::new(base.cast::<u8>())
                {
                    // SAFETY: advice about a mapping of our own; that it may fail does not matter.
                    #[cfg(target_os = "linux")]
                    unsafe {
                        libc::madvise(base.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE)
                    };
                    return Region { base, len };
                }
                len = len / 2 / PAGE * PAGE;
            }
            Region { base: NonNull::<u64>::dangling().cast(), len: 0 }
        }

        /// Gives the whole pages of [from, to) back; they read as zero afterwards.
        ///
        /// # Safety
        /// Nobody may care for their contents any more.
        unsafe fn discard(&self, from: usize, to: usize) {
            let from = from.next_multiple_of(PAGE);
            let to = to.next_multiple_of(PAGE).min(self.len);
            if from < to {
                // SAFETY: [from, to) lies in our mapping; its contents are given up by the caller's promise.
                unsafe { libc::madvise(self.base.as_ptr().add(from).cast(), to - from, libc::MADV_DONTNEED) };
            }
        }
    }

    #[cfg(all(unix, not(miri)))]
    impl Drop for Region {
        fn drop(&mut self) {
            if self.len > 0 {
                // SAFETY: the mapping is ours, of this length, and nothing borrows from a dropped arena.
                unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
            }
        }
    }

    #[cfg(any(not(unix), miri))]
    impl Region {
        fn layout(len: usize) -> std::alloc::Layout {
            std::alloc::Layout::from_size_align(len, PAGE).expect("a length within the limit")
        }

        fn reserve(limit: usize) -> Region {
            let len = limit / PAGE * PAGE;
            // SAFETY: the layout is not empty.
            let base =
                if len == 0 { None } else { NonNull::new(unsafe { std::alloc::alloc_zeroed(Self::layout(len)) }) };
            match base {
                Some(base) => Region { base, len },
                None => Region { base: NonNull::<u64>::dangling().cast(), len: 0 },
            }
        }

        /// # Safety
        /// Nobody may care for the contents of [from, to) any more.
        unsafe fn discard(&self, _from: usize, _to: usize) {}
    }

    #[cfg(any(not(unix), miri))]
    impl Drop for Region {
        fn drop(&mut self) {
            if self.len > 0 {
                // SAFETY: allocated by reserve() with the same layout.
                unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.len)) };
            }
        }
    }
}

#[cfg(loom)]
mod model {
    use super::{FANOUT, Name, Ordering, Slot};
    use loom::{cell::UnsafeCell, sync::atomic::AtomicUsize};

    const NODES: usize = 5;

    /// The model's arena: a few nodes whose contents loom watches for races.
    pub(in super::super) struct Arena {
        cells: Vec<(UnsafeCell<Content>, [Slot; FANOUT])>,
        used: AtomicUsize,
    }

    #[derive(Default)]
    struct Content {
        hash: u64,
        id: u32,
        words: Vec<u64>,
    }

    #[derive(Clone, Copy)]
    pub(in super::super) struct Node<'a>(&'a UnsafeCell<Content>, &'a [Slot; FANOUT]);

    impl<'a> Node<'a> {
        pub(in super::super) fn hash(self) -> u64 {
            // SAFETY: published contents are not written (A1, A4): the claim that loom checks here.
            self.0.with(|c| unsafe { (*c).hash })
        }

        pub(in super::super) fn id(self) -> u32 {
            // SAFETY: as in hash().
            self.0.with(|c| unsafe { (*c).id })
        }

        pub(in super::super) fn child(self, i: usize) -> &'a Slot {
            &self.1[i]
        }

        pub(in super::super) fn words(self) -> &'a [u64] {
            // SAFETY: as in hash(); the model never resets while a node is looked at.
            self.0.with(|c| unsafe { &*(&raw const (*c).words) })
        }
    }

    // SAFETY: what the model is there to prove: contents are written before they are published and never after.
    unsafe impl Sync for Arena {}
    // SAFETY: as above.
    unsafe impl Send for Arena {}

    impl Arena {
        pub(in super::super) fn new(_limit: usize) -> Arena {
            let cell = || (UnsafeCell::new(Content::default()), std::array::from_fn(|_| Slot::new()));
            Arena { cells: (0..NODES).map(|_| cell()).collect(), used: AtomicUsize::new(1) }
        }

        pub(in super::super) fn alloc(&self, hash: u64, id: impl FnOnce() -> u32, words: &[u64]) -> Option<Name> {
            let at = self.used.fetch_add(1, Ordering::Relaxed);
            let (content, _) = self.cells.get(at - 1)?;
            // SAFETY: the cell is ours alone until it is published: the claim that loom checks here.
            content.with_mut(|c| unsafe { *c = Content { hash, id: id(), words: words.to_vec() } });
            Some(Name(at as u32))
        }

        pub(in super::super) fn node(&self, name: Name) -> Node<'_> {
            let (content, children) = &self.cells[name.0 as usize - 1];
            Node(content, children)
        }

        pub(in super::super) unsafe fn reset(&self, _keep: usize) {
            self.used.store(1, Ordering::Relaxed);
            self.cells.iter().flat_map(|(_, children)| children).for_each(Slot::clear);
        }

        pub(in super::super) fn bytes(&self) -> usize {
            self.used.load(Ordering::Relaxed) - 1
        }
    }
}

//! The memory of batches: blocks of one size, straight from the system, used again.
//!
//! A block travels: a thread fills it, it waits in the sink, becomes a part of a generation as it is, and comes back to the pool when the
//! last subscriber drops that.
//!
//! - N1: a block MUST hold initialised bytes at any time: zeros at first, later what its last owner left. Otherwise `Deref` is unsound.
//! - N2: a block has one owner: a [`Block`], or the pool. Who drops it gives it to the pool, or to the system when that has enough.
//! - N3: `loose` is the memory of the blocks that are no part of a generation, the pool's included. [`Pieces`] takes its own off and puts
//!   it back. So what a flight recorder keeps and what is loose is all there is, but for what others hold on to (R3 in `recorder.rs`).
//! - N4: a block takes as much memory as was ever written to it at once: pages come with the first write. So the many threads of a program
//!   that does little count for little. Who has written says so ([`Block::written`]).
//!
//! # Rejected
//! - The global allocator: what has been freed stays in the arena of the thread that filled it, out of reach of all others, and a process
//!   grew by several times of what was live. An event may also be inside the program's own allocator.
//! - A generation in one piece: its memory was there twice while it was put together, and each byte was copied.
//! - Pages that are mapped ahead (`MAP_POPULATE`): most threads of most programs fill little of their last block.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::wire::MAX_BATCH_BYTES;

/// Bytes of a block: whole pages everywhere.
pub(crate) const BLOCK_BYTES: usize = MAX_BATCH_BYTES;

/// A block's pages, which somebody has to give back.
#[derive(Debug)]
struct Pages {
    at: NonNull<u8>,
    /// Bytes that were written (N4).
    written: usize,
}

// SAFETY: pages are plain memory without an owner thread; who holds the value holds them alone (N2).
unsafe impl Send for Pages {}
// SAFETY: as above; a shared one is only read.
unsafe impl Sync for Pages {}

#[cfg(all(unix, not(miri)))]
impl Pages {
    fn map() -> Option<Pages> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BLOCK_BYTES, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // A huge page would stay in use for as long as anything in it.
        #[cfg(target_os = "linux")]
        // SAFETY: advice about a mapping of our own; that it may fail does not matter.
        unsafe {
            libc::madvise(at, BLOCK_BYTES, libc::MADV_NOHUGEPAGE);
        }
        Some(Pages { at: NonNull::new(at.cast())?, written: 0 })
    }

    fn unmap(self) {
        let at = self.at.as_ptr().cast();
        // SAFETY: the mapping is ours, of this length, and nobody looks at it any more (N2). Blocks beside each other are one mapping to
        // the kernel, which refuses to cut it when a process has too many: then the address space is lost, and the memory is not.
        unsafe {
            if libc::munmap(at, BLOCK_BYTES) != 0 {
                libc::madvise(at, BLOCK_BYTES, libc::MADV_DONTNEED);
            }
        }
    }
}

#[cfg(any(not(unix), miri))]
impl Pages {
    fn map() -> Option<Pages> {
        // SAFETY: the layout is not empty.
        let at = NonNull::new(unsafe { std::alloc::alloc_zeroed(LAYOUT) })?;
        Some(Pages { at, written: 0 })
    }

    fn unmap(self) {
        // SAFETY: map() allocated it with this layout.
        unsafe { std::alloc::dealloc(self.at.as_ptr(), LAYOUT) }
    }
}

const LAYOUT: std::alloc::Layout = match std::alloc::Layout::from_size_align(BLOCK_BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// Blocks that nobody uses, and how much memory all of them take.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The last one to come is the first to go out again. Nothing is allocated or freed while this is locked: a thread may want a block in the
    /// middle of the program's own allocator.
    free: Mutex<VecDeque<Pages>>,
    /// How many are kept in `free`; it has room for them.
    free_max: AtomicUsize,
    /// Bytes (N3).
    loose: AtomicUsize,
}

/// The pool of the sink's blocks.
pub(crate) static POOL: Pool = Pool::new();

impl Pool {
    const fn new() -> Pool {
        Pool { free: Mutex::new(VecDeque::new()), free_max: AtomicUsize::new(0), loose: AtomicUsize::new(0) }
    }

    /// A block that nobody uses, if there is one.
    pub(crate) fn reuse(&'static self) -> Option<Block> {
        let pages = self.free.lock().pop_back()?;
        Some(Block { pages: ManuallyDrop::new(pages), pool: self })
    }

    /// A new block.
    pub(crate) fn map(&'static self) -> Block {
        let pages = Pages::map().unwrap_or_else(|| std::alloc::handle_alloc_error(LAYOUT));
        Block { pages: ManuallyDrop::new(pages), pool: self }
    }

    /// From now on so many blocks are kept for reuse.
    pub(crate) fn keep(&self, free_max: usize) {
        let has_room = self.free.lock().capacity() >= free_max;
        let mut other = VecDeque::with_capacity(if has_room { 0 } else { free_max });
        let mut free = self.free.lock();
        if free.capacity() < free_max {
            other.append(&mut free);
            std::mem::swap(&mut *free, &mut other);
        }
        self.free_max.store(free_max, Ordering::Relaxed);
        drop(free);
        self.unmap_while(|free| free.len() > free_max);
    }

    /// Bytes of memory that are no part of a generation (N3).
    pub(crate) fn loose(&self) -> usize {
        self.loose.load(Ordering::Relaxed)
    }

    /// Bytes of those that are not free for reuse.
    pub(crate) fn used(&self) -> usize {
        let free = self.free.lock();
        self.loose().saturating_sub(written(&free))
    }

    /// No more than so many bytes are free for reuse, but for `least` blocks.
    pub(crate) fn trim(&self, bytes: usize, least: usize) {
        let mut surplus = written(&self.free.lock()).saturating_sub(bytes);
        self.unmap_while(|free| {
            let goes = surplus > 0 && free.len() > least;
            surplus = surplus.saturating_sub(free.front().map_or(0, |pages| pages.written));
            goes
        });
    }

    /// Those that have been free for longest go to the system, one by one.
    fn unmap_while(&self, mut too_many: impl FnMut(&VecDeque<Pages>) -> bool) {
        loop {
            let mut free = self.free.lock();
            let Some(pages) = too_many(&free).then(|| free.pop_front()).flatten() else { return };
            drop(free);
            self.unmap(pages);
        }
    }

    fn unmap(&self, pages: Pages) {
        self.loose.fetch_sub(pages.written, Ordering::Relaxed);
        pages.unmap();
    }
}

/// Bytes of memory that these take.
fn written(free: &VecDeque<Pages>) -> usize {
    free.iter().map(|pages| pages.written).sum()
}

/// [`BLOCK_BYTES`] of memory.
#[derive(Debug)]
pub(crate) struct Block {
    pages: ManuallyDrop<Pages>,
    pool: &'static Pool,
}

impl Block {
    /// The first `len` bytes were written (N4).
    pub(crate) fn written(&mut self, len: usize) {
        let more = len.saturating_sub(self.pages.written);
        if more > 0 {
            self.pages.written = len;
            self.pool.loose.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Deref for Block {
    type Target = [u8; BLOCK_BYTES];

    #[inline]
    fn deref(&self) -> &[u8; BLOCK_BYTES] {
        // SAFETY: so many initialised bytes (N1), which this block owns (N2).
        unsafe { self.pages.at.cast().as_ref() }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8; BLOCK_BYTES] {
        // SAFETY: as in deref().
        unsafe { self.pages.at.cast().as_mut() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: this is the one place that takes them, and the block is gone.
        let pages = unsafe { ManuallyDrop::take(&mut self.pages) };
        let mut free = self.pool.free.lock();
        if free.len() < self.pool.free_max.load(Ordering::Relaxed) {
            return free.push_back(pages);
        }
        drop(free);
        self.pool.unmap(pages);
    }
}

/// Bytes in a block; or, if they are few, in memory of their own size, and the block is free again. So what waits or is kept takes little
/// more memory than it has bytes.
#[derive(Debug)]
pub(crate) struct Piece {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Block(Block),
    Exact(Box<[u8]>),
}

impl Piece {
    /// The first `len` bytes of a block.
    pub(crate) fn new(mut block: Block, len: usize) -> Piece {
        block.written(len);
        let memory = if len < BLOCK_BYTES / 2 { Memory::Exact(block[..len].into()) } else { Memory::Block(block) };
        Piece { memory, len }
    }

    /// One of these bytes.
    #[cfg(test)]
    pub(crate) fn of(bytes: Vec<u8>) -> Piece {
        Piece { len: bytes.len(), memory: Memory::Exact(bytes.into()) }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Block(block) => &block[..self.len],
            Memory::Exact(bytes) => bytes,
        }
    }

    /// Whether it is a block with next to no room left.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= BLOCK_BYTES / 8 * 7
    }

    /// Bytes of memory it takes.
    fn memory(&self) -> usize {
        match &self.memory {
            Memory::Block(block) => block.pages.written,
            Memory::Exact(bytes) => bytes.len(),
        }
    }
}

/// What a generation consists of.
#[derive(Debug)]
pub(crate) struct Pieces {
    all: Vec<Piece>,
    bytes: usize,
    memory: usize,
}

impl Pieces {
    pub(crate) fn new(all: Vec<Piece>) -> Pieces {
        let pieces =
            Pieces { bytes: all.iter().map(|piece| piece.len).sum(), memory: all.iter().map(Piece::memory).sum(), all };
        // N3
        pieces.blocks().for_each(|block| {
            block.pool.loose.fetch_sub(block.pages.written, Ordering::Relaxed);
        });
        pieces
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.all.iter().filter_map(|piece| match &piece.memory {
            Memory::Block(block) => Some(block),
            Memory::Exact(_) => None,
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(Piece::as_bytes)
    }

    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // N3: before they are dropped, which may take them off again.
        self.blocks().for_each(|block| {
            block.pool.loose.fetch_add(block.pages.written, Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block full of this.
    fn full(pool: &'static Pool, of: u8) -> Block {
        let mut block = pool.map();
        assert!(block.iter().all(|b| *b == 0), "a new one holds zeros");
        block.fill(of);
        block.written(BLOCK_BYTES);
        block
    }

    #[test]
    fn blocks_are_used_again_and_surplus_goes() {
        static ITS_OWN: Pool = Pool::new();
        let pool = &ITS_OWN;
        pool.keep(2);
        assert!(pool.reuse().is_none());
        let blocks: Vec<_> = (1..=4).map(|n| full(pool, n)).collect();
        assert!(blocks.iter().zip(1..).all(|(block, n)| block.iter().all(|b| *b == n)), "each is its owner's alone");
        assert_eq!(pool.loose(), 4 * BLOCK_BYTES);
        drop(blocks);
        assert_eq!(pool.loose(), 2 * BLOCK_BYTES, "two went to the system");
        let again = pool.reuse().unwrap();
        assert!(pool.reuse().is_some_and(|block| block[0] == block[BLOCK_BYTES - 1] && block[0] != 0));
        pool.keep(0);
        assert_eq!(pool.loose(), BLOCK_BYTES, "one is in use");
        drop(again);
        assert!(pool.loose() == 0 && pool.reuse().is_none());
    }

    #[test]
    fn what_is_free_is_trimmed() {
        static ITS_OWN: Pool = Pool::new();
        let pool = &ITS_OWN;
        pool.keep(9);
        let mut blocks: Vec<_> = (1..=6).map(|n| full(pool, n)).collect();
        drop(blocks.split_off(1));
        assert_eq!((pool.loose(), pool.used()), (6 * BLOCK_BYTES, BLOCK_BYTES));
        pool.trim(9 * BLOCK_BYTES, 2);
        assert_eq!(pool.loose(), 6 * BLOCK_BYTES, "it is less already");
        pool.trim(4 * BLOCK_BYTES - 1, 2);
        assert_eq!((pool.loose(), pool.used()), (4 * BLOCK_BYTES, BLOCK_BYTES));
        pool.trim(0, 2);
        assert_eq!(pool.loose(), 3 * BLOCK_BYTES);
        pool.trim(0, 0);
        assert_eq!((pool.loose(), pool.used()), (BLOCK_BYTES, BLOCK_BYTES));
        drop(blocks);
        pool.keep(0);
        assert_eq!(pool.loose(), 0);
    }

    #[test]
    fn a_block_counts_for_what_was_written() {
        static ITS_OWN: Pool = Pool::new();
        let pool = &ITS_OWN;
        pool.keep(1);
        let mut block = pool.map();
        assert_eq!(pool.loose(), 0);
        for (len, counts) in [(100, 100), (50, 100), (200, 200)] {
            block.written(len);
            assert_eq!(pool.loose(), counts);
        }
        drop(block);
        let again = pool.reuse().unwrap();
        assert_eq!(pool.loose(), 200, "it was not given back meanwhile");
        drop((pool.map(), again));
        assert!([0, 200].contains(&pool.loose()));
        pool.keep(0);
        assert_eq!(pool.loose(), 0);
    }

    #[test]
    fn pieces_are_not_loose() {
        static ITS_OWN: Pool = Pool::new();
        let pool = &ITS_OWN;
        pool.keep(1);
        let (few, many) = (100, BLOCK_BYTES - 1);
        let all = [few, many, many].map(|len| Piece::new(full(pool, len as u8), len));
        assert_eq!(all.each_ref().map(Piece::is_full), [false, true, true]);
        assert_eq!(pool.loose(), 3 * BLOCK_BYTES, "of the first one's, only the pool has it");
        let pieces = Pieces::new(all.into());
        assert_eq!((pieces.bytes(), pieces.memory()), (few + 2 * many, few + 2 * BLOCK_BYTES));
        assert!(pieces.iter().all(|bytes| bytes.iter().all(|b| *b == bytes.len() as u8)));
        assert_eq!(pool.loose(), BLOCK_BYTES);
        drop(pieces);
        assert_eq!(pool.loose(), BLOCK_BYTES, "the pool has its one, the system the others");
    }
}

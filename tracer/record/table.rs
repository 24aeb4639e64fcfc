//! The stack table and the string table of a generation: content in, small id out, from every thread at once.
//!
//! A [`Trie`] is a hash trie. The first bits of an entry's hash choose a slot of the root, and every further two bits one
//! of a node's four children; a node *is* an entry, so that what is put first is found first, and the stacks of a busy
//! program sit in the first level or two. Entries are never removed one by one; a generation's table is emptied as a
//! whole, when the generation is closed.
//!
//! # Invariants (A1 to A4 are the arena's)
//! B1  Equal content MUST get one id. A put that finds an empty slot publishes its node by compare-exchange; who loses
//!     looks at the winner and, if that is the same content, answers the winner's id. Two nodes of equal content can
//!     never both be published, because both walk the same slots in the same order, and a slot keeps its first name (A3).
//!     A loser's node and its id are wasted: ids are unique, but may have gaps.
//! B2  A put MUST finish in as many steps as there are nodes on its path: each step goes from a slot of one node to a
//!     slot of a node published later. When the hash is used up (64 bits equal, or an adversary), the rest of the way is
//!     a list over child 0.
//! B3  Memory MUST stay within the limit given to `new`. Past it `put` answers 0, which the format reads as "no stack",
//!     and [`Trie::lost`] counts.
//! B4  [`Trie::reset`] MUST run when nobody else uses the table. The generation protocol sees to it: a table belongs to
//!     generations of one parity, and is emptied after generation g is closed (every gate was seen quiet since g+1 was
//!     published) and before g+2 is published.
//!
//! # Memory order
//! Node contents travel from Release (publish) to Acquire (get); that is all a put needs: when the compare-exchange
//! fails, the slot is read again with Acquire before the winner is looked at. Counters are Relaxed. A reset is ordered by
//! the gate on both sides (B4).
//!
//! # Rejected
//! - A sharded, locked hash map: a put is on the path of every event, and a thread may lose its CPU holding the lock.
//! - Sixteen children: 64 bytes more per node; most nodes have none. The root does the job of the first five levels.
//! - A resizable table: nobody can move entries while others read without a lock.
//! - An unkeyed hash: a program's input could choose strings that fall into one list.

use super::arena::{Arena, FANOUT, Slot};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of the hash that the root consumes. (In a model the root is one slot: that is where the race is.)
const ROOT_BITS: u32 = if cfg!(loom) { 0 } else { 10 };

/// Bits per further level.
const LEVEL_BITS: u32 = FANOUT.trailing_zeros();

/// Memory that a reset keeps resident for the next generation.
const KEEP_BYTES: usize = 1 << 20;

/// Longest string of the table, in bytes: the format's limit.
const MAX_STRING_BYTES: usize = 1024;

/// An append-only, lock-free map from slices of words to ids. See the module's header for the protocol.
pub struct Trie {
    root: Box<[Slot]>,
    arena: Arena,
    next_id: AtomicU32,
    lost: AtomicU64,
    seed: u64,
}

impl Trie {
    /// An empty table of at most `limit_bytes`, which are reserved, but used only as entries come.
    pub fn new(limit_bytes: usize) -> Trie {
        Trie {
            root: (0..1usize << ROOT_BITS).map(|_| Slot::new()).collect(),
            arena: Arena::new(limit_bytes),
            next_id: AtomicU32::new(1),
            lost: AtomicU64::new(0),
            seed: hash::seed(),
        }
    }

    /// The id of `words`, from 1, the same whenever the content is the same; inserts it if it is new.
    ///
    /// 0 when the table is full and `words` is not in it.
    #[inline]
    pub fn put(&self, words: &[u64]) -> u32 {
        self.put_hashed(hash::words(self.seed, words), words)
    }

    #[inline]
    fn put_hashed(&self, hash: u64, words: &[u64]) -> u32 {
        let (mut slot, mut rest) = (self.root_slot(hash), hash << ROOT_BITS);
        // B2: every turn leads to a node that was published after the one before it.
        while let Some(name) = slot.get() {
            let node = self.arena.node(name);
            if node.hash() == hash && node.words() == words {
                return node.id();
            }
            (slot, rest) = (node.child((rest >> (u64::BITS - LEVEL_BITS)) as usize), rest << LEVEL_BITS);
        }
        self.insert(slot, rest, hash, words)
    }

    #[inline]
    fn root_slot(&self, hash: u64) -> &Slot {
        // In two steps, as a shift by 64 (loom's root of one slot) is no shift.
        &self.root[(hash >> 1 >> (u64::BITS - 1 - ROOT_BITS)) as usize]
    }

    /// Goes on where a look-up ended at an empty slot.
    #[cold]
    #[inline(never)]
    fn insert<'a>(&'a self, mut slot: &'a Slot, mut rest: u64, hash: u64, words: &[u64]) -> u32 {
        // ORDER: Relaxed; only uniqueness matters.
        let id = || self.next_id.fetch_add(1, Ordering::Relaxed);
        let Some(fresh) = self.arena.alloc(hash, id, words) else {
            // ORDER: Relaxed; a statistic.
            self.lost.fetch_add(1, Ordering::Relaxed);
            return 0;
        };
        loop {
            if slot.publish(fresh) {
                return self.arena.node(fresh).id();
            }
            // B1: somebody else was first; perhaps with the same content.
            let winner = self.arena.node(slot.get().expect("A3: a slot that refused a name holds one"));
            if winner.hash() == hash && winner.words() == words {
                return winner.id();
            }
            (slot, rest) = (winner.child((rest >> (u64::BITS - LEVEL_BITS)) as usize), rest << LEVEL_BITS);
        }
    }

    /// Calls `f` with the id and content of every entry, in no particular order.
    ///
    /// Entries that are put during the call may be left out.
    pub fn for_each(&self, mut f: impl FnMut(u32, &[u64])) {
        // An explicit list of things to do, since a list of equal hashes may be too deep for recursion.
        let mut todo: Vec<_> = self.root.iter().filter_map(Slot::get).collect();
        while let Some(name) = todo.pop() {
            let node = self.arena.node(name);
            f(node.id(), node.words());
            todo.extend((0..FANOUT).filter_map(|i| node.child(i).get()));
        }
    }

    /// Forgets all entries and starts again at id 1; keeps a megabyte of memory for the next generation.
    ///
    /// # Safety
    /// B4: nobody else uses the table during the call; every earlier use happens before it, and it before every later
    /// one.
    pub unsafe fn reset(&self) {
        // SAFETY: nobody uses the arena, by the caller's promise; no Node outlives a method of the Trie; of the slots with
        // names, the root's are cleared right below, and those in nodes are rewritten by alloc() before they are reached.
        unsafe { self.arena.reset(KEEP_BYTES) };
        self.root.iter().for_each(Slot::clear);
        // ORDER: Relaxed; ordered by the caller (B4).
        self.next_id.store(1, Ordering::Relaxed);
        self.lost.store(0, Ordering::Relaxed);
    }

    /// How many puts since the last reset found no room.
    pub fn lost(&self) -> u64 {
        // ORDER: Relaxed; a statistic.
        self.lost.load(Ordering::Relaxed)
    }

    /// Bytes in use since the last reset, those of losers included (in a model: nodes).
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.arena.bytes()
    }
}

/// A [`Trie`] of byte strings of at most 1,024 bytes.
pub struct StringTable(Trie);

/// A string as words: its length in bytes, then its bytes, the last word filled up with zeros.
const MAX_STRING_WORDS: usize = 1 + MAX_STRING_BYTES.div_ceil(8);

impl StringTable {
    /// An empty table of at most `limit_bytes`, as [`Trie::new`].
    pub fn new(limit_bytes: usize) -> StringTable {
        StringTable(Trie::new(limit_bytes))
    }

    /// The id of `s`, as [`Trie::put`]; of a longer string than 1,024 bytes, that of the whole characters within.
    pub fn put(&self, s: impl AsRef<[u8]>) -> u32 {
        let bytes = cut(s.as_ref());
        let mut words = [0; MAX_STRING_WORDS];
        words[0] = bytes.len() as u64;
        let (whole, rest) = bytes.as_chunks::<8>();
        for (word, chunk) in words[1..].iter_mut().zip(whole) {
            *word = u64::from_le_bytes(*chunk);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[1 + whole.len()] = u64::from_le_bytes(last);
        }
        self.0.put(&words[..1 + bytes.len().div_ceil(8)])
    }

    /// Calls `f` with the id and bytes of every entry, in no particular order.
    pub fn for_each(&self, mut f: impl FnMut(u32, &[u8])) {
        self.0.for_each(|id, words| {
            let mut bytes = [0; MAX_STRING_WORDS * 8];
            for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words[1..]) {
                *chunk = word.to_le_bytes();
            }
            f(id, &bytes[..words[0] as usize]);
        });
    }

    /// Forgets all entries, as [`Trie::reset`].
    ///
    /// # Safety
    /// As for [`Trie::reset`].
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.reset() }
    }

    /// As [`Trie::lost`].
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }
}

/// At most [`MAX_STRING_BYTES`] of `s`, without a piece of a UTF-8 character at the end.
fn cut(s: &[u8]) -> &[u8] {
    let Some(&next) = s.get(MAX_STRING_BYTES) else { return s };
    let mut end = MAX_STRING_BYTES;
    if is_continuation(next) {
        // A character has at most three continuation bytes; more are no UTF-8, and cut anywhere.
        let start = (end - 3..end).rev().find(|&i| !is_continuation(s[i]));
        end = start.unwrap_or(end);
    }
    &s[..end]
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// A keyed hash of word slices, for tables whose keys the program's input may choose.
mod hash {
    use std::hash::{BuildHasher, RandomState};

    const K0: u64 = 0x9e37_79b9_7f4a_7c15;
    const K1: u64 = 0xd1b5_4a32_d192_ed03;

    /// A key: random per table, constant where runs must repeat.
    pub(super) fn seed() -> u64 {
        if cfg!(any(loom, miri)) { K0 } else { RandomState::new().hash_one(K1) }
    }

    /// The hash of `words`: two chains of folded multiplications, one for each pair of words, every factor keyed (a
    /// factor that input could make 0 would forget the chain).
    #[inline]
    pub(super) fn words(seed: u64, words: &[u64]) -> u64 {
        let (k0, k1) = (seed ^ K0, seed.rotate_left(32) ^ K1);
        let (mut a, mut b) = (k0, k1 ^ words.len() as u64);
        let (quads, rest) = words.as_chunks::<4>();
        for [w0, w1, w2, w3] in quads {
            a = fold(w0 ^ a, w1 ^ k1);
            b = fold(w2 ^ b, w3 ^ k0);
        }
        for w in rest {
            a = fold(w ^ a, k1);
        }
        fold(a ^ k1, b ^ k0)
    }

    /// Both halves of the product: every bit of the factors reaches every bit of the result.
    #[inline]
    fn fold(x: u64, y: u64) -> u64 {
        let p = u128::from(x) * u128::from(y);
        (p as u64) ^ (p >> 64) as u64
    }
}

#[cfg(test)]
mod tests;

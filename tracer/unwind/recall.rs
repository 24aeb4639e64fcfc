//! Walks that need not be walked: a goroutine mostly stops where it stopped before.
//!
//! A walk is a function of the registers it starts with, of the words of the stack that it reads, and of the list of modules. So each
//! walker remembers of its last walks what they started with and what they read, and what came of them. If all of that is the
//! same again, so is the result. Comparing a dozen words takes a tenth of finding out where they are.
//!
//! - M1: what is remembered of a walk is every word it read that mattered. One that read more than [`WORDS`] is not remembered.
//!   A frame pointer matters when a frame is found by it, not before: without frame pointers its register holds anything, a loop's
//!   counter for one, and is saved and restored like any other.
//! - M2: the words are read again where they were, inside the same range: the stack pointer and the stack's end are compared first
//!   (U1). Of a walk with other registers nothing is read.
//! - M3: what came of it is a number that is good for one generation; it is not given in another.
//! - M4: nothing here allocates but [`Recall::new`] (U4).

use std::cell::Cell;

use super::Regs;
use super::modules;
use super::stack::{self, Stack};

/// Words of a walk that are remembered.
const WORDS: usize = 40;
/// So many are compared at once.
const GROUP: usize = 4;
const _: () = assert!(WORDS.is_multiple_of(GROUP));
/// Walks that are remembered.
const WALKS: usize = 128;

/// The words that a walk reads, while it reads them.
pub(super) struct Trail {
    len: Cell<usize>,
    words: [Cell<(usize, usize)>; WORDS],
    fp: Cell<Fp>,
    /// The frame pointer that the walk began with mattered.
    needs_fp: Cell<bool>,
}

/// Where the present frame pointer is from.
#[derive(Clone, Copy)]
enum Fp {
    /// The registers that the walk began with.
    Given,
    /// The stack, and it has not mattered yet.
    Word(usize, usize),
    /// What was noted already.
    Noted,
}

impl Trail {
    fn new() -> Trail {
        Trail {
            len: Cell::new(0),
            words: [const { Cell::new((0, 0)) }; WORDS],
            fp: Cell::new(Fp::Given),
            needs_fp: Cell::new(false),
        }
    }

    fn begin(&self) {
        self.len.set(0);
        self.fp.set(Fp::Given);
        self.needs_fp.set(false);
    }

    /// A frame pointer was found.
    #[inline(always)]
    pub(super) fn found_fp(&self, addr: usize, word: usize) {
        self.fp.set(Fp::Word(addr, word));
    }

    /// The present frame pointer matters.
    #[inline(always)]
    pub(super) fn uses_fp(&self) {
        match self.fp.replace(Fp::Noted) {
            Fp::Given => self.needs_fp.set(true),
            Fp::Word(addr, word) => self.read(addr, word),
            Fp::Noted => {}
        }
    }

    /// The word at `addr` was read.
    #[inline(always)]
    pub(super) fn read(&self, addr: usize, word: usize) {
        let n = self.len.get();
        if let Some(place) = self.words.get(n) {
            place.set((addr, word));
        }
        self.len.set(n + 1);
    }
}

#[derive(Clone, Copy)]
struct Walk {
    pc: usize,
    sp: usize,
    /// If it mattered.
    fp: Option<usize>,
    lr: usize,
    top: usize,
    modules: usize,
    generation: u64,
    result: u32,
    /// How many groups of `words` count.
    groups: u32,
    /// Where they are, and what they were.
    words: [(usize, usize); WORDS],
}

const NONE: Walk = Walk {
    pc: 0,
    sp: 0,
    fp: None,
    lr: 0,
    top: 0,
    modules: 0,
    generation: 0,
    result: 0,
    groups: 0,
    words: [(0, 0); WORDS],
};

/// The last walks of one walker. 90 KiB on the heap.
pub struct Recall {
    walks: Box<[Walk]>,
    trail: Trail,
}

/// The list of modules by which stacks are walked now.
fn modules_now() -> usize {
    modules::current().map_or(0, |m| std::ptr::from_ref(m).addr())
}

impl Recall {
    /// Remembers nothing yet.
    pub fn new() -> Recall {
        Recall { walks: vec![NONE; WALKS].into_boxed_slice(), trail: Trail::new() }
    }

    /// Where a walk with these registers is remembered. Stacks lie at regular distances, so all bits count.
    #[inline]
    fn place(regs: &Regs) -> usize {
        let mixed = (regs.sp ^ regs.pc.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
        mixed >> (usize::BITS - WALKS.ilog2())
    }

    /// What came of the same walk in the same generation, if it is remembered.
    ///
    /// # Safety
    ///
    /// As for [`walk`](super::walk).
    #[inline]
    pub unsafe fn recall(&self, generation: u64, regs: &Regs, stack_top: usize) -> Option<u32> {
        let walk = &self.walks[Recall::place(regs)];
        let other = (walk.sp ^ regs.sp) | (walk.pc ^ regs.pc) | (walk.lr ^ regs.lr) | (walk.top ^ stack_top);
        if other != 0
            || walk.fp.is_some_and(|fp| fp != regs.fp)
            || walk.generation != generation
            || walk.modules != modules_now()
        {
            return None;
        }
        for group in walk.words.as_chunks::<GROUP>().0.get(..walk.groups as usize)? {
            // SAFETY: M2: the walk that is remembered read them as whole words between the same stack pointer and the same
            // end, where memory is readable by the caller's promise.
            let differ = |&(addr, word): &(usize, usize)| unsafe { stack::reread(addr) } ^ word;
            if group.iter().map(differ).fold(0, std::ops::BitOr::bitor) != 0 {
                return None;
            }
        }
        Some(walk.result)
    }

    /// Walks as [`walk`](super::walk) does, and notes what it reads; call [`Recall::remember`] next.
    ///
    /// # Safety
    ///
    /// As for [`walk`](super::walk).
    pub unsafe fn walk(&mut self, regs: Regs, stack_top: usize, cache: &mut super::Cache, out: &mut [usize]) -> usize {
        self.trail.begin();
        // SAFETY: passed on to the caller.
        let stack = unsafe { Stack::noted(regs.sp, stack_top, &self.trail) };
        super::walk_in(super::method(), regs, stack, cache, out)
    }

    /// Remembers what came of the last walk, which had these registers (M1).
    pub fn remember(&mut self, generation: u64, regs: &Regs, stack_top: usize, result: u32) {
        let len = self.trail.len.get();
        let walk = &mut self.walks[Recall::place(regs)];
        if len > WORDS {
            return;
        }
        let Regs { pc, sp, fp, lr } = *regs;
        (walk.pc, walk.sp, walk.lr, walk.top) = (pc, sp, lr, stack_top);
        walk.fp = self.trail.needs_fp.get().then_some(fp);
        (walk.modules, walk.generation, walk.result) = (modules_now(), generation, result);
        walk.groups = len.div_ceil(GROUP) as u32;
        for (word, read) in walk.words.iter_mut().zip(&self.trail.words[..len]) {
            *word = read.get();
        }
        // The last group is filled up with one of its words.
        if let Some(last) = len.checked_sub(1) {
            let word = walk.words[last];
            walk.words[len..len.next_multiple_of(GROUP)].fill(word);
        }
    }
}

impl Default for Recall {
    fn default() -> Recall {
        Recall::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::stack::WORD;
    use super::super::{Cache, method, refresh_modules};
    use super::*;

    /// The frames of this function's callers, by walk or from memory, and what `remember` is given.
    #[inline(never)]
    fn walk_here(
        recall: &mut Recall,
        cache: &mut Cache,
        top: usize,
        generation: u64,
        result: u32,
    ) -> (Option<u32>, usize) {
        let regs = Regs::here();
        // SAFETY: this frame is alive, and the stack above it mapped up to `top`.
        let known = unsafe { recall.recall(generation, &regs, top) };
        let mut frames = [0; 64];
        // SAFETY: as above.
        let n = unsafe { recall.walk(regs, top, cache, &mut frames) };
        recall.remember(generation, &regs, top, result);
        std::hint::black_box(&frames);
        (known, n)
    }

    #[inline(never)]
    fn other(recall: &mut Recall, cache: &mut Cache, top: usize, generation: u64, result: u32) -> (Option<u32>, usize) {
        std::hint::black_box(walk_here(recall, cache, top, generation, result))
    }

    #[test]
    fn the_same_walk_is_recalled_and_no_other() {
        refresh_modules();
        if method() == super::super::Method::Off {
            return;
        }
        let here = 0usize;
        // Above this frame and below the end of the thread's stack.
        let top = (std::ptr::from_ref(&here).expose_provenance() + 512) & !(WORD - 1);
        let (mut recall, mut cache) = (Recall::new(), Cache::new());
        for turn in 0..3u32 {
            let (known, _) = walk_here(&mut recall, &mut cache, top, 7, 100);
            // One loop, one place: from the second turn on it is the same walk.
            assert_eq!(known, (turn > 0).then_some(100), "turn {turn}");
        }
        let (known, _) = walk_here(&mut recall, &mut cache, top, 8, 100);
        assert_eq!(known, None, "another generation");
        let (known, _) = other(&mut recall, &mut cache, top, 8, 5);
        assert_eq!(known, None, "another caller");
    }

    /// A synthetic stack whose words change one at a time: any that was read matters.
    #[test]
    fn every_word_that_was_read_counts() {
        refresh_modules();
        let mut words = [0usize; 16];
        let base = words.as_mut_ptr().expose_provenance();
        let top = base + size_of_val(&words);
        let trail = Trail::new();
        // SAFETY: the array.
        let stack = unsafe { Stack::noted(base, top, &trail) };
        assert_eq!(stack.read(base + 2 * WORD), Some(0));
        assert_eq!(stack.read(base + 5 * WORD), Some(0));
        assert_eq!(stack.read(top), None, "not read, not noted");
        assert_eq!(stack.read_fp(base + 7 * WORD), Some(0));
        assert_eq!(stack.read_fp(base + 8 * WORD), Some(0));
        assert_eq!(trail.len.get(), 2, "frame pointers that nobody needs");
        stack.uses_fp();
        stack.uses_fp();
        assert_eq!((trail.len.get(), trail.needs_fp.get()), (3, false), "the last one, once");
        trail.fp.set(Fp::Given);
        stack.uses_fp();
        let regs = Regs { pc: 4711, sp: base, fp: 0, lr: 0 };
        let mut recall = Recall { trail, ..Recall::new() };
        recall.remember(3, &regs, top, 9);
        for i in 0..words.len() {
            // SAFETY: the array; the pointer is used for all accesses.
            let place = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<usize>(base + i * WORD) };
            *place = 1;
            // SAFETY: the array.
            let known = unsafe { recall.recall(3, &regs, top) };
            assert_eq!(known, (i != 2 && i != 5 && i != 8).then_some(9), "word {i}");
            *place = 0;
        }
        for (regs, top) in [
            (Regs { pc: 4712, ..regs }, top),
            (Regs { fp: 8, ..regs }, top),
            (Regs { lr: 8, ..regs }, top),
            (regs, top - WORD),
        ] {
            // SAFETY: the array, or less of it.
            assert_eq!(unsafe { recall.recall(3, &regs, top) }, None);
        }
        // More words than there is room for.
        recall.trail.len.set(WORDS + 1);
        let regs = Regs { pc: 4713, ..regs };
        recall.remember(3, &regs, top, 9);
        // SAFETY: the array.
        assert_eq!(unsafe { recall.recall(3, &regs, top) }, None);
    }
}

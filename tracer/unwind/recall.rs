//! Walks that need not be walked: a goroutine mostly stops where it stopped before.
//!
//! A walk is a function of the registers it starts with, of the words of the stack that it reads, and of the list of modules. So each
//! walker remembers of its last walks what they started with and what they read, and what came of them. If all of that is the
//! same again, so is the result. Comparing a dozen words takes a tenth of finding out where they are.
//!
//! - M1: what is remembered of a walk is every word it read that mattered. One that read more than [`WORDS`] is not remembered.
//!   A frame pointer matters when a frame is found by it, not before: without frame pointers its register holds anything, a loop's
//!   counter for one, and is saved and restored like any other.
//! - M2: the words are read again where they were, from the stack pointer and from an end as far away: inside the range (U1). Where the
//!   program counter or that distance is another nothing is read.
//! - M5: goroutines that do the same do it on stacks of their own, so a walk is the same when all that points into the stack has moved with
//!   it. A return address is the same as it was; a frame pointer that points into the stack is as far from the stack pointer as it was;
//!   one that is 0 is 0. A walk that read anything else, or whose frame pointer leads elsewhere, is good for its own
//!   stack only: who knows what it would have done with an address in another. Stacks differ by whole lines of the cache, so that no
//!   alignment differs.
//! - M6: where a walk is remembered depends on how it begins. Where two that begin alike met, say the same wait called from two places, it
//!   depends on a word in which they differed, too; and where that happens again, on another one.
//! - M7: there are more places than walks, and each is one of two neighbours: who finds it in use takes the other one. With one place for each of
//!   as many walks, two of twenty that a program does again and again would drive each other out, most likely, and cost ten times as much as the
//!   others, for as long as it runs. What is found by way of a place is believed as little as ever: it may be another walk's by now.
//! - M8: what is remembered in an earlier generation is forgotten first. After that it is anyone's turn: a program that does a few more walks than
//!   there are, one after the other, would find none of them if the oldest had to go.
//! - M3: what came of it is a number that is good for one generation; it is not given in another.
//! - M4: nothing here allocates but [`Recall::new`] (U4).

use std::cell::Cell;

use super::Regs;
use super::stack::{self, Stack, WORD};
use super::{boxed, modules};

/// Words of a walk that are remembered.
const WORDS: usize = 40;
/// So many are compared at once.
const GROUP: usize = 4;
const _: () = assert!(WORDS.is_multiple_of(GROUP) && WORDS / GROUP < 16);
/// Walks that are remembered.
const WALKS: usize = 128;
/// Where they are looked for (M7).
const PLACES: usize = 1024;
/// In an entry of [`Recall::places`]: walks that begin with this place are looked for by their words (M6).
const SPLIT: u8 = 128;
const _: () = assert!(WALKS == SPLIT as usize && PLACES <= 1 << 16);

/// The words that a walk reads, while it reads them.
pub(super) struct Trail {
    len: Cell<usize>,
    words: [Cell<(usize, usize, Use)>; WORDS],
    fp: Cell<Fp>,
    /// The frame pointer that the walk began with mattered.
    needs_fp: Cell<bool>,
    /// It is good for its own stack only (M5).
    here_only: Cell<bool>,
    /// The list of modules by which it was walked; it may change meanwhile.
    modules: Cell<usize>,
}

/// What a word is used for (M5).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Return,
    Frame,
    Any,
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
            words: [const { Cell::new((0, 0, Use::Any)) }; WORDS],
            fp: Cell::new(Fp::Given),
            needs_fp: Cell::new(false),
            here_only: Cell::new(false),
            modules: Cell::new(modules_now()),
        }
    }

    fn begin(&self) {
        self.len.set(0);
        self.fp.set(Fp::Given);
        self.needs_fp.set(false);
        self.here_only.set(false);
        self.modules.set(modules_now());
    }

    /// Something was computed of which nobody knows whether it would move with the stack.
    pub(super) fn is_here_only(&self) {
        self.here_only.set(true);
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
            Fp::Word(addr, word) => self.read(addr, word, Use::Frame),
            Fp::Noted => {}
        }
    }

    /// The word at `addr` was read.
    #[inline(always)]
    pub(super) fn read(&self, addr: usize, word: usize, used: Use) {
        let n = self.len.get();
        if let Some(place) = self.words.get(n) {
            place.set((addr, word, used));
        }
        self.len.set(n + 1);
    }
}

/// A word at so many bytes from the stack pointer, and what it was.
type Word = (usize, usize);

/// What tells whether it is the same begin is one line of the cache, and the words follow.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Walk {
    pc: usize,
    sp: usize,
    /// From the stack pointer.
    fp: usize,
    lr: usize,
    /// From the stack pointer to the end.
    height: usize,
    modules: usize,
    generation: u64,
    result: u32,
    /// How many groups of `words` are to be what they were; and, times 16, how many after those have moved with the stack pointer: what they were
    /// is from there.
    groups: u8,
    /// Which bits of the stack pointer are to be what they were; the sign goes for all of the upper ones. All of them, or where in a line of the
    /// cache it points to, if it is good for stacks elsewhere, too (M5).
    sp_bits: i8,
    /// Whether the frame pointer mattered, so that all bits of it are to be.
    fp_bits: i8,
    words: [Word; WORDS],
}

const NONE: Walk = Walk {
    pc: 0,
    sp: 0,
    fp: 0,
    lr: 0,
    height: 0,
    modules: 0,
    generation: 0,
    result: 0,
    groups: 0,
    sp_bits: ALL,
    fp_bits: ALL,
    words: [(0, 0); WORDS],
};

/// In [`Walk::sp_bits`].
const ALL: i8 = -1;
const IN_A_LINE: i8 = SHIFT as i8 - 1;
const _: () = assert!(SHIFT <= 1 << 6);

const _: () = assert!(std::mem::offset_of!(Walk, words) == 64);

impl Walk {
    fn same(&self) -> usize {
        usize::from(self.groups & 15)
    }

    fn moved(&self) -> usize {
        usize::from(self.groups >> 4)
    }

    /// Whether the walk that begins with these registers, so far from the stack's end, would come to the same.
    ///
    /// # Safety
    ///
    /// As for [`walk`](super::walk).
    #[inline(always)]
    unsafe fn is_same(&self, generation: u64, regs: &Regs, height: usize) -> bool {
        let moved = regs.sp.wrapping_sub(self.sp) & self.sp_bits as usize;
        let fp = (regs.fp.wrapping_sub(regs.sp) ^ self.fp) & self.fp_bits as usize;
        let lr = if LINKS { self.lr ^ regs.lr } else { 0 };
        let other = moved | fp | lr | (self.pc ^ regs.pc) | (self.height ^ height);
        // SAFETY: passed on to the caller; it began in the same place of a stack of the same height.
        other == 0
            && self.generation == generation
            && self.modules == modules_now()
            && unsafe { self.reads_same(regs.sp) }
    }

    /// Whether the words that it has read are the same, or have moved along, from this stack pointer on.
    ///
    /// # Safety
    ///
    /// As for [`walk`](super::walk), which would begin as this one did.
    #[inline(always)]
    unsafe fn reads_same(&self, sp: usize) -> bool {
        // SAFETY: passed on to the caller; the first words.
        let differs = unsafe { Walk::differs(&self.words.as_chunks::<GROUP>().0[0], sp) };
        // SAFETY: passed on to the caller.
        differs == 0 && (self.groups == 1 || unsafe { self.reads_same_behind(sp) })
    }

    /// Whether all the words are. Apart, as most walks have few, and the caller has use for its registers.
    ///
    /// # Safety
    ///
    /// As for [`Walk::reads_same`].
    #[inline(never)]
    unsafe fn reads_same_behind(&self, sp: usize) -> bool {
        let groups = self.words.as_chunks::<GROUP>().0;
        let Some((same, moved)) = groups.split_at_checked(self.same()) else { return false };
        // Loops, as an iterator's closures are not always taken in, and this is most of what an event costs.
        for group in same {
            // SAFETY: passed on to the caller.
            if unsafe { Walk::differs(group, sp) } != 0 {
                return false;
            }
        }
        for group in moved.iter().take(self.moved()) {
            let mut differs = 0;
            for &(offset, word) in group {
                // SAFETY: as in Walk::differs().
                differs |= unsafe { stack::reread(sp.wrapping_add(offset)) }.wrapping_sub(sp) ^ word;
            }
            if differs != 0 {
                return false;
            }
        }
        true
    }

    /// Not 0 if one of these words is not what it was.
    ///
    /// # Safety
    ///
    /// As for [`Walk::reads_same`].
    #[inline(always)]
    unsafe fn differs(group: &[Word; GROUP], sp: usize) -> usize {
        let mut differs = 0;
        for &(offset, word) in group {
            // SAFETY: M2: the walk that is remembered read whole words so far from its stack pointer, inside a range of the same height, and
            // the stack pointers differ by whole words; the memory is readable by the caller's promise.
            differs |= unsafe { stack::reread(sp.wrapping_add(offset)) } ^ word;
        }
        differs
    }
}

/// Stacks of the same shape differ by a multiple of this (a line of the cache).
const SHIFT: usize = 64;

/// The last walks of one walker. 121 KiB on the heap.
pub struct Recall {
    walks: Box<[Walk; WALKS]>,
    /// Which walk is remembered at a place, perhaps, and [`SPLIT`].
    places: Box<[u8; PLACES]>,
    /// At which place each walk is.
    place_of: [u16; WALKS],
    splits: Box<[Split; PLACES]>,
    victims: Victims,
    /// Which of two neighbours in use is to be forgotten next (M7).
    turn: usize,
    trail: Trail,
}

/// Which walk is to be forgotten (M8).
struct Victims {
    /// The last one in their order.
    last: usize,
    /// For when that will not do.
    random: u64,
}

impl Victims {
    fn next(&mut self, walks: &[Walk; WALKS], generation: u64) -> usize {
        self.last = (self.last + 1) % WALKS;
        if walks[self.last].generation != generation {
            return self.last;
        }
        // Marsaglia's xorshift; the upper bits are the better ones.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> (u64::BITS - WALKS.ilog2())) as usize
    }
}

/// Of walks that begin so, at how many bytes from the stack pointer the words are that tell them apart (M6); twice the same if it is one.
#[derive(Clone, Copy)]
struct Split {
    pc: usize,
    height: usize,
    at: [usize; 2],
}

/// Nothing begins so.
const NO_SPLIT: Split = Split { pc: 0, height: usize::MAX, at: [0; 2] };

impl Split {
    /// Where a walk is remembered that begins so and has these words.
    #[inline]
    fn place(&self, words: [usize; 2]) -> usize {
        Recall::place(words[0] ^ self.pc.rotate_left(32), words[1] ^ self.height)
    }
}

/// Registers tell where a call returns to, which is not on the stack yet.
const LINKS: bool = cfg!(target_arch = "aarch64");

/// The list of modules by which stacks are walked now.
#[inline]
fn modules_now() -> usize {
    modules::current().map_or(0, |m| std::ptr::from_ref(m).addr())
}

impl Recall {
    /// Remembers nothing yet.
    pub fn new() -> Recall {
        let (walks, places, splits) = (boxed(NONE), boxed(0), boxed(NO_SPLIT));
        Recall {
            walks,
            places,
            place_of: [0; WALKS],
            splits,
            victims: Victims { last: 0, random: 1 },
            turn: 0,
            trail: Trail::new(),
        }
    }

    /// Where a walk is remembered, by how it begins: its program counter and height.
    #[inline]
    fn place(pc: usize, height: usize) -> usize {
        // Both halves of a product: in one alone, heights that differ by little, as those of frames of one function do, come close to each other.
        let product = u128::from(pc as u64 ^ 0xa076_1d64_78bd_642f) * u128::from(height as u64 ^ 0xe703_7ed1_a0b4_28db);
        (((product >> 64) as u64 ^ product as u64) >> (u64::BITS - PLACES.ilog2())) as usize
    }

    /// What came of the same walk in the same generation, if it is remembered at `place`.
    ///
    /// # Safety
    ///
    /// As for [`Recall::recall`].
    #[inline(always)]
    unsafe fn at(&self, place: usize, generation: u64, regs: &Regs, height: usize) -> Option<u32> {
        let walk = &self.walks[self.walk_at(place)];
        // SAFETY: passed on to the caller.
        unsafe { walk.is_same(generation, regs, height) }.then_some(walk.result)
    }

    #[inline(always)]
    fn walk_at(&self, place: usize) -> usize {
        usize::from(self.places[place] & !SPLIT)
    }

    /// Where a walk is remembered that begins so, by the words that tell such walks apart (M6); `place` if there are none.
    ///
    /// # Safety
    ///
    /// As for [`Recall::recall`]; `place` is the place of walks that begin so.
    #[inline(always)]
    unsafe fn place_by_words(&self, place: usize, regs: &Regs, height: usize) -> usize {
        let split = &self.splits[place];
        if (split.pc, split.height) != (regs.pc, height) || !regs.sp.is_multiple_of(WORD) {
            return place;
        }
        // SAFETY: a walk that began so, in a range of the same height, read a whole word at each; the memory is readable by the
        // caller's promise.
        split.place(split.at.map(|at| unsafe { stack::reread(regs.sp + at) }))
    }

    /// What came of the same walk in the same generation, if it is remembered where it is looked for first; otherwise
    /// [`Recall::recall_beside`] is to be asked.
    ///
    /// # Safety
    ///
    /// As for [`walk`](super::walk). `generation` is not 0.
    #[inline(always)]
    pub unsafe fn recall(&self, generation: u64, regs: &Regs, stack_top: usize) -> Option<u32> {
        let height = stack_top.checked_sub(regs.sp)?;
        let mut place = Recall::place(regs.pc, height);
        if self.places[place] & SPLIT != 0 {
            // SAFETY: passed on to the caller.
            place = unsafe { self.place_by_words(place, regs, height) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.at(place, generation, regs, height) }
    }

    /// As [`Recall::recall`], where a walk is remembered that found its place in use (M7).
    ///
    /// # Safety
    ///
    /// As for [`Recall::recall`].
    pub unsafe fn recall_beside(&self, generation: u64, regs: &Regs, stack_top: usize) -> Option<u32> {
        let height = stack_top.checked_sub(regs.sp)?;
        // SAFETY: passed on to the caller.
        unsafe {
            let place = self.place_by_words(Recall::place(regs.pc, height), regs, height);
            self.at(place ^ 1, generation, regs, height)
        }
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
        let Regs { pc, sp, fp, lr } = *regs;
        let Some(height) = stack_top.checked_sub(sp).filter(|_| sp.is_multiple_of(WORD)) else { return };
        let Some(read) = self.trail.words.get(..self.trail.len.get()) else { return };
        let words = || read.iter().map(Cell::get);
        let is_inside = |addr: usize| addr.wrapping_sub(sp) < height;
        let is_alike = |&(_, word, used): &(usize, usize, Use)| match used {
            Use::Return => true,
            Use::Frame => word == 0 || is_inside(word),
            Use::Any => false,
        };
        let needs_fp = self.trail.needs_fp.get();
        // M5
        let anywhere =
            !self.trail.here_only.get() && (!needs_fp || is_inside(fp)) && words().all(|word| is_alike(&word));
        let has_moved = |&(_, word, used): &(usize, usize, Use)| anywhere && used == Use::Frame && word != 0;
        let moved = words().filter(has_moved).count();
        let same = read.len() - moved;
        // The first group is always looked at.
        if same == 0 || same.next_multiple_of(GROUP) + moved.next_multiple_of(GROUP) > WORDS {
            return;
        }
        let word_at =
            |offset: usize| words().find_map(|(addr, word, _)| (addr == sp.wrapping_add(offset)).then_some(word));
        let home = Recall::place(pc, height);
        let split = self.splits[home];
        let is_split = (split.pc, split.height) == (pc, height);
        let mut place = home;
        if is_split {
            // A walk that does not read those words is not remembered where it would not be found.
            let [Some(first), Some(second)] = split.at.map(word_at) else { return };
            place = split.place([first, second]);
        }
        let alike = |walk: &&Walk| walk.generation == generation && (walk.pc, walk.height) == (pc, height);
        let before = [place, place ^ 1].map(|at| &self.walks[self.walk_at(at)]).into_iter().find(alike);
        let has_room = !is_split || split.at[0] == split.at[1];
        if let Some(before) = before.filter(|_| has_room) {
            // M6
            let same = before.words.get(..before.same() * GROUP).unwrap_or(&[]);
            let differs = |&&(offset, word): &&Word| word_at(offset).is_some_and(|now| now != word);
            if let Some(&(at, _)) = same.iter().find(differs) {
                let split = Split { pc, height, at: [if is_split { split.at[0] } else { at }, at] };
                self.splits[home] = split;
                place = split.place(split.at.map(|at| word_at(at).unwrap_or(0)));
                self.places[home] |= SPLIT;
            }
        }
        // M7
        let is_used = |&at: &usize| {
            let walk = self.walk_at(at);
            usize::from(self.place_of[walk]) == at && self.walks[walk].generation == generation
        };
        let now = match [place, place ^ 1].into_iter().find(|at| !is_used(at)) {
            Some(free) => {
                let victim = self.victims.next(&self.walks, generation);
                self.places[free] = self.places[free] & SPLIT | victim as u8;
                self.place_of[victim] = free as u16;
                victim
            }
            None => {
                self.turn ^= 1;
                self.walk_at(place ^ self.turn)
            }
        };
        let walk = &mut self.walks[now];
        let mut filled = 0;
        let mut fill = |words: &mut dyn Iterator<Item = Word>| {
            let from = filled;
            for word in words {
                walk.words[filled] = word;
                filled += 1;
            }
            // The last group is filled up with one of its words.
            let last = filled.checked_sub(1).map(|last| walk.words[last]).unwrap_or_default();
            let end = filled.next_multiple_of(GROUP);
            walk.words[filled..end].fill(last);
            filled = end;
            ((end - from) / GROUP) as u8
        };
        let same = fill(&mut words().filter(|w| !has_moved(w)).map(|(addr, word, _)| (addr.wrapping_sub(sp), word)));
        let moved =
            fill(&mut words().filter(has_moved).map(|(addr, word, _)| (addr.wrapping_sub(sp), word.wrapping_sub(sp))));
        (walk.pc, walk.sp, walk.lr, walk.height) = (pc, sp, lr, height);
        (walk.fp, walk.fp_bits) = (fp.wrapping_sub(sp), if needs_fp { ALL } else { 0 });
        walk.sp_bits = if anywhere { IN_A_LINE } else { ALL };
        (walk.modules, walk.generation, walk.result) = (self.trail.modules.get(), generation, result);
        walk.groups = same | moved << 4;
    }
}

impl Default for Recall {
    fn default() -> Recall {
        Recall::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cache, method, refresh_modules};
    use super::*;

    /// What remembers nothing yet, and a place above the frame that `here` is in and below the end of the thread's stack. `None` if stacks
    /// are not walked.
    fn fresh(here: &usize) -> Option<(Recall, Cache, usize)> {
        refresh_modules();
        let top = (std::ptr::from_ref(here).expose_provenance() + 512) & !(WORD - 1);
        (method() != super::super::Method::Off).then(|| (Recall::new(), Cache::new(), top))
    }

    /// What is remembered in either place.
    ///
    /// # Safety
    ///
    /// As for a walk.
    unsafe fn recalled(recall: &Recall, generation: u64, regs: &Regs, top: usize) -> Option<u32> {
        // SAFETY: passed on to the caller.
        unsafe { recall.recall(generation, regs, top).or_else(|| recall.recall_beside(generation, regs, top)) }
    }

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
        let known = unsafe { recalled(recall, generation, &regs, top) };
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
        let here = 0usize;
        let Some((mut recall, mut cache, top)) = fresh(&here) else { return };
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

    /// The same wait, called from two places in turn.
    #[test]
    fn walks_that_begin_alike_live_side_by_side() {
        let here = 0usize;
        let Some((mut recall, mut cache, top)) = fresh(&here) else { return };
        for turn in 0..4u32 {
            let known =
                [walk_here(&mut recall, &mut cache, top, 7, 100).0, walk_here(&mut recall, &mut cache, top, 7, 200).0];
            // In the first turn they drive each other out, in the second what tells them apart was not known for the first.
            if turn > 1 {
                assert_eq!(known, [Some(100), Some(200)], "turn {turn}");
            }
        }
    }

    /// A stack of zeros, on which walks begin at any height.
    struct Flat(Box<[usize; 2048]>);

    impl Flat {
        fn new() -> Flat {
            refresh_modules();
            Flat(boxed(0))
        }

        /// From the first word to the last.
        fn heights(&self) -> impl Iterator<Item = usize> + Clone + use<> {
            (1..=self.0.len()).map(|n| n * WORD)
        }

        fn top(&self) -> usize {
            self.0.as_ptr_range().end.expose_provenance()
        }

        fn regs(&self, height: usize) -> Regs {
            Regs { pc: 4711, sp: self.top() - height, fp: 0, lr: 0 }
        }

        /// Remembers the walk that begins there and reads the last word.
        fn remember(&self, recall: &mut Recall, height: usize) {
            let top = self.top();
            recall.trail.begin();
            // SAFETY: the array.
            let stack = unsafe { Stack::noted(top - height, top, &recall.trail) };
            assert_eq!(stack.read_return(top - WORD), Some(0));
            recall.remember(3, &self.regs(height), top, height as u32);
        }

        /// Whether that walk is known.
        fn knows(&self, recall: &Recall, height: usize) -> bool {
            // SAFETY: the array.
            let known = unsafe { recalled(recall, 3, &self.regs(height), self.top()) };
            assert!(known.is_none_or(|result| result == height as u32));
            known.is_some()
        }
    }

    /// M7
    #[test]
    fn walks_that_meet_live_side_by_side() {
        let flat = Flat::new();
        let heights = flat.heights();
        let (one, other) = heights
            .clone()
            .find_map(|one| {
                let meets = |&other: &usize| Recall::place(4711, one) == Recall::place(4711, other);
                heights.clone().skip_while(|&other| other <= one).find(meets).map(|other| (one, other))
            })
            .expect("two of 2,048 heights with one of 1,024 places");
        let mut recall = Recall::new();
        [one, other].iter().for_each(|&height| flat.remember(&mut recall, height));
        assert!([one, other].iter().all(|&height| flat.knows(&recall, height)));
    }

    /// M8
    #[test]
    fn a_cycle_of_more_walks_than_there_are() {
        let flat = Flat::new();
        let mut recall = Recall::new();
        let mut turn = |walks: usize| {
            let is_known = |&height: &usize| {
                let known = flat.knows(&recall, height);
                if !known {
                    flat.remember(&mut recall, height);
                }
                known
            };
            flat.heights().take(walks).filter(is_known).count()
        };
        assert_eq!(turn(WALKS * 5 / 4), 0, "it is the first time");
        let known: usize = (0..20).map(|_| turn(WALKS * 5 / 4)).sum();
        // Half of them, or more. In their order, none.
        assert!(known >= 20 * WALKS * 5 / 4 / 2, "{known}");
    }

    /// Heights of frames are alike: they differ by few bytes, and always by the same.
    #[test]
    fn walks_that_are_alike_seldom_meet() {
        let mut most = 0;
        for apart in (16..=1024).step_by(16) {
            let meet = |&(pc, height): &(usize, usize)| Recall::place(pc, height) == Recall::place(pc, height + apart);
            let pcs = (0..64usize).map(|n| 0x5555_5555_0000 + n * 0x1357);
            let met = pcs.flat_map(|pc| (0..64).map(move |n| (pc, 64 + n * 16))).filter(meet).count();
            most = most.max(met);
        }
        // By chance, 4 of 4096 would.
        assert!(most < 32, "{most} of 4096 meet");
    }

    #[inline(never)]
    fn pair(recall: &mut Recall, cache: &mut Cache, top: usize, result: u32) -> [Option<u32>; 2] {
        let known = [walk_here(recall, cache, top, 7, result).0, walk_here(recall, cache, top, 7, result + 1).0];
        std::hint::black_box(known)
    }

    /// The same, and that function from two places, too: as a loop that the compiler has unrolled, in a function that calls itself.
    #[test]
    fn walks_that_differ_in_two_places_live_side_by_side() {
        let here = 0usize;
        let Some((mut recall, mut cache, top)) = fresh(&here) else { return };
        for turn in 0..8u32 {
            let known = [pair(&mut recall, &mut cache, top, 100), pair(&mut recall, &mut cache, top, 200)];
            if turn > 4 {
                assert_eq!(known, [[Some(100), Some(101)], [Some(200), Some(201)]], "turn {turn}");
            }
        }
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
            let known = unsafe { recalled(&recall, 3, &regs, top) };
            assert_eq!(known, (i != 2 && i != 5 && i != 8).then_some(9), "word {i}");
            *place = 0;
        }
        for (regs, top) in [(Regs { pc: 4712, ..regs }, top), (Regs { fp: 8, ..regs }, top), (regs, top - WORD)] {
            // SAFETY: the array, or less of it.
            assert_eq!(unsafe { recalled(&recall, 3, &regs, top) }, None);
        }
        let returns_elsewhere = Regs { lr: 8, ..regs };
        // SAFETY: the array.
        assert_eq!(unsafe { recalled(&recall, 3, &returns_elsewhere, top) }, (!LINKS).then_some(9));
        // More words than there is room for.
        recall.trail.len.set(WORDS + 1);
        let regs = Regs { pc: 4713, ..regs };
        recall.remember(3, &regs, top, 9);
        // SAFETY: the array.
        assert_eq!(unsafe { recalled(&recall, 3, &regs, top) }, None);
    }

    /// A goroutine's stack and another's below it in the same place: the same walk, as long as what points into the stack points as far.
    #[test]
    fn the_same_walk_on_another_stack() {
        #[repr(align(64))]
        struct Stacks([[usize; 16]; 3]);
        refresh_modules();
        let mut stacks = Stacks([[0; 16]; 3]);
        let base = stacks.0.as_mut_ptr().expose_provenance();
        let low = |i: usize| base + i * 16 * WORD;
        let set = |i: usize, word: usize, value: usize| {
            // SAFETY: inside the arrays; the pointer is used for all accesses.
            unsafe { *std::ptr::with_exposed_provenance_mut::<usize>(low(i) + word * WORD) = value }
        };
        let regs = |i: usize| Regs { pc: 4711, sp: low(i), fp: low(i) + 4 * WORD, lr: 0 };
        for i in 0..3 {
            set(i, 4, low(i) + 9 * WORD);
            set(i, 5, 0x5000);
            set(i, 9, 0);
            set(i, 10, 0x6000);
        }
        let remember = |used: for<'a> fn(Stack<'a>, usize) -> Option<usize>| {
            let mut recall = Recall::new();
            // SAFETY: the first array.
            let stack = unsafe { Stack::noted(low(0), low(1), &recall.trail) };
            stack.uses_fp();
            for frame in [4, 9] {
                assert!(stack.read_fp(low(0) + frame * WORD).is_some());
                stack.uses_fp();
                assert!(used(stack, low(0) + (frame + 1) * WORD).is_some());
            }
            recall.remember(3, &regs(0), low(1), 9);
            recall
        };
        // SAFETY: the arrays.
        let known = |recall: &Recall, i: usize| unsafe { recalled(recall, 3, &regs(i), low(i + 1)) };
        let recall = remember(|stack, addr| stack.read_return(addr));
        assert_eq!([0, 1, 2].map(|i| known(&recall, i)), [Some(9); 3]);
        for (word, other) in [(4, low(1) + 8 * WORD), (4, low(0) + 9 * WORD), (5, 0x5001), (9, low(1)), (10, 0)] {
            // SAFETY: as in `set`.
            let before = unsafe { *std::ptr::with_exposed_provenance::<usize>(low(1) + word * WORD) };
            set(1, word, other);
            assert_eq!([0, 1, 2].map(|i| known(&recall, i)), [Some(9), None, Some(9)], "word {word}");
            set(1, word, before);
        }
        // Not by whole lines.
        let askew = Regs { sp: low(1) + WORD, fp: low(1) + 5 * WORD, ..regs(1) };
        // SAFETY: the arrays.
        assert_eq!(unsafe { recalled(&recall, 3, &askew, low(2) + WORD) }, None);
        // Who knows what it was used for.
        assert_eq!([0, 1].map(|i| known(&remember(|stack, addr| stack.read(addr)), i)), [Some(9), None]);
        // A frame pointer that leads elsewhere is good for its own stack.
        set(0, 9, 0x1234_5678);
        set(1, 9, 0x1234_5678);
        assert_eq!([0, 1].map(|i| known(&remember(|stack, addr| stack.read_return(addr)), i)), [Some(9), None]);
    }
}

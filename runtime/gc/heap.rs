//! Allocation: caches that claim free slots a word at a time (H11), and where the next word comes from.
//!
//! ```text
//!   the cache's word -> the rest of its block -> a block with free slots -> sweep some -> a fresh block
//! ```
//!
//! - P1: a block with free slots is on the list of its kind or in one cache; only that cache claims in it.
//! - P2: before a fresh block is taken, [`SWEEP_FIRST`] others are swept. So sweeping is over before the heap has grown by a fraction.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;

use super::arena::{ARENA, Block, KINDS, Kind};
use super::bits::WORD;
use super::mark::Shades;
use super::object::{Object, Type};
use super::sweep::Swept;
use super::window::{Phase, Window};
use super::{cycle, death, events, mark, objects, pace, sweep};
use crate::sched::procs::PROCS_MAX;

/// Blocks that are swept at a time, by somebody who allocates: some microseconds (a stop of the world waits for that).
const SWEEP_FIRST: usize = 16;

/// Blocks that were swept and have free slots, by kind.
static PARTIAL: [Mutex<Vec<u32>>; KINDS] = [const { Mutex::new(Vec::new()) }; KINDS];

/// A word of a block's slots.
#[derive(Clone, Copy)]
struct Claim {
    /// Slots of the word that are left.
    mask: usize,
    block: u32,
    word: u32,
    slot_bytes: usize,
    /// There is a block.
    any: bool,
}

/// What a P has claimed.
struct Cache {
    claims: [Claim; KINDS],
    /// Slots of the claims' words that are left, in place of their masks, while the trace is told of each that is taken (O2).
    held: [usize; KINDS],
    /// Bytes that were allocated while marking and not assisted for.
    debt: usize,
    shades: Shades,
}

impl Cache {
    const fn new() -> Cache {
        Cache {
            claims: [Claim { mask: 0, block: 0, word: 0, slot_bytes: 0, any: false }; KINDS],
            held: [0; KINDS],
            debt: 0,
            shades: Shades::new(),
        }
    }

    /// Gives back what is claimed.
    fn flush(&mut self, phase: Phase, list: bool) {
        for (claim, held) in self.claims.iter_mut().zip(&mut self.held) {
            claim.mask |= std::mem::take(held);
            unclaim(claim, phase, list);
        }
        self.debt = 0;
    }
}

/// The caches of the Ps, by number; null before the first allocation there. Touched by whoever holds the P, in a window, and in a stopped world.
static CACHES: [AtomicPtr<UnsafeCell<Cache>>; PROCS_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PROCS_MAX];
/// The cache of threads.
static OF_THREADS: Mutex<Cache> = Mutex::new(Cache::new());

/// What is to be done when the window is closed.
#[derive(Default)]
struct Chores {
    begin_cycle: bool,
    doomed: bool,
    assist: usize,
}

impl Chores {
    fn see_to(self) {
        if self.doomed {
            death::ring();
        }
        if self.begin_cycle {
            cycle::request();
        }
        if self.assist != 0 {
            mark::assist(self.assist);
        }
        death::keep_pace();
    }
}

/// The slots that are free in word `w` of a block that was swept, as the caller's (H11).
fn claim(block: &Block, w: usize, phase: Phase) -> usize {
    let free = block.valid(w) & !block.bits[phase.taken()].word(w);
    if free == 0 {
        return 0;
    }
    if phase.is_marking() {
        // Before `rooted`, so that no marker looks at a slot that is no object yet.
        block.bits[phase.marks()].set_word(w, free);
    }
    block.bits[phase.taken()].set_word(w, free);
    block.rooted.set_word(w, free);
    free
}

/// Gives back what was not used, before the phase changes.
fn unclaim(claim: &mut Claim, phase: Phase, list: bool) {
    if !claim.any {
        return;
    }
    let block = ARENA.block(claim.block as usize);
    let (w, mask) = (claim.word as usize, std::mem::take(&mut claim.mask));
    block.bits[phase.taken()].clear_word(w, mask);
    block.rooted.clear_word(w, mask);
    if phase.is_marking() {
        block.bits[phase.marks()].clear_word(w, mask);
    }
    pace::unclaimed(mask.count_ones() as usize * claim.slot_bytes, phase);
    if list {
        partial_of(block).lock().push(claim.block);
    }
    claim.any = false;
}

fn partial_of(block: &Block) -> &'static Mutex<Vec<u32>> {
    &PARTIAL[block.kind().expect("a block in use has a kind").index()]
}

/// Does something with each cache, in a stopped world without threads.
fn each_cache(mut f: impl FnMut(&mut Cache)) {
    for cache in &CACHES {
        let cache = cache.load(Ordering::Acquire);
        if !cache.is_null() {
            // SAFETY: the world is stopped, so nobody is in a window.
            f(unsafe { &mut *(*cache).get() });
        }
    }
    f(&mut OF_THREADS.lock());
}

/// Empties all caches, in a stopped world without threads. The lists go too, if what is on them is to be swept (`list` is false).
pub(super) fn flush(phase: Phase, list: bool) {
    each_cache(|cache| cache.flush(phase, list));
    if !list {
        PARTIAL.iter().for_each(|list| list.lock().clear());
    }
}

/// Lets all caches hold what they have claimed (O2), in a stopped world without threads; tells what that is: slots of a word of a block that are
/// no objects. Their bits are left alone: markers look at them, also now.
pub(super) fn hold(mut unused: impl FnMut(usize, usize, usize)) {
    each_cache(|cache| {
        for (claim, held) in cache.claims.iter_mut().zip(&mut cache.held) {
            *held |= std::mem::take(&mut claim.mask);
            if *held != 0 {
                unused(claim.block as usize, claim.word as usize, *held);
            }
        }
    });
}

/// Publishes what is shaded, in a stopped world without threads. Answers whether there was anything to be traced.
pub(super) fn flush_shades() -> bool {
    let mut any = false;
    each_cache(|cache| any |= cache.shades.publish());
    any
}

/// Does something with what was shaded on the caller's P.
pub(super) fn with_shades(window: &Window, f: impl FnOnce(&mut Shades)) {
    with_cache(window, |cache| f(&mut cache.shades));
}

/// A block that was swept has free slots.
pub(super) fn put_partial(b: usize, block: &Block) {
    partial_of(block).lock().push(b as u32);
}

/// Does something with the cache that the window's owner may use.
#[inline(always)]
fn with_cache<R>(window: &Window, f: impl FnOnce(&mut Cache) -> R) -> R {
    match window.m() {
        Some(m) => {
            let mut cache = CACHES[m.must_p().id as usize].load(Ordering::Relaxed);
            if cache.is_null() {
                cache = new_cache(m.must_p().id as usize);
            }
            // SAFETY: the P is this goroutine's for as long as the window lasts, and f opens no other.
            f(unsafe { &mut *(*cache).get() })
        }
        None => f(&mut OF_THREADS.lock()),
    }
}

#[cold]
fn new_cache(p: usize) -> *mut UnsafeCell<Cache> {
    let cache = Box::into_raw(Box::new(UnsafeCell::new(Cache::new())));
    // ORDER: Release; pairs with the Acquire in flush().
    CACHES[p].store(cache, Ordering::Release);
    cache
}

/// Takes a slot of the word that is claimed.
#[inline(always)]
fn take(claim: &mut Claim) -> Option<Object> {
    if claim.mask == 0 {
        return None;
    }
    let i = claim.mask.trailing_zeros() as usize;
    claim.mask &= claim.mask - 1;
    Some(ARENA.object(claim.block as usize, claim.word as usize * WORD + i, claim.slot_bytes))
}

/// A new object of a kind, with one handle and without a value, if a slot for it is claimed.
#[inline(always)]
pub(super) fn take_claimed(window: &Window, kind: Kind) -> Option<Object> {
    let object = with_cache(window, |cache| take(&mut cache.claims[kind.index()]))?;
    // SAFETY: the slot is the caller's (H11).
    unsafe { object.header() }.prepare();
    Some(object)
}

/// The same; `None` if there is no memory for it.
#[inline]
pub(super) fn allocate(kind: Kind, ty: &'static Type) -> Option<Object> {
    let window = Window::open();
    match take_claimed(&window, kind) {
        Some(object) => Some(object),
        None => allocate_slow(window, ty, |window, chores| refill(window, kind, chores)),
    }
}

/// As [`allocate`], of an object that has blocks of its own, of so many bytes in all.
#[cold]
pub(super) fn allocate_large(kind: Kind, ty: &'static Type, bytes: usize) -> Option<Object> {
    allocate_slow(Window::open(), ty, |window, chores| large(window, kind, bytes, chores))
}

/// How often everything is collected before there is no memory. What has a `Drop` is freed after it has run, so perhaps not the first time.
const COLLECTIONS: u32 = 3;

#[cold]
#[inline(never)]
fn allocate_slow(
    mut window: Window,
    ty: &'static Type,
    from: impl Fn(&Window, &mut Chores) -> Option<Object>,
) -> Option<Object> {
    let mut tries = 0;
    loop {
        let mut chores = Chores::default();
        let object = from(&window, &mut chores);
        if let Some(object) = object {
            // SAFETY: the slot is the caller's (H11), in this window and later.
            unsafe { object.header() }.prepare();
            if objects::is_on() {
                objects::allocated(&window, object, ty);
            }
        }
        drop(window);
        pace::environment();
        chores.see_to();
        if object.is_some() || tries == COLLECTIONS {
            return object;
        }
        tries += 1;
        cycle::collect();
        death::wait_a_little();
        window = Window::open();
    }
}

/// Claims another word and takes a slot of it.
fn refill(window: &Window, kind: Kind, chores: &mut Chores) -> Option<Object> {
    let phase = window.phase();
    let k = kind.index();
    with_cache(window, |cache| {
        let claim = &mut cache.claims[k];
        // Only threads can find one: another came first.
        if let Some(object) = take(claim) {
            return Some(object);
        }
        let mut bytes = 0;
        claim.mask = std::mem::take(&mut cache.held[k]);
        while claim.mask == 0 {
            if claim.any && next_word(claim, phase) {
                bytes = claim.mask.count_ones() as usize * claim.slot_bytes;
                break;
            }
            let (b, word) = (next_block(window, kind, chores)?, u32::MAX);
            // The word before the first.
            let slot_bytes = ARENA.block(b).slot_bytes();
            *claim = Claim { mask: 0, block: b as u32, word, slot_bytes, any: true };
        }
        let object = take(claim);
        if objects::is_on() {
            cache.held[k] = std::mem::take(&mut claim.mask); // O2
        }
        // What was held is accounted for.
        if bytes != 0 {
            account(bytes, phase, &mut cache.debt, chores);
        }
        object
    })
}

/// Goes on to the next word with a free slot.
fn next_word(claim: &mut Claim, phase: Phase) -> bool {
    let block = ARENA.block(claim.block as usize);
    let words = block.words() as u32;
    while claim.word.wrapping_add(1) < words {
        claim.word = claim.word.wrapping_add(1);
        claim.mask = self::claim(block, claim.word as usize, phase);
        if claim.mask != 0 {
            return true;
        }
    }
    claim.any = false;
    false
}

fn account(bytes: usize, phase: Phase, debt: &mut usize, chores: &mut Chores) {
    chores.begin_cycle |= pace::claimed(bytes, phase);
    if phase.is_marking() {
        *debt += bytes;
        // When too much was allocated nobody gets more for nothing, however many they are.
        if *debt >= pace::ASSIST_BYTES || pace::is_overdrawn() {
            chores.assist = std::mem::take(debt);
        }
    }
}

fn next_block(window: &Window, kind: Kind, chores: &mut Chores) -> Option<usize> {
    if let Some(b) = PARTIAL[kind.index()].lock().pop() {
        return Some(b as usize);
    }
    let swept = sweep_first(window, Some(kind), chores);
    let b = swept.or_else(|| {
        let b = ARENA.take(kind, window.phase().swept(), pace::memory_limit_bytes())?;
        if objects::is_on() {
            objects::span_allocated(window, b);
        }
        Some(b)
    });
    window.record(|w, m, _| events::heap_alloc(w, m, pace::live()));
    b
}

/// P2
fn sweep_first(window: &Window, kind: Option<Kind>, chores: &mut Chores) -> Option<usize> {
    let Swept { found, doomed, .. } = sweep::some(window, SWEEP_FIRST, kind);
    chores.doomed |= doomed;
    found
}

fn large(window: &Window, kind: Kind, bytes: usize, chores: &mut Chores) -> Option<Object> {
    let phase = window.phase();
    sweep_first(window, None, chores);
    let b = ARENA.take_large(kind, bytes, phase.swept(), pace::memory_limit_bytes())?;
    let block = ARENA.block(b);
    if objects::is_on() {
        objects::span_allocated(window, b);
    }
    claim(block, 0, phase);
    let bytes = block.slot_bytes();
    with_cache(window, |cache| account(bytes, phase, &mut cache.debt, chores));
    window.record(|w, m, _| events::heap_alloc(w, m, pace::live()));
    Some(ARENA.object(b, 0, bytes))
}

//! Sweeping: what is not marked is free.
//!
//! - S1: blocks are swept in the order of their numbers, each by whoever drew it from [`CURSOR`], in a window. So when a world is stopped, no
//!   block is half swept.
//! - S2: of an object without a `Drop`, a finaliser or weak handles nothing is read: a word of bits says which slots are free.
//! - S3: a dead object with a finaliser gets a handle and is kept; one with a `Drop` is kept until that has run. Weak handles
//!   to either are told before (W1).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::arena::{ARENA, Block, Kind};
use super::bits::{WORD, ones};
use super::counts::{DOOMED, DROPPED, FINALIZER, WEAK};
use super::object::Object;
use super::window::Window;
use super::{death, events, heap, objects, special};

/// The next block to be swept, and where they end.
static CURSOR: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Blocks that were drawn and are not done.
static IN_HAND: AtomicUsize = AtomicUsize::new(0);
/// Bytes of objects freed since the program began.
static FREED: AtomicU64 = AtomicU64::new(0);

/// What sweeping has brought.
#[derive(Default)]
pub(super) struct Swept {
    /// A block of the kind that was looked for.
    pub(super) found: Option<usize>,
    /// Somebody waits for the goroutine that runs `Drop` and finalisers.
    pub(super) doomed: bool,
    blocks: usize,
    bytes: usize,
    freed: usize,
}

/// Everything is to be swept. In a stopped world, when the phase has become idle.
pub(super) fn begin() {
    END.store(ARENA.len(), Ordering::Relaxed);
    CURSOR.store(0, Ordering::Relaxed);
}

/// Whether nothing is left.
pub(super) fn is_done() -> bool {
    CURSOR.load(Ordering::Acquire) >= END.load(Ordering::Relaxed) && IN_HAND.load(Ordering::Acquire) == 0
}

pub(super) fn freed_bytes() -> u64 {
    FREED.load(Ordering::Relaxed)
}

/// Sweeps up to `most` blocks, or until it has found one of a kind that has free slots. `blocks` is 0 if nothing was left.
pub(super) fn some(window: &Window, most: usize, kind: Option<Kind>) -> Swept {
    let mut swept = Swept::default();
    let end = END.load(Ordering::Relaxed);
    if window.phase().is_marking() || CURSOR.load(Ordering::Relaxed) >= end {
        return swept;
    }
    let mut range = None;
    while swept.blocks < most && swept.found.is_none() {
        IN_HAND.fetch_add(1, Ordering::AcqRel);
        let b = CURSOR.fetch_add(1, Ordering::AcqRel);
        if b < end {
            swept.blocks += 1;
            if range.is_none() && ARENA.block(b).kind().is_some() {
                range = Some(events::sweep_begin(window));
            }
            let before = swept.freed;
            block(window, b, kind, &mut swept);
            if swept.freed != before {
                // While it is in hand: who waits for the end of all sweeping sees all that was freed.
                FREED.fetch_add((swept.freed - before) as u64, Ordering::Relaxed);
            }
        }
        IN_HAND.fetch_sub(1, Ordering::AcqRel);
        if b >= end {
            break;
        }
    }
    if let Some(range) = range {
        events::sweep_end(window, range, swept.bytes, swept.freed);
    }
    swept
}

impl Swept {
    pub(super) fn any(&self) -> bool {
        self.blocks != 0
    }
}

fn block(window: &Window, b: usize, wanted: Option<Kind>, swept: &mut Swept) {
    let phase = window.phase();
    let block = ARENA.block(b);
    let Some(kind) = block.kind() else { return };
    if block.swept_in() == phase.cycle() {
        // It was made since.
        return;
    }
    let (live, old) = (&block.bits[phase.marks()], &block.bits[phase.marks() ^ 1]);
    let looks = kind.drops || block.specials.load(Ordering::Acquire) != 0;
    let (mut kept, mut freed) = (0, 0);
    for w in 0..block.words() {
        let dead = old.word(w) & !live.word(w);
        let mut keep = 0;
        if dead != 0 && looks {
            for i in ones(dead) {
                let object = ARENA.object(b, w * WORD + i, block.slot_bytes());
                if is_kept(object, block, phase.marks(), w * WORD + i, kind, swept) {
                    keep |= 1 << i;
                }
            }
            if keep != 0 {
                live.set_word(w, keep);
            }
        }
        let gone = dead & !keep;
        if gone != 0 && objects::is_on() {
            objects::freed(window, b, block, w, gone);
        }
        freed += gone.count_ones() as usize;
        kept += live.word(w).count_ones() as usize;
        // The marks of the next cycle.
        old.reset_word(w);
    }
    block.set_swept(phase.cycle());
    swept.bytes += block.slots() * block.slot_bytes();
    swept.freed += freed * block.slot_bytes();
    if kept == 0 {
        if objects::is_on() {
            objects::span_freed(window, b);
        }
        ARENA.give(b);
    } else if kept < block.slots() {
        match wanted {
            Some(k) if k == kind && swept.found.is_none() => swept.found = Some(b),
            _ => heap::put_partial(b, block),
        }
    }
}

/// Whether a dead object keeps its slot for now (S3).
fn is_kept(object: Object, block: &Block, marks: usize, i: usize, kind: Kind, swept: &mut Swept) -> bool {
    // SAFETY: its slot was taken and is not free before this returns false.
    let header = unsafe { object.header() };
    if header.has(FINALIZER | WEAK) {
        let finalizer = special::bury(object, header);
        if let Some(finalizer) = finalizer {
            block.rooted.raise(i, &header.count);
            // Before anybody else can have it, and ask whether it lives.
            block.bits[marks].set_word(i / WORD, 1 << (i % WORD));
            death::finalize(object, finalizer);
            swept.doomed = true;
            return true;
        }
    }
    if !kind.drops || header.has(DROPPED) {
        return false;
    }
    if !header.has(DOOMED) {
        header.set(DOOMED);
        death::doom(object, block.slot_bytes());
        swept.doomed = true;
    }
    true
}

/// The `Drop` of an object has run: its slot is free now, or after the next sweep of its block.
pub(super) fn free(window: &Window, object: Object) {
    let phase = window.phase();
    let (block, i) = ARENA.place(object);
    if block.swept_in() == phase.swept() {
        // In this window it is not swept again.
        if objects::is_on() {
            objects::freed(window, ARENA.number(object), block, i / WORD, 1 << (i % WORD));
        }
        block.bits[phase.taken()].clear(i);
        FREED.fetch_add(block.slot_bytes() as u64, Ordering::Relaxed);
    } else {
        // Its sweeper sees the flag, or the next one does. From here on the slot may be somebody else's.
        // SAFETY: its slot is not free before that.
        unsafe { object.header() }.set(DROPPED);
    }
}

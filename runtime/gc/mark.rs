//! Marking: grey objects queue until somebody traces them.
//!
//! - M1: an object is queued by whoever has marked it, so once, if its kind has edges. (One with a finaliser may be queued unmarked, too: F1.)
//! - M2: tracing runs the user's `Trace`, so it lies outside all windows, between [`Quiet::begin`], in one, and [`Quiet::end`]. As long as
//!   anybody is between the two the phase does not end, so nothing is freed.
//! - M3: roots are found block by block (H7), by whoever draws the block's number.
//! - M4: what a mutator shades stays with its P until it is a chunk: nobody else sees it, and QUIET does not count it. So marking is over
//!   only if a stopped world finds nothing there.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tracer::record::Fixed;

use super::arena::ARENA;
use super::bits::{WORD, ones};
use super::object::Object;
use super::quiet::Quiet;
use super::trace::Visitor;
use super::window::{Phase, Window};
use super::{cycle, events, heap, pace, special, worker};
use crate::prim::chaos;
use crate::sched::g::Kind;
use crate::sched::park::Caller;
use crate::sync::waiter::WaitList;

/// Objects that travel together.
const CHUNK: usize = 256;
/// The same when nothing queues. When nobody has anything to do, even one travels.
const CHUNK_MIN: usize = 16;
/// What looking for roots in a block counts for, in bytes of marking.
const ROOTS_COST: usize = 512;
/// What tracing an object counts for.
const TRACE_COST: usize = 32;

/// H10. Counted are chunks in QUEUE, and blocks whose roots are not found yet.
static QUIET: Quiet = Quiet::new();
static QUEUE: Mutex<Vec<Vec<Object>>> = Mutex::new(Vec::new());
/// The next block to look for roots in, and where they end.
static ROOTS: AtomicUsize = AtomicUsize::new(0);
static ROOTS_END: AtomicUsize = AtomicUsize::new(0);
/// Those who have to wait until marking is over.
static OVERDRAWN: WaitList = WaitList::new();

/// Somebody who marks.
pub(super) struct Marker {
    phase: Phase,
    grey: Vec<Object>,
    /// Bytes of objects marked.
    bytes: usize,
    /// Bytes of work done.
    work: usize,
}

impl Marker {
    /// Marks an object that lives (M2).
    #[inline]
    pub(super) fn mark(&mut self, object: Object) {
        let (block, i) = ARENA.place(object);
        if block.bits[self.phase.marks()].set(i) {
            self.bytes += block.slot_bytes();
            self.work += block.slot_bytes();
            if block.has_edges() {
                self.grey.push(object);
            }
        }
    }

    #[inline]
    fn trace(&mut self, object: Object) {
        // SAFETY: it was alive in this phase, so it stays (M2). Its kind says what its value is.
        unsafe {
            // H12
            let Some(kind) = object.header().kind() else { return };
            kind.trace(object, &mut Visitor::mark(self));
        }
        self.work += TRACE_COST;
    }

    /// Gets more to do.
    fn find(&mut self) -> bool {
        if let Some(chunk) = QUEUE.lock().pop() {
            chaos::window();
            QUIET.took(1);
            self.grey = chunk;
            return true;
        }
        let b = ROOTS.load(Ordering::Relaxed);
        if b < ROOTS_END.load(Ordering::Relaxed) {
            let b = ROOTS.fetch_add(1, Ordering::Relaxed);
            if b < ROOTS_END.load(Ordering::Relaxed) {
                QUIET.took(1);
                self.roots(b);
                self.work += ROOTS_COST;
                return true;
            }
        }
        false
    }

    /// Marks the roots in a block (M3).
    fn roots(&mut self, b: usize) {
        let block = ARENA.block(b);
        if block.kind().is_none() {
            return;
        }
        for w in 0..block.words() {
            // `rooted` first: whoever claims a word sets it last.
            let rooted = block.rooted.word(w);
            let candidates = rooted & block.bits[self.phase.taken()].word(w) & !block.bits[self.phase.marks()].word(w);
            for i in ones(candidates) {
                let i_in_block = w * WORD + i;
                let object = ARENA.object(b, i_in_block, block.slot_bytes());
                // SAFETY: its slot is taken, since before this phase: nothing is freed in it.
                if block.rooted.is_root(i_in_block, unsafe { &object.header().count }) {
                    self.mark(object);
                }
            }
        }
    }

    /// Gives a part to others.
    fn share(&mut self) {
        let rest = self.grey.split_off(self.grey.len() - CHUNK);
        put(rest);
        worker::call_more();
    }
}

fn put(chunk: Vec<Object>) {
    QUIET.put(1);
    QUEUE.lock().push(chunk);
}

/// How much is left, roughly.
pub(super) fn left() -> usize {
    QUIET.left()
}

/// Whether marking is over (H10).
pub(super) fn is_quiet() -> bool {
    QUIET.is_quiet()
}

/// The phase has become mark: in a stopped world.
pub(super) fn begin() {
    let blocks = ARENA.len();
    // One for the finalisers.
    QUIET.put(blocks + 1);
    ROOTS_END.store(blocks, Ordering::Relaxed);
    ROOTS.store(0, Ordering::Relaxed);
}

/// What objects with finalisers lead to (F1). By the coordinator, when the world runs again.
pub(super) fn begin_finalizers() {
    special::with_finalizers(put);
    QUIET.took(1);
}

/// Marking is over: those who wait for that go on.
pub(super) fn ended() {
    OVERDRAWN.wake_all(crate::sched::park::Turn::Last);
}

/// Marks the target of a handle or an edge that is being made, while marking (H3, H4).
#[inline]
pub(super) fn shade(window: &Window, object: Object) {
    let phase = window.phase();
    if phase.is_marking() {
        shade_slow(window, phase, object);
    }
}

#[cold]
#[inline(never)]
fn shade_slow(window: &Window, phase: Phase, object: Object) {
    let (block, i) = ARENA.place(object);
    if !block.bits[phase.marks()].set(i) {
        return;
    }
    heap::with_shades(window, |shades| {
        shades.bytes += block.slot_bytes();
        if block.has_edges() {
            shades.objects.push(object);
            let n = shades.objects.len();
            if n >= CHUNK || n >= CHUNK_MIN && QUIET.left() == 0 || QUIET.is_quiet() {
                shades.publish();
            }
        }
    });
}

/// What those who have a P in turn have shaded, and not shown to anybody yet (M4).
#[derive(Default)]
pub(super) struct Shades {
    objects: Vec<Object>,
    bytes: usize,
}

impl Shades {
    pub(super) const fn new() -> Shades {
        Shades { objects: Vec::new(), bytes: 0 }
    }

    /// In a window, or in a stopped world. Answers whether there was anything to be traced.
    pub(super) fn publish(&mut self) -> bool {
        pace::marked(std::mem::take(&mut self.bytes));
        if self.objects.is_empty() {
            return false;
        }
        put(std::mem::take(&mut self.objects));
        true
    }
}

/// Marks about so much; answers whether there may be more. Whoever keeps its P gives nobody a turn. Outside a window.
pub(super) fn work(bytes: usize, keeps_p: bool) -> bool {
    let phase = {
        let window = Window::open();
        if !window.phase().is_marking() {
            return false;
        }
        QUIET.begin();
        let phase = window.phase();
        if keeps_p {
            window.close_at_once();
        }
        phase
    };
    let mut marker = Marker { phase, grey: Vec::new(), bytes: 0, work: 0 };
    let more = loop {
        match marker.grey.pop() {
            Some(object) => marker.trace(object),
            None if !marker.find() => break false,
            None => {}
        }
        if marker.grey.len() >= 2 * CHUNK {
            marker.share();
        }
        if marker.work >= bytes {
            break true;
        }
    };
    pace::marked(marker.bytes);
    if !marker.grey.is_empty() {
        put(marker.grey);
    }
    if QUIET.end() {
        cycle::look();
        if !keeps_p {
            // The coordinator is next here. Each moment that marking goes on is paid for with memory.
            crate::yield_now();
        }
    }
    more
}

/// Somebody has allocated so many bytes while marking goes on, and helps. Outside a window.
#[cold]
#[inline(never)]
pub(super) fn assist(allocated: usize) {
    let range = {
        let window = Window::open();
        if !window.phase().is_marking() {
            return;
        }
        events::assist_begin(&window)
    };
    let mut more = work(pace::assist_work(allocated), false);
    while more && pace::is_overdrawn() {
        more = work(pace::ASSIST_BYTES, false);
    }
    events::assist_end(range);
    if !more && pace::is_overdrawn() {
        let over = || !Phase::now().is_marking();
        Caller::here().wait_until(&OVERDRAWN, Fixed::GcMarkAssist, Kind::None, over);
    }
}

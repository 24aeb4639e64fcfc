//! The heap's objects in a trace: which blocks and objects there are, and which come and go, as events of Go's AllocFree experiment.
//!
//! - O1: recording is turned on in a stopped world, without threads, in which everything that exists is told. From then on whoever takes a slot or
//!   a block says so in that window, and whoever frees one says so before anybody else can have it.
//! - O2: while it is on, a cache gives what it has claimed out of `held`, by the slow path, which says so for each. So the fast path has
//!   nothing to ask, and costs the same as if there were no such option.
//! - O3: it may be turned off at any time. Who still finds it on records into a trace that has no use for it.
//!
//! The order of these events is that of the clock, as in Go's traces. A slot that is freed here and taken there goes through a lock
//! in between.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use tracer::record::{HeapLayout, HeapType, Writer, set_heap_layout};
use tracer::wire::Ev;

use super::arena::{ARENA, Block, LARGE};
use super::bits::{WORD, ones};
use super::heap;
use super::object::{Object, Type};
use super::size::BLOCK_BYTES;
use super::window::{Phase, Window, exclude_threads};
use crate::sched::m::M;
use crate::stack::CLASS_BYTES;

static ON: AtomicBool = AtomicBool::new(false);

/// Slots and headers lie on multiples of this.
const ALIGN: usize = 8;

/// Whether objects are recorded. In a window it is turned off only, if anything.
#[inline]
pub(super) fn is_on() -> bool {
    !cfg!(rt_untraced) && ON.load(Ordering::Relaxed)
}

/// What is said of a type.
pub(super) struct Shape {
    pub(super) bytes: usize,
    pub(super) has_edges: bool,
    pub(super) name: fn() -> &'static str,
}

/// The types that were named, by the addresses of their descriptions.
static TYPES: LazyLock<RwLock<HashMap<usize, HeapType>>> = LazyLock::new(|| RwLock::new(HashMap::new()));

fn id(kind: &'static Type) -> u64 {
    let at = kind.addr();
    if let Some(known) = TYPES.read().get(&at) {
        return known.id();
    }
    let new = || {
        let Shape { bytes, has_edges, name } = kind.shape;
        HeapType::register(at, bytes, if has_edges { bytes } else { 0 }, name())
    };
    TYPES.write().entry(at).or_insert_with(new).id()
}

fn number(object: Object) -> u64 {
    (ARENA.offset(object) / ALIGN) as u64
}

/// Turns it on, and tells what there is. The world is stopped, and the collector does not lead a cycle on (`Advancing`).
pub(crate) fn begin(m: &'static M) {
    let _threads = exclude_threads();
    ON.store(true, Ordering::Relaxed);
    let phase = Phase::now();
    // What is claimed and not used is no object.
    let mut unused = HashMap::new();
    heap::hold(|b, word, slots| _ = unused.insert((b, word), slots));
    let guard = m.slot.acquire();
    let Some(mut w) = guard.writer() else { return };
    for b in 0..ARENA.len() {
        let block = ARENA.block(b);
        if block.kind().is_some() {
            span(&mut w, Ev::Span, b, block);
            exists(&mut w, phase, b, block, &unused);
        }
    }
}

/// Turns it off.
pub(crate) fn end() {
    ON.store(false, Ordering::Relaxed);
}

fn exists(w: &mut Writer<'_>, phase: Phase, b: usize, block: &Block, unused: &HashMap<(usize, usize), usize>) {
    // Before it is swept, what is dead is there, too.
    let is_swept = block.swept_in() == phase.swept();
    let taken = &block.bits[if is_swept { phase.taken() } else { phase.marks() ^ 1 }];
    for word in 0..block.words() {
        let unused = unused.get(&(b, word)).copied().unwrap_or(0);
        for i in ones(taken.word(word) & !unused) {
            let object = ARENA.object(b, word * WORD + i, block.slot_bytes());
            // SAFETY: its slot is taken, and in a stopped world without threads it stays so.
            let kind = unsafe { object.header() }.kind();
            w.event(Ev::HeapObject, &[number(object), kind.map_or(HeapType::UNKNOWN.id(), id)]);
        }
    }
}

fn span(w: &mut Writer<'_>, ev: Ev, b: usize, block: &Block) {
    set_heap_layout(HeapLayout {
        min_address: ARENA.base_addr() as u64,
        page_bytes: BLOCK_BYTES as u64,
        object_align_bytes: ALIGN as u64,
        stack_align_bytes: CLASS_BYTES[0] as u64,
    });
    let kind = block.kind().expect("a block in use has a kind");
    // As Go packs it: a class, of which 0 is for large objects, and whether there is nothing to be traced; for objects, so the lowest bit is 0.
    let class = if kind.class == LARGE { 0 } else { kind.class as u64 + 1 };
    w.event(ev, &[b as u64, block.run() as u64, (class << 1 | u64::from(!kind.edges)) << 1]);
}

/// A slot was taken, for a value of this type.
#[cold]
pub(super) fn allocated(window: &Window, object: Object, kind: &'static Type) {
    let id = id(kind);
    window.record_anywhere(|w| w.event(Ev::HeapObjectAlloc, &[number(object), id]));
}

/// The slots of some bits in word `word` of a block are about to be freed.
#[cold]
pub(super) fn freed(window: &Window, b: usize, block: &Block, word: usize, slots: usize) {
    window.record_anywhere(|w| {
        for i in ones(slots) {
            let object = ARENA.object(b, word * WORD + i, block.slot_bytes());
            w.event(Ev::HeapObjectFree, &[number(object)]);
        }
    });
}

/// A block was taken for objects.
#[cold]
pub(super) fn span_allocated(window: &Window, b: usize) {
    window.record_anywhere(|w| span(w, Ev::SpanAlloc, b, ARENA.block(b)));
}

/// A block is about to be given back.
#[cold]
pub(super) fn span_freed(window: &Window, b: usize) {
    window.record_anywhere(|w| w.event(Ev::SpanFree, &[b as u64]));
}

//! What few objects have: finalisers, and weak handles to them.
//!
//! - F1: what an object with a finaliser leads to is marked in each cycle, as if it were a root, so that it is intact when the finaliser runs. The
//!   object itself is not; so the collector can tell when nothing else leads to it. (One in a cycle with itself is kept by that.)
//! - F2: a finaliser is set in a window that shades the object: otherwise one that was set while marking goes on could miss F1.
//! - W1: a weak handle is a cell that names the object until its sweeper has found it dead and emptied the cell, under the
//!   cell's lock. Whoever upgrades looks, under that lock, whether the object is marked: while it names a dead object the mark says so.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::arena::ARENA;
use super::counts::{FINALIZER, WEAK};
use super::mark;
use super::object::{Header, Object, check};
use super::window::Window;

/// Gets a handle, which it has to make of the count that the object has for it.
pub(super) type Finalizer = Box<dyn FnOnce(Object) + Send>;

/// What weak handles share (W1).
pub(super) type WeakCell = Mutex<Option<Object>>;

#[derive(Default)]
struct Special {
    finalizer: Option<Finalizer>,
    weak: Option<Arc<WeakCell>>,
}

const SHARDS: usize = 16;

static SPECIALS: [LazyLock<Mutex<HashMap<Object, Special>>>; SHARDS] =
    [const { LazyLock::new(|| Mutex::new(HashMap::new())) }; SHARDS];

fn shard(object: Object) -> &'static Mutex<HashMap<Object, Special>> {
    &SPECIALS[(object.addr() >> 5) % SHARDS]
}

/// Sets the finaliser of an object that the caller has a handle to; gives the one that it had, to be dropped outside.
pub(super) fn set_finalizer(object: Object, finalizer: Option<Finalizer>) -> Option<Finalizer> {
    let window = Window::open();
    // F2
    mark::shade(&window, object);
    ARENA.place(object).0.specials.store(1, std::sync::atomic::Ordering::Release);
    // SAFETY: the caller has a handle.
    let header = unsafe { object.header() };
    let mut shard = shard(object).lock();
    match finalizer {
        Some(_) => {
            header.set(FINALIZER);
            std::mem::replace(&mut shard.entry(object).or_default().finalizer, finalizer)
        }
        None => shard.get_mut(&object)?.finalizer.take(),
    }
}

/// The cell of an object that the caller has a handle to.
pub(super) fn weak_cell(object: Object) -> Arc<WeakCell> {
    let _window = Window::open();
    ARENA.place(object).0.specials.store(1, std::sync::atomic::Ordering::Release);
    // SAFETY: the caller has a handle.
    unsafe { object.header() }.set(WEAK);
    let mut shard = shard(object).lock();
    shard.entry(object).or_default().weak.get_or_insert_with(|| Arc::new(Mutex::new(Some(object)))).clone()
}

/// A handle to the object that a cell names, if it lives (W1). The count is the caller's.
pub(super) fn upgrade(cell: &WeakCell) -> Option<Object> {
    let window = Window::open();
    let named = cell.lock();
    let object = (*named)?;
    let phase = window.phase();
    let (block, i) = ARENA.place(object);
    // In phase mark everything that the last cycle found dead is swept, so its cell is empty.
    if !phase.is_marking() && !block.bits[phase.marks()].get(i) {
        return None;
    }
    // SAFETY: not found dead, and its slot is not free in this window (H2).
    check(block.rooted.raise(i, unsafe { &object.header().count }));
    // H3
    mark::shade(&window, object);
    Some(object)
}

/// The object is dead: tells its weak handles, and gives its finaliser. By its sweeper.
pub(super) fn bury(object: Object, header: &Header) -> Option<Finalizer> {
    let special = shard(object).lock().remove(&object)?;
    header.unset(FINALIZER | WEAK);
    if let Some(cell) = special.weak {
        *cell.lock() = None;
    }
    special.finalizer
}

/// All objects with a finaliser (F1), a part at a time.
pub(super) fn with_finalizers(mut each: impl FnMut(Vec<Object>)) {
    for shard in &SPECIALS {
        let objects: Vec<Object> =
            shard.lock().iter().filter(|(_, s)| s.finalizer.is_some()).map(|(object, _)| *object).collect();
        if !objects.is_empty() {
            each(objects);
        }
    }
}

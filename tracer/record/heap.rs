//! What the events of a heap's spans and objects count from, and the types that they name: Go's AllocFree experiment.
//!
//! The events are like all others ([`Ev::Span`](crate::wire::Ev::Span) to [`Ev::HeapObjectFree`](crate::wire::Ev::HeapObjectFree)), but for their
//! order: it comes from the clock alone, and no reader checks it. What their numbers mean is told in batches of the experiment, in each
//! generation, so that each can be read alone.
//!
//! - A1: a layout is set, and a type is registered, before an event refers to it, and generations are put together after their last event. So
//!   what is there by then is enough. Neither changes afterwards.

use parking_lot::RwLock;

use crate::wire::cut_string;

/// Where the numbers of the events count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapLayout {
    /// The lowest address.
    pub min_address: u64,
    /// What the numbers and sizes of spans count.
    pub page_bytes: u64,
    /// What the numbers of objects count.
    pub object_align_bytes: u64,
    /// What the numbers of stacks would count.
    pub stack_align_bytes: u64,
}

/// A type, as the events name it: the same in every generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeapType(u64);

#[derive(Debug)]
pub(crate) struct TypeEntry {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) pointer_bytes: u64,
    pub(crate) name: Box<str>,
}

/// The layout, and the types in the order of their ids, of which the first is 1.
static HEAP: RwLock<(Option<HeapLayout>, Vec<TypeEntry>)> = RwLock::new((None, Vec::new()));

/// Sets where the numbers count from; the first one counts.
pub fn set_heap_layout(layout: HeapLayout) {
    HEAP.write().0.get_or_insert(layout);
}

impl HeapType {
    /// No type that is known.
    pub const UNKNOWN: HeapType = HeapType(0);

    /// Registers a type: where its description is, the size of a value, how many bytes of it at most may hold pointers, and its name. Each call
    /// makes another one.
    pub fn register(address: usize, bytes: usize, pointer_bytes: usize, name: &str) -> HeapType {
        let name = cut_string(name).into();
        let mut heap = HEAP.write();
        heap.1.push(TypeEntry {
            address: address as u64,
            bytes: bytes as u64,
            pointer_bytes: pointer_bytes as u64,
            name,
        });
        HeapType(heap.1.len() as u64)
    }

    /// Its id.
    #[inline]
    pub fn id(self) -> u64 {
        self.0
    }
}

/// Calls `f` with the layout, if one was set, and with the types and their ids.
pub(crate) fn with<R>(f: impl FnOnce(Option<HeapLayout>, &[TypeEntry]) -> R) -> R {
    let heap = HEAP.read();
    f(heap.0, &heap.1)
}

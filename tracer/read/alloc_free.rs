//! The AllocFree experiment: what the heap does, in a trace of a Go program that ran with `GODEBUG=traceallocfree=1`.
//!
//! Its events ([`Ev::Span`] to [`Ev::GoroutineStackFree`]) name spans, objects and stacks by small numbers, and types by
//! ids. What those stand for is told in batches of the experiment's own: the places where the numbers count from, once in
//! a trace, and the types, in every generation in which there are new ones.
//!
//! ```no_run
//! # fn main() -> Result<(), tracer::read::Error> {
//! use tracer::read::alloc_free::AllocFree;
//! use tracer::wire::Ev;
//!
//! let mut reader = tracer::read::Reader::new(std::fs::File::open("trace.out")?)?;
//! let mut heap = AllocFree::default();
//! while reader.advance()? {
//!     let event = reader.event();
//!     if event.kind == Ev::Sync {
//!         heap.update(reader.tables());
//!     }
//!     if event.kind == Ev::HeapObjectAlloc {
//!         let kind = heap.type_of(event).map_or("?".into(), |kind| kind.name());
//!         println!("{:#x} {kind}", heap.address(event).unwrap_or(0));
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Go's reader hands these batches out as they are, so nothing in them makes a trace a bad one.

use std::borrow::Cow;
use std::collections::HashMap;

use super::event::Event;
use super::hash::Seed;
use super::tables::Tables;
use crate::wire::{ALLOC_FREE_LAYOUT, ALLOC_FREE_TYPES, Ev, varint};

/// The number of the experiment.
pub const EXPERIMENT: u8 = crate::wire::ALLOC_FREE;

/// A batch of an experiment, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentBatch {
    /// Which experiment.
    pub experiment: u8,
    /// The M that wrote it.
    pub m: i64,
    /// What it holds.
    pub data: Vec<u8>,
}

/// Where the numbers of the events count from, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest address.
    pub heap_min_address: u64,
    /// The size of a page: numbers of spans count these.
    pub page_bytes: u64,
    /// The least distance of objects: their numbers count it.
    pub object_align_bytes: u64,
    /// The least size of a stack: numbers of stacks count it.
    pub stack_align_bytes: u64,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Where its description is in the program's memory.
    pub address: u64,
    /// The size of a value.
    pub bytes: u64,
    /// So many bytes at the beginning of a value may hold pointers.
    pub pointer_bytes: u64,
    name: Vec<u8>,
}

impl Type {
    /// As Go writes it, its invalid UTF-8 replaced.
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }
}

/// What is known of the heap at one moment of the trace.
#[derive(Clone, Debug, Default)]
pub struct AllocFree {
    layout: Option<Layout>,
    types: HashMap<u64, Type, Seed>,
    malformed: u64,
}

impl AllocFree {
    /// A generation begins, with these tables: call this at each `Sync` event. Ids of types are those of one generation.
    pub fn update(&mut self, tables: &Tables) {
        self.types.clear();
        for batch in tables.experiment_batches().iter().filter(|batch| batch.experiment == EXPERIMENT) {
            let understood = match batch.data.split_first() {
                Some((&ALLOC_FREE_TYPES, rest)) => self.add_types(rest),
                Some((&ALLOC_FREE_LAYOUT, rest)) => self.set_layout(rest),
                _ => None,
            };
            self.malformed += u64::from(understood.is_none());
        }
    }

    /// Where the numbers count from, if the trace has said it.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// How many batches were not understood.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// The address of the span, object or stack that the event is about.
    pub fn address(&self, event: &Event) -> Option<u64> {
        let layout = self.layout?;
        let unit = match event.kind {
            Ev::Span | Ev::SpanAlloc | Ev::SpanFree => layout.page_bytes,
            Ev::HeapObject | Ev::HeapObjectAlloc | Ev::HeapObjectFree => layout.object_align_bytes,
            Ev::GoroutineStack | Ev::GoroutineStackAlloc | Ev::GoroutineStackFree => layout.stack_align_bytes,
            _ => return None,
        };
        event.args[0].checked_mul(unit)?.checked_add(layout.heap_min_address)
    }

    /// How many bytes the span or stack has, or the object at least.
    pub fn bytes(&self, event: &Event) -> Option<u64> {
        match event.kind {
            Ev::Span | Ev::SpanAlloc => event.args[1].checked_mul(self.layout?.page_bytes),
            Ev::GoroutineStack | Ev::GoroutineStackAlloc => {
                // The number of bits that the size takes, and that is a power of two.
                let bits = u32::try_from(event.args[1].checked_sub(1)?).ok()?;
                1u64.checked_shl(bits)
            }
            _ => self.type_of(event).map(|kind| kind.bytes),
        }
    }

    /// The type of the object, if the allocator knew it.
    pub fn type_of(&self, event: &Event) -> Option<&Type> {
        match event.kind {
            Ev::HeapObject | Ev::HeapObjectAlloc => self.types.get(&event.args[1]),
            _ => None,
        }
    }

    fn set_layout(&mut self, data: &[u8]) -> Option<()> {
        let mut pos = 0;
        let mut number = || varint::read(data, &mut pos);
        self.layout = Some(Layout {
            heap_min_address: number()?,
            page_bytes: number()?,
            object_align_bytes: number()?,
            stack_align_bytes: number()?,
        });
        Some(())
    }

    fn add_types(&mut self, data: &[u8]) -> Option<()> {
        let mut pos = 0;
        while pos < data.len() {
            let mut numbers = [0; 5];
            for number in &mut numbers {
                *number = varint::read(data, &mut pos)?;
            }
            let [id, address, bytes, pointer_bytes, len] = numbers;
            let name = data.get(pos..)?.get(..usize::try_from(len).ok()?)?.to_vec();
            pos += name.len();
            self.types.insert(id, Type { address, bytes, pointer_bytes, name });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(batches: &[&[u8]]) -> Tables {
        let mut tables = Tables::default();
        for data in batches {
            tables.add_experiment(EXPERIMENT, 7, data);
        }
        tables
    }

    fn event(kind: Ev, args: [u64; 4]) -> Event {
        Event { kind, args, ..Event::BLANK }
    }

    #[test]
    fn places_sizes_and_types() {
        let types = [&[ALLOC_FREE_TYPES, 9, 5, 24, 8, 3][..], b"int", &[10, 6, 1, 0, 0]].concat();
        let mut heap = AllocFree::default();
        heap.update(&tables(&[&[ALLOC_FREE_LAYOUT, 0x80, 0x20, 0x80, 0x40, 8, 0x80, 0x10], &types]));
        assert_eq!(heap.layout().map(|layout| (layout.heap_min_address, layout.page_bytes)), Some((4096, 8192)));
        let (span, object) = (event(Ev::SpanAlloc, [2, 3, 0, 0]), event(Ev::HeapObjectAlloc, [5, 9, 0, 0]));
        let stack = event(Ev::GoroutineStack, [1, 12, 0, 0]);
        assert_eq!((heap.address(&span), heap.bytes(&span)), (Some(4096 + 2 * 8192), Some(3 * 8192)));
        assert_eq!((heap.address(&object), heap.bytes(&object)), (Some(4096 + 40), Some(24)));
        assert_eq!((heap.address(&stack), heap.bytes(&stack)), (Some(4096 + 2048), Some(2048)));
        assert_eq!(
            heap.type_of(&object).map(|kind| (kind.name().into_owned(), kind.pointer_bytes)),
            Some(("int".into(), 8))
        );
        assert_eq!(heap.type_of(&event(Ev::HeapObject, [5, 11, 0, 0])), None);
        assert_eq!(heap.address(&event(Ev::GoStop, [0; 4])), None);
        assert_eq!(heap.malformed(), 0);
        // Of the next generation the types are others, the places the same.
        heap.update(&tables(&[]));
        assert!(heap.layout().is_some() && heap.type_of(&object).is_none());
    }

    #[test]
    fn what_cannot_be_understood_is_counted() {
        let mut heap = AllocFree::default();
        heap.update(&tables(&[
            &[],
            &[2, 1],
            &[ALLOC_FREE_LAYOUT, 1, 2],
            &[ALLOC_FREE_TYPES, 1, 1, 1, 1, 200, 1],
            &[ALLOC_FREE_TYPES, 0x80],
        ]));
        assert_eq!(heap.malformed(), 5);
        let overflow = [&[ALLOC_FREE_LAYOUT, 1][..], &[0xff; 9], &[1, 1, 1]].concat();
        heap.update(&tables(&[&overflow]));
        assert_eq!(heap.address(&event(Ev::SpanFree, [2, 0, 0, 0])), None);
        assert_eq!(heap.bytes(&event(Ev::GoroutineStack, [1, 65, 0, 0])), None);
        assert_eq!(heap.bytes(&event(Ev::GoroutineStack, [1, 0, 0, 0])), None);
    }
}

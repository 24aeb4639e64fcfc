//! What is known of each G, P and M.

use crate::read::event::NONE;
use crate::read::slots::Slots;
use crate::read::tables::Tables;
use crate::wire::{Ev, GoStatus, ProcStatus};

/// A sequence number. They restart in every generation, so it counts only together with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seq {
    pub generation: u64,
    pub number: u64,
}

impl Seq {
    /// `self` is the one right after `before`.
    #[inline]
    pub fn follows(self, before: Seq) -> bool {
        self.generation == before.generation && self.number == before.number.wrapping_add(1)
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of generation {}", self.number, self.generation)
    }
}

/// Ranges of time that are open for a resource: the event that began each, and the id of its reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(Ev, u64)>);

impl Ranges {
    pub fn has(&self, range: (Ev, u64)) -> bool {
        self.0.contains(&range)
    }

    /// Opens it. `false` if it is open.
    #[must_use]
    pub fn begin(&mut self, range: (Ev, u64)) -> bool {
        let new = !self.has(range);
        if new {
            self.0.push(range);
        }
        new
    }

    /// Closes the first one that `begin` began, and gives its reason.
    pub fn end(&mut self, begin: Ev) -> Option<u64> {
        let place = self.0.iter().position(|range| range.0 == begin)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// A region: its task, and a hash of its name, as ids of strings differ between generations.
pub(super) type Region = (u64, u64);

/// What few goroutines have.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra {
    pub ranges: Ranges,
    pub regions: Vec<Region>,
}

#[derive(Clone, Debug)]
pub(super) struct GState {
    pub seq: Seq,
    extra: Option<Box<Extra>>,
    pub status: GoStatus,
}

impl GState {
    pub fn new(status: GoStatus, generation: u64) -> GState {
        GState { seq: Seq { generation, number: 0 }, extra: None, status }
    }

    pub fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// `f` of what it has, if it has anything; afterwards nothing is kept that is empty.
    pub fn with_extra<T>(&mut self, f: impl FnOnce(&mut Extra) -> T) -> Option<T> {
        let extra = self.extra.as_mut()?;
        let result = f(extra);
        if extra.ranges.0.is_empty() && extra.regions.is_empty() {
            self.extra = None;
        }
        Some(result)
    }
}

#[derive(Clone, Debug)]
pub(super) struct PState {
    pub seq: Seq,
    pub status: ProcStatus,
    pub sweeping: bool,
}

/// What an M has: a P and a goroutine, or [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MState {
    pub p: i64,
    pub g: i64,
}

impl Default for MState {
    fn default() -> MState {
        MState { p: NONE, g: NONE }
    }
}

/// Where the state of an M is. By default nowhere: that of no M, or of one that nothing was tried of yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) struct Slot(usize);

impl Default for Slot {
    fn default() -> Slot {
        Slot(usize::MAX)
    }
}

/// The Ms. One exists once an event of it was tried, or one has told of it.
#[derive(Debug, Default)]
pub(super) struct Ms {
    /// Entries as `states` has them: nothing is ever removed.
    ids: Slots<()>,
    states: Vec<MState>,
}

impl Ms {
    /// The slot of an M, which exists from now on.
    #[cold]
    pub fn slot(&mut self, m: i64) -> Slot {
        Slot(self.ids.find(m).unwrap_or_else(|| {
            self.states.push(MState::default());
            self.ids.insert(m, ())
        }))
    }

    /// What the M of this slot has.
    #[inline]
    pub fn at(&self, slot: Slot) -> Option<MState> {
        self.states.get(slot.0).copied()
    }

    #[inline]
    pub fn at_mut(&mut self, slot: Slot) -> Option<&mut MState> {
        self.states.get_mut(slot.0)
    }

    pub fn get(&mut self, m: i64) -> Option<&mut MState> {
        self.states.get_mut(self.ids.find(m)?)
    }

    /// The M that has this P.
    pub fn with_p(&self, p: i64) -> Option<(i64, MState)> {
        self.ids.iter().zip(&self.states).map(|((m, ()), state)| (m, *state)).find(|(_, state)| state.p == p)
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }
}

/// What an event happens to: where it stands, and what the M has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub m: i64,
    pub p: i64,
    pub g: i64,
    /// Of the M whose stream it is.
    pub slot: Slot,
}

/// A hash of the string with this id, the same in every generation; `None` if the table has none.
pub(super) fn name_hash(tables: &Tables, id: u64, hasher: &std::hash::RandomState) -> Option<u64> {
    use std::hash::BuildHasher;
    tables.string_bytes(id).map(|bytes| hasher.hash_one(bytes))
}

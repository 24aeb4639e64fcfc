//! Strings and stacks that outlive their generation, each once for the whole trace.
//!
//! A goroutine may wait over many generations, and the tables that its stack is in are gone by then. So what an analysis
//! needs is taken out of the tables: once for each id and generation an entry is looked at, and once for each content it
//! is kept. An event costs a look into an array.
//!
//! Memory: the distinct strings and stacks that were asked for.

use std::collections::HashMap;
use std::sync::Arc;

use super::stack::{Frame, Stack, is_library};
use crate::read::Tables;
use crate::read::hash::Seed;

/// Ids up to this one are looked up in an array.
const DENSE_MAX: u64 = 1 << 20;

/// No place.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A map from the ids of one generation to places.
#[derive(Clone, Debug, Default)]
pub(super) struct IdCache {
    dense: Vec<u32>,
    sparse: HashMap<u64, u32, Seed>,
}

impl IdCache {
    pub fn clear(&mut self) {
        self.dense.clear();
        self.sparse.clear();
    }

    #[inline]
    pub fn get(&self, id: u64) -> Option<u32> {
        match self.dense.get(id as usize) {
            Some(&place) => Some(place).filter(|&place| place != NOWHERE),
            None => self.sparse.get(&id).copied(),
        }
    }

    pub fn set(&mut self, id: u64, place: u32) {
        // Ids are dense from 1 in practice. A file that is not so must not make the array long.
        if id > DENSE_MAX || id > 4 * (self.dense.len() as u64 + 1_024) {
            self.sparse.insert(id, place);
            return;
        }
        let at = id as usize;
        if at >= self.dense.len() {
            // Twice as long, so that what follows is rare.
            let grown = (at + 1).max(2 * self.dense.len()).min(DENSE_MAX as usize + 1);
            self.dense.resize(grown, NOWHERE);
            // What was too far off before may lie inside now.
            let inside: Vec<u64> = self.sparse.keys().copied().filter(|&id| id < grown as u64).collect();
            for id in inside {
                if let Some(place) = self.sparse.remove(&id) {
                    self.dense[id as usize] = place;
                }
            }
        }
        self.dense[at] = place;
    }
}

/// A string of the trace: the same for the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub(super) u32);

/// A stack of the trace: the same for the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub(super) u32);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: StackId = StackId(0);

    /// Its number: stacks are numbered from 0 as they are met.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RawFrame {
    pc: u64,
    func: NameId,
    file: NameId,
    line: u64,
}

const NO_FRAME: RawFrame = RawFrame { pc: 0, func: NameId(0), file: NameId(0), line: 0 };

#[derive(Clone, Debug)]
struct Entry {
    frames: Arc<[u32]>,
    /// Of the frames, innermost first: the first that is of the program.
    user: Option<u32>,
    /// The last that is.
    root: Option<u32>,
}

/// The strings and stacks that an analysis has met.
#[derive(Clone, Debug)]
pub struct Stacks {
    names: Vec<Arc<str>>,
    /// For each name, whether it is a function that is not the program's.
    library: Vec<bool>,
    name_index: HashMap<Arc<str>, u32, Seed>,
    frames: Vec<RawFrame>,
    frame_index: HashMap<RawFrame, u32, Seed>,
    stacks: Vec<Entry>,
    stack_index: HashMap<Arc<[u32]>, u32, Seed>,
    /// Of the generation at hand.
    names_here: IdCache,
    stacks_here: IdCache,
    scratch: Vec<u32>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        let mut stacks = Stacks {
            names: Vec::new(),
            library: Vec::new(),
            name_index: HashMap::default(),
            frames: Vec::new(),
            frame_index: HashMap::default(),
            stacks: Vec::new(),
            stack_index: HashMap::default(),
            names_here: IdCache::default(),
            stacks_here: IdCache::default(),
            scratch: Vec::new(),
        };
        stacks.name(""); // 0
        stacks.keep(); // StackId::EMPTY
        stacks
    }
}

impl Stacks {
    /// Another generation: ids mean other things.
    pub(super) fn turn(&mut self) {
        self.names_here.clear();
        self.stacks_here.clear();
    }

    /// The name with this content.
    pub(super) fn name(&mut self, text: &str) -> NameId {
        if let Some(&place) = self.name_index.get(text) {
            return NameId(place);
        }
        let (place, text): (u32, Arc<str>) = (self.names.len() as u32, text.into());
        self.names.push(text.clone());
        self.library.push(is_library(&text));
        self.name_index.insert(text, place);
        NameId(place)
    }

    /// The string with this id in the generation at hand; the empty one if there is none.
    #[inline]
    pub(super) fn string(&mut self, id: u64, tables: &Tables) -> NameId {
        if let Some(place) = self.names_here.get(id) {
            return NameId(place);
        }
        let name = self.name(&tables.string(id).unwrap_or_default());
        self.names_here.set(id, name.0);
        name
    }

    /// The stack with this id in the generation at hand; the empty one if there is none.
    #[inline]
    pub(super) fn stack(&mut self, id: u64, tables: &Tables) -> StackId {
        match self.stacks_here.get(id) {
            Some(place) => StackId(place),
            None => self.take(id, tables),
        }
    }

    #[cold]
    fn take(&mut self, id: u64, tables: &Tables) -> StackId {
        self.scratch.clear();
        let pcs = tables.stack(id).map(|frame| frame.pc);
        for (pc, (func, file, line)) in pcs.zip(tables.stack_ids(id)) {
            let frame = RawFrame { pc, func: self.string(func, tables), file: self.string(file, tables), line };
            if frame == NO_FRAME {
                continue; // What Go writes of a stack that it could not walk.
            }
            let next = self.frames.len() as u32;
            let place = *self.frame_index.entry(frame).or_insert(next);
            if place == next {
                self.frames.push(frame);
            }
            self.scratch.push(place);
        }
        let stack = self.keep();
        self.stacks_here.set(id, stack.0);
        stack
    }

    /// The stack of the frames in `scratch`.
    fn keep(&mut self) -> StackId {
        if let Some(&place) = self.stack_index.get(&self.scratch[..]) {
            return StackId(place);
        }
        let frames: Arc<[u32]> = self.scratch[..].into();
        let is_user = |&frame: &u32| !self.library[self.frames[frame as usize].func.0 as usize];
        let user = frames.iter().position(is_user).map(|i| i as u32);
        let root = frames.iter().rposition(is_user).map(|i| i as u32);
        let place = self.stacks.len() as u32;
        self.stacks.push(Entry { frames: frames.clone(), user, root });
        self.stack_index.insert(frames, place);
        StackId(place)
    }

    /// How many stacks there are; their numbers are below.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// There is always the empty stack.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The text of a name.
    pub fn text(&self, name: NameId) -> &Arc<str> {
        &self.names[name.0 as usize]
    }

    /// The name is of a function that is not the program's: see [`is_library`].
    pub(super) fn is_library(&self, name: NameId) -> bool {
        self.library[name.0 as usize]
    }

    /// The frames of a stack, innermost first, each with its number: frames are numbered from 0 as they are met, the same
    /// PC, function, file and line being the same frame.
    pub fn frames(&self, stack: StackId) -> impl ExactSizeIterator<Item = (usize, Frame)> + DoubleEndedIterator {
        self.stacks[stack.index()].frames.iter().map(|&place| (place as usize, self.frame(place)))
    }

    /// The PC of a frame.
    pub fn pc(&self, frame: usize) -> u64 {
        self.frames[frame].pc
    }

    fn frame(&self, place: u32) -> Frame {
        let RawFrame { func, file, line, .. } = self.frames[place as usize];
        Frame { func: self.text(func).clone(), file: self.text(file).clone(), line }
    }

    /// A stack by itself.
    pub fn get(&self, stack: StackId) -> Stack {
        let Entry { frames, user, .. } = &self.stacks[stack.index()];
        Stack { frames: frames.iter().map(|&place| self.frame(place)).collect(), user: user.map(|i| i as usize) }
    }

    fn at(&self, stack: StackId, place: impl Fn(&Entry) -> Option<u32>) -> Option<u32> {
        let entry = &self.stacks[stack.index()];
        place(entry).and_then(|i| entry.frames.get(i as usize)).copied()
    }

    /// The number of the frame that [`Stack::site`] gives.
    pub(super) fn site_frame(&self, stack: StackId) -> Option<u32> {
        self.at(stack, |entry| entry.user.or(Some(0)))
    }

    /// What [`Stack::site`] gives.
    pub fn site(&self, stack: StackId) -> Option<Frame> {
        self.site_frame(stack).map(|place| self.frame(place))
    }

    /// The function of [`Stack::site`].
    pub(super) fn site_func(&self, stack: StackId) -> Option<NameId> {
        self.site_frame(stack).map(|place| self.frames[place as usize].func)
    }

    /// The function of [`Stack::root`].
    pub(super) fn root_func(&self, stack: StackId) -> Option<NameId> {
        let last = |entry: &Entry| (entry.frames.len() as u32).checked_sub(1);
        self.at(stack, |entry| entry.root.or_else(|| last(entry))).map(|place| self.frames[place as usize].func)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_wherever_they_are() {
        let mut cache = IdCache::default();
        let ids = [0, 5, 4_000, 40_000, 1, 30_000, 20_000, u64::MAX, DENSE_MAX, DENSE_MAX + 1];
        for (place, &id) in ids.iter().enumerate() {
            cache.set(id, place as u32);
        }
        for (place, &id) in ids.iter().enumerate() {
            assert_eq!(cache.get(id), Some(place as u32), "{id}");
        }
        assert_eq!([2, 39_999, u64::MAX - 1].map(|id| cache.get(id)), [None; 3]);
        cache.clear();
        assert!(ids.iter().all(|&id| cache.get(id).is_none()));
    }

    #[test]
    fn one_far_id_does_not_make_the_array_long() {
        let mut cache = IdCache::default();
        cache.set(DENSE_MAX, 1);
        assert!(cache.dense.is_empty());
    }
}

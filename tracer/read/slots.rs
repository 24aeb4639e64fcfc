//! What is known of many things, by id: a hash table with a look at the likely place first.
//!
//! The same few goroutines are asked for again and again. Where one is, a small array says by the low bits of its id; only if
//! another has taken that place does the hash table tell. A file can choose ids that take each other's places, and then pays
//! for the hash table each time; that one's seed it does not know.

use super::hash::IdMap;

/// Places of the small array at first. It grows with the entries, so that ids in a row have places of their own.
const NEAR: usize = 256;

/// No entry.
const NONE: u32 = u32::MAX;

/// A map from ids to `T`.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    /// An entry without a `T` is free.
    entries: Vec<(i64, Option<T>)>,
    free: Vec<u32>,
    index: IdMap<u32>,
    /// For some ids, by their low bits, the entry; never that of an id that is gone.
    near: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new(), index: IdMap::default(), near: vec![NONE; NEAR] }
    }
}

impl<T> Slots<T> {
    /// The entry of this id.
    #[inline]
    pub fn find(&mut self, id: i64) -> Option<usize> {
        let slot = self.near[self.place(id)] as usize;
        match self.entries.get(slot) {
            Some((found, Some(_))) if *found == id => Some(slot),
            _ => self.find_far(id),
        }
    }

    #[cold]
    fn find_far(&mut self, id: i64) -> Option<usize> {
        let slot = *self.index.get(&id)?;
        let place = self.place(id);
        self.near[place] = slot;
        Some(slot as usize)
    }

    /// The length is a power of two.
    #[inline]
    fn place(&self, id: i64) -> usize {
        id as usize & (self.near.len() - 1)
    }

    /// What is in an entry that was found, and has not been removed since.
    #[inline]
    pub fn at(&mut self, slot: usize) -> Option<&mut T> {
        self.entries.get_mut(slot).and_then(|entry| entry.1.as_mut())
    }

    #[inline]
    pub fn get_mut(&mut self, id: i64) -> Option<&mut T> {
        let slot = self.find(id)?;
        self.at(slot)
    }

    #[inline]
    pub fn contains(&mut self, id: i64) -> bool {
        self.find(id).is_some()
    }

    /// Adds an id that is not there, and answers its entry.
    pub fn insert(&mut self, id: i64, value: T) -> usize {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = (id, Some(value));
                slot
            }
            None => {
                self.entries.push((id, Some(value)));
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(id, slot);
        if self.entries.len() > self.near.len() {
            let len = 2 * self.near.len();
            self.near.clear();
            self.near.resize(len, NONE);
        }
        let place = self.place(id);
        self.near[place] = slot;
        slot as usize
    }

    pub fn remove(&mut self, id: i64) -> Option<T> {
        let slot = self.index.remove(&id)?;
        let place = self.place(id);
        let near = &mut self.near[place];
        if *near == slot {
            *near = NONE;
        }
        self.free.push(slot);
        self.entries[slot as usize].1.take()
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// All, those first that were there first, unless some have been removed.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        self.entries.iter().filter_map(|(id, value)| value.as_ref().map(|value| (*id, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_same_as_a_map() {
        let (mut slots, mut map) = (Slots::default(), HashMap::new());
        let mut x = 1u64;
        for i in 0..100_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Many ids with the same low bits, among them negative ones.
            let id = ((x >> 33) as i64 % 8 - 4) * NEAR as i64 + (x >> 50) as i64 % 3;
            match x >> 60 {
                0..4 => assert_eq!(slots.remove(id), map.remove(&id)),
                4..8 => {
                    assert_eq!(slots.contains(id), map.contains_key(&id));
                    if !slots.contains(id) {
                        slots.insert(id, i);
                        map.insert(id, i);
                    }
                }
                _ => assert_eq!(slots.get_mut(id), map.get_mut(&id)),
            }
            assert_eq!(slots.len(), map.len());
        }
        let mut all: Vec<_> = slots.iter().map(|(id, v)| (id, *v)).collect();
        let mut expected: Vec<_> = map.into_iter().collect();
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
}

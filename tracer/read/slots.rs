//! What is known of many things, by id: an array for ids that come in a row, and a hash table for the rest.
//!
//! Ids of goroutines are given out in order, and most of those that are alive are close together. So the low bits of an id
//! choose a place of an array, and only an id whose place another has got before is in a hash table. A file can choose ids
//! that all want the same place, and then pays for the hash table each time; that one's seed it does not know.
//!
//! Invariant: an id that is there MUST be in the array or in the hash table, and not in both.

use super::hash::IdMap;

/// Places of the array at first. There are at least twice as many as ids.
const PLACES: usize = 256;

/// No entry.
const NONE: u32 = u32::MAX;

/// A map from ids to `T`.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    /// An entry without a `T` is free.
    entries: Vec<(i64, Option<T>)>,
    free: Vec<u32>,
    /// For each value of the low bits the entry of an id with them, or [`NONE`]. The length is a power of two.
    places: Vec<u32>,
    /// The entries of the other ids.
    others: IdMap<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new(), places: vec![NONE; PLACES], others: IdMap::default() }
    }
}

impl<T> Slots<T> {
    #[inline]
    fn place(&self, id: i64) -> usize {
        id as usize & (self.places.len() - 1)
    }

    /// The entry of this id.
    #[inline]
    pub fn find(&self, id: i64) -> Option<usize> {
        let slot = self.places[self.place(id)] as usize;
        match self.entries.get(slot) {
            Some((found, _)) if *found == id => Some(slot),
            _ if self.others.is_empty() => None,
            _ => self.find_other(id),
        }
    }

    #[cold]
    fn find_other(&self, id: i64) -> Option<usize> {
        self.others.get(&id).map(|&slot| slot as usize)
    }

    /// What is in an entry that was found, and has not been removed since.
    #[inline]
    pub fn at(&mut self, slot: usize) -> Option<&mut T> {
        self.entries.get_mut(slot).and_then(|entry| entry.1.as_mut())
    }

    #[inline]
    pub fn get_mut(&mut self, id: i64) -> Option<&mut T> {
        let slot = self.places[self.place(id)] as usize;
        // No `find` first: it would look at the same entry twice.
        if self.entries.get(slot).is_some_and(|entry| entry.0 == id) {
            return self.entries[slot].1.as_mut();
        }
        if self.others.is_empty() { None } else { self.get_other(id) }
    }

    #[cold]
    fn get_other(&mut self, id: i64) -> Option<&mut T> {
        let slot = self.find_other(id)?;
        self.entries[slot].1.as_mut()
    }

    #[inline]
    pub fn contains(&self, id: i64) -> bool {
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
        if 2 * self.entries.len() > self.places.len() {
            self.grow(); // Which finds the new entry, too.
        } else {
            self.give_place(id, slot);
        }
        slot as usize
    }

    #[inline]
    fn give_place(&mut self, id: i64, slot: u32) {
        let place = self.place(id);
        match &mut self.places[place] {
            place if *place == NONE => *place = slot,
            _ => _ = self.others.insert(id, slot),
        }
    }

    #[cold]
    fn grow(&mut self) {
        let len = 2 * self.places.len();
        self.places.clear();
        self.places.resize(len, NONE);
        self.others.clear();
        for slot in 0..self.entries.len() {
            if let (id, Some(_)) = self.entries[slot] {
                self.give_place(id, slot as u32);
            }
        }
    }

    pub fn remove(&mut self, id: i64) -> Option<T> {
        let slot = self.find(id)? as u32;
        let place = self.place(id);
        if self.places[place] == slot {
            self.places[place] = NONE;
        } else {
            self.others.remove(&id);
        }
        self.free.push(slot);
        self.entries[slot as usize].1.take()
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
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
            let id = ((x >> 33) as i64 % 80 - 40) * PLACES as i64 + (x >> 50) as i64 % 30;
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

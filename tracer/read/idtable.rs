//! A table from sparse 64-bit ids to entries, filled once and then looked up often.
//!
//! Ids are dense from 1 in practice, but a file may hold any, and extension records have ids from the top. So the
//! entries are sorted by id; the densest prefix is found through an index, the rest by binary search.

/// A table of `T`. Look-ups work after [`IdTable::finish`].
#[derive(Clone, Debug)]
pub(crate) struct IdTable<T> {
    /// Sorted by id after `finish`.
    entries: Vec<(u64, T)>,
    /// `entries[dense[id - first] - 1]` has `id`; 0 is none.
    dense: Vec<u32>,
    /// The least id.
    first: u64,
}

impl<T> Default for IdTable<T> {
    fn default() -> IdTable<T> {
        IdTable { entries: Vec::new(), dense: Vec::new(), first: 0 }
    }
}

impl<T> IdTable<T> {
    /// Adds an entry. Whether the id is new shows at `finish`.
    pub fn push(&mut self, id: u64, entry: T) {
        self.entries.push((id, entry));
    }

    /// Makes the table ready for look-ups. `Err` has an id that was pushed twice and its later entry.
    pub fn finish(&mut self) -> Result<(), (u64, &T)> {
        if !self.entries.is_sorted_by_key(|e| e.0) {
            self.entries.sort_by_key(|e| e.0); // Stable: of two equal ids the later one comes second.
        }
        if let Some(i) = self.entries.windows(2).position(|w| w[0].0 == w[1].0) {
            let (id, entry) = &self.entries[i + 1];
            return Err((*id, entry));
        }
        let Some(&(first, _)) = self.entries.first() else { return Ok(()) };
        self.first = first;
        let sparse_from = |i: usize| 2 * (i as u64 + 1) + 64;
        let dense =
            (self.entries.iter().enumerate()).rposition(|(i, e)| e.0 - first < sparse_from(i)).map_or(0, |i| i + 1);
        for (i, (id, _)) in self.entries[..dense].iter().enumerate() {
            let slot = (id - first) as usize;
            if slot >= self.dense.len() {
                self.dense.resize(slot + 1, 0);
            }
            self.dense[slot] = i as u32 + 1;
        }
        Ok(())
    }

    /// The entry with this id.
    #[inline]
    pub fn get(&self, id: u64) -> Option<&T> {
        let first = self.entries.first()?.0;
        match id.checked_sub(first).and_then(|i| self.dense.get(i as usize)) {
            Some(0) => None,
            Some(&place) => Some(&self.entries[place as usize - 1].1),
            None => self.entries.binary_search_by_key(&id, |e| e.0).ok().map(|i| &self.entries[i].1),
        }
    }

    /// There is an entry with this id.
    #[inline]
    pub fn has(&self, id: u64) -> bool {
        // Before the first id the difference is beyond every table.
        match usize::try_from(id.wrapping_sub(self.first)).ok().and_then(|i| self.dense.get(i)) {
            Some(&place) => place != 0,
            None => self.has_far(id),
        }
    }

    #[cold]
    fn has_far(&self, id: u64) -> bool {
        self.entries.binary_search_by_key(&id, |e| e.0).is_ok()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries: by id after `finish`, before that in the order of `push`.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ids: &[u64]) -> IdTable<u64> {
        let mut table = IdTable::default();
        for &id in ids {
            table.push(id, id.wrapping_mul(3));
        }
        table
    }

    #[test]
    fn every_id_is_found_and_no_other() {
        let dense: Vec<u64> = (1..500).collect();
        let gaps: Vec<u64> = (0..300).map(|i| i * i + 7).rev().collect();
        let mut tops: Vec<u64> = (1..50).collect();
        tops.extend((0..20).map(|i| u64::MAX - i));
        for ids in [&dense[..], &gaps, &tops, &[u64::MAX], &[5], &[]] {
            let mut table = table(ids);
            table.finish().expect("ids are unique");
            for probe in ids.iter().flat_map(|&id| [id.wrapping_sub(1), id, id.wrapping_add(1)]) {
                let expected = ids.contains(&probe).then_some(probe.wrapping_mul(3));
                assert_eq!(table.get(probe).copied(), expected, "{probe}");
                assert_eq!(table.has(probe), expected.is_some(), "{probe}");
            }
            assert_eq!(table.iter().count(), ids.len());
        }
    }

    #[test]
    fn a_repeated_id_is_refused() {
        assert_eq!(table(&[1, 2, 9, 2]).finish(), Err((2, &6)));
    }

    #[test]
    fn the_index_is_no_larger_than_the_entries_allow() {
        let ids: Vec<u64> = (1..1000).map(|i| i * 1000).collect();
        let mut table = table(&ids);
        table.finish().expect("ids are unique");
        assert!(table.dense.len() <= 2 * ids.len() + 64);
    }
}

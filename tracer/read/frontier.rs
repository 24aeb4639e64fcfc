//! The frontier: the next event of each M, the earliest first.
//!
//! Every M's batches are a stream that is in order by itself. [`Cursor`] decodes one stream; [`Frontier`] is a binary
//! heap of cursors by the time of their next event. The heap is moved as Go's reader moves its own, so that among equal
//! times the same M comes first: the order of attempts is part of the verdict (an M exists for others once it was
//! tried).

use super::error::{Broken, Resource};
use super::event::Raw;
use super::generation::{EventBatch, Generation, MBatches};
use super::rule::Rule;
use super::source::PAD;
use super::tables::to_ns;
use crate::wire::spec::TIMED_ARGS;
use crate::wire::{Ev, MAX_TIMED_ARGS, varint};

/// A place in the stream of one M.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub m: i64,
    /// The next event.
    pub next: Raw,
    /// The batch that it is in; the place after it, in the generation.
    batch: EventBatch,
    pos: u32,
    /// The time of the event before in this batch. 0 is none, also where the time is 0: then the base is taken again,
    /// as Go does.
    last_time: i64,
}

impl Cursor {
    /// The stream of `batches`, standing at its first event.
    pub fn open(batches: &MBatches, generation: &Generation, bytes: &[u8]) -> Result<Cursor, Broken> {
        let batch = generation.batches[batches.first as usize];
        let next = Raw { kind: Ev::EventBatch, time: 0, args: [0; 4], offset: 0 };
        let mut cursor = Cursor { m: batches.m, next, batch, pos: batch.start, last_time: 0 };
        cursor.decode(generation, bytes)?; // No batch in the list is empty.
        Ok(cursor)
    }

    /// Decodes the next event. `false` at the end of the stream.
    #[inline]
    pub fn advance(&mut self, generation: &Generation, bytes: &[u8]) -> Result<bool, Broken> {
        if self.pos == self.batch.end {
            if self.batch.next == 0 {
                return Ok(false);
            }
            self.batch = generation.batches[self.batch.next as usize];
            self.pos = self.batch.start;
            self.last_time = 0;
        }
        self.decode(generation, bytes)?;
        Ok(true)
    }

    /// Decodes the event at `pos`. `bytes` may go on behind those of the generation.
    #[inline]
    fn decode(&mut self, generation: &Generation, bytes: &[u8]) -> Result<(), Broken> {
        if self.last_time == 0 {
            self.last_time = to_ns(self.batch.time, generation.tables.ns_per_unit);
        }
        let window = bytes.get(self.pos as usize..).and_then(|rest| rest.first_chunk::<PAD>());
        // In place: to copy what has just been written in smaller pieces makes the processor wait.
        let Some((kind, delta, len)) = window.and_then(|window| decode_near(window, &mut self.next.args)) else {
            return self.decode_far(generation, bytes);
        };
        let end = self.pos + len as u32;
        if end > self.batch.end {
            return self.decode_far(generation, bytes);
        }
        self.set(kind, delta, generation);
        self.pos = end;
        Ok(())
    }

    /// All of the next event but its arguments.
    #[inline]
    fn set(&mut self, kind: Ev, delta: u64, generation: &Generation) {
        self.last_time = generation.tables.ns(delta).wrapping_add(self.last_time);
        self.next.kind = kind;
        self.next.time = self.last_time;
        self.next.offset = generation.info.offset + u64::from(self.pos);
    }

    /// The same for whatever may stand there.
    #[cold]
    fn decode_far(&mut self, generation: &Generation, bytes: &[u8]) -> Result<(), Broken> {
        let batch = &bytes[..self.batch.end as usize];
        let mut pos = self.pos as usize;
        let number = batch[pos];
        let offset = generation.info.offset + u64::from(self.pos);
        let count = usize::from(TIMED_ARGS[usize::from(number)]);
        let Some(kind) = Ev::from_u8(number).filter(|_| count != 0) else {
            return Err(self.undecodable(number, offset));
        };
        pos += 1;
        let m = self.m;
        let cut = || Broken::new(Rule::EventArgs, Resource::M(m), offset).event(kind);
        let delta = varint::read(batch, &mut pos).ok_or_else(cut)?;
        self.next.args = [0; 4];
        for arg in &mut self.next.args[..count - 1] {
            *arg = varint::read(batch, &mut pos).ok_or_else(cut)?;
        }
        self.set(kind, delta, generation);
        self.pos = pos as u32;
        Ok(())
    }

    #[cold]
    fn undecodable(&self, number: u8, offset: u64) -> Broken {
        match Ev::from_u8(number) {
            Some(kind) => Broken::new(Rule::EventTimed, Resource::M(self.m), offset).event(kind),
            None => {
                let detail = format!("Event number {number} stands there.");
                Broken::new(Rule::EventKind, Resource::M(self.m), offset).detail(detail)
            }
        }
    }
}

/// The event at the beginning of these bytes, if its numbers have at most eight bytes each: its kind, its time delta, its
/// length, and its other arguments in `args`.
#[inline]
fn decode_near(bytes: &[u8; PAD], args: &mut [u64; MAX_TIMED_ARGS - 1]) -> Option<(Ev, u64, usize)> {
    let count = usize::from(TIMED_ARGS[usize::from(bytes[0])]);
    let kind = Ev::from_u8(bytes[0]).filter(|_| count != 0)?;
    let (delta, mut pos) = number_near(bytes, 1)?;
    *args = [0; MAX_TIMED_ARGS - 1];
    for arg in args.iter_mut().take(count - 1) {
        (*arg, pos) = number_near(bytes, pos)?;
    }
    Some((kind, delta, pos))
}

/// The number at `pos` and the place behind it.
#[inline]
fn number_near(bytes: &[u8; PAD], pos: usize) -> Option<(u64, usize)> {
    if pos > PAD - 8 {
        return None;
    }
    let word = u64::from_le_bytes(*bytes[pos..].first_chunk()?);
    // The lengths of most numbers can be foretold: one byte, two, or three.
    if word & 0x80 == 0 {
        return Some((word & 0x7f, pos + 1));
    }
    if word & 0x8000 == 0 {
        return Some(((word & 0x7f) | (word >> 1 & 0x3f80), pos + 2));
    }
    if word & 0x80_0000 == 0 {
        return Some(((word & 0x7f) | (word >> 1 & 0x3f80) | (word >> 2 & 0x1f_c000), pos + 3));
    }
    let (value, len) = varint::read_word(word)?;
    Some((value, pos + len))
}

/// A place of the heap: the time of a cursor's next event, and which cursor.
#[derive(Clone, Copy, Debug)]
struct Node {
    time: i64,
    cursor: u32,
}

/// The cursors of a generation that are not at their end.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    cursors: Vec<Cursor>,
    heap: Vec<Node>,
}

impl Frontier {
    pub fn clear(&mut self) {
        self.cursors.clear();
        self.heap.clear();
    }

    pub fn push(&mut self, cursor: Cursor) {
        self.heap.push(Node { time: cursor.next.time, cursor: self.cursors.len() as u32 });
        self.cursors.push(cursor);
        self.sift_up(self.heap.len() - 1);
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The time of the earliest event.
    #[inline]
    pub fn first_time(&self) -> Option<i64> {
        self.heap.first().map(|node| node.time)
    }

    /// The cursor at place `i` of the heap.
    #[inline]
    pub fn at(&self, i: usize) -> &Cursor {
        &self.cursors[self.heap[i].cursor as usize]
    }

    /// Moves the cursor at place `i` to its next event, and the heap with it.
    #[inline]
    pub fn advance(&mut self, i: usize, generation: &Generation, bytes: &[u8]) -> Result<(), Broken> {
        let node = &mut self.heap[i];
        let cursor = &mut self.cursors[node.cursor as usize];
        if cursor.advance(generation, bytes)? {
            node.time = cursor.next.time;
            if self.sift_up(i) == i {
                self.sift_down(i);
            }
        } else {
            self.remove(i);
        }
        Ok(())
    }

    /// Sorts the heap by time. It stays a heap.
    pub fn sort(&mut self) {
        self.heap.sort_by_key(|node| node.time);
    }

    fn remove(&mut self, mut i: usize) {
        while i > 0 {
            let parent = (i - 1) / 2;
            self.heap.swap(parent, i);
            i = parent;
        }
        self.heap.swap_remove(0);
        if !self.heap.is_empty() {
            self.sift_down(0);
        }
    }

    fn sift_up(&mut self, mut i: usize) -> usize {
        while i > 0 {
            let parent = (i - 1) / 2;
            if self.heap[parent].time <= self.heap[i].time {
                break;
            }
            self.heap.swap(parent, i);
            i = parent;
        }
        i
    }

    #[inline]
    fn sift_down(&mut self, mut i: usize) {
        loop {
            let mut least = i;
            for child in [2 * i + 1, 2 * i + 2] {
                if self.heap.get(child).is_some_and(|node| node.time < self.heap[least].time) {
                    least = child;
                }
            }
            if least == i {
                return;
            }
            self.heap.swap(i, least);
            i = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontier(times: &[i64]) -> Frontier {
        let mut frontier = Frontier::default();
        for (i, &time) in times.iter().enumerate() {
            let batch = EventBatch { time: 0, start: 0, end: 0, next: 0 };
            let next = Raw { kind: Ev::GoStop, time, args: [0; 4], offset: 0 };
            frontier.push(Cursor { m: i as i64, next, batch, pos: 0, last_time: 0 });
        }
        frontier
    }

    fn is_heap(frontier: &Frontier) -> bool {
        (1..frontier.len()).all(|i| frontier.heap[(i - 1) / 2].time <= frontier.heap[i].time)
    }

    #[test]
    fn the_earliest_is_first_whatever_is_removed() {
        let mut x = 1u64;
        let times: Vec<i64> = (0..100)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 58) as i64
            })
            .collect();
        let mut frontier = frontier(&times);
        while frontier.len() > 0 {
            assert!(is_heap(&frontier));
            let i = (frontier.len() * 7 / 10).min(frontier.len() - 1);
            frontier.remove(i);
        }
    }

    #[test]
    fn sorting_keeps_equal_times_in_place() {
        let mut frontier = frontier(&[5, 1, 5, 1, 5]);
        assert_eq!(frontier.at(0).m, 1);
        frontier.sort();
        assert!(is_heap(&frontier));
        assert_eq!(frontier.at(0).m, 1);
        assert_eq!(frontier.first_time(), Some(1));
    }
}

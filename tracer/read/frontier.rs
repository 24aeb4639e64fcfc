//! The frontier: the next event of each M, the earliest first.
//!
//! Every M's batches are a stream that is in order by itself. [`Decoder`] decodes one stream, some events at a time, and so much ahead of
//! [`Cursor`], which stands at one of them; in a large generation another thread does that ([`Ahead`]). [`Frontier`] is a binary
//! heap of cursors by the time of their next event. The heap is moved as Go's reader moves its own, so that among equal
//! times the same M comes first: the order of attempts is part of the verdict (an M exists for others once it was
//! tried).

use std::sync::Arc;

use super::ahead::{Ahead, Job};
use super::error::{Broken, Resource};
use super::event::Raw;
use super::generation::{EventBatch, MBatches};
use super::rule::Rule;
use super::source::PAD;
use super::tables::{Tables, to_ns};
use crate::wire::spec::TIMED_ARGS;
use crate::wire::{Ev, MAX_TIMED_ARGS, varint};

/// The streams of a generation's Ms: what [`Decoder`]s need, in one piece, so that another thread can have it, too.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The bytes of the generation; others may follow.
    pub bytes: Vec<u8>,
    pub batches: Vec<EventBatch>,
    pub tables: Arc<Tables>,
    /// Where `bytes` begins in the file.
    pub offset: u64,
}

/// Events of an M that are decoded.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// The first `end` of these are.
    events: Vec<Raw>,
    end: usize,
    /// What stands behind them.
    broken: Option<Broken>,
}

/// Where the rest of a stream is.
#[derive(Debug)]
enum Rest {
    /// It is decoded when it is needed.
    Here(Decoder),
    /// Somebody decodes the next chunk of it.
    Asked,
    /// That has come.
    Come(Box<(Decoder, Chunk)>),
}

/// A place in the stream of one M.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub m: i64,
    /// The next event is `chunk.events[at]`.
    chunk: Chunk,
    at: usize,
    rest: Rest,
}

impl Cursor {
    /// The next event.
    #[inline]
    pub fn next(&self) -> &Raw {
        &self.chunk.events[self.at]
    }
}

/// What decodes the stream of one M.
#[derive(Debug)]
pub(super) struct Decoder {
    m: i64,
    /// The batch that the next event is in; the place of that, in the generation.
    batch: EventBatch,
    pos: u32,
    /// The time of the event before in this batch. 0 is none, also where the time is 0: then the base is taken again,
    /// as Go does.
    last_time: i64,
}

impl Decoder {
    /// Goes to the next batch if this one is over. `false` at the end of the stream.
    fn go_on(&mut self, streams: &Streams) -> bool {
        if self.pos == self.batch.end {
            if self.batch.next == 0 {
                return false;
            }
            self.batch = streams.batches[self.batch.next as usize];
            self.pos = self.batch.start;
            self.last_time = 0;
        }
        true
    }

    /// Decodes the next events, `most` of them or fewer, in place of what was in the chunk. None are left if it is empty.
    pub fn decode(&mut self, streams: &Streams, most: usize, chunk: &mut Chunk) {
        (chunk.end, chunk.broken) = (0, None);
        if !self.go_on(streams) {
            return;
        }
        // D1: no more than what follows can hold, as an event has two bytes at least.
        let room = ((self.batch.end - self.pos) as usize / 2 + 1).min(most);
        if chunk.events.len() < room {
            chunk.events.resize(room, Raw { kind: Ev::EventBatch, time: 0, args: [0; 4], offset: 0 });
        }
        while chunk.end < chunk.events.len() && self.go_on(streams) {
            while let Some(event) = chunk.events.get_mut(chunk.end)
                && self.pos != self.batch.end
            {
                if let Err(broken) = self.decode_one(streams, event) {
                    chunk.broken = Some(broken);
                    return;
                }
                chunk.end += 1;
            }
        }
    }

    #[inline]
    fn decode_one(&mut self, streams: &Streams, event: &mut Raw) -> Result<(), Broken> {
        if self.last_time == 0 {
            self.last_time = to_ns(self.batch.time, streams.tables.ns_per_unit);
        }
        let window = streams.bytes.get(self.pos as usize..).and_then(|rest| rest.first_chunk::<PAD>());
        // In place: to copy what has just been written in smaller pieces makes the processor wait.
        let Some((kind, delta, len)) = window.and_then(|window| decode_near(window, &mut event.args)) else {
            return self.decode_far(streams, event);
        };
        let end = self.pos + len as u32;
        if end > self.batch.end {
            return self.decode_far(streams, event);
        }
        self.set(event, kind, delta, streams);
        self.pos = end;
        Ok(())
    }

    /// All of the next event but its arguments.
    #[inline]
    fn set(&mut self, event: &mut Raw, kind: Ev, delta: u64, streams: &Streams) {
        self.last_time = streams.tables.ns(delta).wrapping_add(self.last_time);
        event.kind = kind;
        event.time = self.last_time;
        event.offset = streams.offset + u64::from(self.pos);
    }

    /// The same for whatever may stand there.
    #[cold]
    fn decode_far(&mut self, streams: &Streams, event: &mut Raw) -> Result<(), Broken> {
        let batch = &streams.bytes[..self.batch.end as usize];
        let mut pos = self.pos as usize;
        let number = batch[pos];
        let offset = streams.offset + u64::from(self.pos);
        let count = usize::from(TIMED_ARGS[usize::from(number)]);
        let Some(kind) = Ev::from_u8(number).filter(|_| count != 0) else {
            return Err(self.undecodable(number, offset));
        };
        pos += 1;
        let m = self.m;
        let cut = || Broken::new(Rule::EventArgs, Resource::M(m), offset).event(kind);
        let delta = varint::read(batch, &mut pos).ok_or_else(cut)?;
        event.args = [0; 4];
        for arg in &mut event.args[..count - 1] {
            *arg = varint::read(batch, &mut pos).ok_or_else(cut)?;
        }
        self.set(event, kind, delta, streams);
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

/// So many events of an M are decoded at a time: as one loop that costs less, and they stay near.
const CHUNK: usize = 64;

/// The same by another thread, for all Ms together: it is to be woken seldom, and what it brings is to stay in the cache.
const CHUNKS_AHEAD: usize = 16 << 10;
const CHUNK_AHEAD: usize = 4 << 10;

/// A generation with less than so many bytes is not worth another thread.
const AHEAD_BYTES: usize = 1 << 20;

/// The cursors of a generation that are not at their end.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    cursors: Vec<Cursor>,
    heap: Vec<Node>,
    streams: Arc<Streams>,
    /// Who decodes ahead, for this generation.
    ahead: Option<Ahead>,
    /// The same when it is not for this one.
    resting: Option<Ahead>,
    /// How many events of an M are decoded at a time.
    most: usize,
}

impl Frontier {
    /// Begins with these streams, each at its first event. What was before must be closed.
    pub fn open(&mut self, ms: &[MBatches], streams: Streams) -> Result<(), Broken> {
        if streams.bytes.len() >= AHEAD_BYTES {
            self.ahead = self.resting.take().or_else(Ahead::start);
        }
        self.most = match self.ahead {
            Some(_) => (CHUNKS_AHEAD / ms.len().max(1)).clamp(CHUNK, CHUNK_AHEAD),
            None => CHUNK,
        };
        self.streams = Arc::new(streams);
        for batches in ms {
            let batch = self.streams.batches[batches.first as usize];
            let mut decoder = Decoder { m: batches.m, batch, pos: batch.start, last_time: 0 };
            let mut chunk = Chunk::default();
            // The first ones are needed at once.
            decoder.decode(&self.streams, CHUNK, &mut chunk);
            if chunk.end == 0 {
                // No batch in the list is empty.
                chunk.broken.map_or(Ok(()), Err)?;
                continue;
            }
            self.push(Cursor { m: batches.m, chunk, at: 0, rest: Rest::Here(decoder) });
            self.ask(self.cursors.len() - 1, Chunk::default());
        }
        Ok(())
    }

    /// Ends this generation, and gives back what [`Frontier::open`] got.
    pub fn close(&mut self) -> Streams {
        self.heap.clear();
        if let Some(mut ahead) = self.ahead.take() {
            ahead.drain();
            self.resting = Some(ahead);
        }
        self.cursors.clear();
        // Nobody else has it any more: who decodes lets go of it before it answers.
        Arc::try_unwrap(std::mem::take(&mut self.streams)).unwrap_or_default()
    }

    fn push(&mut self, cursor: Cursor) {
        self.heap.push(Node { time: cursor.next().time, cursor: self.cursors.len() as u32 });
        self.cursors.push(cursor);
        self.sift_up(self.heap.len() - 1);
    }

    /// Lets somebody decode the next chunk of a cursor, if there is somebody, into an old one.
    fn ask(&mut self, cursor: usize, chunk: Chunk) {
        if let Some(ahead) = &mut self.ahead
            && let rest = &mut self.cursors[cursor].rest
            && matches!(rest, Rest::Here(_))
            && let Rest::Here(decoder) = std::mem::replace(rest, Rest::Asked)
        {
            ahead.ask(Job { cursor, decoder, chunk, most: self.most }, &self.streams);
        }
    }

    /// Brings the next chunk of a cursor. `false` at the end of the stream.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, cursor: usize) -> Result<bool, Broken> {
        if let Some(broken) = self.cursors[cursor].chunk.broken.take() {
            return Err(broken);
        }
        while let (Rest::Asked, Some(ahead)) = (&self.cursors[cursor].rest, &mut self.ahead) {
            let done = ahead.wait();
            self.cursors[done.cursor].rest = Rest::Come(Box::new((done.decoder, done.chunk)));
        }
        let here = &mut self.cursors[cursor];
        here.at = 0;
        match &mut here.rest {
            Rest::Here(decoder) => decoder.decode(&self.streams, self.most, &mut here.chunk),
            rest => {
                if let Rest::Come(come) = std::mem::replace(rest, Rest::Asked) {
                    let (decoder, chunk) = *come;
                    *rest = Rest::Here(decoder);
                    let old = std::mem::replace(&mut here.chunk, chunk);
                    if here.chunk.end != 0 && here.chunk.broken.is_none() {
                        self.ask(cursor, old);
                    }
                }
            }
        }
        let chunk = &mut self.cursors[cursor].chunk;
        match chunk.broken.take_if(|_| chunk.end == 0) {
            Some(broken) => Err(broken),
            None => Ok(chunk.end != 0),
        }
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
    pub fn advance(&mut self, i: usize) -> Result<(), Broken> {
        let c = self.heap[i].cursor as usize;
        let cursor = &mut self.cursors[c];
        cursor.at += 1;
        if cursor.at >= cursor.chunk.end && !self.refill(c)? {
            self.remove(i);
            return Ok(());
        }
        self.heap[i].time = self.cursors[c].next().time;
        if self.sift_up(i) == i {
            self.sift_down(i);
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
            let (m, batch) = (i as i64, EventBatch { time: 0, start: 0, end: 0, next: 0 });
            let events = vec![Raw { kind: Ev::GoStop, time, args: [0; 4], offset: 0 }];
            let rest = Rest::Here(Decoder { m, batch, pos: 0, last_time: 0 });
            frontier.push(Cursor { m, chunk: Chunk { events, end: 1, broken: None }, at: 0, rest });
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

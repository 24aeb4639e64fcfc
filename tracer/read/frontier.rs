//! The frontier: the next event of each M, the earliest first.
//!
//! Every M's batches are a stream that is in order by itself. [`Cursor`] decodes one stream; [`Frontier`] is a binary
//! heap of cursors by the time of their next event. The heap is moved as Go's reader moves its own, so that among equal
//! times the same M comes first: the order of attempts is part of the verdict (an M exists for others once it was
//! tried).

use super::error::{Broken, Error, Resource};
use super::generation::{EventBatch, Generation, MBatches};
use super::order::Slot;
use super::rule::Rule;
use super::source::{Input, PAD, Source};
use super::tables::to_ns;
use crate::wire::spec::{TIMED, Timed};
use crate::wire::{Ev, MAX_TIMED_ARGS, varint};

/// A place in the stream of one M.
///
/// Of the next event it knows only what it takes to choose among Ms. Its arguments are decoded where they are needed, once for each
/// attempt: most have only one.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub m: i64,
    /// The M's place in the order, once an event of it was tried.
    pub slot: Slot,
    /// When the next event was, in ns. 0 is also the time before the first event of a batch, and then the base is taken again,
    /// as Go does.
    pub time: i64,
    /// The batch that it is in: `body[..end]`, and [`PAD`] more.
    batch: EventBatch,
    body: Vec<u8>,
    end: u32,
    /// Where it begins in the file.
    offset: u64,
    /// The places of the next event and of its arguments in it.
    pos: u32,
    args_pos: u32,
    next: Timed,
}

impl Cursor {
    /// The stream of `batches`, standing at its first event.
    pub fn open<R: Input>(batches: &MBatches, generation: &Generation, source: &Source<R>) -> Result<Cursor, Error> {
        let batch = generation.batches[batches.first as usize];
        let (slot, next, body) = (Slot::default(), TIMED[Ev::GoStop as usize], Vec::new());
        let mut cursor =
            Cursor { m: batches.m, slot, time: 0, batch, body, end: 0, offset: 0, pos: 0, args_pos: 0, next };
        cursor.enter(source)?;
        cursor.peek(0, generation)?; // No batch in the list is empty.
        Ok(cursor)
    }

    /// Goes to the beginning of its batch.
    fn enter<R: Input>(&mut self, source: &Source<R>) -> Result<(), Error> {
        source.body(self.batch.start, self.batch.end, &mut self.body)?;
        (self.pos, self.end, self.time) = (0, self.batch.end - self.batch.start, 0);
        self.offset = source.base() + u64::from(self.batch.start);
        Ok(())
    }

    /// Goes to the first event of the next batch. `false` if there is none.
    #[cold]
    fn next_batch<R: Input>(&mut self, generation: &Generation, source: &Source<R>) -> Result<bool, Error> {
        if self.batch.next == 0 {
            return Ok(false);
        }
        self.batch = generation.batches[self.batch.next as usize];
        self.enter(source)?;
        self.peek(0, generation)?;
        Ok(true)
    }

    /// The kind of the next event.
    #[inline]
    pub fn kind(&self) -> Ev {
        self.next.ev
    }

    /// Where the next event stands in the file.
    #[inline(always)]
    pub fn offset(&self) -> u64 {
        self.offset + u64::from(self.pos)
    }

    /// Goes on to the event after that which ends at `end`. `false` at the end of the stream.
    #[inline(always)]
    pub fn advance<R: Input>(&mut self, end: u32, generation: &Generation, source: &Source<R>) -> Result<bool, Error> {
        if end == self.end {
            return self.next_batch(generation, source);
        }
        self.peek(end, generation)?;
        Ok(true)
    }

    /// Goes to the event at `pos`, and decodes its kind and its time.
    #[inline(always)]
    fn peek(&mut self, pos: u32, generation: &Generation) -> Result<(), Broken> {
        self.pos = pos;
        if self.time == 0 {
            self.time = to_ns(self.batch.time, generation.tables.ns_per_unit);
        }
        let window = window::<PAD>(&self.body, pos);
        let near = window.and_then(|window| {
            let next = TIMED[usize::from(window[0])];
            let (delta, len) = number_near(window, 1)?;
            Some((next, delta, pos + len as u32))
        });
        match near {
            Some((next, delta, args_pos)) if next.numbers != 0 && args_pos <= self.end => {
                self.set(next, delta, args_pos, generation);
                Ok(())
            }
            _ => self.peek_far(generation),
        }
    }

    #[inline(always)]
    fn set(&mut self, next: Timed, delta: u64, args_pos: u32, generation: &Generation) {
        self.time = generation.tables.ns(delta).wrapping_add(self.time);
        (self.next, self.args_pos) = (next, args_pos);
    }

    /// The same for whatever may stand there.
    #[cold]
    fn peek_far(&mut self, generation: &Generation) -> Result<(), Broken> {
        let batch = &self.body[..self.end as usize];
        let mut pos = self.pos as usize;
        let next = TIMED[usize::from(batch[pos])];
        if next.numbers == 0 {
            return Err(self.undecodable(batch[pos], self.offset()));
        }
        pos += 1;
        let delta = varint::read(batch, &mut pos).ok_or_else(|| self.cut(next.ev))?;
        self.set(next, delta, pos as u32, generation);
        Ok(())
    }

    /// Decodes the arguments of the next event, and answers where it ends.
    #[inline(always)]
    pub fn args(&self, args: &mut [u64; ARGS]) -> Result<u32, Broken> {
        let window = window::<ARGS_WINDOW>(&self.body, self.args_pos);
        let len = window.and_then(|window| args_near(window, usize::from(self.next.numbers) - 1, args));
        match len.map(|len| self.args_pos + len as u32) {
            Some(end) if end <= self.end => Ok(end),
            _ => self.args_far(args),
        }
    }

    #[cold]
    fn args_far(&self, args: &mut [u64; ARGS]) -> Result<u32, Broken> {
        let batch = &self.body[..self.end as usize];
        let mut pos = self.args_pos as usize;
        *args = [0; ARGS];
        for arg in &mut args[..usize::from(self.next.numbers) - 1] {
            *arg = varint::read(batch, &mut pos).ok_or_else(|| self.cut(self.next.ev))?;
        }
        Ok(pos as u32)
    }

    #[cold]
    fn cut(&self, kind: Ev) -> Broken {
        Broken::new(Rule::EventArgs, Resource::M(self.m), self.offset()).event(kind)
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

/// The `N` bytes at `pos`.
#[inline(always)]
fn window<const N: usize>(bytes: &[u8], pos: u32) -> Option<&[u8; N]> {
    let pos = pos as usize;
    bytes.get(pos..pos + N)?.first_chunk()
}

/// The arguments of an event beside its time.
const ARGS: usize = MAX_TIMED_ARGS - 1;

/// So many bytes have any that have at most eight each.
const ARGS_WINDOW: usize = 8 * ARGS;

/// The first `count` numbers of these bytes, if they have at most eight bytes each, and where they end.
#[inline(always)]
fn args_near(bytes: &[u8; ARGS_WINDOW], count: usize, args: &mut [u64; ARGS]) -> Option<usize> {
    *args = [0; ARGS];
    let mut pos = 0;
    for arg in args.iter_mut().take(count) {
        (*arg, pos) = number_near(bytes, pos)?;
    }
    Some(pos)
}

/// The number at `pos` and the place behind it.
#[inline(always)]
fn number_near<const N: usize>(bytes: &[u8; N], pos: usize) -> Option<(u64, usize)> {
    if pos > N - 8 {
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

/// The cursor of the top of an empty heap.
const NOBODY: u32 = u32::MAX;

/// The cursors of a generation that are not at their end.
///
/// Invariant: `top` is the heap's top. Its time is good; that in the heap may be behind, as most events leave the heap as it is. So
/// whoever looks at the heap MUST bring it up to date first ([`Frontier::begin_change`]), and see to `top` and `second` afterwards.
#[derive(Debug)]
pub(crate) struct Frontier {
    cursors: Vec<Cursor>,
    heap: Vec<Node>,
    top: Node,
    /// The least time below the top: as long as the top's is no greater, it stays where it is.
    second: i64,
}

impl Default for Frontier {
    fn default() -> Frontier {
        let top = Node { time: i64::MAX, cursor: NOBODY };
        Frontier { cursors: Vec::new(), heap: Vec::new(), top, second: i64::MAX }
    }
}

impl Frontier {
    pub fn clear(&mut self) {
        self.cursors.clear();
        self.heap.clear();
        self.end_change();
    }

    pub fn push(&mut self, cursor: Cursor) {
        self.begin_change();
        self.heap.push(Node { time: cursor.time, cursor: self.cursors.len() as u32 });
        self.cursors.push(cursor);
        self.sift_up(self.heap.len() - 1);
        self.end_change();
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The time of the earliest event.
    #[inline]
    pub fn first_time(&self) -> Option<i64> {
        (self.top.cursor != NOBODY).then_some(self.top.time)
    }

    /// The cursor at place `i` of the heap.
    #[inline]
    pub fn at(&self, i: usize) -> &Cursor {
        &self.cursors[self.heap[i].cursor as usize]
    }

    /// The same to change it. Where it goes on, [`Frontier::moved`] MUST follow.
    #[inline(always)]
    pub fn at_mut(&mut self, i: usize) -> &mut Cursor {
        let cursor = if i == 0 { self.top.cursor } else { self.heap[i].cursor };
        &mut self.cursors[cursor as usize]
    }

    /// The cursor at place `i` has gone on to an event at `time`, or its stream has ended.
    #[inline(always)]
    pub fn moved(&mut self, i: usize, time: i64, goes_on: bool) {
        if i != 0 || !goes_on {
            self.settle(i, time, goes_on);
            return;
        }
        self.top.time = time;
        if time > self.second {
            self.sink();
        }
    }

    /// The top is no longer the earliest: some other is, and of few Ms no more has to be moved.
    #[inline(never)]
    fn sink(&mut self) {
        let node = self.top;
        let [top, left, rest @ ..] = &mut self.heap[..] else { return };
        let (i, child) = match rest.first_mut() {
            Some(right) if right.time < left.time => (2, right),
            _ => (1, left),
        };
        (*top, self.top) = (*child, *child);
        *child = node;
        if 2 * i < self.heap.len() - 1 {
            self.sift_down(i);
        }
        self.note_second();
    }

    /// The time at place `i` is another, or its stream has ended.
    #[cold]
    fn settle(&mut self, i: usize, time: i64, goes_on: bool) {
        self.begin_change();
        self.heap[i].time = time;
        if !goes_on {
            self.cursors[self.heap[i].cursor as usize].body = Vec::new();
            self.remove(i);
        } else if self.sift_up(i) == i {
            self.sift_down(i);
        }
        self.end_change();
    }

    #[inline(always)]
    fn begin_change(&mut self) {
        if let Some(node) = self.heap.first_mut() {
            node.time = self.top.time;
        }
    }

    fn end_change(&mut self) {
        self.top = self.heap.first().copied().unwrap_or(Node { time: i64::MAX, cursor: NOBODY });
        self.note_second();
    }

    #[inline(always)]
    fn note_second(&mut self) {
        let time = |i: usize| self.heap.get(i).map_or(i64::MAX, |node| node.time);
        self.second = time(1).min(time(2));
    }

    /// Sorts the heap by time. It stays a heap.
    pub fn sort(&mut self) {
        self.begin_change();
        self.heap.sort_by_key(|node| node.time);
        self.end_change();
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

    fn sift_down(&mut self, mut i: usize) {
        let heap = &mut self.heap[..];
        let node = heap[i];
        while let Some(left) = heap.get(2 * i + 1) {
            let (mut child, mut time) = (2 * i + 1, left.time);
            if let Some(right) = heap.get(child + 1)
                && right.time < time
            {
                (child, time) = (child + 1, right.time);
            }
            if time >= node.time {
                break;
            }
            heap[i] = heap[child];
            i = child;
        }
        heap[i] = node;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontier(times: &[i64]) -> Frontier {
        let mut frontier = Frontier::default();
        for (i, &time) in times.iter().enumerate() {
            let batch = EventBatch { time: 0, start: 0, end: 0, next: 0 };
            let (m, slot, next) = (i as i64, Slot::default(), TIMED[Ev::GoStop as usize]);
            frontier.push(Cursor {
                m,
                slot,
                time,
                batch,
                body: Vec::new(),
                end: 0,
                offset: 0,
                pos: 0,
                args_pos: 0,
                next,
            });
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

    /// A binary heap as it is in the books.
    struct Plain(Vec<(i64, i64)>);

    impl Plain {
        fn down(&mut self, mut i: usize) {
            loop {
                let mut least = i;
                for child in [2 * i + 1, 2 * i + 2] {
                    if self.0.get(child).is_some_and(|node| node.0 < self.0[least].0) {
                        least = child;
                    }
                }
                if least == i {
                    return;
                }
                self.0.swap(i, least);
                i = least;
            }
        }

        fn up(&mut self, mut i: usize) -> usize {
            while i > 0 && self.0[(i - 1) / 2].0 > self.0[i].0 {
                self.0.swap((i - 1) / 2, i);
                i = (i - 1) / 2;
            }
            i
        }

        fn moved(&mut self, i: usize, time: i64) {
            self.0[i].0 = time;
            if self.up(i) == i {
                self.down(i);
            }
        }

        fn ended(&mut self, mut i: usize) {
            while i > 0 {
                self.0.swap((i - 1) / 2, i);
                i = (i - 1) / 2;
            }
            self.0.swap_remove(0);
            if !self.0.is_empty() {
                self.down(0);
            }
        }
    }

    /// Who is tried first, and who then, is a part of the verdict: the short ways must leave the heap as the long ones do, equal times included.
    #[test]
    fn the_heap_is_moved_as_in_the_books() {
        let mut x = 7u64;
        let mut random = |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        for len in [1, 2, 3, 4, 5, 8, 20] {
            let times: Vec<i64> = (0..len).map(|_| random(4) as i64).collect();
            let mut ours = frontier(&times);
            let mut plain = Plain(Vec::new());
            for (m, &time) in times.iter().enumerate() {
                plain.0.push((time, m as i64));
                plain.up(m);
            }
            for round in 0..3_000 {
                let i = if random(4) > 0 { 0 } else { random(ours.len() as u64) as usize };
                // Times of other Ms are ahead; clocks may also go back.
                let time = plain.0[i].0 + random(5) as i64 - 1;
                match random(700) {
                    0 if ours.len() > 1 => {
                        ours.moved(i, 0, false);
                        plain.ended(i);
                    }
                    1 => {
                        ours.sort();
                        plain.0.sort_by_key(|node| node.0);
                    }
                    _ => {
                        ours.moved(i, time, true);
                        plain.moved(i, time);
                    }
                }
                let order: Vec<i64> = (0..ours.len()).map(|i| ours.at(i).m).collect();
                let expected: Vec<i64> = plain.0.iter().map(|node| node.1).collect();
                assert_eq!(order, expected, "{len} Ms, round {round}");
                assert_eq!(ours.first_time(), Some(plain.0[0].0));
                assert_eq!(ours.at_mut(0).m, plain.0[0].1);
            }
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

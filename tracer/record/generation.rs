//! A whole generation in the form in which it is written: what all subscribers get.
//!
//! It is made of the blocks in which its events were written. What came in small batches, at the end of the generation as a rule, and its
//! tables are copied together behind them.
//!
//! - GE1: the batches of one thread MUST stay in their order; those of different threads have none. Otherwise no reader takes them. So what
//!   a thread wrote after a batch that is copied is copied, too.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Snapshot;
use crate::record::batch::{Batch, Sealed};
use crate::record::block::{BLOCK_BYTES, Block, Piece, Pieces};
use crate::record::sink::{Message, SINK};
use crate::record::{heap, names, start, strings, tables};
use crate::symbol::{self, Symbolizer};
use crate::wire::{ALLOC_FREE, ALLOC_FREE_LAYOUT, ALLOC_FREE_TYPES, Ev, MAX_FRAMES, NO_M, cut_string, ext};

/// The end of a generation, as the advancer tells it.
pub(crate) struct Close {
    pub(crate) r#gen: u64,
    pub(crate) opened_at: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) ticks_per_second: u64,
    /// Subscribers for whom it is the last one.
    pub(crate) detach: Vec<u64>,
    /// To be called when all subscribers have got it.
    pub(crate) then: Vec<Box<dyn FnOnce() + Send>>,
    /// The session ends with it.
    pub(crate) last: bool,
}

/// One generation. It can be read alone, after a header.
pub struct Generation {
    pieces: Pieces,
    number: u64,
    began_ns: u64,
    ended_ns: u64,
    entries_lost: u64,
}

impl Generation {
    /// Writes its batches, tables and end mark.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.pieces.iter().try_for_each(|bytes| out.write_all(bytes))
    }

    /// How many bytes these are.
    pub fn bytes(&self) -> usize {
        self.pieces.bytes()
    }

    /// How many bytes of memory it takes: little more.
    pub fn memory(&self) -> usize {
        self.pieces.memory()
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it began, in nanoseconds on CLOCK_MONOTONIC.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// When it ended, in nanoseconds on CLOCK_MONOTONIC.
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns
    }

    /// Stacks and strings that did not fit into its tables; the events that had them show none.
    pub fn entries_lost(&self) -> u64 {
        self.entries_lost
    }

    /// One with these bytes, which lasted a second.
    #[cfg(test)]
    pub(crate) fn of(number: u64, bytes: Vec<u8>) -> Generation {
        let began_ns = number * 1_000_000_000;
        let pieces = Pieces::new(vec![Piece::of(bytes)]);
        Generation { pieces, number, began_ns, ended_ns: began_ns + 1_000_000_000, entries_lost: 0 }
    }

    /// Puts it together. The tables of the generation are still there; batches and records are used up.
    pub(crate) fn assemble(close: &Close, messages: Vec<Message>) -> Generation {
        let mut records = Vec::new();
        let mut a =
            Assembly { close, whole: Vec::new(), copied: HashSet::new(), block: None, len: 0, pieces: Vec::new() };
        for m in messages {
            match m {
                Message::Batch(b) => a.events(b),
                Message::Ext(_, e) => records.push(e),
                Message::Close(_) | Message::Attach(..) => unreachable!("not of a generation"),
            }
        }
        a.sync();
        let mut names = Names::new(close);
        a.stacks(&mut names);
        a.strings(&names, &records);
        a.heap();
        a.copy(&[Ev::EndOfGeneration as u8]);
        let Snapshot { ticks, mono_ns, .. } = close.snapshot;
        let took =
            u128::from(ticks.saturating_sub(close.opened_at)) * 1_000_000_000 / u128::from(close.ticks_per_second);
        let t = tables(close.r#gen);
        Generation {
            pieces: a.finish(),
            number: close.r#gen,
            began_ns: mono_ns.saturating_sub(took as u64),
            ended_ns: mono_ns,
            entries_lost: t.stacks.lost() + t.strings.lost(),
        }
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("number", &self.number).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// A generation that is being put together.
struct Assembly<'a> {
    close: &'a Close,
    /// Batches that stay where they are.
    whole: Vec<Piece>,
    /// Threads of which a batch was copied (GE1).
    copied: HashSet<u64>,
    /// Where copies go to, and how many bytes of it are used.
    block: Option<Block>,
    len: usize,
    /// Those that are full.
    pieces: Vec<Piece>,
}

impl Assembly<'_> {
    fn events(&mut self, batch: Sealed) {
        if batch.piece.is_full() && !self.copied.contains(&batch.m) {
            return self.whole.push(batch.piece);
        }
        self.copied.insert(batch.m);
        self.copy(batch.as_bytes());
    }

    fn copy(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut block = self.block.take().unwrap_or_else(|| SINK.buffer());
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.len));
            block[self.len..self.len + now.len()].copy_from_slice(now);
            (bytes, self.len) = (later, self.len + now.len());
            if self.len == BLOCK_BYTES {
                self.pieces.push(Piece::new(block, BLOCK_BYTES));
                self.len = 0;
            } else {
                self.block = Some(block);
            }
        }
    }

    fn finish(mut self) -> Pieces {
        self.pieces.extend(self.block.map(|block| Piece::new(block, self.len)));
        self.whole.append(&mut self.pieces);
        Pieces::new(self.whole)
    }

    fn sync(&mut self) {
        let close = self.close;
        let s = close.snapshot;
        let base = close.opened_at.min(s.ticks);
        let mut b = Batch::open(SINK.buffer(), close.r#gen, NO_M, base);
        b.byte(Ev::Sync as u8);
        b.byte(Ev::Frequency as u8);
        b.varint(close.ticks_per_second);
        b.byte(Ev::ClockSnapshot as u8);
        b.varint(s.ticks - base);
        b.varint(s.mono_ns);
        b.varint(s.wall_ns / 1_000_000_000);
        b.varint(s.wall_ns % 1_000_000_000);
        self.batch(b);
    }

    fn batch(&mut self, mut b: Batch) {
        self.copy(b.finish());
    }

    /// Opens a structural batch that begins with `kind`.
    fn table_batch(&self, kind: Ev) -> Batch {
        let mut b = Batch::open(SINK.buffer(), self.close.r#gen, NO_M, self.close.snapshot.ticks);
        b.byte(kind as u8);
        b
    }

    fn stacks(&mut self, names: &mut Names) {
        let mut out = self.table_batch(Ev::Stacks);
        let mut symbolizer = symbolizer().lock();
        let mut frames = Vec::new();
        tables(self.close.r#gen).stacks.for_each(|id, words| {
            frames.clear();
            names.frames(&mut symbolizer, words, &mut frames);
            let need = 1 + 2 * 10 + frames.len() * 4 * 10;
            if !out.has_room(need) {
                let full = std::mem::replace(&mut out, self.table_batch(Ev::Stacks));
                self.batch(full);
            }
            out.byte(Ev::Stack as u8);
            out.varint(u64::from(id));
            out.varint(frames.len() as u64);
            for f in &frames {
                out.varint(f.pc);
                out.varint(f.func);
                out.varint(f.file);
                out.varint(f.line);
            }
        });
        self.batch(out);
    }

    fn strings(&mut self, names: &Names, records: &[ext::Writer]) {
        let r#gen = self.close.r#gen;
        let mut out = self.table_batch(Ev::Strings);
        let mut put = |id: u64, s: &[u8]| {
            if !out.has_room(1 + 20 + s.len()) {
                let full = std::mem::replace(&mut out, self.table_batch(Ev::Strings));
                self.batch(full);
            }
            out.byte(Ev::String as u8);
            out.varint(id);
            out.varint(s.len() as u64);
            out.bytes(s);
        };
        for (id, s) in strings::fixed() {
            put(id, s.as_bytes());
        }
        tables(r#gen).strings.for_each(|id, s| put(strings::dynamic_id(id), s));
        names::for_each(|id, s| put(id, s.as_bytes()));
        for (s, &id) in &names.ids {
            put(id, cut_string(s).as_bytes());
        }
        for (n, entry) in records.iter().flat_map(ext::Writer::entries).enumerate() {
            put(ext::id(n as u64), entry);
        }
        self.batch(out);
    }

    /// What events about the heap's objects refer to, if there could be any.
    fn heap(&mut self) {
        let open = |close: &Close, what| {
            let mut b = Batch::open_experiment(SINK.buffer(), ALLOC_FREE, close.r#gen, NO_M, close.snapshot.ticks);
            b.byte(what);
            b
        };
        heap::with(|layout, types| {
            let Some(layout) = layout else { return };
            let mut out = open(self.close, ALLOC_FREE_LAYOUT);
            [layout.min_address, layout.page_bytes, layout.object_align_bytes, layout.stack_align_bytes]
                .into_iter()
                .for_each(|number| out.varint(number));
            self.batch(out);
            let mut out = open(self.close, ALLOC_FREE_TYPES);
            for (t, id) in types.iter().zip(1..) {
                if !out.has_room(5 * 10 + t.name.len()) {
                    let full = std::mem::replace(&mut out, open(self.close, ALLOC_FREE_TYPES));
                    self.batch(full);
                }
                [id, t.address, t.bytes, t.pointer_bytes, t.name.len() as u64].into_iter().for_each(|n| out.varint(n));
                out.bytes(t.name.as_bytes());
            }
            self.batch(out);
        });
    }
}

/// The symboliser of this process: one, because its cache is dear.
pub fn symbolizer() -> &'static Mutex<Symbolizer> {
    static S: std::sync::LazyLock<Mutex<Symbolizer>> = std::sync::LazyLock::new(|| Mutex::new(Symbolizer::new()));
    &S
}

struct WireFrame {
    pc: u64,
    func: u64,
    file: u64,
    line: u64,
}

/// The function and file names of one generation's stacks.
struct Names {
    ids: HashMap<Arc<str>, u64>,
    next: u64,
}

impl Names {
    fn new(close: &Close) -> Names {
        // Above all fixed strings, even when the program added none of its own.
        let mut next = strings::FIXED_MAX;
        tables(close.r#gen).strings.for_each(|id, _| next = next.max(strings::dynamic_id(id)));
        Names { ids: HashMap::new(), next: next + 1 }
    }

    fn id(&mut self, s: &Arc<str>) -> u64 {
        if let Some(&id) = self.ids.get(s) {
            return id;
        }
        let id = self.next;
        self.next += 1;
        self.ids.insert(s.clone(), id);
        id
    }

    /// The frames of a stack-table entry, innermost first, without the runtime's own at either end.
    fn frames(&mut self, symbolizer: &mut Symbolizer, words: &[u64], out: &mut Vec<WireFrame>) {
        if let Some((s, at)) = start::decode(words) {
            let func = self.id(&Arc::from((s.name)()));
            let file = self.id(&Arc::from(at.file()));
            let pc = start::pc((s.name)(), at);
            out.push(WireFrame { pc, func, file, line: u64::from(at.line()) });
            return;
        }
        for f in symbol::trimmed(symbolizer, words).into_iter().take(MAX_FRAMES) {
            let func = match symbol::without_trait(&f.func) {
                Cow::Borrowed(_) => self.id(&f.func),
                Cow::Owned(short) => self.id(&short.into()),
            };
            let file = self.id(&f.file);
            out.push(WireFrame { pc: f.pc, func, file, line: u64::from(f.line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::block::POOL;

    /// GE1
    #[test]
    fn batches_of_one_thread_stay_in_order() {
        // A number that no session has.
        let r#gen = 1 << 40;
        let batch = |m: u64, events: u64| {
            let mut b = Batch::open(POOL.map(), r#gen, m, 1);
            (0..events).take_while(|i| b.event(Ev::ProcStatus, 1, &[m << 32 | i, 2])).count();
            b.seal()
        };
        let sent = [(1, u64::MAX), (2, u64::MAX), (1, 10), (1, u64::MAX), (2, u64::MAX), (3, 5000), (2, 20), (1, 30)];
        let batches: Vec<Sealed> = sent.map(|(m, events)| batch(m, events)).into();
        let expected: Vec<(u64, Vec<u8>)> = batches.iter().map(|b| (b.m, b.as_bytes().to_vec())).collect();
        let close = Close {
            r#gen,
            opened_at: 1,
            snapshot: crate::clock::snapshot(),
            ticks_per_second: 1_000_000_000,
            detach: Vec::new(),
            then: Vec::new(),
            last: false,
        };
        let generation = Generation::assemble(&close, batches.into_iter().map(Message::Batch).collect());
        let mut all = Vec::new();
        generation.write_to(&mut all).unwrap();
        assert_eq!(all.len(), generation.bytes());
        assert!(generation.memory() >= all.len() && generation.memory() <= all.len() + all.len() / 8);
        assert_eq!(all.last(), Some(&(Ev::EndOfGeneration as u8)));
        for m in 1..=3 {
            let mut from = 0;
            for (_, bytes) in expected.iter().filter(|(of, _)| *of == m) {
                let at = all[from..].windows(bytes.len()).position(|w| w == bytes);
                from += at.unwrap_or_else(|| panic!("a batch of {m} is not behind the one before")) + bytes.len();
            }
        }
    }
}

//! The sink: a plain OS thread that puts closed generations together and gives them to subscribers.
//!
//! Threads that record hand over full batches; the advancer hands over the end of a generation. The reader thread
//! keeps batches until their generation has ended, then makes it whole: batches, sync, stacks, strings, the
//! end mark. So whatever a subscriber gets ends at a whole generation, whatever happens to the program.
//!
//! - K1: the program never waits for the reader. Pending bytes are bounded ([`PENDING_BYTES_MAX`]); past it batches are
//!   counted and dropped, and no subscriber gets that generation. Those that go on all the same (flight recorders) find in their next
//!   whole one how much that was ([`ext::Record::Lost`]).
//! - K2: the tables of generation n are read here after its close, and reset before `done` says n. A generation n+2,
//!   which uses the same tables, MUST NOT be published before that. No subscriber is waited for in between: streams have threads of
//!   their own (see `stream.rs`), a flight recorder's memory is a queue.
//! - K3: a batch of n+1 may arrive before the end of n; it waits.
//! - K4: a subscriber is told with which generation it begins, before that one's end; and which one is its last, by that one's end.

use std::collections::BTreeMap;
use std::io;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::record::batch::{Batch, Sealed};
use crate::record::block::{BLOCK_BYTES, Block, POOL};
use crate::record::generation::{Close, Generation};
use crate::record::recorder::Ring;
use crate::record::stream::Stream;
use crate::record::{tables, thread_id};
use crate::unwind;
use crate::wire::ext;

/// Bytes that may wait for the reader, or for a stream's writer.
pub const PENDING_BYTES_MAX: usize = 256 << 20;

/// Bytes of blocks kept for reuse while there are only streams, at least. It is more if the last generations had more: as much as comes back
/// at once, for new memory costs more than the events that are written to it. With flight recorders it is what the last generations had, as far
/// as R3 has room for it.
const POOL_BYTES: usize = 32 << 20;
/// Blocks kept in any case, also when nobody traces.
const POOL_LEAST: usize = 4;

pub(crate) static SINK: Sink = Sink::new();

pub(crate) struct Sink {
    queue: Mutex<Vec<Message>>,
    arrived: Condvar,
    /// Those of the subscribers that are flight recorders, with their numbers: they make room (R3).
    rings: Mutex<Vec<(u64, Arc<Ring>)>>,
    pending: AtomicUsize,
    /// [`PENDING_BYTES_MAX`], but for tests.
    pending_max: AtomicUsize,
    /// Bytes that were dropped, by generation.
    lost: Mutex<BTreeMap<u64, u64>>,
    /// Bytes handed over since the last end of a generation.
    fresh_bytes: AtomicU64,
    /// The last generation that was put together and whose tables are free again (K2).
    done: AtomicU64,
}

pub(crate) enum Message {
    Batch(Sealed),
    Ext(u64, ext::Writer),
    Close(Close),
    /// A subscriber, its number, and the first generation it gets.
    Attach(Subscriber, u64, u64),
}

impl Message {
    /// Bytes it takes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Message::Batch(b) => b.as_bytes().len(),
            Message::Ext(_, e) => e.len(),
            Message::Close(_) | Message::Attach(..) => 0,
        }
    }
}

/// Who gets generations. Dropped after its last one.
pub enum Subscriber {
    /// A writer with a thread of its own.
    Stream(Stream),
    /// A flight recorder's memory.
    Ring(Arc<Ring>),
}

impl Subscriber {
    fn take(&self, generation: &Arc<Generation>, used: usize) {
        match self {
            Subscriber::Stream(s) => s.take(generation),
            Subscriber::Ring(r) => r.take(generation, used),
        }
    }

    fn lose(&self, bytes: u64) {
        match self {
            Subscriber::Stream(s) => s.lose(bytes),
            // R1
            Subscriber::Ring(r) => r.clear(),
        }
    }
}

/// The tracer's own threads, for whoever counts the process's.
pub(crate) struct Threads(u64);

static THREADS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

impl Threads {
    /// The calling thread is one until the result is dropped.
    pub(crate) fn enter() -> Threads {
        let tid = thread_id();
        THREADS.lock().push(tid);
        Threads(tid)
    }

    /// The kernel's ids of all of them.
    pub(crate) fn all() -> Vec<u64> {
        THREADS.lock().clone()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        THREADS.lock().retain(|tid| *tid != self.0);
    }
}

impl Sink {
    const fn new() -> Sink {
        Sink {
            queue: Mutex::new(Vec::new()),
            arrived: Condvar::new(),
            rings: Mutex::new(Vec::new()),
            pending: AtomicUsize::new(0),
            pending_max: AtomicUsize::new(PENDING_BYTES_MAX),
            lost: Mutex::new(BTreeMap::new()),
            fresh_bytes: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Room for a batch.
    pub(crate) fn buffer(&self) -> Block {
        POOL.reuse().unwrap_or_else(|| self.buffer_slow())
    }

    #[cold]
    fn buffer_slow(&self) -> Block {
        // R3. Nobody is waited for: whoever else is at it makes room, too.
        if let Some(rings) = self.rings.try_lock() {
            // Somebody else may have made room for more than itself.
            if let Some(block) = POOL.reuse() {
                return block;
            }
            rings.iter().for_each(|(_, ring)| ring.make_room(POOL.loose() + BLOCK_BYTES));
        }
        POOL.reuse().unwrap_or_else(|| POOL.map())
    }

    /// Blocks are to be kept for a generation of so many bytes.
    fn keep_blocks(&self, bytes: usize) {
        let bytes = if self.rings.lock().is_empty() { bytes.max(POOL_BYTES) } else { bytes };
        POOL.keep(bytes.div_ceil(BLOCK_BYTES).max(POOL_LEAST));
    }

    /// Flight recorders have got a generation, of so many bytes as the next one may have, and `used` bytes beside all are not for reuse (R3).
    fn trim_blocks(&self, used: usize, next: usize) {
        let spare = self.rings.lock().iter().map(|(_, ring)| ring.spare(used, next)).min();
        if let Some(bytes) = spare {
            POOL.trim(bytes, POOL_LEAST);
        }
    }

    pub(crate) fn push(&self, batch: Batch) {
        let sealed = batch.seal();
        let n = sealed.as_bytes().len();
        self.fresh_bytes.fetch_add(n as u64, Ordering::Relaxed);
        if self.reserve(n, sealed.r#gen) {
            // No notification: the reader has nothing to do before the generation ends.
            self.queue.lock().push(Message::Batch(sealed));
        }
    }

    pub(crate) fn push_ext(&self, r#gen: u64, records: ext::Writer) {
        if self.reserve(records.len(), r#gen) {
            self.queue.lock().push(Message::Ext(r#gen, records));
        }
    }

    /// Counts bytes that are about to wait, or that they are lost because too many wait already (K1).
    fn reserve(&self, n: usize, r#gen: u64) -> bool {
        if self.pending.fetch_add(n, Ordering::Relaxed) + n <= self.pending_max.load(Ordering::Relaxed) {
            return true;
        }
        self.pending.fetch_sub(n, Ordering::Relaxed);
        *self.lost.lock().entry(r#gen).or_default() += n as u64;
        false
    }

    /// Bytes that waited are used up.
    fn release(&self, n: usize) {
        self.pending.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn close(&self, close: Close) {
        self.fresh_bytes.store(0, Ordering::Relaxed);
        self.queue.lock().push(Message::Close(close));
        self.arrived.notify_one();
    }

    pub(crate) fn attach(&self, subscriber: Subscriber, number: u64, first: u64) {
        self.queue.lock().push(Message::Attach(subscriber, number, first));
    }

    pub(crate) fn done(&self) -> u64 {
        // ORDER: Acquire; pairs with the Release in the reader: its reset of the tables is visible (K2).
        self.done.load(Ordering::Acquire)
    }

    pub(crate) fn fresh_bytes(&self) -> u64 {
        self.fresh_bytes.load(Ordering::Relaxed)
    }

    /// Starts the reader thread of a session.
    pub(crate) fn start(&'static self) -> io::Result<()> {
        self.fresh_bytes.store(0, Ordering::Relaxed);
        std::thread::Builder::new().name("gort-trace".into()).spawn(move || {
            let _registered = Threads::enter();
            Reader { sink: self, subscribers: Vec::new(), waiting: Vec::new(), sizes: [0; 2], lost: 0 }.run();
        })?;
        Ok(())
    }
}

struct Reader {
    sink: &'static Sink,
    /// With their numbers and first generations.
    subscribers: Vec<(Subscriber, u64, u64)>,
    waiting: Vec<Message>,
    /// Bytes of the last generations.
    sizes: [usize; 2],
    /// Bytes that were lost since the last whole generation.
    lost: u64,
}

impl Reader {
    /// A generation is put together, or else its `size` is lost: debug information can be anything; should reading it panic, this
    /// generation is lost, and not the thread.
    fn assemble(&self, close: &Close, messages: Vec<Message>, size: usize) -> Result<Arc<Generation>, u64> {
        let waits: usize = messages.iter().map(Message::len).sum();
        let whole = catch_unwind(AssertUnwindSafe(|| {
            if unwind::modules_stale() {
                // A walk met code of an object that was loaded since.
                unwind::refresh_modules();
            }
            Arc::new(Generation::assemble(close, messages))
        }))
        .map_err(|payload| {
            forget(payload);
            size as u64
        });
        self.sink.release(waits);
        whole
    }

    fn run(mut self) {
        loop {
            let mut close = self.next_close();
            self.end_generation(&close);
            self.detach(&close);
            for f in close.then.drain(..) {
                // It wakes somebody.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
                    forget(payload);
                }
            }
            if close.last {
                return;
            }
        }
    }

    /// So many bytes the next generation may have.
    fn next_bytes(&self) -> usize {
        self.sizes[0].max(self.sizes[1])
    }

    fn attach(&mut self, subscriber: Subscriber, number: u64, first: u64) {
        if let Subscriber::Ring(ring) = &subscriber {
            self.sink.rings.lock().push((number, ring.clone()));
        }
        self.subscribers.push((subscriber, number, first));
        self.sink.keep_blocks(self.next_bytes());
    }

    fn detach(&mut self, close: &Close) {
        self.sink.rings.lock().retain(|(number, _)| !close.detach.contains(number));
        self.subscribers.retain(|(_, number, _)| !close.detach.contains(number));
        if close.last {
            POOL.keep(POOL_LEAST);
        } else if !close.detach.is_empty() {
            self.sink.keep_blocks(self.next_bytes());
        }
    }

    /// Waits for the next end of a generation; keeps everything else that arrives (K3).
    fn next_close(&mut self) -> Close {
        loop {
            if let Some(i) = self.waiting.iter().position(|m| matches!(m, Message::Close(_))) {
                let Message::Close(c) = self.waiting.remove(i) else { unreachable!() };
                return c;
            }
            let mut queue = self.sink.queue.lock();
            while queue.is_empty() {
                // Batches come without a notification, so look now and then to keep the queue short.
                self.sink.arrived.wait_for(&mut queue, std::time::Duration::from_millis(50));
            }
            self.waiting.append(&mut queue);
        }
    }

    fn end_generation(&mut self, close: &Close) {
        let r#gen = close.r#gen;
        let mut mine = Vec::new();
        for m in std::mem::take(&mut self.waiting) {
            match m {
                Message::Batch(ref b) if b.r#gen == r#gen => mine.push(m),
                Message::Ext(g, _) if g == r#gen => mine.push(m),
                // K4
                Message::Attach(subscriber, number, first) => self.attach(subscriber, number, first),
                other => self.waiting.push(other),
            }
        }
        let size: usize = mine.iter().map(Message::len).sum();
        self.sizes = [size, self.sizes[0]];
        self.sink.keep_blocks(self.next_bytes());
        let lost = self.sink.lost.lock().remove(&r#gen);
        let whole = match lost {
            Some(lost) => {
                drop(mine);
                self.sink.release(size);
                Err(lost + size as u64)
            }
            None if self.lost != 0 => {
                let mut records = ext::Writer::new();
                records.push(close.opened_at, ext::Record::Lost { bytes: self.lost });
                self.sink.pending.fetch_add(records.len(), Ordering::Relaxed);
                mine.push(Message::Ext(r#gen, records));
                self.assemble(close, mine, size)
            }
            None => self.assemble(close, mine, size),
        };
        match &whole {
            Ok(_) => self.lost = 0,
            Err(bytes) => self.lost += bytes,
        }
        // SAFETY: K2: the generation is closed, so nobody puts into its tables, and n+2 is not published before `done`.
        unsafe { tables(r#gen).reset() };
        // ORDER: Release; pairs with done().
        self.sink.done.store(r#gen, Ordering::Release);
        // The same for all of them: what one drops was a generation before, and is free or gone after.
        let used = POOL.used();
        for (subscriber, _, first) in &self.subscribers {
            if *first <= r#gen {
                match &whole {
                    Ok(generation) => subscriber.take(generation, used),
                    Err(bytes) => subscriber.lose(*bytes),
                }
            }
        }
        drop(whole);
        self.sink.trim_blocks(used, self.next_bytes());
    }
}

#[cfg(all(test, feature = "read"))]
mod tests {
    use super::*;
    use crate::clock;
    use crate::read::Reader as TraceReader;
    use crate::record::StreamError;
    use crate::record::generation::symbolizer;
    use crate::wire::{Ev, NO_M};
    use std::sync::mpsc;
    use std::time::Duration;

    /// Waits for `bytes` or more of one generation.
    fn push(r#gen: u64, bytes: usize) {
        let (now, mut pushed) = (clock::ticks(), 0);
        while pushed < bytes {
            let mut batch = Batch::open(SINK.buffer(), r#gen, NO_M, now);
            // One P for each, so that any reader takes it.
            assert!(batch.event(Ev::ProcStatus, now, &[pushed as u64, 2]));
            pushed += batch.data_len();
            SINK.push(batch);
        }
    }

    fn close(r#gen: u64, last: bool) -> mpsc::Receiver<()> {
        let (tx, rx) = mpsc::channel();
        SINK.close(Close {
            r#gen,
            opened_at: clock::ticks(),
            snapshot: clock::snapshot(),
            ticks_per_second: clock::ticks_per_second(),
            detach: Vec::new(),
            then: vec![Box::new(move || tx.send(()).unwrap())],
            last,
        });
        rx
    }

    /// The generations of a flight recorder, and what each says is lost before it.
    fn kept(ring: &Ring) -> Vec<(u64, Vec<u64>)> {
        let mut trace = Vec::new();
        ring.write_to(&mut trace).unwrap();
        let (mut reader, mut all) = (TraceReader::new(&trace[..]).unwrap(), Vec::<(u64, Vec<u64>)>::new());
        while let Some(event) = reader.next() {
            event.unwrap();
            let r#gen = reader.generation().number;
            if all.last().is_none_or(|x| x.0 != r#gen) {
                let lost = |r: crate::read::ExtRecord| match r.record {
                    Some(ext::Record::Lost { bytes }) => Some(bytes),
                    _ => None,
                };
                all.push((r#gen, reader.tables().ext_records().filter_map(|r| lost(r.unwrap())).collect()));
            }
        }
        all
    }

    /// The only test that uses the one sink there is.
    #[test]
    fn a_reader_that_is_slow_loses_generations_and_says_so() {
        let soon = Duration::from_secs(60);
        let ring = Ring::new(Duration::from_secs(1000), 1 << 30);
        let (tx, ended) = mpsc::channel();
        let stream = Stream::new(Box::new(io::sink()), move |r| tx.send(r).unwrap()).unwrap();
        SINK.start().unwrap();
        SINK.attach(Subscriber::Ring(ring.clone()), 1, 1);
        SINK.attach(Subscriber::Stream(stream), 2, 1);
        push(1, 100);
        close(1, false).recv_timeout(soon).unwrap();
        assert_eq!(kept(&ring), [(1, vec![])]);

        // The reader is held up at the second generation, and so much of the third comes that there is no place for it.
        SINK.pending_max.store(2000, Ordering::Relaxed);
        let held = symbolizer().lock();
        push(2, 100);
        let second = close(2, false);
        push(3, 10_000);
        let third = close(3, false);
        assert!(second.try_recv().is_err() && third.try_recv().is_err());
        drop(held);
        second.recv_timeout(soon).unwrap();
        third.recv_timeout(soon).unwrap();
        assert!(ring.generations().is_empty(), "what is kept has no gap");

        // The fourth is lost, too, and a fifth that is whole says how much it was, once.
        push(4, 10_000);
        close(4, false).recv_timeout(soon).unwrap();
        push(5, 100);
        close(5, false).recv_timeout(soon).unwrap();
        push(6, 100);
        close(6, true).recv_timeout(soon).unwrap();
        let generations = kept(&ring);
        let [(5, lost), (6, none)] = &generations[..] else { panic!("{generations:?}") };
        assert!(lost.len() == 1 && lost[0] >= 20_000 && none.is_empty(), "{generations:?}");
        assert_eq!(SINK.pending.load(Ordering::Relaxed), 0, "nothing waits any more");
        assert!(SINK.lost.lock().is_empty());

        match ended.recv_timeout(soon).unwrap() {
            // It has lost the fifth and the sixth besides, since there is no gap in a file.
            Err(StreamError::Lost { bytes, generations: 2 }) => assert!(bytes > lost[0]),
            other => panic!("{other:?}"),
        }
        SINK.pending_max.store(PENDING_BYTES_MAX, Ordering::Relaxed);
    }
}

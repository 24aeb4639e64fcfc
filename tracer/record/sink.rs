//! The sink: a plain OS thread that turns closed generations into a stream.
//!
//! Threads that record hand over full batches; the advancer hands over the end of a generation. The reader thread
//! keeps batches until their generation has ended, then writes it whole: batches, sync, stacks, strings, the
//! end mark. So a stream ends at a whole generation whatever happens to the program.
//!
//! - K1: the program never waits for the stream. Pending bytes are bounded ([`PENDING_BYTES_MAX`]); past it batches are
//!   counted and dropped, and the stream ends at the last whole generation.
//! - K2: the tables of generation n are read here after its close, and reset before `done` says n. A generation n+2,
//!   which uses the same tables, MUST NOT be published before that.
//! - K3: a batch of n+1 may arrive before the end of n; it waits.
//! - K4: a writer that fails once is not called again; the error is what the session ends with.

use std::collections::HashMap;
use std::io::{self, Write};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::clock::Snapshot;
use crate::record::batch::{Batch, Sealed};
use crate::record::{Stats, StreamError, start, strings, tables, thread_id};
use crate::symbol::{self, Symbolizer};
use crate::unwind;
use crate::wire::{Ev, HEADER, MAX_FRAMES, NO_M, cut_string, ext};

/// Bytes that may wait for the stream.
pub const PENDING_BYTES_MAX: usize = 256 << 20;

/// Buffers kept for reuse.
const POOL_MAX: usize = 64;

pub(crate) static SINK: Sink = Sink::new();

pub(crate) struct Sink {
    queue: Mutex<Vec<Message>>,
    arrived: Condvar,
    pool: Mutex<Vec<Box<[u8]>>>,
    pending: AtomicUsize,
    lost_bytes: AtomicU64,
    /// The first generation that lost something; `u64::MAX` for none.
    lost_since: AtomicU64,
    /// Bytes handed over since the last end of a generation.
    fresh_bytes: AtomicU64,
    /// The last generation that was written and whose tables are free again (K2).
    done: AtomicU64,
    /// The kernel's id of the reader thread, 0 when there is none.
    reader: AtomicU64,
}

enum Message {
    Batch(Sealed),
    Ext(u64, ext::Writer),
    Close(Close),
}

/// The end of a generation.
pub(crate) struct Close {
    pub(crate) r#gen: u64,
    pub(crate) opened_at: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) ticks_per_second: u64,
    pub(crate) last: bool,
}

/// What happens when the session's stream has ended.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<Stats, StreamError>) + Send>;

impl Sink {
    const fn new() -> Sink {
        Sink {
            queue: Mutex::new(Vec::new()),
            arrived: Condvar::new(),
            pool: Mutex::new(Vec::new()),
            pending: AtomicUsize::new(0),
            lost_bytes: AtomicU64::new(0),
            lost_since: AtomicU64::new(u64::MAX),
            fresh_bytes: AtomicU64::new(0),
            done: AtomicU64::new(0),
            reader: AtomicU64::new(0),
        }
    }

    pub(crate) fn buffer(&self) -> Box<[u8]> {
        self.pool.lock().pop().unwrap_or_else(Batch::buffer)
    }

    fn give_back(&self, buf: Box<[u8]>) {
        let mut pool = self.pool.lock();
        if pool.len() < POOL_MAX {
            pool.push(buf);
        }
    }

    pub(crate) fn push(&self, batch: Batch) {
        let (sealed, spare) = batch.seal();
        if let Some(buf) = spare {
            self.give_back(buf);
        }
        let n = sealed.as_bytes().len();
        self.fresh_bytes.fetch_add(n as u64, Ordering::Relaxed);
        if !self.reserve(n, sealed.r#gen) {
            if let Some(buf) = sealed.into_buffer() {
                self.give_back(buf);
            }
            return;
        }
        self.queue.lock().push(Message::Batch(sealed));
        // No notification: the reader has nothing to do before the generation ends.
    }

    pub(crate) fn push_ext(&self, r#gen: u64, records: ext::Writer) {
        if self.reserve(records.len(), r#gen) {
            self.queue.lock().push(Message::Ext(r#gen, records));
        }
    }

    /// Counts bytes that are about to wait, or that they are lost because too many wait already (K1).
    fn reserve(&self, n: usize, r#gen: u64) -> bool {
        if self.pending.fetch_add(n, Ordering::Relaxed) + n <= PENDING_BYTES_MAX {
            return true;
        }
        self.pending.fetch_sub(n, Ordering::Relaxed);
        self.lost_bytes.fetch_add(n as u64, Ordering::Relaxed);
        self.lost_since.fetch_min(r#gen, Ordering::Relaxed);
        false
    }

    pub(crate) fn close(&self, close: Close) {
        self.fresh_bytes.store(0, Ordering::Relaxed);
        self.queue.lock().push(Message::Close(close));
        self.arrived.notify_one();
    }

    pub(crate) fn done(&self) -> u64 {
        // ORDER: Acquire; pairs with the Release in the reader: its reset of the tables is visible (K2).
        self.done.load(Ordering::Acquire)
    }

    pub(crate) fn fresh_bytes(&self) -> u64 {
        self.fresh_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn reader(&self) -> Option<u64> {
        match self.reader.load(Ordering::SeqCst) {
            0 => None,
            tid => Some(tid),
        }
    }

    /// Starts the reader thread of a session.
    pub(crate) fn start(&'static self, out: Box<dyn Write + Send>, on_end: OnEnd) -> io::Result<()> {
        self.lost_bytes.store(0, Ordering::Relaxed);
        self.lost_since.store(u64::MAX, Ordering::Relaxed);
        self.fresh_bytes.store(0, Ordering::Relaxed);
        std::thread::Builder::new().name("gort-trace".into()).spawn(move || {
            self.reader.store(thread_id(), Ordering::SeqCst);
            let result = Reader::new(self, out).run();
            self.reader.store(0, Ordering::SeqCst);
            on_end(result);
        })?;
        Ok(())
    }
}

struct Reader {
    sink: &'static Sink,
    out: Guarded,
    stats: Stats,
    failed: Option<StreamError>,
    header_written: bool,
    waiting: Vec<Message>,
}

/// The user's writer. A panic of it, in a write or when it is dropped, is an error like any other (K4).
struct Guarded(Option<Box<dyn Write + Send>>);

impl Guarded {
    fn call<T>(&mut self, f: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        let Some(out) = &mut self.0 else { return Err(io::Error::other("the writer has panicked before")) };
        match catch_unwind(AssertUnwindSafe(|| f(out))) {
            Ok(result) => result,
            Err(payload) => {
                forget(payload);
                Err(io::Error::other("the writer panicked"))
            }
        }
    }

    /// Drops the writer.
    fn close(&mut self) -> io::Result<()> {
        let out = self.0.take();
        catch_unwind(AssertUnwindSafe(|| drop(out))).map_err(|payload| {
            forget(payload);
            io::Error::other("the writer panicked when it was dropped")
        })
    }
}

impl Reader {
    fn new(sink: &'static Sink, out: Box<dyn Write + Send>) -> Reader {
        Reader {
            sink,
            out: Guarded(Some(out)),
            stats: Stats::default(),
            failed: None,
            header_written: false,
            waiting: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Stats, StreamError> {
        loop {
            let close = self.next_close();
            let (r#gen, last) = (close.r#gen, close.last);
            // Debug information can be anything; should reading it panic, the session ends with an error, not for ever.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.end_generation(close))) {
                forget(payload);
                self.failed.get_or_insert_with(|| StreamError::Write(io::Error::other("the tracer's thread panicked")));
                self.free_tables(r#gen);
            }
            if last {
                break;
            }
        }
        let closed = self.out.close();
        if self.failed.is_none()
            && let Err(e) = closed
        {
            self.failed = Some(StreamError::Write(e));
        }
        match self.failed {
            None => Ok(self.stats),
            Some(e) => Err(e),
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

    fn end_generation(&mut self, close: Close) {
        if unwind::modules_stale() {
            // A walk met code of an object that was loaded since.
            unwind::refresh_modules();
        }
        let r#gen = close.r#gen;
        let (mine, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(|m| match m {
            Message::Batch(b) => b.r#gen == r#gen,
            Message::Ext(g, _) => *g == r#gen,
            Message::Close(_) => false,
        });
        self.waiting = later;
        if self.sink.lost_since.load(Ordering::Relaxed) <= r#gen && self.failed.is_none() {
            let bytes = self.sink.lost_bytes.load(Ordering::Relaxed);
            self.failed = Some(StreamError::Lost { bytes, generations: self.stats.generations });
        }
        if self.failed.is_none()
            && let Err(e) = self.write_generation(&close, &mine)
        {
            self.failed = Some(StreamError::Write(e));
        }
        for m in mine {
            match m {
                Message::Batch(b) => {
                    self.sink.pending.fetch_sub(b.as_bytes().len(), Ordering::Relaxed);
                    if let Some(buf) = b.into_buffer() {
                        self.sink.give_back(buf);
                    }
                }
                Message::Ext(_, e) => {
                    self.sink.pending.fetch_sub(e.len(), Ordering::Relaxed);
                }
                Message::Close(_) => {}
            }
        }
        self.free_tables(r#gen);
    }

    /// Empties the tables of a closed generation and lets the next one with its parity begin (K2).
    fn free_tables(&mut self, r#gen: u64) {
        self.stats.entries_lost += tables(r#gen).stacks.lost() + tables(r#gen).strings.lost();
        // SAFETY: K2: the generation is closed, so nobody puts into its tables, and n+2 is not published before `done`.
        unsafe { tables(r#gen).reset() };
        // ORDER: Release; pairs with done().
        self.sink.done.store(r#gen, Ordering::Release);
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.call(|out| out.write_all(bytes))?;
        self.stats.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_generation(&mut self, close: &Close, messages: &[Message]) -> io::Result<()> {
        if !self.header_written {
            self.header_written = true;
            self.write(&HEADER)?;
        }
        for m in messages {
            if let Message::Batch(b) = m {
                self.write(b.as_bytes())?;
            }
        }
        self.write_sync(close)?;
        let mut names = Names::new(close);
        self.write_stacks(close, &mut names)?;
        self.write_strings(close, &names, messages)?;
        self.write(&[Ev::EndOfGeneration as u8])?;
        self.out.call(|out| out.flush())?;
        self.stats.generations += 1;
        Ok(())
    }

    fn write_sync(&mut self, close: &Close) -> io::Result<()> {
        let s = close.snapshot;
        let base = close.opened_at.min(s.ticks);
        let mut b = Batch::open(self.sink.buffer(), close.r#gen, NO_M, base);
        b.byte(Ev::Sync as u8);
        b.byte(Ev::Frequency as u8);
        b.varint(close.ticks_per_second);
        b.byte(Ev::ClockSnapshot as u8);
        b.varint(s.ticks - base);
        b.varint(s.mono_ns);
        b.varint(s.wall_ns / 1_000_000_000);
        b.varint(s.wall_ns % 1_000_000_000);
        self.write_batch(b)
    }

    fn write_batch(&mut self, b: Batch) -> io::Result<()> {
        let (sealed, spare) = b.seal();
        let r = self.write(sealed.as_bytes());
        spare.or(sealed.into_buffer()).into_iter().for_each(|buf| self.sink.give_back(buf));
        r
    }

    /// Opens a structural batch that begins with `kind`.
    fn table_batch(&self, close: &Close, kind: Ev) -> Batch {
        let mut b = Batch::open(self.sink.buffer(), close.r#gen, NO_M, close.snapshot.ticks);
        b.byte(kind as u8);
        b
    }

    fn write_stacks(&mut self, close: &Close, names: &mut Names) -> io::Result<()> {
        let mut out = self.table_batch(close, Ev::Stacks);
        let mut result = Ok(());
        let mut symbolizer = symbolizer().lock();
        let mut frames = Vec::new();
        let mut ready = Vec::new();
        tables(close.r#gen).stacks.for_each(|id, words| {
            frames.clear();
            names.frames(&mut symbolizer, words, &mut frames);
            let need = 1 + 2 * 10 + frames.len() * 4 * 10;
            if !out.has_room(need) {
                ready.push(std::mem::replace(&mut out, self.table_batch(close, Ev::Stacks)));
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
        drop(symbolizer);
        ready.push(out);
        for b in ready {
            if result.is_ok() {
                result = self.write_batch(b);
            }
        }
        result
    }

    fn write_strings(&mut self, close: &Close, names: &Names, messages: &[Message]) -> io::Result<()> {
        let mut out = self.table_batch(close, Ev::Strings);
        let mut ready = Vec::new();
        let mut put = |id: u64, s: &[u8]| {
            if !out.has_room(1 + 20 + s.len()) {
                ready.push(std::mem::replace(&mut out, self.table_batch(close, Ev::Strings)));
            }
            out.byte(Ev::String as u8);
            out.varint(id);
            out.varint(s.len() as u64);
            out.bytes(s);
        };
        for (id, s) in strings::fixed() {
            put(id, s.as_bytes());
        }
        tables(close.r#gen).strings.for_each(|id, s| put(strings::dynamic_id(id), s));
        for (s, &id) in &names.ids {
            put(id, cut_string(s).as_bytes());
        }
        let records = messages.iter().filter_map(|m| match m {
            Message::Ext(_, e) => Some(e),
            _ => None,
        });
        for (n, entry) in records.flat_map(ext::Writer::entries).enumerate() {
            put(ext::id(n as u64), entry);
        }
        ready.push(out);
        ready.into_iter().try_for_each(|b| self.write_batch(b))
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
            let (func, file) = (self.id(&f.func), self.id(&f.file));
            out.push(WireFrame { pc: f.pc, func, file, line: u64::from(f.line) });
        }
    }
}

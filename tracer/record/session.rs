//! Sessions and generations: begin, publish, close.
//!
//! See the [module](super) for how they fit together; the order of the calls is the runtime's advancer's.

use std::fmt;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock;
use crate::record::batch::Batch;
use crate::record::generation::Close;
use crate::record::sink::{SINK, Subscriber, Threads};
use crate::record::slot::Slot;
use crate::record::{gate, table};
use crate::wire::{Ev, GoStatus, NO_M, ext};

/// The generation that gates open for; 0 when tracing is off.
pub(crate) static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The last generation there was, so that numbers go on from one session to the next.
static LAST: AtomicU64 = AtomicU64::new(0);

/// When the present generation was opened, in ticks.
static OPENED_AT: AtomicU64 = AtomicU64::new(0);

/// The session's ticks per second. One value for all generations: readers convert absolute times with each generation's own,
/// and a better estimate in a later one would move its events against the earlier ones.
static TICKS_PER_SECOND: AtomicU64 = AtomicU64::new(0);

/// Whether events get stacks.
static STACKS: AtomicBool = AtomicBool::new(true);

/// Whether events get stacks: 0, for none, is as good to any reader. It may change at any time.
pub fn set_stacks(yes: bool) {
    STACKS.store(yes, Ordering::Relaxed);
}

#[inline]
pub(crate) fn wants_stacks() -> bool {
    STACKS.load(Ordering::Relaxed)
}

/// The stack and string tables of one generation.
pub(crate) struct Tables {
    pub(crate) stacks: table::Trie,
    pub(crate) strings: table::StringTable,
}

/// Bytes that one generation's stacks may take.
const STACK_TABLE_BYTES_MAX: usize = 64 << 20;
/// Bytes that one generation's strings may take.
const STRING_TABLE_BYTES_MAX: usize = 16 << 20;

impl Tables {
    fn new() -> Tables {
        Tables {
            stacks: table::Trie::new(STACK_TABLE_BYTES_MAX),
            strings: table::StringTable::new(STRING_TABLE_BYTES_MAX),
        }
    }

    /// Empties both tables.
    ///
    /// # Safety
    ///
    /// Nobody else uses them: the generation is closed and the next with the same parity is not yet published.
    pub(crate) unsafe fn reset(&self) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.stacks.reset();
            self.strings.reset();
        }
    }
}

static TABLES: LazyLock<[Tables; 2]> = LazyLock::new(|| [Tables::new(), Tables::new()]);

#[inline]
pub(crate) fn tables(r#gen: u64) -> &'static Tables {
    &TABLES[(r#gen % 2) as usize]
}

/// The slots of all threads.
struct Slots {
    slots: Vec<&'static Slot>,
    /// A session lasts (L3 in slot.rs).
    on: bool,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { slots: Vec::new(), on: false });

/// Makes a slot known to the advancer, for ever.
pub fn register(slot: &'static Slot) {
    let mut all = SLOTS.lock();
    slot.set_on(all.on);
    all.slots.push(slot);
}

/// What a session wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Whole generations in the stream.
    pub generations: u64,
    /// Bytes in the stream.
    pub bytes: u64,
    /// Stacks and strings that did not fit into their generation's table; the events that had them show none.
    pub entries_lost: u64,
}

/// Why a stream did not get everything. What it holds up to then is whole generations, which any reader opens; after an error of the
/// writer's, and the beginning of one more, which readers call cut.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamError {
    /// The writer failed; it was not called again.
    Write(io::Error),
    /// The writer was so slow that more than [`PENDING_BYTES_MAX`](super::PENDING_BYTES_MAX) waited for it.
    Lost {
        /// Bytes of events that were dropped.
        bytes: u64,
        /// Whole generations that were written before.
        generations: u64,
    },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Write(e) => write!(f, "the trace's writer failed: {e}"),
            StreamError::Lost { bytes, generations } => write!(
                f,
                "the trace's writer was too slow: {bytes} bytes of events were dropped after {generations} whole generations"
            ),
        }
    }
}

impl std::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StreamError::Write(e) => Some(e),
            StreamError::Lost { .. } => None,
        }
    }
}

/// Whether tracing is on: one relaxed load.
#[inline]
pub fn enabled() -> bool {
    !cfg!(rt_untraced) && generation() != 0
}

/// The present generation, 0 when tracing is off.
#[inline]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Ends tracing as it is, in a child of `fork()`: what there is of it belongs to the parent, and so do the threads that would write it.
pub fn forsake() {
    GENERATION.store(0, Ordering::Relaxed);
}

/// The kernel's ids of the threads that the tracer has, for whoever counts the process's.
pub fn threads() -> Vec<u64> {
    Threads::all()
}

/// Bytes handed to the sink in this generation so far.
pub fn fresh_bytes() -> u64 {
    SINK.fresh_bytes()
}

/// Readies a session, and answers its first generation, which the caller publishes in a stopped world. It lasts from the first
/// subscriber to the last: see [`attach`] and [`End`].
///
/// The caller makes sure that the last session has ended.
///
/// # Errors
///
/// When no reader thread can be started.
pub fn begin() -> io::Result<u64> {
    assert!(!enabled(), "a session is running");
    LazyLock::force(&TABLES);
    SINK.start()?;
    TICKS_PER_SECOND.store(clock::ticks_per_second(), Ordering::Relaxed);
    let first = LAST.load(Ordering::Relaxed) + 1;
    Ok(first)
}

/// Whether generation `r#gen` may be published: its tables are free (K2). No writer is waited for, so that is soon.
pub fn may_publish(r#gen: u64) -> bool {
    r#gen < 2 || SINK.done() >= r#gen - 2
}

/// Makes `r#gen` (0: off) the generation that gates open for, and waits until no guard of an older view is left. `idle` is
/// called while waiting.
///
/// Called by the advancer only. Afterwards the generation before may be [closed](close).
pub fn publish(r#gen: u64, mut idle: impl FnMut()) {
    if r#gen != 0 {
        assert!(may_publish(r#gen), "generation {} published while its tables are in use", r#gen);
        LAST.store(r#gen, Ordering::Relaxed);
        OPENED_AT.store(clock::ticks(), Ordering::Relaxed);
        if generation() == 0 {
            set_on(true);
        }
    }
    gate::publish(&GENERATION, r#gen);
    // A slot that registers from now on reads the new number: registering takes this lock.
    let slots = SLOTS.lock().slots.clone();
    for slot in slots {
        while !slot.is_quiet() {
            idle();
        }
    }
    if r#gen == 0 {
        set_on(false);
    }
}

/// Tells all slots, those to come included, that a session begins or is over (L3 in slot.rs).
fn set_on(on: bool) {
    let mut all = SLOTS.lock();
    all.on = on;
    all.slots.iter().for_each(|slot| slot.set_on(on));
}

/// The status of a goroutine that no event of a generation named, noted by the census.
#[derive(Clone, Copy, Debug)]
pub struct NotedStatus {
    /// Goroutine id.
    pub g: u64,
    /// OS thread id, for a goroutine in a blocking call; `u64::MAX` for none.
    pub m: u64,
    /// What it was doing.
    pub status: GoStatus,
    /// Where, as a stack id of that generation; 0 for unknown.
    pub stack: u64,
}

/// Gives a subscriber all generations from `first` on, until an [`End`] names the number that this answers. Called before `first` is
/// [closed](close).
pub fn attach(subscriber: Subscriber, first: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    SINK.attach(subscriber, number, first);
    number
}

/// What else is to be done when a generation ends.
#[derive(Default)]
pub struct End {
    /// Subscribers, by number, for whom it is the last one.
    pub detach: Vec<u64>,
    /// To be called, on the reader thread, when all subscribers have got it.
    pub then: Vec<Box<dyn FnOnce() + Send>>,
    /// Whether the session ends with it.
    pub last: bool,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("detach", &self.detach).field("last", &self.last).finish_non_exhaustive()
    }
}

/// Ends a generation: takes every slot's batches, adds the noted statuses and records, and hands it to the sink. `opened_at` is
/// what [`opened_at`] said while it was the present one.
///
/// # Safety
///
/// [`publish`] has returned for a later generation (or 0) since `r#gen` was the present one, and only the advancer calls this.
pub unsafe fn close(
    r#gen: u64,
    opened_at: u64,
    noted: impl Iterator<Item = NotedStatus>,
    records: ext::Writer,
    end: End,
) {
    let slots = SLOTS.lock().slots.clone();
    for slot in slots {
        // SAFETY: passed on to the caller: publish() has seen every gate quiet.
        let (batch, ext) = unsafe { slot.take(r#gen) };
        if let Some(b) = batch {
            SINK.push(b);
        }
        if !ext.is_empty() {
            SINK.push_ext(r#gen, ext);
        }
    }
    if !records.is_empty() {
        SINK.push_ext(r#gen, records);
    }
    let mut noted = noted.peekable();
    if noted.peek().is_some() {
        let now = clock::ticks();
        let mut b = Batch::open(SINK.buffer(), r#gen, NO_M, now);
        for n in noted {
            let put = |b: &mut Batch| match n.stack {
                0 => b.event(Ev::GoStatus, now, &[n.g, n.m, n.status as u64]),
                stack => b.event(Ev::GoStatusStack, now, &[n.g, n.m, n.status as u64, stack]),
            };
            if !put(&mut b) {
                // T7
                let next = Batch::open(SINK.buffer(), r#gen, NO_M, b.last_ticks());
                SINK.push(std::mem::replace(&mut b, next));
                assert!(put(&mut b), "an event fits an empty batch");
            }
        }
        SINK.push(b);
    }
    SINK.close(Close {
        r#gen,
        opened_at,
        snapshot: clocks(),
        ticks_per_second: TICKS_PER_SECOND.load(Ordering::Relaxed),
        detach: end.detach,
        then: end.then,
        last: end.last,
    });
}

/// When the present generation was opened, in ticks.
pub fn opened_at() -> u64 {
    OPENED_AT.load(Ordering::Relaxed)
}

/// All clocks at the end of a generation. That of the trace is never behind what it was at the end of an earlier one, even if it jumps back or
/// differs between processors: no reader needs to wonder which generation came first. By the advancer.
fn clocks() -> clock::Snapshot {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock::snapshot();
    clock::Snapshot { ticks: now.ticks.max(LAST.fetch_max(now.ticks, Ordering::Relaxed)), ..now }
}

/// The id of a string in a generation's table, 0 if that is full: for records that are noted for [`close`].
///
/// # Safety
///
/// `r#gen` is not closed.
pub unsafe fn noted_string(r#gen: u64, s: &str) -> u64 {
    super::strings::dynamic_id(tables(r#gen).strings.put(s))
}

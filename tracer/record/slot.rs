//! A thread's place in the tracer: its gate, its open batches, its walker of stacks.
//!
//! A slot is made once per thread, never freed, and reused when a thread of the program's own has ended.
//!
//! - L1: everything behind an `UnsafeCell` here is touched only through a [`Guard`] that speaks for the slot: by the slot's
//!   own thread, or by a visitor who has stopped that thread at the border and holds a guard of its own; or by the
//!   advancer for a generation that is closed (G1). Two of them at once would corrupt a batch.
//! - L2: one thread takes at most one guard at a time.
//! - L3: `on` is set in each registered slot before the first generation of a session is published, in a stopped world, and
//!   cleared after the last one was closed for all gates. So a thread that a stopped world holds still and finds it false has nothing
//!   to record. It says no more than the generation does, but the slot is at hand where that is two loads away.

use std::cell::{Cell, UnsafeCell};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;
use crate::record::batch::Batch;
use crate::record::gate::Gate;
use crate::record::sink::SINK;
use crate::record::start::{self, Start};
use crate::record::walker::StackWalker;
use crate::record::{GENERATION, tables};
use crate::unwind::Regs;
use crate::wire::{Ev, ext};

/// The calling thread's id as the kernel shows it, for [`Slot::new`]; where there is none to be had, a number of its own for
/// each call.
pub fn thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: gettid has no arguments and cannot fail.
        unsafe { libc::syscall(libc::SYS_gettid) as u64 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

/// Where one thread records.
#[repr(align(128))]
pub struct Slot {
    gate: Gate,
    /// A session lasts (L3).
    on: AtomicBool,
    /// The OS thread id that the batches carry.
    m_id: AtomicU64,
    inner: [UnsafeCell<PerGeneration>; 2],
    walker: UnsafeCell<StackWalker>,
    started: UnsafeCell<Started>,
}

/// Where a goroutine begins, and its number in the stack table of a generation; of 0 there is none.
#[derive(Default)]
struct Started {
    r#gen: u64,
    words: [u64; 2],
    id: u32,
}

#[derive(Default)]
struct PerGeneration {
    batch: Option<Batch>,
    ext: ext::Writer,
    /// The time of the last event of the batches that are sent, so that the next one does not begin before it (T7).
    last_ticks: u64,
}

// SAFETY: the cells are reached only under L1, which allows one accessor at a time; the rest is atomic.
unsafe impl Sync for Slot {}
// SAFETY: nothing in a slot is tied to the thread that made it (the unwinding cache is plain memory).
unsafe impl Send for Slot {}

impl Slot {
    /// A slot for the OS thread `m_id`.
    pub fn new(m_id: u64) -> Slot {
        Slot {
            gate: Gate::new(),
            on: AtomicBool::new(false),
            m_id: AtomicU64::new(m_id),
            inner: Default::default(),
            walker: UnsafeCell::new(StackWalker::new()),
            started: UnsafeCell::default(),
        }
    }

    /// The OS thread id that the batches carry.
    pub fn m_id(&self) -> u64 {
        self.m_id.load(Ordering::Relaxed)
    }

    /// Gives a slot that no thread uses to the thread `m_id`. Its batches were flushed by [`Slot::retire`].
    pub fn set_m_id(&self, m_id: u64) {
        self.m_id.store(m_id, Ordering::Relaxed);
    }

    /// Opens the gate, from the slot's own thread. When tracing is off the guard still holds the gate (and a start waits
    /// for it) but has no [writer](Guard::writer).
    #[inline]
    pub fn acquire(&self) -> Guard<'_> {
        let r#gen = self.gate.acquire(&GENERATION);
        Guard { slot: self, r#gen, ticks: Cell::new(0) }
    }

    /// As [`Slot::acquire`], for a thread that a stopped world holds still (it owns a P): one load when tracing is off.
    #[inline]
    pub fn acquire_if_on(&self) -> Option<Guard<'_>> {
        if !self.is_on() {
            return None;
        }
        let r#gen = self.gate.acquire_if_on(&GENERATION)?;
        Some(Guard { slot: self, r#gen, ticks: Cell::new(0) })
    }

    /// Whether a guard may have a writer, as [`Slot::acquire_if_on`] sees it: for a caller who keeps apart what is to be done then.
    #[inline]
    pub fn is_on(&self) -> bool {
        // ORDER: Relaxed; L3: set while the caller's thread stood still.
        !cfg!(rt_untraced) && self.on.load(Ordering::Relaxed)
    }

    /// L3.
    pub(crate) fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Whether the thread was seen outside the gate (G1).
    pub fn is_quiet(&self) -> bool {
        self.gate.is_quiet()
    }

    /// Sends what is in the open batches to the sink, because the thread ends.
    pub fn retire(&self) {
        if let Some(mut w) = self.acquire().writer() {
            w.flush();
        }
    }

    /// Takes the open batch and the extension records of a closed generation.
    ///
    /// # Safety
    ///
    /// The generation is closed and this slot was seen quiet since (G1), and only the advancer calls this.
    pub(crate) unsafe fn take(&self, r#gen: u64) -> (Option<Batch>, ext::Writer) {
        // SAFETY: G1: the owner no longer writes to this generation; the caller is the only advancer.
        let inner = unsafe { &mut *self.inner[(r#gen % 2) as usize].get() };
        inner.last_ticks = 0;
        (inner.batch.take(), std::mem::take(&mut inner.ext))
    }
}

/// Evidence that the gate is open: the generation cannot close before it is dropped.
#[must_use]
pub struct Guard<'a> {
    slot: &'a Slot,
    r#gen: u64,
    /// The time of this guard's events, read once, at the first of them; 0 before.
    ticks: Cell<u64>,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.gate.release();
    }
}

impl<'a> Guard<'a> {
    /// The generation that is open; 0 when tracing is off.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.r#gen
    }

    /// The time of this guard's events, for [`Guard::go_on`].
    #[inline]
    pub fn moment(&self) -> Moment {
        Moment { r#gen: self.r#gen, ticks: self.ticks.get() }
    }

    /// This guard's events come right after those of another guard of the same thread: they need no reading of the clock of
    /// their own. Nothing if that guard was of another generation, or had no events.
    #[inline]
    pub fn go_on(&self, from: Moment) {
        if from.r#gen == self.r#gen {
            self.ticks.set(from.ticks);
        }
    }

    /// The events that follow have a later time than one at `ticks` of another thread's stream, behind which a reader is to take them.
    pub fn go_later(&self, ticks: u64) {
        self.ticks.set(clock::ticks().max(ticks + 1));
    }

    /// Writes as the guard's own thread; `None` when tracing is off.
    #[inline]
    pub fn writer(&self) -> Option<Writer<'_>> {
        (self.r#gen != 0).then_some(Writer { slot: self.slot, r#gen: self.r#gen, ticks: &self.ticks })
    }

    /// Writes as another thread, which this one has stopped; `None` when tracing is off.
    ///
    /// # Safety
    ///
    /// The owner of `other` is stopped at the border by the caller for as long as the writer lives, or `other` is in
    /// use by nobody (L1).
    #[inline]
    pub unsafe fn writer_for<'b>(&'b self, other: &'b Slot) -> Option<Writer<'b>> {
        (self.r#gen != 0).then_some(Writer { slot: other, r#gen: self.r#gen, ticks: &self.ticks })
    }
}

/// The time of the events of a [`Guard`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    r#gen: u64,
    ticks: u64,
}

/// Appends events to one thread's batch.
pub struct Writer<'a> {
    slot: &'a Slot,
    r#gen: u64,
    ticks: &'a Cell<u64>,
}

impl Writer<'_> {
    /// The generation written to.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.r#gen
    }

    /// The OS thread id of the stream written to.
    #[inline]
    pub fn m_id(&self) -> u64 {
        self.slot.m_id()
    }

    /// This writer, for a function that is seldom called. One that took the writer itself would have it lie in memory for all who are not.
    #[inline]
    pub fn apart(&mut self) -> Writer<'_> {
        Writer { slot: self.slot, r#gen: self.r#gen, ticks: self.ticks }
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        let t = self.ticks.get();
        if t != 0 {
            return t;
        }
        let t = clock::ticks();
        self.ticks.set(t);
        t
    }

    /// Appends one event. Events of one guard carry one clock reading; each is at least one tick after the last.
    #[inline(always)]
    pub fn event<const N: usize>(&mut self, ev: Ev, args: &[u64; N]) {
        let now = self.now();
        // SAFETY: L1: this writer speaks for the slot, and nothing else holds a reference into the cell.
        let inner = unsafe { &mut *self.slot.inner[(self.r#gen % 2) as usize].get() };
        if !inner.batch.as_mut().is_some_and(|b| b.event(ev, now, args)) {
            self.apart().event_slow(ev, now, *args);
        }
    }

    #[cold]
    #[inline(never)]
    fn event_slow<const N: usize>(mut self, ev: Ev, now: u64, args: [u64; N]) {
        self.flush();
        // SAFETY: as in event().
        let inner = unsafe { &mut *self.slot.inner[(self.r#gen % 2) as usize].get() };
        let now = now.max(inner.last_ticks);
        let mut b = Batch::open(SINK.buffer(), self.r#gen, self.m_id(), now);
        assert!(b.event(ev, now, &args), "an event fits an empty batch");
        inner.batch = Some(b);
    }

    /// The time of the last event of the stream, for [`Guard::go_later`].
    pub fn last_ticks(&self) -> u64 {
        // SAFETY: as in event().
        let inner = unsafe { &*self.slot.inner[(self.r#gen % 2) as usize].get() };
        inner.batch.as_ref().map_or(inner.last_ticks, Batch::last_ticks)
    }

    /// Sends the open batch, if any, to the sink.
    pub fn flush(&mut self) {
        // SAFETY: as in event().
        let inner = unsafe { &mut *self.slot.inner[(self.r#gen % 2) as usize].get() };
        if let Some(b) = inner.batch.take() {
            inner.last_ticks = b.last_ticks();
            SINK.push(b);
        }
        if !inner.ext.is_empty() {
            SINK.push_ext(self.r#gen, std::mem::take(&mut inner.ext));
        }
    }

    /// Appends an extension record.
    #[inline]
    pub fn extension(&mut self, record: ext::Record) {
        let now = self.now();
        // SAFETY: as in event().
        let inner = unsafe { &mut *self.slot.inner[(self.r#gen % 2) as usize].get() };
        inner.ext.push(now, record);
    }

    /// Records the stack of a frame that is alive (its own, or a stopped goroutine's) and answers its id, 0 for none.
    ///
    /// # Safety
    ///
    /// `regs` was taken on the stack that ends at `top`, in a frame that still lives, and that stack stays mapped.
    #[inline(always)]
    pub unsafe fn stack(&mut self, regs: Regs, top: usize) -> u64 {
        // SAFETY: L1 as in event(); the walker is used within this call only. The rest is passed on to the caller; a writer's generation is
        // not closed.
        unsafe { (*self.slot.walker.get()).stack(self.r#gen, regs, top) }
    }

    /// Records where a goroutine begins: a function by name and the place that started it.
    #[inline]
    pub fn start_stack(&mut self, start: &'static Start, at: &'static Location<'static>) -> u64 {
        let words = start::encode(start, at);
        // SAFETY: as in event().
        let last = unsafe { &mut *self.slot.started.get() };
        // Mostly it is the one before, in a loop.
        if last.id == 0 || (last.r#gen, last.words) != (self.r#gen, words) {
            *last = Started { r#gen: self.r#gen, words, id: tables(self.r#gen).stacks.put(&words) };
        }
        u64::from(last.id)
    }

    /// The id of a string in this generation.
    #[inline]
    pub fn string(&mut self, s: &str) -> u64 {
        crate::record::strings::dynamic_id(tables(self.r#gen).strings.put(s))
    }
}

//! Occasions that somebody wants to be told of: a task that took too long, a panic, a fatal signal. Those who find one do no more than
//! say so; what is to be done about it is done by a thread that was made for it, the keeper (see `trace/keeper.rs`).
//!
//! - TW1: while no wire of a kind is set, an occasion costs one relaxed load of its limit, or nothing.
//! - TW2: who trips a wire may be inside the border, or sysmon. It takes two short locks, allocates nothing (the queue has room for each
//!   wire once), and wakes the keeper. Nobody crosses the border under these locks.
//! - TW3: a wire has one trip at a time on its way, and the next one no sooner than its cool-down allows. Who comes in between is counted.
//! - TW4: a fatal signal's handler takes no lock at all: it sets a word, wakes the keeper, and waits for it for [`FATAL_WAIT_MS`] at most.
//!   There is one such occasion in a process: a second thread that dies meanwhile waits for the same.
//! - TW6: a fatal signal that somebody else has sent comes to any thread, one that the keeper needs included. So nobody waits then: the
//!   keeper sends it again when it is done. A second one that comes meanwhile is let through: something hangs.
//! - TW5: while the keeper sleeps it wakes nobody, and the deadlock report counts it as one of ours.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use tracer::clock::mono_ns;
use tracer::record::thread_id;

use crate::prim::parker::Parker;

/// What a wire waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// A user task took longer than the limit.
    Task,
    Region,
    /// A goroutine was runnable for longer.
    Runnable,
    /// A goroutine kept a thread to itself for longer.
    Stuck,
    Panic,
    Overflow,
    Fatal,
    /// Whoever has the wire trips it.
    Hand,
}

const KINDS: usize = Kind::Hand as usize + 1;

/// The lowest limit of all wires of a kind, in nanoseconds; [`OFF`] while there is none.
static LIMITS: [AtomicU64; KINDS] = [const { AtomicU64::new(OFF) }; KINDS];

pub(crate) const OFF: u64 = u64::MAX;

/// From how many nanoseconds on an occasion of this kind is to be told; [`OFF`]: not at all (TW1).
#[inline]
pub(crate) fn limit_ns(kind: Kind) -> u64 {
    LIMITS[kind as usize].load(Ordering::Relaxed)
}

/// Whether a wire of this kind is set (TW1).
#[inline]
pub(crate) fn is_set(kind: Kind) -> bool {
    limit_ns(kind) != OFF
}

/// One occasion.
#[derive(Clone, Debug)]
pub(crate) struct Trip {
    /// What it is called in the names of files.
    pub(crate) name: Cow<'static, str>,
    /// How long it took, where that is the point.
    pub(crate) ns: Option<u64>,
    /// Whose it is; 0 for nobody's.
    pub(crate) g: u64,
    /// The process is about to end: what is not done by then, on CLOCK_MONOTONIC, is not worth waiting for.
    pub(crate) until_ns: Option<u64>,
}

impl Trip {
    pub(crate) fn new(name: impl Into<Cow<'static, str>>) -> Trip {
        Trip { name: name.into(), ns: None, g: 0, until_ns: None }
    }
}

/// What the keeper does about a trip.
pub(crate) type Act = Box<dyn Fn(&Trip) + Send + Sync>;

/// Somebody's wish to be told.
pub(crate) struct Wire {
    kind: Kind,
    limit_ns: u64,
    cool_down_ns: u64,
    /// TW3
    not_before_ns: AtomicU64,
    pending: AtomicBool,
    act: Act,
}

impl Wire {
    pub(crate) fn new(kind: Kind, limit: Duration, cool_down: Duration, act: Act) -> Arc<Wire> {
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(OFF - 1).min(OFF - 1);
        Arc::new(Wire {
            kind,
            limit_ns: ns(limit),
            cool_down_ns: ns(cool_down),
            not_before_ns: AtomicU64::new(0),
            pending: AtomicBool::new(false),
            act,
        })
    }

    /// TW3: whether the caller is the one who trips it.
    fn claim(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in settle(): the time below is that of the last trip.
        if !self.pending.swap(true, Ordering::Acquire) {
            let now = mono_ns();
            if now >= self.not_before_ns.load(Ordering::Relaxed) {
                self.not_before_ns.store(now.saturating_add(self.cool_down_ns), Ordering::Relaxed);
                return true;
            }
            self.pending.store(false, Ordering::Release);
        }
        SUPPRESSED.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn settle(&self) {
        self.pending.store(false, Ordering::Release);
        drop(SETTLED.0.lock());
        SETTLED.1.notify_all();
    }
}

static WIRES: RwLock<Vec<Arc<Wire>>> = RwLock::new(Vec::new());
/// For those who wait until a trip is done with.
static SETTLED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
/// Trips that came too soon after another.
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);

/// Trips so far for which nothing was done, because another of their wire was on its way or had just been.
pub(crate) fn suppressed() -> u64 {
    SUPPRESSED.load(Ordering::Relaxed)
}

/// What waits for the keeper.
struct Queue {
    trips: VecDeque<(Arc<Wire>, Trip)>,
    /// TW5
    asleep: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { trips: VecDeque::new(), asleep: false });
static PARKER: Parker = Parker::new();
/// The keeper's thread, as the kernel calls it.
static KEEPER: AtomicU64 = AtomicU64::new(0);

/// Sets a wire.
pub(crate) fn set(wire: Arc<Wire>) {
    let mut wires = WIRES.write();
    wires.push(wire);
    let n = wires.len();
    QUEUE.lock().trips.reserve(n);
    set_limits(&wires);
}

/// Takes a wire off. What has tripped it by now is still seen to.
pub(crate) fn unset(wire: &Arc<Wire>) {
    let mut wires = WIRES.write();
    wires.retain(|w| !Arc::ptr_eq(w, wire));
    set_limits(&wires);
}

fn set_limits(wires: &[Arc<Wire>]) {
    let mut limits = [OFF; KINDS];
    for w in wires {
        let limit = &mut limits[w.kind as usize];
        *limit = w.limit_ns.min(*limit);
    }
    for (to, limit) in LIMITS.iter().zip(limits) {
        to.store(limit, Ordering::Relaxed);
    }
}

/// Something of this kind took so long, and that is past [`limit_ns`] (TW2).
#[cold]
pub(crate) fn trip_if_long(kind: Kind, name: &'static str, ns: u64, g: u64) {
    let wires = WIRES.read_recursive();
    for wire in wires.iter().filter(|w| w.kind == kind && ns >= w.limit_ns) {
        fire(wire, || Trip { ns: Some(ns), g, ..Trip::new(name) });
    }
}

/// Trips one wire; answers whether something will be done (TW3).
pub(crate) fn fire(wire: &Arc<Wire>, trip: impl FnOnce() -> Trip) -> bool {
    if !wire.claim() {
        return false;
    }
    {
        let mut queue = QUEUE.lock();
        queue.trips.push_back((wire.clone(), trip()));
        queue.asleep = false;
    }
    PARKER.unpark();
    true
}

/// Trips all wires of a kind, and waits until that is done with, or for `patience`. (Also if somebody else has tripped one: who comes
/// after him may be the one who ends the process.) Without the runtime, so that it works wherever the caller is.
pub(crate) fn trip_and_wait(kind: Kind, trip: impl Fn() -> Trip, patience: Duration) {
    let until = Instant::now() + patience;
    let Some(wires) = WIRES.try_read_recursive_for(Duration::from_millis(100)) else { return };
    let mine: Vec<_> = wires.iter().filter(|w| w.kind == kind).cloned().collect();
    drop(wires);
    for wire in &mine {
        fire(wire, &trip);
    }
    let mut lock = SETTLED.0.lock();
    while mine.iter().any(|w| w.pending.load(Ordering::Acquire)) {
        if SETTLED.1.wait_until(&mut lock, until).timed_out() {
            return;
        }
    }
}

/// How long a thread that is about to die waits for the keeper.
const FATAL_WAIT_MS: u64 = 10_000;
/// How long of that may go by before what is there has to do. (Much less is waited for a scheduler that does not answer.)
const FATAL_FLUSH_NS: u64 = 8_000_000_000;

/// Nothing; asked (with the signal's number above); done.
static FATAL: AtomicU32 = AtomicU32::new(0);
const ASKED: u32 = 1;
const DONE: u32 = 2;
const OVERFLOW: u32 = 4;
const SENT: u32 = 8;
const SIGNAL_SHIFT: u32 = 8;

/// Whether a thread is about to die, and waits.
pub(crate) fn is_fatal() -> bool {
    FATAL.load(Ordering::Relaxed) & ASKED != 0
}

/// The calling thread is about to die of a signal: lets the keeper have a moment before. Async-signal-safe (TW4). `sent`: by somebody else.
/// Answers whether the signal will come again, so that nothing is to be done about it now (TW6).
#[must_use]
pub(crate) fn fatal(signal: i32, overflow: bool, sent: bool) -> bool {
    let wanted = is_set(Kind::Fatal) || overflow && is_set(Kind::Overflow);
    // The keeper cannot wait for itself.
    if !wanted || !sent && thread_id() == KEEPER.load(Ordering::Relaxed) {
        return false;
    }
    let flags = if overflow { OVERFLOW } else { 0 } | if sent { SENT } else { 0 };
    let word = ASKED | flags | (signal as u32) << SIGNAL_SHIFT;
    let first = FATAL.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire).is_ok();
    PARKER.unpark();
    if sent {
        return first;
    }
    const STEP_MS: u64 = 5;
    for _ in 0..FATAL_WAIT_MS / STEP_MS {
        if FATAL.load(Ordering::Acquire) & DONE != 0 {
            break;
        }
        let step = libc::timespec { tv_sec: 0, tv_nsec: (STEP_MS * 1_000_000) as _ };
        // SAFETY: nanosleep is async-signal-safe; the pointer is to a live timespec.
        unsafe { libc::nanosleep(&step, std::ptr::null_mut()) };
    }
    false
}

/// Whether a signal was sent to the process by somebody: it has nothing to do with what the thread does that got it.
///
/// # Safety
///
/// `info` is the kernel's, of a handler.
pub(crate) unsafe fn was_sent(info: *const libc::siginfo_t) -> bool {
    // SAFETY: passed on to the caller.
    let code = unsafe { (*info).si_code };
    // Elsewhere the codes do not tell abort() from kill().
    cfg!(target_os = "linux") && matches!(code, SI_USER | SI_QUEUE)
}

const SI_USER: i32 = 0;
const SI_QUEUE: i32 = -1;

/// The keeper's half of [`fatal`].
fn see_to_fatal() {
    let word = FATAL.load(Ordering::Acquire);
    if word & ASKED == 0 || word & DONE != 0 {
        return;
    }
    let signal = (word >> SIGNAL_SHIFT) as i32;
    let overflow = word & OVERFLOW != 0;
    let name = if overflow { "stack-overflow" } else { signal_name(signal) };
    let trip = Trip { until_ns: Some(mono_ns() + FATAL_FLUSH_NS), ..Trip::new(name) };
    let wanted = |w: &&Arc<Wire>| w.kind == Kind::Fatal || overflow && w.kind == Kind::Overflow;
    let wires: Vec<_> = WIRES
        .try_read_recursive_for(Duration::from_millis(200))
        .map_or_else(Vec::new, |wires| wires.iter().filter(wanted).cloned().collect());
    for wire in wires {
        act(&wire, &trip);
    }
    FATAL.fetch_or(DONE, Ordering::Release);
    if word & SENT != 0 {
        // SAFETY: both calls take and give integers. The handler lets it through now.
        unsafe { libc::kill(libc::getpid(), signal) };
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => "sigsegv",
        libc::SIGBUS => "sigbus",
        libc::SIGABRT => "sigabrt",
        libc::SIGILL => "sigill",
        libc::SIGFPE => "sigfpe",
        _ => "signal",
    }
}

fn act(wire: &Wire, trip: &Trip) {
    // Nothing of the program's runs in it; a panic all the same must not end the keeper.
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (wire.act)(trip))) {
        std::mem::forget(payload);
    }
}

/// The keeper's life.
pub(crate) fn keep() -> ! {
    KEEPER.store(thread_id(), Ordering::Relaxed);
    loop {
        see_to_fatal();
        let next = {
            let mut queue = QUEUE.lock();
            let next = queue.trips.pop_front();
            queue.asleep = next.is_none();
            next
        };
        match next {
            Some((wire, trip)) => {
                act(&wire, &trip);
                wire.settle();
            }
            None => PARKER.park(),
        }
    }
}

/// Whether the keeper sleeps (TW5). False before it is made.
pub(crate) fn keeper_sleeps() -> bool {
    QUEUE.lock().asleep
}

/// Whether the keeper has something to do.
pub(crate) fn is_busy() -> bool {
    let queue = QUEUE.lock();
    !queue.trips.is_empty() || KEEPER.load(Ordering::Relaxed) != 0 && !queue.asleep
}

/// Whether the calling thread is the keeper.
pub(crate) fn is_keeper() -> bool {
    thread_id() == KEEPER.load(Ordering::Relaxed)
}

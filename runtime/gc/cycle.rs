//! The coordinator: a goroutine of the runtime's own that leads each cycle.
//!
//! ```text
//!   sweep what is left   GCBegin   [STW "GC sweep termination": flush, phase -> mark]   call the workers
//!   nothing grey?        [STW "GC mark termination": is it so? flush, phase -> idle, GCEnd]   the sweeper sweeps
//! ```
//!
//! - C1: each stop lies in [`WORLD`] (H13), with its events; so does what a generation is told at its begin.
//! - C2: a pause holds work that depends on the number of Ps, not on the heap's size: caches are flushed, cursors are set.
//! - C3: `collect` asks for the cycle after the present one, whose marking began before the caller's garbage was made.
//! - C4: nobody who allocates is ahead of the collector by more than a part of the goal: beyond it they wait, before marking until it begins, and
//!   in it (when there is nothing to help with) until it ends. Neither the coordinator nor who holds WORLD waits for somebody who allocates.
//! - C5: a stop may find that mutators have shaded something that nobody knew of (M4), and then marking goes on. Such stops come further and
//!   further apart: a mutator that walks through unmarked objects could make many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tracer::record::{Fixed, Writer};
use tracer::unwind::Regs;

use super::window::{Phase, Window, exclude_threads};
use super::worker::{self, Bell};
use super::{death, events, heap, mark, pace, sweep};
use crate::sched::counts::GC_PAUSES;
use crate::sched::emit::{self, At};
use crate::sched::g::Kind;
use crate::sched::m::M;
use crate::sched::park::{Caller, Inside, Turn};
use crate::sched::spawn::system_named;
use crate::sched::{SCHED, run, world};
use crate::sync::waiter::WaitList;
use crate::sync::{Mutex, MutexGuard};

/// Held by whoever stops the world or moves to another generation (H13). Never taken inside.
static WORLD: Mutex<()> = Mutex::new(());

static COORDINATOR: Bell = Bell::new();
static SWEEPER: Bell = Bell::new();
/// The heap has grown enough.
static DUE: AtomicBool = AtomicBool::new(false);
/// Cycles that were begun, are over, and are asked for.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static COMPLETED: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicU64 = AtomicU64::new(0);
static WAITERS: WaitList = WaitList::new();
/// Those who wait for the next cycle to begin.
static WAIT_FOR_BEGIN: WaitList = WaitList::new();

/// The number of the next event about the cycle, and whether one runs. Under WORLD.
static SEQ: AtomicU64 = AtomicU64::new(1);
static RUNS: AtomicBool = AtomicBool::new(false);

/// Collects what is garbage now, and returns when it is freed; but for what has a `Drop` or a finaliser, which runs soon after. Go's
/// `runtime.GC`. The first call starts the runtime.
///
/// # Panics
///
/// If the runtime cannot be started (see [`Config::run`](crate::Config::run)).
pub fn collect() {
    start();
    let wanted = BEGUN.load(Ordering::SeqCst) + 1;
    WANTED.fetch_max(wanted, Ordering::SeqCst);
    COORDINATOR.ring();
    let over = || completed() >= wanted;
    // Whoever waits is woken by the end of each cycle.
    while !over() {
        Caller::here().wait_until(&WAITERS, Fixed::GcEnd, Kind::None, over);
    }
}

pub(super) fn completed() -> u64 {
    COMPLETED.load(Ordering::SeqCst)
}

/// The heap has grown enough for a cycle. Outside a window.
pub(super) fn request() {
    start();
    // Many say it at the same time.
    if !DUE.load(Ordering::Relaxed) && !DUE.swap(true, Ordering::SeqCst) {
        COORDINATOR.ring();
        // It is next here; until it has its turn the heap grows.
        crate::yield_now();
    } else if pace::is_overdrawn() {
        // It was told and does not come to it: somebody else holds WORLD, or very many want its P. Nobody goes on as if nothing were (C4).
        let begun = BEGUN.load(Ordering::SeqCst);
        if DUE.load(Ordering::SeqCst) {
            let over = || BEGUN.load(Ordering::SeqCst) != begun || !DUE.load(Ordering::SeqCst);
            Caller::here().wait_until(&WAIT_FOR_BEGIN, Fixed::GcMarkAssist, Kind::None, over);
        }
    }
}

/// Marking seems to be over. Outside a window.
pub(super) fn look() {
    COORDINATOR.ring();
}

/// Whether the collector's goroutines are there.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The collector's goroutines are there from the first time that they are needed.
fn start() {
    if STARTED.load(Ordering::Relaxed) {
        return;
    }
    // Either may panic, for what the environment says; then the next one who needs a collector is told, too.
    pace::environment();
    run::start_default();
    if STARTED.swap(true, Ordering::SeqCst) {
        return;
    }
    system_named("GC coordinator", main);
    system_named("GC sweeper", sweep_main);
    system_named("GC drops", death::drop_main);
    system_named("GC finalizers", death::finalize_main);
}

fn main() {
    loop {
        let wanted = WANTED.load(Ordering::SeqCst) > completed();
        if !wanted && !DUE.load(Ordering::SeqCst) {
            COORDINATOR.wait(Fixed::System);
            continue;
        }
        // It may have been said before the last cycle was over.
        if wanted || pace::is_due() {
            cycle();
        }
        DUE.store(false, Ordering::SeqCst);
        // Nobody waits for what is not due.
        WAIT_FOR_BEGIN.wake_all(Turn::Last);
    }
}

fn cycle() {
    sweep_all();
    for worker in worker::missing(SCHED.gomaxprocs()) {
        system_named(worker.class.name(), move || worker::main(worker));
    }
    begin();
    WAIT_FOR_BEGIN.wake_all(Turn::Last);
    mark::begin_finalizers();
    worker::call();
    let mut failed = 0;
    loop {
        match end() {
            End::Over => break,
            End::NotYet => {}
            End::Stopped => failed += 1,
        }
        if mark::left() != 0 {
            worker::call();
        }
        COORDINATOR.wait(Fixed::System);
        if failed != 0 {
            // C5
            crate::time::sleep(Duration::from_micros(100) * failed.min(10));
        }
    }
    mark::ended();
    SWEEPER.ring();
    if WANTED.load(Ordering::SeqCst) > completed() {
        sweep_all();
    }
}

fn begin() {
    let _world = WORLD.lock();
    stopped(
        Fixed::GcSweepTermination,
        |w, m, at| {
            RUNS.store(true, Ordering::Relaxed);
            if let Some(w) = w {
                events::gc_begin(w, m, SEQ.fetch_add(1, Ordering::Relaxed), at);
            }
        },
        |_| {
            // Nothing is left: it was swept before, and there is nothing new to be swept.
            assert!(sweep::is_done(), "a cycle begins while blocks are unswept");
            heap::flush(Phase::now(), true);
            Phase::advance();
            pace::begin_mark();
            mark::begin();
            BEGUN.fetch_add(1, Ordering::SeqCst);
        },
    );
}

/// What became of an attempt to end marking.
enum End {
    Over,
    NotYet,
    /// Nor now, as the stopped world has shown.
    Stopped,
}

/// Ends marking if it is over.
fn end() -> End {
    if !mark::is_quiet() {
        return End::NotYet;
    }
    let _world = WORLD.lock();
    stopped(
        Fixed::GcMarkTermination,
        |_, _, _| {},
        |m| {
            // H10
            if heap::flush_shades() || !mark::is_quiet() {
                return End::Stopped;
            }
            heap::flush(Phase::now(), false);
            Phase::advance();
            pace::end_mark();
            sweep::begin();
            RUNS.store(false, Ordering::Relaxed);
            if let Some(mut w) = m.slot.acquire().writer() {
                events::heap_alloc(&mut w, m, pace::live());
                events::heap_goal(&mut w, m, pace::goal());
                events::gc_end(&mut w, m, SEQ.fetch_add(1, Ordering::Relaxed));
            }
            End::Over
        },
    )
}

/// Stops the world and does something. The caller holds WORLD. `before` is in the guard of the event that says so, just before it.
fn stopped<R>(
    kind: Fixed,
    before: impl FnOnce(Option<&mut Writer<'_>>, &'static M, At),
    then: impl FnOnce(&'static M) -> R,
) -> R {
    let inside = Inside::enter().expect("the coordinator is a goroutine");
    let m = inside.m();
    let at = At::on(inside.g(), Regs::here());
    {
        let guard = m.slot.acquire();
        let mut writer = guard.writer();
        before(writer.as_mut(), m, at);
        if let Some(w) = &mut writer {
            emit::stw_begin(w, m, kind, at);
        }
    }
    // Nobody else is at it (WORLD).
    let stopped = world::try_stop(&inside, &GC_PAUSES).expect("who holds WORLD stops the world alone");
    let threads = exclude_threads();
    let result = then(m);
    drop(threads);
    pace::paused(stopped.start(m));
    result
}

/// Evidence that the collector neither stops the world nor begins or ends what a generation would have to tell of (H13). The advancer's, from
/// before a generation's end until it has told the next one.
pub(crate) struct Advancing(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Advancing {
    /// Waits until it is so. Outside.
    pub(crate) fn begin() -> Advancing {
        // Before the lock: somebody who assists may have to wait for a turn, and the collector is not to wait for that.
        events::close_assists();
        Advancing(WORLD.lock())
    }

    /// A generation has begun, and what the collector does is told.
    pub(crate) fn tell(&self, w: &mut Writer<'_>, m: &M) {
        if RUNS.load(Ordering::Relaxed) {
            events::gc_active(w, m, SEQ.fetch_add(1, Ordering::Relaxed));
        }
        if STARTED.load(Ordering::Relaxed) {
            events::heap_alloc(w, m, pace::live());
            events::heap_goal(w, m, pace::goal());
        }
    }
}

impl Drop for Advancing {
    fn drop(&mut self) {
        events::open_assists();
    }
}

/// Blocks that are swept in one window, in the background.
const SWEEP_BLOCKS: usize = 32;

/// Sweeps what is left, and waits for others who sweep.
fn sweep_all() {
    while sweep_some() {}
    while !sweep::is_done() {
        crate::yield_now();
    }
    swept();
}

fn sweep_some() -> bool {
    let swept = sweep::some(&Window::open(), SWEEP_BLOCKS, None);
    if swept.doomed {
        death::ring();
    }
    swept.any()
}

/// Everything is swept: the cycle is over.
fn swept() {
    let is_new = {
        let window = Window::open();
        let begun = BEGUN.load(Ordering::SeqCst);
        !window.phase().is_marking() && sweep::is_done() && COMPLETED.fetch_max(begun, Ordering::SeqCst) < begun
    };
    if is_new {
        WAITERS.wake_all(Turn::Last);
    }
}

/// The life of the background sweeper.
fn sweep_main() {
    loop {
        SWEEPER.wait(Fixed::GcSweeper);
        while sweep_some() {
            crate::yield_now();
        }
        swept();
        while !Phase::now().is_marking() && super::arena::ARENA.trim(pace::kept_bytes()) {
            crate::yield_now();
        }
    }
}

//! Sysmon: a thread without a P that sees to what no M sees to.
//!
//! It looks at every P: one whose M has been outside too long is taken and handed on (retake); one that has run the same
//! goroutine for a time slice gets a preemption flag. It reminds the advancer, looks for deadlocks, gives memory back.
//!
//! - Y1: a P is only taken if somebody waits for it: work in its queue, a timer due, the global queue. Otherwise its M may
//!   keep it for as long as it likes.
//! - Y2: an M in a declared blocking call loses its P after one look (20 us to 5 ms apart), one in plain code after
//!   [`OUTSIDE_NS`]. The border's counter tells whether it has crossed since the last look.
//! - Y3: sysmon looks often while it finds something to do, and ever less often otherwise, down to once per [`SLOW`]. When
//!   all Ps are idle it sleeps until a P is taken ([`wake`]) or for a while; if none was, one look later it sleeps again.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use tracer::clock::mono_ns;
use tracer::record::{self, Slot, thread_id};
use tracer::wire::ext::{Cause, GLOBAL_QUEUE, Record};

use crate::prim::parker::Parker;
use crate::prim::{chaos, coarse};
use crate::sched::deadlock::Watch;
use crate::sched::find::{poller_is_watched, run_timers_from_outside, wake_poller_for_timers};
use crate::sched::life;
use crate::sched::m::M;
use crate::sched::p::{HeldP, P};
use crate::sched::state::Status;
use crate::sched::trim::{self, Trim};
use crate::sched::wake::{start_m, wake_searcher};
use crate::sched::watchdog::Watchdog;
use crate::sched::{SCHED, advance, network, outside, quit};
use crate::stack::overflow;

/// How long plain code may keep its P while others wait for it, and how long a time slice is.
const OUTSIDE_NS: u64 = 10_000_000;
/// The shortest and the longest pause between two looks.
const FAST: Duration = Duration::from_micros(20);
const SLOW: Duration = Duration::from_millis(5);
/// How often the lengths of the run queues are told while a trace is recorded.
const QUEUES_NS: u64 = 10_000_000;
/// Looks without anything to do before the pauses grow.
const CALM_LOOKS: u32 = 50;

static SLOT: OnceLock<&'static Slot> = OnceLock::new();
static PARKER: Parker = Parker::new();
/// Sysmon sleeps until somebody takes a P.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Sysmon's place in the tracer. Used by sysmon's own thread only.
pub(crate) fn slot() -> &'static Slot {
    SLOT.get().expect("sysmon has started")
}

/// Starts the thread. Once.
pub(crate) fn start() -> std::io::Result<()> {
    let slot: &'static Slot = Box::leak(Box::new(Slot::new(0)));
    record::register(slot);
    coarse::set(mono_ns());
    assert!(SLOT.set(slot).is_ok(), "sysmon starts once");
    std::thread::Builder::new().name("gort-sysmon".into()).spawn(main)?;
    Ok(())
}

/// A P was taken off the idle list: somebody is to watch it.
#[inline]
pub(crate) fn wake() {
    // ORDER: SeqCst; pairs with sleep_deeply(): either it sees that a P was taken, or this sees that it sleeps.
    if ASLEEP.load(Ordering::SeqCst) && ASLEEP.swap(false, Ordering::SeqCst) {
        // Nobody has set the clock while all Ps were idle.
        coarse::set(mono_ns());
        PARKER.unpark();
    }
}

/// A signal handler needs sysmon's own thread now. Async-signal-safe.
pub(crate) fn wake_for_signal() {
    PARKER.unpark();
}

fn main() {
    slot().set_m_id(thread_id());
    let mut calm = 0u32;
    let mut pause = FAST;
    let mut watch = Watch::new();
    let mut watchdog = Watchdog::new();
    let mut trim = Trim::new();
    let mut queues = Queues::default();
    let mut undisturbed = false;
    loop {
        if !undisturbed && PARKER.park_timeout(pause) {
            woken();
        }
        let now = mono_ns();
        coarse::set(now);
        let look = look(now, &mut watchdog);
        watchdog.look(now);
        advance::remind(now);
        queues.look(now);
        backstop(now);
        let trimming = trim.look(now);
        if let Look::Busy = look {
            calm = 0;
            pause = FAST;
        } else {
            calm = calm.saturating_add(1);
            if calm > CALM_LOOKS {
                pause = (pause * 2).min(SLOW);
            }
        }
        if let Look::Due(in_ns) = look {
            pause = pause.min(Duration::from_nanos(in_ns));
        }
        if trimming {
            pause = pause.min(trim::PAUSE);
        }
        let idle = all_idle();
        if idle {
            watch.look(now);
        } else {
            watch.interrupted();
        }
        let rests = idle && calm > CALM_LOOKS * 4 && watch.is_settled() && watchdog.is_idle() && !trimming;
        let rested = std::mem::replace(&mut undisturbed, rests && sleep_deeply());
        if (rests || rested) && !undisturbed {
            calm = 0;
            pause = FAST;
        }
    }
}

/// The lengths of the run queues, for the trace.
#[derive(Default)]
struct Queues {
    told_ns: u64,
    /// Of the global queue: as `queued` in [`Seen`](crate::sched::p::Seen).
    global: Cell<(u64, u64)>,
}

impl Queues {
    /// Tells those that have changed. No lock is taken: others may change them meanwhile.
    fn look(&mut self, now: u64) {
        if !record::enabled() || now.saturating_sub(self.told_ns) < QUEUES_NS {
            return;
        }
        self.told_ns = now;
        let guard = slot().acquire();
        let Some(mut w) = guard.writer() else { return };
        let mut tell = |told: &Cell<(u64, u64)>, p: u64, len: usize| {
            let is = (w.generation(), len as u64);
            if told.replace(is) != is {
                w.extension(Record::RunQueue { p, len: len as u64 });
            }
        };
        for p in SCHED.ps() {
            tell(&p.seen.queued, u64::from(p.id), p.queued());
        }
        tell(&self.global, GLOBAL_QUEUE, SCHED.global.len());
    }
}

/// Somebody has woken sysmon: perhaps a signal handler.
fn woken() {
    overflow::report_pending();
    quit::look();
}

/// Wakes a searcher for what ought to have woken one: work beside an idle P, a timer that is long due. (Where threads run
/// out, nobody could be woken at the time.) What is due for longer still, with nobody there to see to it, it does itself.
fn backstop(now: u64) {
    // While all Ms are in plain code nobody else does.
    network::look_from_outside(slot(), now);
    if chaos::one_in(1) && SCHED.inner.lock().refused == 0 {
        // Under chaos a wake-up that is lost is to show.
        return;
    }
    if SCHED.next_timer_ns() < now.saturating_sub(OUTSIDE_NS) {
        run_timers_from_outside(slot(), now);
    }
    if SCHED.searchers.idle_ps() != 0 && (SCHED.has_work() || SCHED.next_timer_ns() < now.saturating_sub(1_000_000)) {
        wake_searcher();
    }
}

/// Whether nobody has a P.
pub(crate) fn all_idle() -> bool {
    SCHED.searchers.idle_ps() as usize == SCHED.ps().len()
}

/// Sleeps while all Ps are idle. Without a trace nothing needs sysmon then: timers wake the M in the poller. Answers whether it slept to
/// the end, and no P was taken.
fn sleep_deeply() -> bool {
    // ORDER: SeqCst; pairs with wake().
    ASLEEP.store(true, Ordering::SeqCst);
    let mut was_woken = true;
    if all_idle() {
        let most = if record::enabled() { Duration::from_millis(500) } else { Duration::from_millis(200) };
        was_woken = PARKER.park_timeout(most);
        if was_woken {
            woken();
        }
    }
    // Who found it asleep has cleared it, though the wake-up may still be on its way.
    ASLEEP.swap(false, Ordering::SeqCst) && !was_woken
}

/// What a look came to.
enum Look {
    /// There was something to do, so there may be more.
    Busy,
    /// In so many nanoseconds a P will have been kept too long.
    Due(u64),
    Calm,
}

/// Looks at every P once.
fn look(now: u64, watchdog: &mut Watchdog) -> Look {
    let mut busy = false;
    let mut due = u64::MAX;
    for p in SCHED.ps() {
        let Some(m) = p.m() else { continue };
        let seen = &p.seen;
        let crossings = m.border.crossings();
        let since_ns = m.outside.look(crossings, now);
        let outside_ns = now - since_ns;
        if outside_ns != 0 && crossings.is_multiple_of(2) {
            watchdog.is_outside(m, crossings, since_ns, now);
            if let Some(cause) = retake(p, m, outside_ns, now) {
                if cause == Cause::OutsideTooLong {
                    watchdog.lost_p(m, crossings, since_ns);
                }
                busy = true;
                continue;
            }
            due = due.min(OUTSIDE_NS.saturating_sub(outside_ns));
        }
        let slice = p.slices.load(Ordering::Relaxed);
        if seen.slice.replace(slice) != slice {
            seen.slice_since_ns.set(now);
            seen.told_ns.set(0);
            seen.reported.set(false);
            seen.tripped.set(false);
        } else if now - seen.slice_since_ns.get() >= OUTSIDE_NS && is_wanted(p, now) {
            let was_told = m.preempt.swap(true, Ordering::Relaxed);
            if seen.told_ns.get() == 0 {
                seen.told_ns.set(now);
            } else if was_told && outside_ns < OUTSIDE_NS {
                // (Who stays outside has lost the P by now, or will.)
                watchdog.keeps(p, m, seen.told_ns.get(), now);
            }
        }
    }
    match due {
        _ if busy => Look::Busy,
        // Past it already and kept all the same: nobody wants it.
        0 | u64::MAX => Look::Calm,
        ns => Look::Due(ns + 50_000),
    }
}

/// Whether somebody waits for this P (Y1).
fn is_wanted(p: &P, now: u64) -> bool {
    p.has_work() || SCHED.global.len() != 0 || p.timers.next_ns() <= now || SCHED.next_timer_ns() <= now
}

/// Takes the P of an M that has not crossed its border for `outside_ns`, if that is too long; answers why.
fn retake(p: &'static P, m: &'static M, outside_ns: u64, now: u64) -> Option<Cause> {
    // A look without the M's leave: the visit below decides.
    let declared = m.current().is_some_and(|g| g.state.status() == Status::Syscall);
    let soon = !declared && outside_ns < OUTSIDE_NS && !chaos::one_in(16);
    if soon || !is_wanted(p, now) && !chaos::one_in(64) {
        return None;
    }
    let visit = m.border.visit()?;
    if !m.has_p(p) || m.current().is_none() {
        return None;
    }
    if SCHED.stopping.load(Ordering::SeqCst) {
        return None;
    }
    let declared = m.current().is_some_and(|g| g.state.status() == Status::Syscall);
    let cause = if declared { Cause::BlockingCall } else { Cause::OutsideTooLong };
    hand_off(outside::take_p(slot(), m, visit, Some(cause)), now);
    if cause == Cause::OutsideTooLong {
        outside::give_way(m);
    }
    Some(cause)
}

/// Gives a P that was taken to an M, if there is something to do, or to the idle list.
pub(crate) fn hand_off(p: HeldP, now: u64) {
    if is_wanted(p.p(), now) {
        start_m(p, None);
        return;
    }
    life::share_stacks(p.p());
    SCHED.put_idle_p(p);
    // As a searcher that gives up: look once more, and let somebody be woken for what came meanwhile (I2). Somebody, too, who
    // then takes the poller's seat, if there are timers or sockets and it is empty: the M that had this P does not go there.
    fence(Ordering::SeqCst);
    if SCHED.has_work() || !poller_is_watched() {
        wake_searcher();
    }
    wake_poller_for_timers();
}

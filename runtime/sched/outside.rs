//! Life outside: declared blocking calls, and what happens to a goroutine that comes back.
//!
//! - O1: a goroutine outside is Running or Syscall with a P, or Syscall without one (the P was taken: TAKEN). A visitor that
//!   takes the P of a Running one makes it Syscall first, so Syscall is what a goroutine without a P always is.
//! - O2: whoever enters the runtime in Syscall state ends the call, whichever way it was begun.

use std::sync::atomic::Ordering;

use tracer::record::Slot;
use tracer::wire::ext::Cause;

use crate::prim::{chaos, slice};
use crate::sched::border::Visit;
use crate::sched::counts::{HAND_OFFS, WITHOUT_P};
use crate::sched::emit::{self, At};
use crate::sched::g::{G, Place};
use crate::sched::m::{After, M};
use crate::sched::p::HeldP;
use crate::sched::park::Inside;
use crate::sched::state::{Scan, Status};
use crate::sched::{SCHED, calls, forked, wired};

/// Runs a function that may block the thread: file I/O, a system call, C code, a long computation.
///
/// At most about `max_threads` less twice GOMAXPROCS goroutines are inside such calls at a time (see
/// [`Config::max_threads`](crate::Config::max_threads)); more wait for their turn, first come, first served.
///
/// The scheduler takes the processor away from the goroutine as soon as somebody else can use it, so the others go
/// on. Plain code that blocks without saying so loses its processor too, only later (after 10 ms); declaring it also
/// shows it in the trace as a system call with its stack.
///
/// The first call into this library inside `f` ends what was declared: from there on it is plain code again.
///
/// On a thread that is not a goroutine this just calls `f`.
///
/// # Panics
///
/// If `f` does.
///
/// ```
/// let text = rt::Config::new().run(|| {
///     rt::blocking(|| std::fs::read_to_string("Cargo.toml")).unwrap()
/// });
/// assert!(text.contains("[package]"));
/// ```
#[inline(never)]
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(inside) = Inside::enter() else { return f() };
    calls::enter(&inside);
    declared(inside, f)
}

/// As [`blocking`], for something short that cannot wait for a place: it may hold a thread more than there are places.
#[inline(never)]
pub(crate) fn blocking_at_once<T>(f: impl FnOnce() -> T) -> T {
    match Inside::enter() {
        Some(inside) => declared(inside, f),
        None => f(),
    }
}

// Inlined: the place is in the frame of a function that says what the caller does.
#[inline(always)]
fn declared<T>(inside: Inside, f: impl FnOnce() -> T) -> T {
    let place = Place::here();
    begin(&inside, &place);
    inside.leave_at_once();
    chaos::window();
    struct ComeBack;
    impl Drop for ComeBack {
        fn drop(&mut self) {
            // Entering ends the call (O2), also when `f` panics.
            drop(Inside::enter());
        }
    }
    let _back = ComeBack;
    f()
}

/// Running -> Syscall, with the event.
fn begin(inside: &Inside, place: &Place) {
    let (g, m) = (inside.g(), inside.m());
    g.stand_at(place);
    let guard = m.slot.acquire_if_on();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        emit::syscall_begin(&mut w, m, At::on(g, place.regs));
    }
    g.state.syscall_begin();
}

/// The cold half of entering: somebody asked, or a blocking call ends (O2). Afterwards the goroutine is Running and
/// has a P, perhaps on another M.
#[cold]
#[inline(never)]
pub(crate) fn come_back(g: &'static G, asked: bool) {
    let m = g.m();
    if asked && m.border.answer() == crate::sched::border::Answer::Taken {
        return come_back_without_p(g, m);
    }
    let guard = m.slot.acquire_if_on();
    let mut writer = guard.as_ref().and_then(|guard| guard.writer());
    if asked && let Some(w) = &mut writer {
        // Whoever asked may want to know what this M does: say so, since it was refused.
        emit::context(w, m);
    }
    if g.state.status() == Status::Syscall {
        if let Some(w) = &mut writer {
            emit::syscall_end(w, m);
        }
        m.untold.set(false);
        g.state.syscall_end();
        drop(guard);
        calls::leave(m);
    }
}

/// Takes the P of `m`, which `visit` holds at its border; its goroutine goes on without (O1). `slot` is the visitor's. The cause is seen
/// from the goroutine's state unless there is another.
pub(crate) fn take_p(slot: &Slot, m: &'static M, visit: Visit<'_>, cause: Option<Cause>) -> HeldP {
    let (p, g) = (m.must_p(), m.current().expect("an M outside runs a goroutine"));
    let declared = g.state.status() == Status::Syscall;
    let cause = cause.unwrap_or(if declared { Cause::BlockingCall } else { Cause::OutsideTooLong });
    {
        // The full gate: nothing holds sysmon still in a stopped world. Everything about p and g was learned before (G2).
        let guard = slot.acquire();
        let (mut is_the_gs, mut lost_at) = (false, 0);
        // SAFETY: the visit holds m at its border for as long as the writer lives.
        if let Some(mut w) = unsafe { guard.writer_for(&m.slot) } {
            // SAFETY: N2: the visit. A call that was declared lies above the place that it noted.
            let at = if declared { At::on(g, unsafe { g.standing() }.0) } else { At::nowhere() };
            is_the_gs = emit::loses_p(&mut w, m, declared, at);
            lost_at = w.last_ticks();
        }
        m.untold.set(false);
        if !declared {
            // Where it stands nobody knows: it runs.
            g.stand_anywhere();
            g.state.syscall_begin();
        }
        if let Some(mut w) = guard.writer() {
            if is_the_gs {
                // Readers may have trouble to tell which is first of two with one time, beside many other threads.
                guard.go_later(lost_at);
                emit::proc_steal(&mut w, p, m);
            }
            emit::hand_off(&mut w, p, m, cause);
        }
    }
    if declared {
        calls::count(m);
    }
    HAND_OFFS.count(cause);
    WITHOUT_P.fetch_add(1, Ordering::Relaxed);
    let held = m.clear_p();
    chaos::window();
    visit.take();
    held
}

/// The thread of `m`, whose P was just taken from it in plain code, is to let those run that have one: what it computes is not
/// waited for by anybody who could wait for less. Until it comes back.
pub(crate) fn give_way(m: &'static M) {
    let gone = || m.p().is_none() && m.gives_way.load(Ordering::SeqCst);
    m.gives_way.store(true, Ordering::SeqCst);
    slice::set(m.tid(), slice::LONG_NS);
    if !gone() {
        // It has come back meanwhile, and perhaps before the wish.
        slice::set(m.tid(), slice::DEFAULT);
    }
}

/// The P is gone. Takes an idle one if there is one, otherwise queues up.
fn come_back_without_p(g: &'static G, m: &'static M) {
    forked::end_child();
    debug_assert!(m.p().is_none() && g.state.status() == Status::Syscall);
    WITHOUT_P.fetch_sub(1, Ordering::Relaxed);
    if m.gives_way.swap(false, Ordering::SeqCst) {
        slice::set(m.tid(), slice::DEFAULT);
    }
    let p = if chaos::one_in(3) { None } else { SCHED.take_idle_p() };
    chaos::window();
    let Some(p) = p else {
        let place = Place::here();
        stand_again(g, &place);
        m.after.set(Some(After::NoP(g)));
        // SAFETY: the caller runs on g's stack.
        unsafe { wired::switch(m, g) };
        return;
    };
    let guard = m.slot.acquire_if_on();
    let mut writer = guard.as_ref().and_then(|guard| guard.writer());
    if let Some(w) = &mut writer {
        emit::proc_start(w, p.p());
        emit::syscall_end_blocked(w, g);
    }
    g.state.syscall_end_blocked();
    m.set_p(p);
    m.begin_slice();
    m.set_current(None);
    if let Some(w) = &mut writer {
        emit::go_start(w, m, g);
    }
    g.state.start();
    m.set_current(Some(g));
    drop(guard);
    calls::leave(m);
}

/// The goroutine, which others may look at all the while, stands here from now on. (Where it stood before is where it went out, or
/// nobody knows where.)
fn stand_again(g: &'static G, place: &Place) {
    loop {
        if let Scan::Held(_, hold) = g.state.scan() {
            g.stand_at(place);
            drop(hold);
            return;
        }
        std::hint::spin_loop();
    }
}

/// The M's half of [`After::NoP`], on its own stack and without a P.
pub(crate) fn queue_up(m: &'static M, g: &'static G) {
    m.set_current(None);
    if g.marks.is_wired() {
        // The M waits in place with it, and another one may be made instead.
        calls::leave(m);
    }
    {
        // The full gate: without a P no stopped world holds this M still.
        let guard = m.slot.acquire();
        if let Some(mut w) = guard.writer() {
            emit::syscall_end_blocked(&mut w, g);
        }
        g.state.syscall_end_blocked();
    }
    crate::sched::queue::submit_global(g);
}

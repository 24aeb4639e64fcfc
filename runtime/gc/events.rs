//! The events of the collector, in Go's words. As in the scheduler's, each is called inside the guard of its change.
//!
//! - E1: a sweep lies in one window. A generation may begin in the middle of it; then its end is preceded by the event that says so. It is
//!   in the next generation at the latest, for that one does not end before the P was named in it, which takes an event of the P's or a visit.
//! - E2: an assist could be open through a whole generation, which would have to tell of it. So no generation ends while one is open: the advancer
//!   waits, and those who assist meanwhile are not recorded as doing so. Who waits for others' marking does not do so in its assist.
//! - E3: a cycle is told by the advancer at the begin of each generation: [`super::Advancing`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tracer::record::Writer;
use tracer::unwind::Regs;
use tracer::wire::Ev;

use super::window::Window;
use crate::sched::emit::{At, context, runs_silent};
use crate::sched::m::M;

/// The generation in which a range was begun; 0 if it was not recorded.
#[must_use]
pub(super) struct Range(u64);

pub(super) fn gc_begin(w: &mut Writer<'_>, m: &M, seq: u64, at: At) {
    context(w, m);
    let stack = at.id(w);
    w.event(Ev::GcBegin, &[seq, stack]);
}

pub(super) fn gc_active(w: &mut Writer<'_>, m: &M, seq: u64) {
    context(w, m);
    w.event(Ev::GcActive, &[seq]);
}

pub(super) fn gc_end(w: &mut Writer<'_>, m: &M, seq: u64) {
    context(w, m);
    w.event(Ev::GcEnd, &[seq]);
}

pub(super) fn heap_alloc(w: &mut Writer<'_>, m: &M, bytes: usize) {
    context(w, m);
    w.event(Ev::HeapAlloc, &[bytes as u64]);
}

pub(super) fn heap_goal(w: &mut Writer<'_>, m: &M, bytes: usize) {
    context(w, m);
    // As Go's: 0 where there is none.
    w.event(Ev::HeapGoal, &[if bytes == usize::MAX { 0 } else { bytes as u64 }]);
}

/// The P begins to sweep.
pub(super) fn sweep_begin(window: &Window) -> Range {
    let mut range = Range(0);
    window.record(|w, m, inside| {
        context(w, m);
        let stack = At::on(inside.g(), Regs::here()).id(w);
        w.event(Ev::GcSweepBegin, &[stack]);
        range = Range(w.generation());
    });
    range
}

/// The P has swept so many bytes, and freed so many of them.
pub(super) fn sweep_end(window: &Window, range: Range, swept: usize, freed: usize) {
    window.record(|w, m, _| {
        context(w, m);
        if range.0 != w.generation() {
            w.event(Ev::GcSweepActive, &[u64::from(m.must_p().id)]);
        }
        w.event(Ev::GcSweepEnd, &[swept as u64, freed as u64]);
    });
}

/// Assists that are open in the trace; and whether none is to be opened (E2).
static ASSISTS: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// An assist that is in the trace.
#[must_use]
pub(super) struct Assist(bool);

/// The goroutine begins to help marking.
pub(super) fn assist_begin(window: &Window) -> Assist {
    let mut assist = Assist(false);
    window.record(|w, m, inside| {
        if runs_silent(m) {
            return;
        }
        ASSISTS.fetch_add(1, Ordering::SeqCst);
        // ORDER: SeqCst; pairs with close_assists(): one of the two sees the other.
        if CLOSED.load(Ordering::SeqCst) {
            ASSISTS.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        context(w, m);
        let stack = At::on(inside.g(), Regs::here()).id(w);
        w.event(Ev::GcMarkAssistBegin, &[stack]);
        assist = Assist(true);
    });
    assist
}

/// It has helped. Outside a window.
pub(super) fn assist_end(assist: Assist) {
    if assist.0 {
        Window::open().record(|w, m, _| {
            context(w, m);
            w.event(Ev::GcMarkAssistEnd, &[]);
        });
        ASSISTS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until no assist is open in the trace, and lets none be opened until [`open_assists`]. Each is a fraction of a millisecond of work.
pub(super) fn close_assists() {
    CLOSED.store(true, Ordering::SeqCst);
    while ASSISTS.load(Ordering::SeqCst) != 0 {
        crate::time::sleep(Duration::from_micros(50));
    }
}

pub(super) fn open_assists() {
    CLOSED.store(false, Ordering::SeqCst);
}

//! The events of the scheduler, one function each. Every one is called inside the guard that holds its state change (T2).
//!
//! - E1: before an event that happens on an M with a P or a goroutine, their statuses are written if this generation does
//!   not have them yet ([`context`]); before one that names another goroutine or P, that one's status.
//! - E2: the status that is written is the one *before* the event's transition.

use std::panic::Location;

use tracer::record::{Fixed, Name, Start, Writer};
use tracer::unwind::Regs;
use tracer::wire::ext::{Cause, GLOBAL_QUEUE, Record};
use tracer::wire::{Ev, GoStatus, NO_M, ProcStatus};

use crate::sched::SCHED;
use crate::sched::g::G;
use crate::sched::m::M;
use crate::sched::p::P;
use crate::sched::state::Status;
use crate::sched::timer::Due;

/// A place on a goroutine's stack: its registers and where its own frames end.
#[derive(Clone, Copy)]
pub(crate) struct At {
    regs: Regs,
    end: usize,
}

impl At {
    /// No place: an event without a stack.
    pub(crate) fn nowhere() -> At {
        At { regs: Regs::default(), end: 0 }
    }

    /// A place on `g`'s stack: the calling function's frame, or one that is still alive.
    #[inline]
    pub(crate) fn on(g: &G, regs: Regs) -> At {
        At { regs, end: g.walk_end_from(&regs) }
    }

    #[inline]
    pub(crate) fn id(self, w: &mut Writer<'_>) -> u64 {
        if self.end == 0 {
            return 0;
        }
        // SAFETY: an At names a live frame of a goroutine's stack, which stays mapped for ever; its goroutine is the
        // caller's own, or stands still.
        unsafe { w.stack(self.regs, self.end) }
    }
}

fn go_status(s: Status) -> GoStatus {
    match s {
        Status::Runnable => GoStatus::Runnable,
        Status::Running => GoStatus::Running,
        Status::Syscall => GoStatus::Syscall,
        Status::Waiting => GoStatus::Waiting,
        Status::Idle | Status::Dead => unreachable!("status of a goroutine that is not alive"),
    }
}

/// Writes the statuses of M's P and goroutine where this generation lacks them (E1).
#[inline]
pub(crate) fn context(w: &mut Writer<'_>, m: &M) {
    let r#gen = w.generation();
    let g = m.current();
    if let Some(p) = m.p()
        && p.trace.acquire_status(r#gen)
    {
        let in_call = g.is_some_and(|g| g.state.status() == Status::Syscall);
        let status = if in_call { ProcStatus::Syscall } else { ProcStatus::Running };
        w.event(Ev::ProcStatus, &[u64::from(p.id), status as u64]);
    }
    if let Some(g) = g {
        goroutine(w, g);
    }
}

/// Writes a goroutine's status where this generation lacks it (E1). The stream is that of its M if it has one.
#[inline]
pub(crate) fn goroutine(w: &mut Writer<'_>, g: &G) {
    if g.trace.acquire_status(w.generation()) {
        let status = go_status(g.state.status());
        let m = if matches!(status, GoStatus::Running | GoStatus::Syscall) { w.m_id() } else { NO_M };
        w.event(Ev::GoStatus, &[g.id(), m, status as u64]);
        if status == GoStatus::Running {
            label(w, g);
        }
    }
}

/// Writes the name and the labels of a goroutine that runs on this stream's M, once in a generation.
#[inline]
fn label(w: &mut Writer<'_>, g: &G) {
    let (tell_name, tell_labels) = g.tells(w.generation());
    if tell_name {
        // SAFETY: N2: it is Running, and the caller is its M or that M's visitor.
        if let Some(name) = unsafe { g.name() } {
            let id = w.string(name);
            w.event(Ev::GoLabel, &[id]);
        }
        // In this order: labels lie where nothing else is looked at so soon.
        // SAFETY: as above.
        if tell_labels && unsafe { g.labels() }.is_some() {
            labels(w, g);
        }
    }
}

/// Writes the labels that a goroutine has now, or that it has none. It runs on this stream's M.
#[cold]
pub(crate) fn labels(w: &mut Writer<'_>, g: &G) {
    // SAFETY: N2, as above.
    let labels = unsafe { g.labels() }.map_or(0, |set| w.string(set.text()));
    w.extension(Record::Labels { g: g.id(), labels });
}

/// Writes the name and the labels of a goroutine that is being made, for it may not run in this generation.
#[cold]
fn introduce(w: &mut Writer<'_>, g: &G) {
    // SAFETY: N2: it is Idle, and the caller is about to announce it.
    let (name, labelled) = unsafe { (g.name(), g.labels().is_some()) };
    if let Some(name) = name {
        let name = w.string(name);
        w.extension(Record::Name { g: g.id(), name });
    }
    if labelled {
        labels(w, g);
    }
}

/// So many goroutines queue for each P, and in the global queue.
pub(crate) fn run_queues(w: &mut Writer<'_>) {
    for p in SCHED.ps() {
        w.extension(Record::RunQueue { p: u64::from(p.id), len: p.queued() as u64 });
    }
    w.extension(Record::RunQueue { p: GLOBAL_QUEUE, len: SCHED.global.len() as u64 });
}

/// Several timers of `p` were due.
pub(crate) fn timers(w: &mut Writer<'_>, p: &P, due: &Due) {
    let (goroutines, alarms) = (due.gs.len() as u64, due.alarms.len() as u64);
    w.extension(Record::Timers { p: u64::from(p.id), goroutines, alarms });
}

/// M takes a P that was idle or handed over. Before `m` counts it as its own.
pub(crate) fn proc_start(w: &mut Writer<'_>, p: &P) {
    if p.trace.acquire_status(w.generation()) {
        w.event(Ev::ProcStatus, &[u64::from(p.id), ProcStatus::Idle as u64]);
    }
    let seq = p.trace.next_seq(w.generation());
    w.event(Ev::ProcStart, &[u64::from(p.id), seq]);
}

/// M gives up its P.
pub(crate) fn proc_stop(w: &mut Writer<'_>, m: &M) {
    context(w, m);
    w.event(Ev::ProcStop, &[]);
}

/// A visitor has taken `p` from `victim`, whose statuses it has written.
pub(crate) fn proc_steal(w: &mut Writer<'_>, p: &P, victim: &M, cause: Cause) {
    let seq = p.trace.next_seq(w.generation());
    w.event(Ev::ProcSteal, &[u64::from(p.id), seq, victim.tid()]);
    w.extension(Record::HandOff { p: u64::from(p.id), cause, from_m: victim.tid() });
}

/// `m` gives its P to the M that a goroutine is locked to.
pub(crate) fn locked_thread(w: &mut Writer<'_>, m: &M, p: &P) {
    w.extension(Record::HandOff { p: u64::from(p.id), cause: Cause::LockedThread, from_m: m.tid() });
}

/// `g` begins to exist.
pub(crate) fn go_create(
    w: &mut Writer<'_>,
    m: &M,
    g: &G,
    start: &'static Start,
    at: &'static Location<'static>,
    by: At,
) {
    context(w, m);
    let new_stack = w.start_stack(start, at);
    let stack = by.id(w);
    g.trace.set_traced(w.generation());
    g.set_told(w.generation());
    // SAFETY: N2: it is Idle, and the caller is about to announce it.
    if unsafe { g.name().is_some() || g.labels().is_some() } {
        introduce(w, g);
    }
    w.event(Ev::GoCreate, &[g.id(), new_stack, stack]);
}

/// `g` begins to run on M. Before `m` counts it as its own.
#[inline]
pub(crate) fn go_start(w: &mut Writer<'_>, m: &M, g: &G) {
    context(w, m);
    // E2: it was Runnable, whatever its state says by now.
    if g.trace.acquire_status(w.generation()) {
        w.event(Ev::GoStatus, &[g.id(), NO_M, GoStatus::Runnable as u64]);
    }
    let seq = g.trace.next_seq(w.generation());
    w.event(Ev::GoStart, &[g.id(), seq]);
    label(w, g);
}

/// M's goroutine waits.
#[inline]
pub(crate) fn go_block(w: &mut Writer<'_>, m: &M, reason: Fixed, at: At) {
    context(w, m);
    let stack = at.id(w);
    w.event(Ev::GoBlock, &[reason.id(), stack]);
}

/// M's goroutine gives up its turn.
#[inline]
pub(crate) fn go_stop(w: &mut Writer<'_>, m: &M, reason: Fixed, at: At) {
    context(w, m);
    let stack = at.id(w);
    w.event(Ev::GoStop, &[reason.id(), stack]);
}

/// M's goroutine ends.
#[inline]
pub(crate) fn go_destroy(w: &mut Writer<'_>, m: &M) {
    context(w, m);
    w.event(Ev::GoDestroy, &[]);
}

/// Somebody readies `g`, which was Waiting. `m` is the caller's M if it is one.
#[inline]
pub(crate) fn go_unblock(w: &mut Writer<'_>, m: Option<&M>, g: &G, by: At) {
    if let Some(m) = m {
        context(w, m);
    }
    // E2: it was Waiting, whatever its state says by now.
    if g.trace.acquire_status(w.generation()) {
        w.event(Ev::GoStatus, &[g.id(), NO_M, GoStatus::Waiting as u64]);
    }
    let seq = g.trace.next_seq(w.generation());
    let stack = by.id(w);
    w.event(Ev::GoUnblock, &[g.id(), seq, stack]);
}

/// M's goroutine goes into a blocking call.
pub(crate) fn syscall_begin(w: &mut Writer<'_>, m: &M, at: At) {
    context(w, m);
    let seq = m.must_p().trace.next_seq(w.generation());
    let stack = at.id(w);
    w.event(Ev::GoSyscallBegin, &[seq, stack]);
}

/// M's goroutine comes back and still has its P.
pub(crate) fn syscall_end(w: &mut Writer<'_>, m: &M) {
    context(w, m);
    w.event(Ev::GoSyscallEnd, &[]);
    // It may run in this generation for the first time now.
    if let Some(g) = m.current() {
        label(w, g);
    }
}

/// M's goroutine comes back and its P was taken. (M may have found another already.)
pub(crate) fn syscall_end_blocked(w: &mut Writer<'_>, g: &G) {
    goroutine(w, g);
    w.event(Ev::GoSyscallEndBlocked, &[]);
}

/// GOMAXPROCS, once at the beginning of each generation, by a running goroutine (T8).
pub(crate) fn procs_change(w: &mut Writer<'_>, m: &M, procs: usize) {
    context(w, m);
    w.event(Ev::ProcsChange, &[procs as u64, 0]);
}

/// M's goroutine has stopped the world.
pub(crate) fn stw_begin(w: &mut Writer<'_>, m: &M, kind: Fixed, at: At) {
    context(w, m);
    let stack = at.id(w);
    w.event(Ev::StwBegin, &[kind.id(), stack]);
}

/// M's goroutine has started the world again.
pub(crate) fn stw_end(w: &mut Writer<'_>, m: &M) {
    context(w, m);
    w.event(Ev::StwEnd, &[]);
}

/// `thief` took `count` goroutines from `victim`'s queue.
pub(crate) fn steal(w: &mut Writer<'_>, thief: &P, victim: &P, count: usize) {
    w.extension(Record::Steal { thief_p: u64::from(thief.id), victim_p: u64::from(victim.id), count: count as u64 });
}

/// What the program says itself, by way of `rt::trace`.
#[derive(Clone, Copy)]
pub(crate) enum Note<'a> {
    TaskBegin { task: u64, parent: u64, name: Name },
    TaskEnd { task: u64 },
    RegionBegin { task: u64, name: Name },
    RegionEnd { task: u64, name: Name },
    Log { task: u64, category: Name, message: &'a str },
}

/// M's goroutine says something.
pub(crate) fn note(w: &mut Writer<'_>, m: &M, note: Note<'_>, at: At) {
    context(w, m);
    let stack = at.id(w);
    match note {
        Note::TaskBegin { task, parent, name } => w.event(Ev::UserTaskBegin, &[task, parent, name.id(), stack]),
        Note::TaskEnd { task } => w.event(Ev::UserTaskEnd, &[task, stack]),
        Note::RegionBegin { task, name } => w.event(Ev::UserRegionBegin, &[task, name.id(), stack]),
        Note::RegionEnd { task, name } => w.event(Ev::UserRegionEnd, &[task, name.id(), stack]),
        Note::Log { task, category, message } => {
            let message = w.string(message);
            w.event(Ev::UserLog, &[task, category.id(), message, stack]);
        }
    }
}

/// `p` has no M, and cannot get one before this is written.
pub(crate) fn proc_is_idle(w: &mut Writer<'_>, p: &P) {
    if p.trace.acquire_status(w.generation()) {
        w.event(Ev::ProcStatus, &[u64::from(p.id), ProcStatus::Idle as u64]);
    }
}

//! The events of the scheduler, one function each. Every one is called inside the guard that holds its state change (T2).
//!
//! - E1: before an event that happens on an M with a P or a goroutine, their statuses are written if this generation does
//!   not have them yet ([`context`]); before one that names another goroutine or P, that one's status.
//! - E2: the status that is written is the one *before* the event's transition.
//! - E3: what a trace leaves out on request it leaves out whole, or else no reader takes it. Of a goroutine that is *silent* ([`is_silent`]) there
//!   is no event; an M that runs it has a P and no goroutine. It counts as named all the same, so that nobody waits for it to be.
//!   Whether a goroutine is silent depends on its labels; when these change while it runs it begins or ends to exist ([`relabelled`]). Each time
//!   but the first it does so with a number of its own: nothing but the clock would order the end of one such life before the begin of the
//!   next, on another M.
//! - E4: a blocking call that is left out is *untold*: for the trace the goroutine runs. Should the P be taken from it, the call is told first,
//!   by the taker; where the goroutine is silent the P is given up instead.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracer::record::{Fixed, Name, Start, Writer};
use tracer::unwind::Regs;
use tracer::wire::ext::{Cause, GLOBAL_QUEUE, Record};
use tracer::wire::{Ev, GoStatus, NO_M, ProcStatus};

use crate::sched::g::G;
use crate::sched::m::M;
use crate::sched::p::P;
use crate::sched::state::Status;
use crate::sched::timer::Due;
use crate::sched::{SCHED, spawn};

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
    #[inline(always)]
    pub(crate) fn on(g: &G, regs: Regs) -> At {
        At { regs, end: g.walk_end_from(&regs) }
    }

    #[inline(always)]
    pub(crate) fn id(self, w: &mut Writer<'_>) -> u64 {
        if self.end == 0 {
            return 0;
        }
        // SAFETY: an At names a live frame of a goroutine's stack, which stays mapped for ever; its goroutine is the
        // caller's own, or stands still.
        unsafe { w.stack(self.regs, self.end) }
    }
}

/// Only goroutines with labels are recorded, and the runtime's own. The same for all of a session, or else goroutines would begin to exist in the
/// middle of it without having been made.
static ONLY_LABELLED: AtomicBool = AtomicBool::new(false);
/// How many such sessions there were: the number of the present one.
static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Blocking calls are recorded that do not lose their P, too.
static ALL_CALLS: AtomicBool = AtomicBool::new(true);

/// Whether only goroutines with labels are recorded. By the advancer, while the world is stopped and nothing is recorded.
pub(crate) fn set_only_labelled(yes: bool) {
    if yes {
        SESSIONS.fetch_add(1, Ordering::Relaxed);
    }
    ONLY_LABELLED.store(yes, Ordering::Relaxed);
}

/// As [`set_only_labelled`] was told.
pub(crate) fn only_labelled() -> bool {
    ONLY_LABELLED.load(Ordering::Relaxed)
}

/// Whether each blocking call is recorded (E4). By the advancer, at any time.
pub(crate) fn set_all_calls(yes: bool) {
    ALL_CALLS.store(yes, Ordering::Relaxed);
}

/// Whether nothing of this goroutine is recorded (E3). The caller may touch its cells (N2), or has taken it out of its wait.
#[inline]
pub(crate) fn is_silent(g: &G) -> bool {
    only_labelled() && has_no_voice(g)
}

#[cold]
#[inline(never)]
fn has_no_voice(g: &G) -> bool {
    // SAFETY: N2: a goroutine's labels change while it is made, while it runs, by itself, and when it is dead; none of that goes on beside the
    // caller.
    !g.marks.is_system() && unsafe { g.labels() }.is_none()
}

/// Whether nothing is recorded of what M's goroutine does (E3).
#[inline]
pub(crate) fn runs_silent(m: &M) -> bool {
    only_labelled() && m.current().is_some_and(has_no_voice)
}

/// The number by which the trace knows a goroutine (E3). The caller is as for [`is_silent`].
#[inline]
pub(crate) fn id(g: &G) -> u64 {
    if only_labelled() { id_of_voice(g) } else { g.id() }
}

#[cold]
#[inline(never)]
fn id_of_voice(g: &G) -> u64 {
    if has_voice(g) { g.voice.get() } else { g.id() }
}

/// Whether it has ended to exist in this session already.
fn has_voice(g: &G) -> bool {
    g.voice_in.get() == SESSIONS.load(Ordering::Relaxed)
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
#[inline(always)]
pub(crate) fn context(w: &mut Writer<'_>, m: &M) {
    if m.named.get() != w.generation() {
        name(w.apart(), m);
    }
}

#[cold]
#[inline(never)]
fn name(mut w: Writer<'_>, m: &M) {
    let r#gen = w.generation();
    let g = m.current();
    if let Some(p) = m.p()
        && p.trace.acquire_status(r#gen)
    {
        let in_call = g.is_some_and(|g| g.state.status() == Status::Syscall && !m.untold.get() && !is_silent(g));
        let status = if in_call { ProcStatus::Syscall } else { ProcStatus::Running };
        w.event(Ev::ProcStatus, &[u64::from(p.id), status as u64]);
    }
    if let Some(g) = g {
        goroutine(&mut w, g, m.untold.get());
    }
    m.named.set(r#gen);
}

/// Writes a goroutine's status where this generation lacks it (E1). The stream is that of its M if it has one. `untold`: it is in a call that is
/// (E4).
#[inline]
fn goroutine(w: &mut Writer<'_>, g: &G, untold: bool) {
    if g.trace.acquire_status(w.generation()) && !is_silent(g) {
        let status = if untold { GoStatus::Running } else { go_status(g.state.status()) };
        let m = if matches!(status, GoStatus::Running | GoStatus::Syscall) { w.m_id() } else { NO_M };
        w.event(Ev::GoStatus, &[id(g), m, status as u64]);
        if status == GoStatus::Running {
            label(w, g);
        }
    }
}

/// Writes the status of a goroutine that was on no M where this generation lacks it (E1): this one, whatever its state says by now (E2). Answers
/// by which number the trace knows it; `None` if there is to be nothing of it (E3).
#[inline(always)]
fn named_at_rest(w: &mut Writer<'_>, g: &G, was: GoStatus) -> Option<u64> {
    if g.trace.was_traced(w.generation()) && !only_labelled() {
        return Some(g.id());
    }
    name_at_rest(w.apart(), g, was)
}

#[cold]
#[inline(never)]
fn name_at_rest(mut w: Writer<'_>, g: &G, was: GoStatus) -> Option<u64> {
    let is_unnamed = g.trace.acquire_status(w.generation());
    if is_silent(g) {
        return None;
    }
    let id = id(g);
    if is_unnamed {
        w.event(Ev::GoStatus, &[id, NO_M, was as u64]);
    }
    Some(id)
}

/// Writes the name and the labels of a goroutine that runs on this stream's M, once in a generation.
#[inline(always)]
fn label(w: &mut Writer<'_>, g: &G) {
    if !g.has_said(w.generation()) {
        say(w.apart(), g);
    }
}

#[inline(never)]
fn say(mut w: Writer<'_>, g: &G) {
    let tell_labels = g.says(w.generation());
    // SAFETY: N2: it is Running, or in a call that is untold, and the caller is its M or that M's visitor.
    if let Some(name) = unsafe { g.name() } {
        let id = w.string(name);
        w.event(Ev::GoLabel, &[id]);
    }
    // In this order: labels lie where nothing else is looked at so soon.
    // SAFETY: as above.
    if tell_labels && unsafe { g.labels() }.is_some() {
        labels(&mut w, g);
    }
}

/// Writes the labels that a goroutine has now, or that it has none. It runs on this stream's M.
#[cold]
pub(crate) fn labels(w: &mut Writer<'_>, g: &G) {
    // SAFETY: N2, as above.
    let labels = unsafe { g.labels() }.map_or(0, |set| w.string(set.text()));
    w.extension(Record::Labels { g: id(g), labels });
}

/// Writes the name and the labels of a goroutine that is being made, for it may not run in this generation.
#[cold]
#[inline(never)]
fn introduce(mut w: Writer<'_>, g: &G) {
    // SAFETY: N2: it is Idle, and the caller is about to announce it.
    let (name, labelled) = unsafe { (g.name(), g.labels().is_some()) };
    if let Some(name) = name {
        let name = w.string(name);
        w.extension(Record::Name { g: id(g), name });
    }
    if labelled {
        labels(&mut w, g);
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
pub(crate) fn proc_steal(w: &mut Writer<'_>, p: &P, victim: &M) {
    let seq = p.trace.next_seq(w.generation());
    w.event(Ev::ProcSteal, &[u64::from(p.id), seq, victim.tid()]);
}

/// `p` goes from `victim` to somebody else.
pub(crate) fn hand_off(w: &mut Writer<'_>, p: &P, victim: &M, cause: Cause) {
    w.extension(Record::HandOff { p: u64::from(p.id), cause, from_m: victim.tid() });
}

/// `g` begins to exist.
#[inline(always)]
pub(crate) fn go_create(
    w: &mut Writer<'_>,
    m: &M,
    g: &G,
    start: &'static Start,
    at: &'static Location<'static>,
    by: At,
) {
    context(w, m);
    g.trace.set_traced(w.generation());
    g.set_told(w.generation());
    if is_silent(g) {
        return;
    }
    let new_stack = w.start_stack(start, at);
    let stack = by.id(w);
    // SAFETY: N2: it is Idle, and the caller is about to announce it.
    if unsafe { g.name().is_some() || g.labels().is_some() } {
        introduce(w.apart(), g);
    } else {
        g.set_said(w.generation());
    }
    w.event(Ev::GoCreate, &[id(g), new_stack, stack]);
}

/// `g` begins to run on M. Before `m` counts it as its own.
#[inline(always)]
pub(crate) fn go_start(w: &mut Writer<'_>, m: &M, g: &G) {
    context(w, m);
    let Some(id) = named_at_rest(w, g, GoStatus::Runnable) else { return };
    let seq = g.trace.next_seq(w.generation());
    w.event(Ev::GoStart, &[id, seq]);
    label(w, g);
}

/// M's goroutine stops running: it waits (`GoBlock`), or gives up its turn (`GoStop`).
// Always, as the walk that is remembered is then compared where the registers are: 28 instructions less for each stop.
#[inline(always)]
pub(crate) fn leaves_m(w: &mut Writer<'_>, m: &M, how: Ev, reason: Fixed, at: At) {
    context(w, m);
    if runs_silent(m) {
        return;
    }
    let stack = at.id(w);
    w.event(how, &[reason.id(), stack]);
}

/// M's goroutine gives up its turn.
#[inline]
pub(crate) fn go_stop(w: &mut Writer<'_>, m: &M, reason: Fixed, at: At) {
    leaves_m(w, m, Ev::GoStop, reason, at);
}

/// M's goroutine ends.
#[inline]
pub(crate) fn go_destroy(w: &mut Writer<'_>, m: &M) {
    context(w, m);
    if !runs_silent(m) {
        w.event(Ev::GoDestroy, &[]);
    }
}

/// The goroutine that runs on M has other labels now; `was_silent` says what [`is_silent`] said before. `start` and `at` are where it was made (E3).
/// In one guard with the change, before which its [`context`] was written.
#[cold]
pub(crate) fn relabelled(
    w: &mut Writer<'_>,
    m: &M,
    g: &G,
    was_silent: bool,
    start: &'static Start,
    at: &'static Location<'static>,
    by: At,
) {
    match (was_silent, is_silent(g)) {
        (true, true) => {}
        (false, false) => labels(w, g),
        (false, true) => {
            w.event(Ev::GoDestroy, &[]);
            g.voice.set(id(g));
            g.voice_in.set(SESSIONS.load(Ordering::Relaxed));
        }
        (true, false) => {
            if has_voice(g) {
                g.voice.set(spawn::foreign_id());
            }
            go_create(w, m, g, start, at, by);
            go_start(w, m, g);
        }
    }
}

/// Somebody readies `g`, which was Waiting. `m` is the caller's M if it is one.
#[inline(always)]
pub(crate) fn go_unblock(w: &mut Writer<'_>, m: Option<&M>, g: &G, by: At) {
    if let Some(m) = m {
        context(w, m);
    }
    let Some(id) = named_at_rest(w, g, GoStatus::Waiting) else { return };
    let seq = g.trace.next_seq(w.generation());
    let stack = by.id(w);
    w.event(Ev::GoUnblock, &[id, seq, stack]);
}

/// M's goroutine goes into a blocking call.
pub(crate) fn syscall_begin(w: &mut Writer<'_>, m: &M, at: At) {
    context(w, m);
    let untold = !ALL_CALLS.load(Ordering::Relaxed) || runs_silent(m);
    m.untold.set(untold);
    if !untold {
        told_syscall_begin(w, m, at);
    }
}

fn told_syscall_begin(w: &mut Writer<'_>, m: &M, at: At) {
    let seq = m.must_p().trace.next_seq(w.generation());
    let stack = at.id(w);
    w.event(Ev::GoSyscallBegin, &[seq, stack]);
}

/// The P is about to be taken from M, whose goroutine is in plain code, or in a call that begins to count, at `at`. Answers whether the P is still
/// the goroutine's for a reader, and has to be [taken from it](proc_steal). By a visitor, in M's stream.
pub(crate) fn loses_p(w: &mut Writer<'_>, m: &M, declared: bool, at: At) -> bool {
    context(w, m);
    if runs_silent(m) {
        // E4: whether it is in a call or not.
        w.event(Ev::ProcStop, &[]);
        return false;
    }
    if !declared || m.untold.get() {
        told_syscall_begin(w, m, at);
    }
    true
}

/// M's goroutine comes back and still has its P.
pub(crate) fn syscall_end(w: &mut Writer<'_>, m: &M) {
    context(w, m);
    if m.untold.get() || runs_silent(m) {
        return;
    }
    w.event(Ev::GoSyscallEnd, &[]);
    // It may run in this generation for the first time now.
    if let Some(g) = m.current() {
        label(w, g);
    }
}

/// M's goroutine comes back and its P was taken. (M may have found another already.)
pub(crate) fn syscall_end_blocked(w: &mut Writer<'_>, g: &G) {
    goroutine(w, g, false);
    if !is_silent(g) {
        w.event(Ev::GoSyscallEndBlocked, &[]);
    }
}

/// GOMAXPROCS, once at the beginning of each generation, by a running goroutine (T8).
pub(crate) fn procs_change(w: &mut Writer<'_>, m: &M, procs: usize) {
    context(w, m);
    w.event(Ev::ProcsChange, &[procs as u64, 0]);
}

/// M's goroutine has stopped the world: one of the runtime's own, which is never silent.
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
    TaskBegin {
        task: u64,
        parent: u64,
        name: Name,
    },
    TaskEnd {
        task: u64,
    },
    RegionBegin {
        task: u64,
        name: Name,
    },
    /// Of a region that was begun by the goroutine with this number, as [`note`] has answered.
    RegionEnd {
        g: u64,
        task: u64,
        name: Name,
    },
    Log {
        task: u64,
        category: Name,
        message: &'a str,
    },
}

/// M's goroutine says something. Answers by which number the trace knows it, 0 if it is silent.
pub(crate) fn note(w: &mut Writer<'_>, m: &M, note: Note<'_>, at: At) -> u64 {
    context(w, m);
    let Some(id) = m.current().filter(|g| !is_silent(g)).map(id) else { return 0 };
    if matches!(note, Note::RegionEnd { g, .. } if g != id) {
        return id;
    }
    let stack = at.id(w);
    match note {
        Note::TaskBegin { task, parent, name } => w.event(Ev::UserTaskBegin, &[task, parent, name.id(), stack]),
        Note::TaskEnd { task } => w.event(Ev::UserTaskEnd, &[task, stack]),
        Note::RegionBegin { task, name } => w.event(Ev::UserRegionBegin, &[task, name.id(), stack]),
        Note::RegionEnd { task, name, .. } => w.event(Ev::UserRegionEnd, &[task, name.id(), stack]),
        Note::Log { task, category, message } => {
            let message = w.string(message);
            w.event(Ev::UserLog, &[task, category.id(), message, stack]);
        }
    }
    id
}

/// `p` has no M, and cannot get one before this is written.
pub(crate) fn proc_is_idle(w: &mut Writer<'_>, p: &P) {
    if p.trace.acquire_status(w.generation()) {
        w.event(Ev::ProcStatus, &[u64::from(p.id), ProcStatus::Idle as u64]);
    }
}

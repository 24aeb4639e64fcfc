//! The scheduler emulator: finds the order in which the events of all Ms happened, and refuses those that cannot have.
//!
//! Times do not tell the order, as clocks differ between CPUs. What tells it is state: `GoStart` of a goroutine cannot
//! come before the event that made it runnable. So the reader offers the next event of an M, and [`Order::advance`]
//! says whether it can happen now (and then it has happened), cannot happen yet (another M must come first), or can
//! never happen.
//!
//! Which events wait for what:
//!
//! - `GoStart`, `GoUnblock`, `GoSwitch*`: until the goroutine is runnable (waiting) and its sequence number is the one
//!   before;
//! - `ProcStart`, `ProcSteal`: the same for a P (idle; in a blocking call), and `ProcStart` until the M has lost its P;
//! - `GoSyscallEndBlocked`: until the M has lost the P with which it went into the blocking call;
//! - `GCBegin`, `GCEnd`, `GCActive`: until the GC's sequence number is the one before.
//!
//! Everything else happens to what the M has, and can always happen or never.
//!
//! Invariants:
//!
//! O1. The verdict MUST be that of Go's `internal/trace/order.go` for every input: what passes here passes there.
//!     FORMAT.md names what is different.
//! O2. `NotYet` MUST leave no trace in the state, with one exception that is Go's: the M exists from then on.
//! O3. Nothing a file says may panic here, nor take memory beyond what its events have paid for.

mod gc;
mod goroutine;
mod proc;
mod state;
mod status;
mod syscall;
mod user;

use std::collections::{HashSet, VecDeque};
use std::hash::RandomState;

use super::error::{Broken, Resource};
use super::event::{Event, NONE, Prior, Raw};
use super::hash::Seed;
use super::rule::Rule;
use super::slots::Slots;
use super::tables::Tables;
use crate::wire::{Ev, GoStatus};
use gc::Gc;
pub(super) use state::Slot;
use state::{Context, GState, MState, Ms, PState, Seq};

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The event has happened: [`Order::event`] is it.
    Done,
    /// Another M's event must happen first.
    NotYet,
}

/// An event that is tried.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The event.
    pub raw: &'a Raw,
    /// The M whose stream it is the next of.
    pub m: i64,
    /// The number of its generation.
    pub generation: u64,
    /// The tables of its generation.
    pub tables: &'a Tables,
}

/// What is known of the event that is tried beside its arguments, which are in [`Order::event`].
#[derive(Clone, Copy)]
struct At<'a> {
    m: i64,
    kind: Ev,
    offset: u64,
    generation: u64,
    tables: &'a Tables,
}

/// What became of an event, or the rule that it breaks.
type Verdict = Result<Step, Broken>;

/// The state of the scheduler at one moment of the trace.
#[derive(Debug)]
pub struct Order {
    gs: Slots<GState>,
    ps: Slots<PState>,
    ms: Ms,
    tasks: HashSet<u64, Seed>,
    gc: Gc,
    /// The number of the first generation; 0 before it.
    first_generation: u64,
    /// What happened last.
    event: Event,
    /// What happened with it, if it was more than one thing.
    more: VecDeque<Event>,
    names: RandomState,
    /// What [`Order::advance_rare`] has to say beside its answer.
    broken: Option<Broken>,
    /// Wrong use of tasks and regions is no reason to stop; here is what there was of it.
    tolerated: Option<(u64, Vec<Broken>)>,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            gs: Slots::default(),
            ps: Slots::default(),
            ms: Ms::default(),
            tasks: HashSet::default(),
            gc: Gc::default(),
            first_generation: 0,
            event: Event::BLANK,
            more: VecDeque::new(),
            names: RandomState::new(),
            broken: None,
            tolerated: None,
        }
    }
}

/// How many annotations that are wrong are described until somebody asks. All are counted.
const TOLERATED_MAX: usize = 64;

impl Order {
    /// The state before the first event: nothing is known.
    pub fn new() -> Order {
        Order::default()
    }

    /// The state before the first event, as tolerant as this one, with what this one has tolerated.
    pub(super) fn anew(&mut self) -> Order {
        Order { tolerated: self.tolerated.take(), ..Order::default() }
    }

    /// Takes wrong use of tasks and regions from now on.
    pub(super) fn tolerate_annotations(&mut self) {
        self.tolerated.get_or_insert_default();
    }

    /// How much was tolerated since this was asked for the last time, and the first of it.
    pub(super) fn take_tolerated(&mut self) -> (u64, Vec<Broken>) {
        self.tolerated.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Puts back what [`Order::take_tolerated`] gave, in place of what there is by now.
    pub(super) fn set_tolerated(&mut self, tolerated: (u64, Vec<Broken>)) {
        if let Some(place) = &mut self.tolerated {
            *place = tolerated;
        }
    }

    /// The number of the first generation; 0 before its first event.
    pub(super) fn first_generation(&self) -> u64 {
        self.first_generation
    }

    /// A rule about annotations is broken: an error, unless that is tolerated.
    fn annotation(&mut self, broken: Broken) -> Result<(), Broken> {
        let Some((count, tolerated)) = &mut self.tolerated else { return Err(broken) };
        *count += 1;
        if tolerated.len() < TOLERATED_MAX {
            tolerated.push(broken);
        }
        Ok(())
    }

    /// Lets the event happen if it can.
    pub fn advance(&mut self, at: Attempt<'_>) -> Result<Step, Broken> {
        let Raw { kind, time, args, offset } = *at.raw;
        self.event = Event { kind, time, file_time: time, args, offset, ..Event::BLANK };
        self.advance_here(at.m, &mut Slot::default(), at.generation, at.tables)
    }

    /// Lets the event happen that [`Order::event`] has: its kind, its arguments, its times and its place. `slot` is the M's.
    #[inline(always)] // One caller has most of the events.
    pub(super) fn advance_here(&mut self, m: i64, slot: &mut Slot, generation: u64, tables: &Tables) -> Verdict {
        let MState { p, g } = match self.ms.at(*slot) {
            Some(state) => state,
            None => self.first_of(m, slot, generation),
        };
        let at = At { m, kind: self.event.kind, offset: self.event.offset, generation, tables };
        let cx = Context { m, p, g, slot: *slot };
        // Most events are of these kinds, and what is known of them stays in registers.
        match at.kind {
            Ev::GoCreate => self.go_create(at, cx, GoStatus::Runnable),
            Ev::GoStart => self.go_start(at, cx),
            Ev::GoDestroy | Ev::GoStop | Ev::GoBlock => self.go_leave(at, cx),
            Ev::GoUnblock => self.go_unblock(at, cx),
            Ev::GoSyscallBegin => self.syscall_begin(at, cx),
            Ev::GoSyscallEnd => self.syscall_end(at, cx),
            _ => match self.advance_rare(m, *slot, generation, tables) {
                Some(step) => Ok(step),
                None => Err(self.broken.take().unwrap_or_else(|| at.broken(Rule::Orderable, Resource::M(m)))),
            },
        }
    }

    /// The first event of an M, or one of no M, is tried.
    #[cold]
    fn first_of(&mut self, m: i64, slot: &mut Slot, generation: u64) -> MState {
        if self.first_generation == 0 {
            self.first_generation = generation;
        }
        if m != NONE {
            *slot = self.ms.slot(m);
        }
        self.ms.at(*slot).unwrap_or_default()
    }

    /// The other kinds. Numbers go in and a number comes out, so that nothing of the caller's has to be in memory; what is broken is in `broken`.
    #[inline(never)]
    fn advance_rare(&mut self, m: i64, slot: Slot, generation: u64, tables: &Tables) -> Option<Step> {
        self.dispatch_rare(m, slot, generation, tables).map_err(|broken| self.broken = Some(broken)).ok()
    }

    /// The M whose stream it is has this P from now on.
    #[inline]
    fn set_p(&mut self, cx: Context, p: i64) {
        if let Some(state) = self.ms.at_mut(cx.slot) {
            state.p = p;
        }
    }

    /// The M whose stream it is has this goroutine from now on.
    #[inline]
    fn set_g(&mut self, cx: Context, g: i64) {
        if let Some(state) = self.ms.at_mut(cx.slot) {
            state.g = g;
        }
    }

    /// The event that happened last, after [`Step::Done`]; what happened with it, [`Order::pop`] has.
    #[inline]
    pub fn event(&mut self) -> &mut Event {
        &mut self.event
    }

    /// The same to look at.
    #[inline]
    pub fn last(&self) -> &Event {
        &self.event
    }

    /// Something else has happened with the last event.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        !self.more.is_empty()
    }

    /// The next of the events that happened with the last.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        if self.more.is_empty() { None } else { self.more.pop_front() }
    }

    /// How many goroutines, Ps and Ms exist now.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.gs.len(), self.ps.len(), self.ms.len())
    }

    #[inline(always)]
    fn dispatch_rare(&mut self, m: i64, slot: Slot, generation: u64, tables: &Tables) -> Verdict {
        let MState { p, g } = self.ms.at(slot).unwrap_or_default();
        let at = At { m, kind: self.event.kind, offset: self.event.offset, generation, tables };
        let cx = Context { m, p, g, slot };
        match at.kind {
            Ev::ProcStart => self.proc_start(at, cx),
            Ev::ProcStop => self.proc_stop(at, cx),
            Ev::ProcSteal => self.proc_steal(at, cx),
            Ev::ProcStatus => self.proc_status(at, cx),

            Ev::GoCreateBlocked => self.go_create(at, cx, GoStatus::Waiting),
            Ev::GoSwitch | Ev::GoSwitchDestroy => self.go_switch(at, cx),
            Ev::GoStatus | Ev::GoStatusStack => self.go_status(at, cx),

            Ev::GoSyscallEndBlocked => self.syscall_end_blocked(at, cx),
            Ev::GoCreateSyscall => self.go_create_syscall(at, cx),
            Ev::GoDestroySyscall => self.go_destroy_syscall(at, cx),

            Ev::StwBegin | Ev::GcMarkAssistBegin => self.go_range_begin(at, cx),
            Ev::StwEnd | Ev::GcMarkAssistEnd => self.go_range_end(at, cx),
            Ev::GcMarkAssistActive => self.go_range_active(at, cx),
            Ev::GcActive => self.gc_active(at, cx),
            Ev::GcBegin => self.gc_begin(at, cx),
            Ev::GcEnd => self.gc_end(at, cx),
            Ev::GcSweepBegin => self.sweep_begin(at, cx),
            Ev::GcSweepActive => self.sweep_active(at, cx),
            Ev::GcSweepEnd => self.sweep_end(at, cx),
            Ev::HeapAlloc | Ev::HeapGoal => self.instant(at, cx, Need::P),

            Ev::UserTaskBegin => self.task_begin(at, cx),
            Ev::UserTaskEnd => self.task_end(at, cx),
            Ev::UserRegionBegin => self.region_begin(at, cx),
            Ev::UserRegionEnd => self.region_end(at, cx),
            Ev::ProcsChange | Ev::GoLabel | Ev::UserLog => self.instant(at, cx, Need::G),

            kind if kind.spec().experiment != 0 => self.instant(at, cx, Need::M),
            _ => Err(at.broken(Rule::Orderable, Resource::M(at.m))),
        }
    }

    /// An event that changes nothing.
    fn instant(&mut self, at: At<'_>, cx: Context, need: Need) -> Verdict {
        at.needs(cx, need)?;
        self.happen(cx);
        Ok(Step::Done)
    }

    /// The event happens in this context.
    #[inline(always)]
    fn happen(&mut self, cx: Context) {
        let event = &mut self.event;
        (event.m, event.p, event.g, event.prior) = (cx.m, cx.p, cx.g, Prior::Implied);
    }

    /// It happens as one of another kind, or with other arguments.
    #[inline]
    fn happen_as(&mut self, cx: Context, kind: Ev, args: [u64; 4], prior: Prior) {
        self.happen(cx);
        let event = &mut self.event;
        (event.kind, event.args, event.prior) = (kind, args, prior);
    }

    /// This happens, too.
    #[cold]
    fn happen_too(&mut self, cx: Context, kind: Ev, args: [u64; 4]) {
        let prior = Prior::Implied;
        self.more.push_back(Event { m: cx.m, p: cx.p, g: cx.g, kind, prior, args, ..self.event });
    }

    fn in_first_generation(&self, at: At<'_>) -> bool {
        at.generation == self.first_generation
    }

    /// The state of the goroutine that the M has.
    #[inline(always)]
    fn current_g(&mut self, at: At<'_>, cx: Context) -> Result<&mut GState, Broken> {
        self.gs.get_mut(cx.g).ok_or_else(|| at.broken(Rule::GoUnknown, Resource::G(cx.g)))
    }

    /// The same, if it is in this status.
    #[inline(always)]
    fn current_g_in(&mut self, at: At<'_>, cx: Context, status: GoStatus) -> Result<&mut GState, Broken> {
        let state = self.current_g(at, cx)?;
        if state.status == status {
            return Ok(state);
        }
        Err(at.not_in(status, cx.g, state.status))
    }

    /// The state of the P that the M has.
    #[inline(always)]
    fn current_p(&mut self, at: At<'_>, cx: Context) -> Result<&mut PState, Broken> {
        self.ps.get_mut(cx.p).ok_or_else(|| at.broken(Rule::ProcUnknown, Resource::P(cx.p)))
    }

    /// Says in words why the event cannot happen yet, for the report that nothing can happen any more.
    pub fn why_not_yet(&mut self, at: Attempt<'_>) -> String {
        let first = at.raw.args[0];
        let (p, g) = self.ms.get(at.m).map_or((NONE, NONE), |m| (m.p, m.g));
        let mut text = format!("M {} (P {p}, G {g}) at byte {}: {}", at.m, at.raw.offset, at.raw.kind.name());
        for (arg, value) in at.raw.kind.spec().args[1..].iter().zip(at.raw.args) {
            text += &format!(" {}={value}", arg.name);
        }
        text += "; ";
        text += &match at.raw.kind {
            Ev::GoStart | Ev::GoUnblock | Ev::GoSwitch | Ev::GoSwitchDestroy => match self.gs.get_mut(first as i64) {
                Some(state) => format!("G {first} is {}, its number {}", state.status.name(), state.seq),
                None => format!("G {first} does not exist"),
            },
            Ev::ProcStart if p != NONE => format!("the M still has P {p}"),
            Ev::ProcStart | Ev::ProcSteal => match self.ps.get_mut(first as i64) {
                Some(state) => format!("P {first} is {}, its number {}", state.status.name(), state.seq),
                None => format!("P {first} does not exist"),
            },
            Ev::GoSyscallEndBlocked => format!("the M still has P {p}"),
            _ => format!("the GC's number is {}", self.gc.seq),
        };
        text
    }
}

/// What an event needs the M to have. Each needs what the ones before need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// To be one.
    M,
    /// A P.
    P,
    /// A P and a goroutine.
    G,
}

/// That an M has a goroutine where it must have none.
#[cold]
#[inline(never)]
fn has_g(broken: Broken, g: i64) -> Broken {
    broken.detail(format!("It has G {g}."))
}

#[cold]
#[inline(never)]
fn broken_at(offset: u64, kind: Ev, rule: Rule, resource: Resource) -> Broken {
    Broken::new(rule, resource, offset).event(kind)
}

impl At<'_> {
    #[inline(always)] // Not to be in memory for the sake of what hardly ever happens.
    fn broken(self, rule: Rule, resource: Resource) -> Broken {
        broken_at(self.offset, self.kind, rule, resource)
    }

    #[inline(always)]
    fn not_in(self, status: GoStatus, g: i64, is: GoStatus) -> Broken {
        let rule = if status == GoStatus::Syscall { Rule::GoInSyscall } else { Rule::GoRunning };
        self.broken(rule, Resource::G(g)).detail(format!("It is {}.", is.name()))
    }

    #[inline(always)]
    fn needs(self, cx: Context, need: Need) -> Result<(), Broken> {
        if cx.m == NONE {
            Err(self.broken(Rule::NeedsM, Resource::M(cx.m)))
        } else if cx.p == NONE && need != Need::M {
            Err(self.broken(Rule::NeedsP, Resource::M(cx.m)))
        } else if cx.g == NONE && need == Need::G {
            Err(self.broken(Rule::NeedsG, Resource::M(cx.m)))
        } else {
            Ok(())
        }
    }

    #[inline]
    fn seq(self, number: u64) -> Seq {
        Seq { generation: self.generation, number }
    }
}

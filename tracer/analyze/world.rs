//! The world: Ps and Ms, stops, the GC, and gort's extension records.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::elapsed;
use super::histogram::Histogram;
use super::intern::{NameId, Stacks};
use super::wait::Stat;
use crate::read::hash::{IdMap, Seed};
use crate::read::{Event, NONE, State, Tables, Transition};
use crate::wire::ext::{Cause, GLOBAL_QUEUE, Record};
use crate::wire::{Ev, reason};

/// What is neither a goroutine nor a wait.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// How many Ps the trace names.
    pub ps: u64,
    /// How many Ms it names.
    pub ms: u64,
    /// The last value of GOMAXPROCS.
    pub gomaxprocs: Option<u64>,
    /// For how long all Ps together were somebody's, in ns.
    pub ps_in_use: u128,
    /// Stops of the world, by reason, the longest in total first.
    pub stops: Vec<(Arc<str>, Histogram)>,
    /// GC cycles, while they mark.
    pub gc: Histogram,
    /// The last of them, in order.
    pub cycles: Vec<Cycle>,
    /// Assists to the GC.
    pub assists: Histogram,
    /// Sweeping, by goroutines that allocate and by the background's.
    pub sweeps: Histogram,
    /// Bytes that sweeping looked at, and that it made free.
    pub swept: (u64, u64),
    /// The last value of the live heap, in bytes.
    pub heap_alloc: Option<u64>,
    /// The last value of the goal of the heap, in bytes.
    pub heap_goal: Option<u64>,
    /// The largest that the heap was, in bytes.
    pub heap_max: u64,
}

/// One GC cycle, while it marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// When it began, in ns on the trace's clock.
    pub begin: i64,
    /// How long it took, in ns.
    pub ns: u64,
    /// The world was stopped for so long meanwhile, and for the stop just before and just after, in ns.
    pub stopped: u64,
    /// Goroutines assisted for so long meanwhile, in ns.
    pub assisted: u64,
    /// The heap at its begin, in bytes, if it was told before.
    pub heap: Option<u64>,
    /// The goal at its begin, in bytes, if it was told before.
    pub goal: Option<u64>,
    /// It had not ended when the trace did.
    pub open: bool,
}

/// What gort says in extension records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ext {
    /// How often a P stole from another.
    pub steals: u64,
    /// How many goroutines were stolen.
    pub stolen: u64,
    /// How often a P was handed on, by cause.
    pub hand_offs: BTreeMap<Cause, u64>,
    /// How often the labels of a goroutine are told.
    pub labels: u64,
    /// Stays in plain code that the watchdog reported: so long they were then.
    pub stalls: Stat,
    /// Goroutines in deadlocks by lock order.
    pub in_lock_cycles: u64,
    /// Looks at the network that made goroutines runnable.
    pub polls: u64,
    /// Goroutines that they made runnable.
    pub polled: u64,
    /// How often the name of a goroutine is told, beside its label.
    pub names: u64,
    /// Looks at which several timers were due.
    pub timer_batches: u64,
    /// Timers that were due then.
    pub timers: u64,
    /// How often the length of a run queue is told.
    pub queue_looks: u64,
    /// The longest run queue of a P.
    pub longest_queue: u64,
    /// The longest that the global queue was.
    pub longest_global_queue: u64,
    /// Bytes of events that are missing before one of the generations.
    pub lost_bytes: u64,
    /// Records of types that this version does not know.
    pub unknown: u64,
    /// Entries that end in something else than a record.
    pub malformed: u64,
}

impl Ext {
    pub(super) fn take(&mut self, tables: &Tables) {
        for record in tables.ext_records() {
            match record.map(|r| r.record) {
                Ok(Some(Record::Steal { count, .. })) => {
                    self.steals += 1;
                    self.stolen = self.stolen.saturating_add(count);
                }
                Ok(Some(Record::HandOff { cause, .. })) => *self.hand_offs.entry(cause).or_default() += 1,
                Ok(Some(Record::Labels { .. })) => self.labels += 1,
                Ok(Some(Record::Stall { for_ns, .. })) => self.stalls.add(for_ns, false),
                Ok(Some(Record::LockCycle { .. })) => self.in_lock_cycles += 1,
                Ok(Some(Record::Netpoll { goroutines, .. })) => {
                    self.polls += 1;
                    self.polled = self.polled.saturating_add(goroutines);
                }
                Ok(Some(Record::Name { .. })) => self.names += 1,
                Ok(Some(Record::Timers { goroutines, alarms, .. })) => {
                    self.timer_batches += 1;
                    self.timers = self.timers.saturating_add(goroutines).saturating_add(alarms);
                }
                Ok(Some(Record::RunQueue { p, len })) => {
                    self.queue_looks += 1;
                    let longest =
                        if p == GLOBAL_QUEUE { &mut self.longest_global_queue } else { &mut self.longest_queue };
                    *longest = len.max(*longest);
                }
                Ok(Some(Record::Lost { bytes })) => self.lost_bytes = self.lost_bytes.saturating_add(bytes),
                Ok(None) => self.unknown += 1,
                Err(_) => self.malformed += 1,
            }
        }
    }

    /// All hand-offs.
    pub fn handed_off(&self) -> u64 {
        self.hand_offs.values().sum()
    }
}

/// How many GC cycles are kept.
const CYCLES_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct WorldTrack {
    /// Since when each P has been somebody's.
    ps: IdMap<Option<i64>>,
    ms: HashSet<i64, Seed>,
    last_m: Option<i64>,
    /// The stop or assist that a goroutine is in, and the sweep that a P is in.
    stops: IdMap<(i64, NameId)>,
    assists: IdMap<i64>,
    sweeps: IdMap<i64>,
    gc: Option<Cycle>,
    reasons: BTreeMap<NameId, Histogram>,
    /// When the last stop for the GC ended outside a cycle, and how long it was.
    stop_before: u64,
}

impl WorldTrack {
    /// An event has happened on this M.
    #[inline]
    pub fn meet_m(&mut self, m: i64, world: &mut World) {
        if m != NONE && self.last_m != Some(m) {
            self.last_m = Some(m);
            world.ms += u64::from(self.ms.insert(m));
        }
    }

    pub fn event(&mut self, event: &Event, start: i64, world: &mut World, stacks: &mut Stacks, tables: &Tables) {
        self.meet_m(event.m, world);
        let now = event.time;
        match event.kind {
            Ev::ProcStart | Ev::ProcStop | Ev::ProcSteal | Ev::ProcStatus => {
                if let Some(Transition::P { id, from, to }) = event.transition() {
                    self.p_moves(now, start, (id, from, to), world);
                }
            }
            Ev::ProcsChange => world.gomaxprocs = Some(event.args[0]),
            Ev::HeapAlloc => {
                world.heap_alloc = Some(event.args[0]);
                world.heap_max = world.heap_max.max(event.args[0]);
            }
            Ev::HeapGoal => world.heap_goal = Some(event.args[0]),
            Ev::StwBegin => drop(self.stops.insert(event.g, (now, stacks.string(event.args[0], tables)))),
            Ev::StwEnd => {
                if let Some((begin, reason)) = self.stops.remove(&event.g) {
                    self.stopped(elapsed(begin, now), reason, stacks, world);
                }
            }
            _ => self.gc_event(event, start, world),
        }
    }

    fn gc_event(&mut self, event: &Event, start: i64, world: &mut World) {
        let now = event.time;
        let cycle = |begin| Cycle { begin, heap: world.heap_alloc, goal: world.heap_goal, ..Cycle::default() };
        match event.kind {
            Ev::GcBegin => self.gc = Some(Cycle { stopped: std::mem::take(&mut self.stop_before), ..cycle(now) }),
            Ev::GcActive => drop(self.gc.get_or_insert_with(|| cycle(start))),
            Ev::GcEnd => {
                if let Some(cycle) = self.gc.take() {
                    end_cycle(cycle, now, false, world);
                }
            }
            Ev::GcMarkAssistBegin => drop(self.assists.insert(event.g, now)),
            Ev::GcMarkAssistActive => drop(self.assists.entry(event.args[0] as i64).or_insert(start)),
            Ev::GcMarkAssistEnd => {
                if let Some(begin) = self.assists.remove(&event.g) {
                    let ns = elapsed(begin, now);
                    world.assists.add(ns);
                    if let Some(cycle) = &mut self.gc {
                        cycle.assisted = cycle.assisted.saturating_add(ns);
                    }
                }
            }
            Ev::GcSweepBegin => drop(self.sweeps.insert(event.p, now)),
            Ev::GcSweepActive => drop(self.sweeps.entry(event.args[0] as i64).or_insert(start)),
            Ev::GcSweepEnd => {
                let [swept, reclaimed, ..] = event.args;
                world.swept = (world.swept.0.saturating_add(swept), world.swept.1.saturating_add(reclaimed));
                if let Some(begin) = self.sweeps.remove(&event.p) {
                    world.sweeps.add(elapsed(begin, now));
                }
            }
            _ => {}
        }
    }

    fn stopped(&mut self, ns: u64, reason: NameId, stacks: &Stacks, world: &mut World) {
        self.reasons.entry(reason).or_default().add(ns);
        // A cycle's own stops: Go ends the one for its begin just after `GCBegin`, and begins the one for its end before
        // `GCEnd`; the order within either is not promised.
        match &mut self.gc {
            Some(cycle) => cycle.stopped = cycle.stopped.saturating_add(ns),
            None => match &**stacks.text(reason) {
                reason::STW_GC_SWEEP_TERM => self.stop_before = ns,
                reason::STW_GC_MARK_TERM => {
                    if let Some(cycle) = world.cycles.last_mut() {
                        cycle.stopped = cycle.stopped.saturating_add(ns);
                    }
                }
                _ => {}
            },
        }
    }

    fn p_moves(&mut self, now: i64, start: i64, (id, from, to): (i64, State, State), world: &mut World) {
        let since = self.ps.entry(id).or_insert_with(|| {
            world.ps += 1;
            None
        });
        match (*since, to) {
            (None, State::Running) => *since = Some(if from == State::Undetermined { start } else { now }),
            (Some(begin), State::Idle) => {
                world.ps_in_use += u128::from(elapsed(begin, now));
                *since = None;
            }
            _ => {}
        }
    }

    /// Closes what is open: the trace ends, or is broken here.
    pub fn close(&mut self, end: i64, world: &mut World) {
        for begin in self.ps.values_mut().filter_map(Option::take) {
            world.ps_in_use += u128::from(elapsed(begin, end));
        }
        for (_, (begin, reason)) in self.stops.drain() {
            self.reasons.entry(reason).or_default().add_as(elapsed(begin, end), true);
        }
        for (_, begin) in self.assists.drain() {
            world.assists.add_as(elapsed(begin, end), true);
        }
        for (_, begin) in self.sweeps.drain() {
            world.sweeps.add_as(elapsed(begin, end), true);
        }
        if let Some(cycle) = self.gc.take() {
            end_cycle(cycle, end, true, world);
        }
    }

    /// Closes what is open, and sorts.
    pub fn finish(mut self, end: i64, world: &mut World, stacks: &Stacks) {
        self.close(end, world);
        let reasons = self.reasons;
        world.stops = reasons.into_iter().map(|(reason, stops)| (stacks.text(reason).clone(), stops)).collect();
        world.stops.sort_by(|a, b| b.1.total().cmp(&a.1.total()).then_with(|| a.0.cmp(&b.0)));
    }
}

fn end_cycle(mut cycle: Cycle, now: i64, open: bool, world: &mut World) {
    cycle.ns = elapsed(cycle.begin, now);
    cycle.open = open;
    world.gc.add_as(cycle.ns, open);
    if world.cycles.len() == CYCLES_MAX {
        world.cycles.remove(0);
    }
    world.cycles.push(cycle);
}

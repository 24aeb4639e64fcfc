//! The world: Ps and Ms, stops, the GC, and gort's extension records.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::elapsed;
use super::stack::Taken;
use super::wait::Stat;
use crate::read::event::{Event, NONE, State, Transition};
use crate::read::hash::{IdMap, Seed};
use crate::read::tables::Tables;
use crate::wire::Ev;
use crate::wire::ext::{Cause, GLOBAL_QUEUE, Record};

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
    /// Stops of the world, by reason.
    pub stops: Vec<(Arc<str>, Stat)>,
    /// GC cycles, while they mark.
    pub gc: Stat,
    /// Assists to the GC.
    pub assists: Stat,
    /// The last value of the live heap, in bytes.
    pub heap_alloc: Option<u64>,
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

#[derive(Debug, Default)]
pub(super) struct WorldTrack {
    /// Since when each P has been somebody's.
    ps: IdMap<Option<i64>>,
    ms: HashSet<i64, Seed>,
    /// The stop or assist that a goroutine is in.
    stops: IdMap<(i64, Arc<str>)>,
    assists: IdMap<i64>,
    gc: Option<i64>,
    reasons: HashMap<Arc<str>, Stat>,
}

impl WorldTrack {
    pub fn event(&mut self, event: &Event, start: i64, world: &mut World, taken: &mut Taken, tables: &Tables) {
        if event.m != NONE && self.ms.insert(event.m) {
            world.ms += 1;
        }
        let now = event.time;
        match event.kind {
            Ev::ProcsChange => world.gomaxprocs = Some(event.args[0]),
            Ev::HeapAlloc => world.heap_alloc = Some(event.args[0]),
            Ev::StwBegin => drop(self.stops.insert(event.g, (now, taken.string(event.args[0], tables)))),
            Ev::StwEnd => {
                if let Some((begin, reason)) = self.stops.remove(&event.g) {
                    self.reasons.entry(reason).or_default().add(elapsed(begin, now), false);
                }
            }
            Ev::GcBegin => self.gc = Some(now),
            Ev::GcActive => drop(self.gc.get_or_insert(start)),
            Ev::GcEnd => {
                if let Some(begin) = self.gc.take() {
                    world.gc.add(elapsed(begin, now), false);
                }
            }
            Ev::GcMarkAssistBegin => drop(self.assists.insert(event.g, now)),
            Ev::GcMarkAssistActive => drop(self.assists.entry(event.args[0] as i64).or_insert(start)),
            Ev::GcMarkAssistEnd => {
                if let Some(begin) = self.assists.remove(&event.g) {
                    world.assists.add(elapsed(begin, now), false);
                }
            }
            _ => {
                if let Some(Transition::P { id, from, to }) = event.transition() {
                    self.p_moves(now, start, (id, from, to), world);
                }
            }
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

    /// Closes what is open.
    pub fn finish(self, end: i64, world: &mut World) {
        let mut reasons = self.reasons;
        for begin in self.ps.into_values().flatten() {
            world.ps_in_use += u128::from(elapsed(begin, end));
        }
        for (begin, reason) in self.stops.into_values() {
            reasons.entry(reason).or_default().add(elapsed(begin, end), true);
        }
        for begin in self.assists.into_values() {
            world.assists.add(elapsed(begin, end), true);
        }
        if let Some(begin) = self.gc {
            world.gc.add(elapsed(begin, end), true);
        }
        world.stops = reasons.into_iter().collect();
        world.stops.sort_by(|a, b| b.1.total.cmp(&a.1.total).then_with(|| a.0.cmp(&b.0)));
    }
}

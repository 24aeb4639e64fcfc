//! A second opinion on a trace that has been put in order.
//!
//! [`order`](super::order) asks whether the events *can* have happened; it has Go's tolerance and no more knowledge
//! than it needs for that. A [`Validator`] looks at the outcome from outside and asks whether the recorder kept its own
//! promises (FORMAT.md, T1 to T8). It shares no state and no code with `order`, so that a mistake there does not excuse
//! itself here. A trace with findings is one that Go's tools open; the recorder that wrote it has a bug.

use std::fmt;
use std::io::Read;

use super::error::{Error, Resource};
use super::event::{Event, NONE, State, Transition};
use super::hash::IdMap;
use super::reader::Reader;
use super::tables::Tables;
use crate::wire::Ev;

/// How many findings are kept. All are counted.
const FINDINGS_MAX: usize = 64;

/// A promise of the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// A goroutine leaves the state that it was in.
    GState,
    /// A P leaves the state that it was in.
    PState,
    /// A goroutine that runs, or is in a blocking call, is on one M, and the M has no other.
    GHolder,
    /// A P that is not idle is on one M, and the M has no other.
    PHolder,
    /// An event happens to the G and P that its M has.
    Context,
    /// The first word about a goroutine in a generation is its status or its creation (T4).
    GFirst,
    /// The first word about a P in a generation is its status (T4).
    PFirst,
    /// At the end of a generation every live goroutine has a status or a creation in it (T5).
    GCensus,
    /// At the end of a generation every P has a status in it (T5).
    PCensus,
    /// Time never goes back on an M, within a generation (T7).
    MTime,
    /// A CPU sample's stack is in the stack table: Go's tools panic otherwise.
    SampleStack,
}

impl Check {
    /// What must hold.
    pub const fn text(self) -> &'static str {
        match self {
            Check::GState => "a goroutine leaves the state that it was in",
            Check::PState => "a P leaves the state that it was in",
            Check::GHolder => "a running goroutine is on one M, and the M has no other",
            Check::PHolder => "a P in use is on one M, and the M has no other",
            Check::Context => "an event happens to the G and P that its M has",
            Check::GFirst => "the first word about a goroutine in a generation is its status or creation",
            Check::PFirst => "the first word about a P in a generation is its status",
            Check::GCensus => "every live goroutine has a status or a creation in every generation",
            Check::PCensus => "every P has a status in every generation",
            Check::MTime => "time never goes back on an M",
            Check::SampleStack => "a CPU sample's stack is in the stack table",
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The promise.
    pub check: Check,
    /// What it was broken for.
    pub resource: Resource,
    /// Where in the file.
    pub offset: u64,
    /// When in the trace, in ns.
    pub time: i64,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}: {}", self.offset, self.resource, self.check.text())?;
        if !self.detail.is_empty() {
            write!(f, ", but {}", self.detail)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Thing {
    state: State,
    /// The M that has it.
    m: i64,
    /// The last generation with a status or a creation of it, counted from 1.
    told: u64,
}

#[derive(Clone, Copy, Debug)]
struct M {
    g: i64,
    p: i64,
    time: i64,
}

impl Default for M {
    fn default() -> M {
        M { g: NONE, p: NONE, time: i64::MIN }
    }
}

/// What a validator has found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The first of them.
    pub first: Vec<Finding>,
    /// How many there are in all.
    pub total: u64,
}

/// Looks at the events of one trace in order.
#[derive(Debug, Default)]
pub struct Validator {
    gs: IdMap<Thing>,
    ps: IdMap<Thing>,
    ms: IdMap<M>,
    /// Generations so far.
    generation: u64,
    gomaxprocs: Option<u64>,
    findings: Findings,
}

/// Reads a trace to its end or break, and says what the recorder did wrong.
pub fn validate<R: Read>(reader: &mut Reader<R>) -> (Findings, Option<Error>) {
    let mut validator = Validator::default();
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => validator.event(&event, reader.tables()),
            Err(error) => return (validator.findings, Some(error)),
        }
    }
    (validator.findings, None)
}

impl Validator {
    /// Takes the next event, and the tables of its generation.
    pub fn event(&mut self, event: &Event, tables: &Tables) {
        match event.kind {
            Ev::Sync => return self.turn(event),
            Ev::CpuSample => {
                if !tables.has_stack(event.args[0]) {
                    self.find(Check::SampleStack, Resource::Stack(event.args[0]), event, String::new());
                }
                return;
            }
            Ev::ProcsChange => self.gomaxprocs = Some(event.args[0]),
            _ => {}
        }
        // A status may be told by another M than the one it is about.
        if !matches!(event.kind, Ev::GoStatus | Ev::GoStatusStack | Ev::ProcStatus) && event.m != NONE {
            self.context(event);
        }
        match event.transition() {
            Some(Transition::G { id, from, to }) => self.g_moves(event, id, from, to),
            Some(Transition::P { id, from, to }) => self.p_moves(event, id, from, to),
            None => {}
        }
    }

    /// What has been found.
    pub fn finish(self) -> Findings {
        self.findings
    }

    fn find(&mut self, check: Check, resource: Resource, event: &Event, detail: String) {
        self.findings.total += 1;
        if self.findings.first.len() < FINDINGS_MAX {
            let Event { offset, time, .. } = *event;
            self.findings.first.push(Finding { check, resource, offset, time, detail });
        }
    }

    /// A generation is over, and the next begins.
    fn turn(&mut self, event: &Event) {
        let untold = |things: &IdMap<Thing>| {
            let mut ids: Vec<i64> =
                things.iter().filter(|(_, t)| t.told != self.generation).map(|(&id, _)| id).collect();
            ids.sort_unstable();
            ids
        };
        let gs = untold(&self.gs);
        let gone = |id: &i64| self.gomaxprocs.is_some_and(|n| *id as u64 >= n);
        let ps: Vec<i64> = untold(&self.ps).into_iter().filter(|id| !gone(id)).collect();
        let generation = self.generation;
        for id in gs {
            self.find(Check::GCensus, Resource::G(id), event, format!("generation {generation} of the file has none"));
        }
        for id in ps {
            self.find(Check::PCensus, Resource::P(id), event, format!("generation {generation} of the file has none"));
        }
        for m in self.ms.values_mut() {
            m.time = i64::MIN; // Every generation has its own frequency.
        }
        self.generation += 1;
    }

    fn context(&mut self, event: &Event) {
        let m = self.ms.entry(event.m).or_default();
        let (was, before) = (*m, m.time);
        m.time = before.max(event.file_time);
        if (was.g, was.p) != (event.g, event.p) {
            let detail = format!(
                "it has G {} and P {}, and {} names G {} and P {}",
                was.g,
                was.p,
                event.kind.name(),
                event.g,
                event.p
            );
            self.find(Check::Context, Resource::M(event.m), event, detail);
        }
        // The events of an experiment have batches of their own, which an M fills beside the others.
        if event.file_time < before && event.kind.spec().experiment == 0 {
            let detail = format!("by {} ns", before.wrapping_sub(event.file_time));
            self.find(Check::MTime, Resource::M(event.m), event, detail);
        }
    }

    fn g_moves(&mut self, event: &Event, id: i64, from: State, to: State) {
        let births = matches!(event.kind, Ev::GoCreate | Ev::GoCreateBlocked | Ev::GoCreateSyscall);
        let status = matches!(event.kind, Ev::GoStatus | Ev::GoStatusStack);
        let known = self.gs.get(&id).copied();
        self.first_word(Check::GFirst, Resource::G(id), event, births || status, known);
        let state = known.map_or(if births { State::NotExist } else { State::Undetermined }, |thing| thing.state);
        if state != from && !(status && state == State::Undetermined) {
            let detail = format!("it was {} and goes from {} to {}", state.name(), from.name(), to.name());
            self.find(Check::GState, Resource::G(id), event, detail);
        }
        let held = matches!(to, State::Running | State::Syscall);
        let m = if held { event.m } else { NONE };
        if let Some(before) = known.filter(|thing| thing.m != NONE && thing.m != m) {
            if held {
                let detail = format!("M {} has it and M {m} takes it", before.m);
                self.find(Check::GHolder, Resource::G(id), event, detail);
            }
            if let Some(holder) = self.ms.get_mut(&before.m).filter(|holder| holder.g == id) {
                holder.g = NONE;
            }
        }
        if held {
            let other = std::mem::replace(&mut self.ms.entry(m).or_default().g, id);
            if other != NONE && other != id {
                self.find(Check::GHolder, Resource::G(id), event, format!("M {m} still has G {other}"));
            }
        }
        if to == State::NotExist {
            self.gs.remove(&id);
        } else {
            self.gs.insert(id, Thing { state: to, m, told: self.generation });
        }
    }

    fn p_moves(&mut self, event: &Event, id: i64, from: State, to: State) {
        let status = event.kind == Ev::ProcStatus;
        let known = self.ps.get(&id).copied();
        self.first_word(Check::PFirst, Resource::P(id), event, status, known);
        if let Some(thing) = known.filter(|thing| thing.state != from) {
            let detail = format!("it was {} and goes from {} to {}", thing.state.name(), from.name(), to.name());
            self.find(Check::PState, Resource::P(id), event, detail);
        }
        let m = if to == State::Running { event.m } else { NONE };
        if let Some(before) = known.filter(|thing| thing.m != NONE && thing.m != m) {
            if m != NONE {
                let detail = format!("M {} has it and M {m} takes it", before.m);
                self.find(Check::PHolder, Resource::P(id), event, detail);
            }
            if let Some(holder) = self.ms.get_mut(&before.m).filter(|holder| holder.p == id) {
                holder.p = NONE;
            }
        }
        if m != NONE {
            let other = std::mem::replace(&mut self.ms.entry(m).or_default().p, id);
            if other != NONE && other != id {
                self.find(Check::PHolder, Resource::P(id), event, format!("M {m} still has P {other}"));
            }
        }
        self.ps.insert(id, Thing { state: to, m, told: self.generation });
    }

    fn first_word(&mut self, check: Check, resource: Resource, event: &Event, introduces: bool, known: Option<Thing>) {
        let told = known.is_some_and(|thing| thing.told == self.generation);
        if told && introduces {
            self.find(check, resource, event, format!("{} is not the first", event.kind.name()));
        } else if !told && !introduces {
            self.find(check, resource, event, format!("{} is", event.kind.name()));
        }
    }
}

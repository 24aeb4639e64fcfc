//! A second opinion on a trace that has been put in order.
//!
//! [`order`](super::order) asks whether the events *can* have happened; it has Go's tolerance and no more knowledge
//! than it needs for that. A [`Validator`] looks at the outcome from outside and asks whether the recorder kept its own
//! promises (FORMAT.md, T1 to T8). It shares no state and no code with `order`, so that a mistake there does not excuse
//! itself here. A trace with findings is one that Go's tools open; the recorder that wrote it has a bug.

use super::source::Input;
use std::collections::HashMap;
use std::fmt;

use super::error::{Error, Resource};
use super::event::{Event, NONE, State, Transition};
use super::hash::{IdMap, Seed};
use super::reader::Reader;
use super::tables::{ClockSnapshot, Tables};
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
    /// A goroutine that runs is on an M that has a P, and keeps it while it runs.
    Running,
    /// A P is taken from another M only while that is in a blocking call (T6).
    Steal,
    /// A range of time (a GC cycle, a sweep, an assist, a stop of the world) begins when it is not open and ends when it is.
    Range,
    /// In every generation an open range of time is said to be so, or ends (T5).
    RangeCensus,
    /// The generations are numbered one by one.
    Numbers,
    /// The clocks of a generation's snapshot are not behind those of the one before.
    Clocks,
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
            Check::Running => "a running goroutine has a P",
            Check::Steal => "a P is taken from an M only while that is in a blocking call",
            Check::Range => "a range of time begins when it is not open and ends when it is",
            Check::RangeCensus => "a range of time that is open is in every generation",
            Check::Numbers => "the generations are numbered one by one",
            Check::Clocks => "clocks never go back from one generation to the next",
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
    /// It has told of an experiment in this generation.
    experiment: bool,
}

impl Default for M {
    fn default() -> M {
        M { g: NONE, p: NONE, time: i64::MIN, experiment: false }
    }
}

/// A range of time, by what begins it, and what it belongs to: a goroutine, a P, or [`NONE`].
type Range = (Ev, i64);

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
    /// The ranges that are open, and the generation that said it last.
    ranges: HashMap<Range, u64, Seed>,
    /// What the generation before had.
    number: u64,
    clocks: Option<ClockSnapshot>,
    findings: Findings,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeStep {
    Begin,
    Active,
    End,
}

/// The range of time that the event is about.
fn range(event: &Event) -> Option<(Range, RangeStep)> {
    let Event { p, g, .. } = *event;
    let named = event.args[0] as i64;
    Some(match event.kind {
        Ev::GcBegin => ((Ev::GcBegin, NONE), RangeStep::Begin),
        Ev::GcActive => ((Ev::GcBegin, NONE), RangeStep::Active),
        Ev::GcEnd => ((Ev::GcBegin, NONE), RangeStep::End),
        Ev::GcSweepBegin => ((Ev::GcSweepBegin, p), RangeStep::Begin),
        Ev::GcSweepActive => ((Ev::GcSweepBegin, named), RangeStep::Active),
        Ev::GcSweepEnd => ((Ev::GcSweepBegin, p), RangeStep::End),
        Ev::GcMarkAssistBegin => ((Ev::GcMarkAssistBegin, g), RangeStep::Begin),
        Ev::GcMarkAssistActive => ((Ev::GcMarkAssistBegin, named), RangeStep::Active),
        Ev::GcMarkAssistEnd => ((Ev::GcMarkAssistBegin, g), RangeStep::End),
        Ev::StwBegin => ((Ev::StwBegin, g), RangeStep::Begin),
        Ev::StwEnd => ((Ev::StwBegin, g), RangeStep::End),
        _ => return None,
    })
}

fn resource_of((begin, id): Range) -> Resource {
    match begin {
        Ev::GcBegin => Resource::Trace,
        Ev::GcSweepBegin => Resource::P(id),
        _ => Resource::G(id),
    }
}

/// Reads a trace to its end or break, and says what the recorder did wrong.
pub fn validate<R: Input>(reader: &mut Reader<R>) -> (Findings, Option<Error>) {
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
            Ev::Sync => return self.turn(event, tables),
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
        if let Some((range, step)) = range(event) {
            self.range_moves(event, range, step);
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
    fn turn(&mut self, event: &Event, tables: &Tables) {
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
        self.ranges_told(event);
        if event.args[1] != 0 {
            self.begins(event, tables);
        }
        for m in self.ms.values_mut() {
            m.experiment = false;
            m.time = i64::MIN; // Every generation has its own frequency.
        }
        self.generation += 1;
    }

    /// A generation begins.
    fn begins(&mut self, event: &Event, tables: &Tables) {
        let (number, before) = (event.args[2], std::mem::replace(&mut self.number, event.args[2]));
        if self.generation > 0 && number != before.wrapping_add(1) {
            let detail = format!("{number} follows {before}");
            self.find(Check::Numbers, Resource::Generation(number), event, detail);
        }
        let Some(now) = tables.clock_snapshot() else { return };
        if let Some(before) = self.clocks.replace(now) {
            for (clock, now, before) in [
                ("trace", now.trace_ns.cast_unsigned(), before.trace_ns.cast_unsigned()),
                ("monotonic", now.mono_ns, before.mono_ns),
            ] {
                if now < before {
                    let detail = format!("the {clock} clock does, by {} ns", before - now);
                    self.find(Check::Clocks, Resource::Generation(number), event, detail);
                }
            }
        }
    }

    /// At the end of a generation: every open range was named in it.
    fn ranges_told(&mut self, event: &Event) {
        let mut untold: Vec<Range> =
            self.ranges.iter().filter(|(_, told)| **told != self.generation).map(|(range, _)| *range).collect();
        untold.sort_unstable();
        for range in untold {
            // Go says nothing of a stopped world, which stays stopped over no generation's end for long.
            if range.0 != Ev::StwBegin {
                let detail = format!("{} is not in generation {} of the file", range.0.name(), self.generation);
                self.find(Check::RangeCensus, resource_of(range), event, detail);
            }
        }
    }

    fn range_moves(&mut self, event: &Event, range: Range, step: RangeStep) {
        let open = self.ranges.contains_key(&range);
        let fits = match step {
            RangeStep::Begin => !open,
            // The first generation tells what began before the trace did.
            RangeStep::Active => open || self.generation == 1,
            RangeStep::End => open,
        };
        if !fits {
            let word = if open { "is open" } else { "is not open" };
            self.find(Check::Range, resource_of(range), event, format!("{}: it {word}", event.kind.name()));
        }
        if step == RangeStep::End {
            self.ranges.remove(&range);
        } else {
            self.ranges.insert(range, self.generation);
        }
    }

    fn context(&mut self, event: &Event) {
        let m = self.ms.entry(event.m).or_default();
        let (was, before) = (*m, m.time);
        m.time = before.max(event.file_time);
        m.experiment |= event.kind.spec().experiment != 0;
        let experiment = m.experiment;
        // The P of a callback that is over was taken away in its name just now.
        let p = if event.kind == Ev::GoDestroySyscall { was.p } else { event.p };
        if (was.g, was.p) != (event.g, p) {
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
        if event.file_time < before && !experiment {
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
        if to == State::Running && !status && event.p == NONE {
            self.find(Check::Running, Resource::G(id), event, format!("M {m} has none"));
        }
        if to == State::NotExist {
            self.ranges.remove(&(Ev::GcMarkAssistBegin, id));
            self.ranges.remove(&(Ev::StwBegin, id));
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
        if let Some(thing) = known.filter(|thing| thing.m != NONE && to == State::Idle && !status) {
            self.p_leaves(event, id, thing.m);
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

    /// The M gives the P up, or it is taken from it.
    fn p_leaves(&mut self, event: &Event, id: i64, m: i64) {
        let g = self.ms.get(&m).map_or(NONE, |holder| holder.g);
        if self.gs.get(&g).is_none_or(|thing| thing.state != State::Running) {
            return;
        }
        if event.kind == Ev::ProcSteal {
            self.find(Check::Steal, Resource::P(id), event, format!("M {m} runs G {g}"));
        } else {
            self.find(Check::Running, Resource::G(g), event, format!("M {m} gives P {id} up"));
        }
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

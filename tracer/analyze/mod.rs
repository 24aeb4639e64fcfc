//! What a trace says, in one pass: who waited for what and where, how long the scheduler took, what the world cost.
//!
//! A [`Builder`] takes the events of one trace in order; [`Summary`] is the outcome, and displays as a report.
//! [`summarize`] does both for a file.
//!
//! Memory does not grow with the length of the trace. It is the sum of: about 130 bytes for each goroutine that is alive;
//! the distinct stacks at which goroutines block or call, with their strings, once for the whole trace (a stack that
//! differs in one line is another); histograms of at most 15 KB, a handful for each start function and one for each
//! reason; the tasks and regions that are open, and the ten slowest tasks of each name.
//!
//! How a goroutine's time is split: every ns from its first event to its last is in one of running, runnable, blocked,
//! in a blocking call. What began before the trace counts from the trace's first event; what is open at its end counts
//! to the last. Waits that the runtime's own goroutines do for a living ([`is_duty`]) count for their reason, but are
//! not listed by place or among the longest.
//!
//! Where a trace is broken and goes on ([`Salvage`](crate::read::salvage::Salvage)), an analysis is told of the gap: it
//! closes what is open, and takes what follows as a trace of its own, because nobody knows what happened in between.

#![forbid(unsafe_code)]

mod goroutine;
mod histogram;
mod intern;
pub mod mmu;
mod names;
mod procs;
pub mod profile;
mod report;
mod sched;
mod stack;
mod user;
mod wait;
mod world;

use crate::read::Input;

use crate::read::{Error, Event, Info, Reader, Tables, Transition, Version};
use crate::wire::Ev;
use crate::wire::spec::NUMBERS;

pub use goroutine::{Goroutines, Group, Spent};
pub use histogram::Histogram;
pub use intern::{NameId, StackId, Stacks};
pub use names::Names;
pub use procs::{Proc, Procs};
pub use sched::{Delay, Delays};
pub use stack::{Frame, Stack, is_library};
pub use user::{Log, RegionGroup, Task, TaskGroup, Users};
pub use wait::{BEFORE, Site, StackWaits, Stat, Wait, WaitKind, Waits, is_duty};
pub use world::{Cycle, Ext, World};

use goroutine::{Context, Tracks};
use procs::ProcTracks;
use world::WorldTrack;

/// A generation of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationSummary {
    /// What the file says of it.
    pub info: Info,
    /// How many events it has, CPU samples included.
    pub events: u64,
}

/// What a trace says.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The version of the format.
    pub version: Version,
    /// The whole generations.
    pub generations: Vec<GenerationSummary>,
    /// How many events there are of each number; see [`Summary::count`].
    pub counts: Vec<u64>,
    /// The time of the first event, in ns on the trace's clock.
    pub start: i64,
    /// The time of the last event.
    pub end: i64,
    /// The goroutines: how many, and how their time was spent.
    pub goroutines: Goroutines,
    /// Blocking: by reason, by place, the longest.
    pub waits: Waits,
    /// From being made runnable to running.
    pub latency: Delays,
    /// Blocking calls, by place and stack.
    pub calls: Waits,
    /// What the Ps did.
    pub procs: Procs,
    /// Tasks and regions.
    pub users: Users,
    /// The stacks that the others name.
    pub stacks: Stacks,
    /// Ps and Ms, stops of the world, GC.
    pub world: World,
    /// What gort says beyond Go's format.
    pub ext: Ext,
}

impl Summary {
    /// How many events of this kind there are, those included that stand for a part of another (`GoSwitch`).
    pub fn count(&self, ev: Ev) -> u64 {
        self.counts[ev as usize]
    }

    /// All events, the boundaries between generations not counted.
    pub fn events(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.count(Ev::Sync)
    }

    /// From the first event to the last, in ns.
    pub fn duration(&self) -> u64 {
        elapsed(self.start, self.end)
    }

    /// All blocking calls.
    pub fn syscalls(&self) -> Histogram {
        self.calls.by_reason.first().map(|(_, calls)| calls.clone()).unwrap_or_default()
    }

    /// How the time of all goroutines together was spent.
    pub fn spent(&self) -> Spent {
        let mut all = Spent::default();
        self.goroutines.groups.iter().for_each(|group| all.merge(&group.spent()));
        all
    }

    /// The waits for this reason.
    pub fn waits_for(&self, reason: &str) -> Histogram {
        let of = self.waits.by_reason.iter().find(|(other, _)| &**other == reason);
        of.map(|(_, waits)| waits.clone()).unwrap_or_default()
    }

    /// The bytes of the whole generations.
    pub fn bytes(&self) -> u64 {
        self.generations.iter().map(|generation| generation.info.bytes).sum()
    }
}

/// From one moment to another, in ns; 0 if the file's clock says that it was the other way round.
#[inline]
fn elapsed(from: i64, to: i64) -> u64 {
    to.saturating_sub(from).max(0) as u64
}

/// Takes the events of a trace, one after the other.
#[derive(Debug)]
pub struct Builder {
    version: Version,
    generations: Vec<GenerationSummary>,
    counts: Vec<u64>,
    start: Option<i64>,
    /// Since the last gap, or since `start`: what the trace tells late holds from then on.
    part_start: Option<i64>,
    end: i64,
    stacks: Stacks,
    tracks: Tracks,
    procs: ProcTracks,
    world: World,
    worlds: WorldTrack,
    ext: Ext,
}

impl Builder {
    /// A builder that has seen nothing of a trace of this version.
    pub fn new(version: Version) -> Builder {
        let mut stacks = Stacks::default();
        Builder {
            version,
            generations: Vec::new(),
            counts: vec![0; NUMBERS],
            start: None,
            part_start: None,
            end: 0,
            tracks: Tracks::new(&mut stacks),
            stacks,
            procs: ProcTracks::default(),
            world: World::default(),
            worlds: WorldTrack::default(),
            ext: Ext::default(),
        }
    }

    /// Takes the next event, and what the reader says of its generation.
    pub fn event(&mut self, event: &Event, info: &Info, tables: &Tables) {
        self.counts[event.kind as usize] += 1;
        if event.kind == Ev::Sync {
            return self.turn(info, tables);
        }
        self.start.get_or_insert(event.time);
        let start = *self.part_start.get_or_insert(event.time);
        self.end = event.time;
        if let Some(generation) = self.generations.last_mut() {
            generation.events += 1;
        }
        let Builder { stacks, procs, tracks, .. } = self;
        let mut context = Context { start, stacks, procs, tables };
        match event.transition() {
            Some(Transition::G { id, from, to }) => {
                tracks.moved(event, (id, from, to), &mut context);
                self.procs.event(event, start);
                self.worlds.meet_m(event.m, &mut self.world);
            }
            Some(Transition::P { .. }) => {
                self.procs.event(event, start);
                self.worlds.event(event, start, &mut self.world, &mut self.stacks, tables);
            }
            None => self.other(event, start, tables),
        }
    }

    /// Takes an event that moves neither a G nor a P.
    fn other(&mut self, event: &Event, start: i64, tables: &Tables) {
        let Builder { stacks, procs, tracks, .. } = self;
        procs.event(event, start);
        let mut context = Context { start, stacks, procs, tables };
        match event.kind {
            Ev::GoLabel => {
                let label = context.stacks.string(event.args[0], tables);
                tracks.label(event.g, label);
            }
            Ev::GcMarkAssistBegin => tracks.assist_begins(event.g, event.time),
            Ev::GcMarkAssistActive => tracks.assist_begins(event.args[0] as i64, start),
            Ev::GcMarkAssistEnd => tracks.assist_ends(event.g, event.time),
            Ev::UserRegionBegin => tracks.region_begins(event, &mut context),
            Ev::UserRegionEnd => tracks.region_ends(event, &mut context),
            Ev::UserTaskBegin | Ev::UserTaskEnd | Ev::UserLog => {
                tracks.users.event(event, start, context.stacks, tables);
            }
            _ => {}
        }
        self.worlds.event(event, start, &mut self.world, &mut self.stacks, tables);
    }

    /// Another generation, or the end of the trace.
    #[cold]
    fn turn(&mut self, info: &Info, tables: &Tables) {
        let known = self.generations.last().is_some_and(|generation| generation.info.offset == info.offset);
        if info.bytes != 0 && !known {
            self.generations.push(GenerationSummary { info: *info, events: 0 });
            self.ext.take(tables);
        }
        self.stacks.turn();
    }

    /// The trace is broken behind the last event. What is open is closed there, as at the end of a trace, and what comes
    /// is taken as a trace of its own.
    pub fn gap(&mut self) {
        let (start, end) = (self.part_start.take().unwrap_or(0), self.end);
        self.tracks.gap((start, end), &self.stacks, &mut self.procs);
        self.procs.gap(end);
        self.worlds.close(end, &mut self.world);
    }

    /// Closes what is open, at the time of the last event.
    pub fn finish(mut self) -> Summary {
        let (start, end) = (self.start.unwrap_or(0), self.end);
        let part_start = self.part_start.unwrap_or(start);
        let outcome = self.tracks.finish((part_start, end), &self.stacks, &mut self.procs);
        self.worlds.finish(end, &mut self.world, &self.stacks);
        Summary {
            version: self.version,
            generations: self.generations,
            counts: self.counts,
            start,
            end,
            goroutines: outcome.goroutines,
            waits: outcome.waits,
            latency: outcome.delays,
            calls: outcome.calls,
            procs: self.procs.finish(end),
            users: outcome.users,
            stacks: self.stacks,
            world: self.world,
            ext: self.ext,
        }
    }
}

/// Reads a trace to its end or break. The summary is of what came before the break.
pub fn summarize<R: Input>(reader: &mut Reader<R>) -> (Summary, Option<Error>) {
    let mut builder = Builder::new(reader.version());
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => builder.event(&event, reader.generation(), reader.tables()),
            Err(error) => return (builder.finish(), Some(error)),
        }
    }
    (builder.finish(), None)
}

//! What a trace says, in one pass: who waited for what and where, how long the scheduler took, what the world cost.
//!
//! A [`Builder`] takes the events of one trace in order; [`Summary`] is the outcome, and displays as a report.
//! [`summarize`] does both for a file. Memory: a few words for each live goroutine, and each stack once for as long as
//! somebody waits in it.
//!
//! How a goroutine's time is split: every ns from its first event to its last is in one of running, runnable, blocked,
//! in a blocking call. What began before the trace counts from the trace's first event; what is open at its end counts
//! to the last. Waits that the runtime's own goroutines do for a living ([`is_duty`]) count for their reason, but are
//! not listed by place or among the longest.

mod goroutine;
mod histogram;
mod report;
mod stack;
mod wait;
mod world;

use std::io::Read;
use std::sync::Arc;

use super::error::Error;
use super::event::{Event, Transition};
use super::generation::Info;
use super::reader::Reader;
use super::tables::Tables;
use super::version::Version;
use crate::wire::Ev;
use crate::wire::spec::NUMBERS;

pub use goroutine::{Goroutines, Group};
pub use histogram::Histogram;
pub use stack::{Frame, Stack, is_library};
pub use wait::{Site, Stat, Wait, Waits, is_duty};
pub use world::{Ext, World};

use goroutine::Tracks;
use stack::Taken;
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
    /// From being made runnable to running, for each time that both are in the trace.
    pub latency: Histogram,
    /// Blocking calls.
    pub syscalls: Stat,
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

    /// The bytes of the whole generations.
    pub fn bytes(&self) -> u64 {
        self.generations.iter().map(|generation| generation.info.bytes).sum()
    }
}

/// From one moment to another, in ns; 0 if the file's clock says that it was the other way round.
fn elapsed(from: i64, to: i64) -> u64 {
    to.saturating_sub(from).max(0) as u64
}

/// Takes the events of a trace, one after the other.
#[derive(Debug)]
pub struct Builder {
    summary: Summary,
    began: bool,
    taken: Taken,
    tracks: Tracks,
    world: WorldTrack,
}

impl Builder {
    /// A builder that has seen nothing of a trace of this version.
    pub fn new(version: Version) -> Builder {
        Builder {
            summary: Summary {
                version,
                generations: Vec::new(),
                counts: vec![0; NUMBERS],
                start: 0,
                end: 0,
                goroutines: Goroutines::default(),
                waits: Waits::default(),
                latency: Histogram::default(),
                syscalls: Stat::default(),
                world: World::default(),
                ext: Ext::default(),
            },
            began: false,
            taken: Taken::default(),
            tracks: Tracks::default(),
            world: WorldTrack::default(),
        }
    }

    /// Takes the next event, and what the reader says of its generation.
    pub fn event(&mut self, event: &Event, info: &Info, tables: &Arc<Tables>) {
        let summary = &mut self.summary;
        summary.counts[event.kind as usize] += 1;
        if event.kind == Ev::Sync {
            let known = summary.generations.last().is_some_and(|generation| generation.info.offset == info.offset);
            if info.bytes != 0 && !known {
                summary.generations.push(GenerationSummary { info: *info, events: 0 });
                summary.ext.take(tables);
            }
            self.taken.clear();
            self.tracks.turn();
            return;
        }
        if !self.began {
            self.began = true;
            summary.start = event.time;
        }
        summary.end = event.time;
        if let Some(generation) = summary.generations.last_mut() {
            generation.events += 1;
        }
        self.world.event(event, summary.start, &mut summary.world, &mut self.taken, tables);
        if let Some(Transition::G { id, from, to }) = event.transition() {
            self.tracks.moved(event, (id, from, to), summary, &mut self.taken, tables);
        } else if event.kind == Ev::GoLabel {
            self.tracks.label(event.g, self.taken.string(event.args[0], tables));
        }
    }

    /// Closes what is open, at the time of the last event.
    pub fn finish(mut self) -> Summary {
        let end = self.summary.end;
        self.tracks.finish(end, &mut self.summary);
        self.world.finish(end, &mut self.summary.world);
        self.summary
    }
}

/// Reads a trace to its end or break. The summary is of what came before the break.
pub fn summarize<R: Read>(reader: &mut Reader<R>) -> (Summary, Option<Error>) {
    let mut builder = Builder::new(reader.version());
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => builder.event(&event, reader.generation(), reader.tables()),
            Err(error) => return (builder.finish(), Some(error)),
        }
    }
    (builder.finish(), None)
}

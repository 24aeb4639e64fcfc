//! A generation: its batches sorted by what they hold, its tables complete.
//!
//! Invariants:
//!
//! N1. A generation MUST be whole before one of its events is decoded: the tables stand behind the events.
//! N2. The batches of an M MUST be kept in the order of the file. Otherwise its events would be out of order: times are
//!     no
//!     help, as they may be wrong.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::batch::{self, Batch, Content, Next};
use super::error::{Broken, Error, Resource};
use super::hash::IdMap;
use super::rule::Rule;
use super::source::{Input, Source};
use super::tables::{ClockSnapshot, Entries, Tables, to_ns};
use super::version::Version;
use crate::wire::{Ev, varint};

/// A sample of the CPU profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// In ns, after [`Generation::finish`].
    pub time: i64,
    pub m: i64,
    pub p: i64,
    pub g: i64,
    pub stack: u64,
    pub offset: u64,
}

/// A batch of events in the list of its M's batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventBatch {
    pub time: u64,
    pub start: u32,
    pub end: u32,
    /// The M's next batch; 0 is none, as the first batch is nobody's next.
    pub next: u32,
}

/// The batches of one M.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MBatches {
    pub m: i64,
    pub first: u32,
    pub last: u32,
}

/// What the file says about a generation as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its number, as the file has it.
    pub number: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many batches it has.
    pub batches: usize,
    /// How many Ms wrote events into it.
    pub ms: usize,
    /// How many CPU samples it has.
    pub samples: usize,
}

/// A generation in memory.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    pub info: Info,
    pub batches: Vec<EventBatch>,
    /// In the order in which the Ms appear.
    pub ms: Vec<MBatches>,
    pub samples: Vec<Sample>,
    pub tables: Arc<Tables>,
    /// The earliest base of a batch, in units of the trace clock.
    pub min_time: u64,
}

/// What reading a generation comes to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A generation. Before Go 1.26 the batch after it may be broken; then that comes with it.
    Generation(Generation, Option<Error>),
    /// The end of the file. So many bytes at the end belong to no generation.
    End(u64),
}

struct Loading {
    generation: Generation,
    tables: Tables,
    m_index: IdMap<u32>,
    has_events: bool,
    base: u64,
}

/// How far reading a generation has come, whether that went well or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// The place behind the last batch that is whole, or the byte that ends the generation.
    pub pos: usize,
    /// The generation's number; 0 if no batch has said it.
    pub number: u64,
}

/// Reads the generation that begins at the first byte of the buffer. What is in the buffer before must be consumed.
pub(crate) fn load<R: Input>(
    source: &mut Source<R>,
    version: Version,
    reached: &mut Reached,
) -> Result<Outcome, Error> {
    *reached = Reached::default();
    if version < Version::Go126 {
        load_until_next(source, version, reached)
    } else {
        load_until_end(source, version, reached)
    }
}

fn load_until_end<R: Input>(source: &mut Source<R>, version: Version, reached: &mut Reached) -> Result<Outcome, Error> {
    let mut loading = Loading::new(source.base());
    let mut pos = 0;
    loop {
        let batch = match batch::next(source, pos, version)? {
            Next::Batch(batch) => batch,
            Next::End => {
                pos += 1;
                break;
            }
            Next::Eof if loading.has_events => {
                let number = Resource::Generation(loading.generation.info.number);
                return Err(
                    Broken::new(Rule::GenerationCut, number, source.base() + source.bytes().len() as u64).into()
                );
            }
            Next::Eof => {
                loading.tables.index(source.base())?; // Go would have seen it by now.
                return Ok(Outcome::End(source.bytes().len() as u64));
            }
        };
        if loading.generation.info.number == 0 {
            loading.generation.info.number = batch.generation;
            reached.number = batch.generation;
        }
        let content = batch.content(source.bytes(), version);
        let offset = source.base() + pos as u64;
        if content == Content::End {
            pos = batch.end as usize;
            break;
        }
        loading.check_number(&batch, offset, Rule::GenerationMixed)?;
        pos = batch.end as usize;
        reached.pos = pos;
        loading.add(&batch, content, source.bytes(), version)?;
    }
    reached.pos = pos;
    Ok(Outcome::Generation(loading.finish(pos, version)?, None))
}

/// Before Go 1.26 a generation ends where a batch of the next one begins.
fn load_until_next<R: Input>(
    source: &mut Source<R>,
    version: Version,
    reached: &mut Reached,
) -> Result<Outcome, Error> {
    let mut loading = Loading::new(source.base());
    let mut pos = 0;
    let mut after = None;
    loop {
        let offset = source.base() + pos as u64;
        let batch = match batch::next(source, pos, version) {
            Ok(Next::Batch(batch)) => batch,
            Ok(Next::End) => Err(Broken::new(Rule::GenerationZero, Resource::Trace, offset))?,
            Ok(Next::Eof) if pos == 0 && offset > Version::HEADER_BYTES as u64 => {
                return Ok(Outcome::End(source.bytes().len() as u64));
            }
            Ok(Next::Eof) => break,
            Err(e) if loading.generation.info.number != 0 => {
                after = Some(e);
                break;
            }
            Err(e) => return Err(e),
        };
        let number = loading.generation.info.number;
        if number == 0 {
            loading.generation.info.number = batch.generation;
            reached.number = batch.generation;
        } else if batch.generation == number.wrapping_add(1) && batch.generation != 0 {
            break;
        }
        loading.check_number(&batch, offset, Rule::GenerationOrder)?;
        let content = batch.content(source.bytes(), version);
        if content == Content::End {
            Err(Broken::new(Rule::BatchKind, Resource::Trace, offset))?;
        }
        pos = batch.end as usize;
        reached.pos = pos;
        loading.add(&batch, content, source.bytes(), version)?;
    }
    Ok(Outcome::Generation(loading.finish(pos, version)?, after))
}

impl Loading {
    fn new(base: u64) -> Loading {
        Loading {
            generation: Generation::default(),
            tables: Tables::default(),
            m_index: IdMap::default(),
            has_events: false,
            base,
        }
    }

    fn check_number(&self, batch: &Batch, offset: u64, other: Rule) -> Result<(), Broken> {
        let broken = |rule| Err(Broken::new(rule, Resource::Generation(batch.generation), offset));
        match batch.generation {
            0 => broken(Rule::GenerationZero),
            n if n != self.generation.info.number => broken(other),
            _ => Ok(()),
        }
    }

    fn add(&mut self, batch: &Batch, content: Content, bytes: &[u8], version: Version) -> Result<(), Broken> {
        self.generation.info.batches += 1;
        if self.generation.min_time == 0 || batch.time < self.generation.min_time {
            self.generation.min_time = batch.time;
        }
        let data = &bytes[batch.start as usize..batch.end as usize];
        match content {
            Content::Events => {
                self.add_events(batch);
                Ok(())
            }
            Content::Strings => self.tables.add_strings(data, batch.start, self.base),
            Content::Stacks => self.tables.add_stacks(data, batch.start, self.base),
            Content::Samples => self.add_samples(data, batch.start),
            Content::Sync => self.add_sync(batch, data, version),
            Content::Experiment => {
                self.tables.add_experiment(batch.experiment, batch.m, data);
                Ok(())
            }
            Content::End => Ok(()),
        }
    }

    fn add_events(&mut self, batch: &Batch) {
        self.has_events = true;
        if batch.start == batch.end {
            return;
        }
        let Generation { batches, ms, .. } = &mut self.generation;
        let place = batches.len() as u32;
        batches.push(EventBatch { time: batch.time, start: batch.start, end: batch.end, next: 0 });
        match self.m_index.entry(batch.m) {
            Entry::Vacant(entry) => {
                entry.insert(ms.len() as u32);
                ms.push(MBatches { m: batch.m, first: place, last: place });
            }
            Entry::Occupied(entry) => {
                let last = &mut ms[*entry.get() as usize].last;
                batches[*last as usize].next = place; // N2
                *last = place;
            }
        }
    }

    fn add_samples(&mut self, batch: &[u8], at: u32) -> Result<(), Broken> {
        let mut entries = Entries { batch, pos: 1, at, base: self.base };
        while let Some(entry) = entries.begin(Ev::CpuSample)? {
            let mut numbers = [0; 5];
            for number in &mut numbers {
                *number = entries.number(entry)?;
            }
            let [time, m, p, g, stack] = numbers;
            let g = if g == 0 { -1 } else { g as i64 };
            let offset = self.base + u64::from(entry);
            self.generation.samples.push(Sample { time: time as i64, m: m as i64, p: p as i64, g, stack, offset });
        }
        Ok(())
    }

    fn add_sync(&mut self, batch: &Batch, data: &[u8], version: Version) -> Result<(), Broken> {
        let mut pos = usize::from(version >= Version::Go125);
        let mut time = batch.time;
        while let Some(&byte) = data.get(pos) {
            let offset = self.base + u64::from(batch.start) + pos as u64;
            let broken = |rule| Broken::new(rule, Resource::Generation(batch.generation), offset);
            let mut numbers = [0; 4];
            pos += 1;
            let mut read = |count: usize| {
                for number in &mut numbers[..count] {
                    *number = varint::read(data, &mut pos).ok_or_else(|| broken(Rule::SyncEvent))?;
                }
                Ok(numbers)
            };
            match Ev::from_u8(byte) {
                Some(Ev::Frequency) => {
                    if self.tables.ns_per_unit != 0.0 {
                        return Err(broken(Rule::FrequencyRepeated));
                    }
                    let [units_per_second, ..] = read(1)?;
                    self.tables.set_clock(1.0 / (units_per_second as f64 / 1e9));
                }
                Some(Ev::ClockSnapshot) if version >= Version::Go125 => {
                    if self.tables.snapshot.is_some() {
                        return Err(broken(Rule::SnapshotRepeated));
                    }
                    let [delta, mono_ns, wall_sec, wall_nsec] = read(4)?;
                    time = time.wrapping_add(delta);
                    // Units until `finish` knows the frequency.
                    self.tables.snapshot = Some(ClockSnapshot { trace_ns: time as i64, mono_ns, wall_sec, wall_nsec });
                }
                _ => return Err(broken(Rule::SyncEvent).detail(format!("Event number {byte} stands there."))),
            }
        }
        Ok(())
    }

    fn finish(self, bytes: usize, version: Version) -> Result<Generation, Broken> {
        let Loading { mut generation, mut tables, base, .. } = self;
        generation.info.offset = base;
        generation.info.bytes = bytes as u64;
        generation.info.ms = generation.ms.len();
        generation.info.samples = generation.samples.len();
        let broken = |rule| Broken::new(rule, Resource::Generation(generation.info.number), base);
        if tables.ns_per_unit == 0.0 {
            return Err(broken(Rule::FrequencyMissing));
        }
        if version >= Version::Go125 && tables.snapshot.is_none() {
            return Err(broken(Rule::SnapshotMissing));
        }
        tables.index(base)?;
        tables.check_frames(base)?;
        if let Some(snapshot) = &mut tables.snapshot {
            snapshot.trace_ns = to_ns(snapshot.trace_ns as u64, tables.ns_per_unit);
        }
        for sample in &mut generation.samples {
            sample.time = to_ns(sample.time as u64, tables.ns_per_unit);
        }
        generation.samples.sort_by_key(|sample| sample.time);
        generation.tables = Arc::new(tables);
        Ok(generation)
    }
}

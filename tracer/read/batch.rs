//! Batches: their headers, and what kind of content each has.

use super::error::{Broken, Error, Resource};
use super::rule::Rule;
use super::source::{Input, Source};
use super::version::Version;
use crate::wire::{Ev, MAX_BATCH_BYTES, MAX_BATCH_HEADER_BYTES, varint};

/// A batch's place in the buffer and what its header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub generation: u64,
    /// An M, or -1.
    pub m: i64,
    /// Units of the trace clock.
    pub time: u64,
    pub start: u32,
    pub end: u32,
    /// The number of an experiment, or 0.
    pub experiment: u8,
}

/// What a batch holds. Its first byte says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Events,
    Strings,
    Stacks,
    Samples,
    Sync,
    Experiment,
    /// Not a batch but the byte between generations; Go takes a batch that begins with that byte for it, too.
    End,
}

impl Batch {
    pub fn content(&self, bytes: &[u8], version: Version) -> Content {
        if self.experiment != 0 {
            return Content::Experiment;
        }
        let first = bytes.get(self.start as usize).filter(|_| self.start < self.end);
        match first.and_then(|&byte| Ev::from_u8(byte)) {
            Some(Ev::Strings) => Content::Strings,
            Some(Ev::Stacks) => Content::Stacks,
            Some(Ev::CpuSamples) => Content::Samples,
            Some(Ev::Frequency) if version < Version::Go125 => Content::Sync,
            Some(Ev::Sync) if version >= Version::Go125 => Content::Sync,
            Some(Ev::EndOfGeneration) => Content::End,
            _ => Content::Events,
        }
    }
}

/// What stands at a place where a batch may begin.
#[derive(Debug)]
pub(crate) enum Next {
    Batch(Batch),
    /// The byte between generations.
    End,
    /// The end of the file.
    Eof,
}

enum Header {
    /// The batch, without its end, and its size.
    Whole(Batch, u64),
    Overlong,
    Cut,
}

fn header(bytes: &[u8], mut pos: usize) -> Header {
    let mut experiment = 0;
    if bytes[pos] == Ev::ExperimentalBatch as u8 {
        let Some(&number) = bytes.get(pos + 1) else { return Header::Cut };
        experiment = number;
        pos += 1;
    }
    pos += 1;
    let mut numbers = [0; 4];
    for number in &mut numbers {
        let Some(n) = varint::read(bytes, &mut pos) else {
            return if bytes.len() - pos < varint::MAX_BYTES { Header::Cut } else { Header::Overlong };
        };
        *number = n;
    }
    let [generation, m, time, size] = numbers;
    Header::Whole(Batch { generation, m: m as i64, time, start: pos as u32, end: 0, experiment }, size)
}

/// What a header says at a place where one may be by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glimpse {
    pub generation: u64,
    /// The place behind the batch, which may be beyond the buffer.
    pub end: usize,
}

/// The header at `pos`, if there can be one.
pub(crate) fn glimpse(bytes: &[u8], pos: usize) -> Option<Glimpse> {
    let kind = Ev::from_u8(*bytes.get(pos)?);
    if !matches!(kind, Some(Ev::EventBatch | Ev::ExperimentalBatch)) {
        return None;
    }
    match header(bytes, pos) {
        Header::Whole(batch, size) if batch.generation != 0 && size <= MAX_BATCH_BYTES as u64 => {
            let starts = batch.experiment != 0
                || size == 0
                || bytes.get(batch.start as usize).is_some_and(|&byte| Ev::from_u8(byte).is_some());
            let end = batch.start as usize + size as usize;
            starts.then_some(Glimpse { generation: batch.generation, end })
        }
        _ => None,
    }
}

/// Reads the batch at `pos` into the buffer.
pub(crate) fn next<R: Input>(source: &mut Source<R>, pos: usize, version: Version) -> Result<Next, Error> {
    if !source.fill_to(pos + 1)? {
        return Ok(Next::Eof);
    }
    let offset = source.base() + pos as u64;
    let broken = |rule| Broken::new(rule, Resource::Trace, offset);
    let first = source.bytes()[pos];
    match Ev::from_u8(first) {
        Some(Ev::EndOfGeneration) => return Ok(Next::End),
        Some(Ev::EventBatch) => {}
        Some(Ev::ExperimentalBatch) => {
            if !source.fill_to(pos + 2)? {
                return Ok(Next::Eof); // Go's reader sees a clean end here.
            }
        }
        _ => return Err(broken(Rule::BatchKind).detail(format!("Event number {first} stands there.")).into()),
    }
    let (mut batch, size) = loop {
        match header(source.bytes(), pos) {
            Header::Whole(batch, size) => break (batch, size),
            Header::Overlong => return Err(broken(Rule::BatchHeader).into()),
            // A number may be both cut and overlong; more bytes will tell.
            Header::Cut if source.at_end() => return Err(broken(Rule::BatchCut).into()),
            Header::Cut => {
                source.fill()?;
            }
        }
    };
    debug_assert!(batch.start as usize <= pos + MAX_BATCH_HEADER_BYTES + 1);
    if size > MAX_BATCH_BYTES as u64 {
        return Err(broken(Rule::BatchSize).detail(format!("It has {size}.")).into());
    }
    let end = batch.start as usize + size as usize;
    batch.end = end as u32;
    // What it holds is what its first byte says.
    let starts = size == 0 || source.fill_to(batch.start as usize + 1)?;
    let is_whole = if starts && batch.content(source.bytes(), version) == Content::Events {
        source.pass_to(end)?
    } else {
        source.fill_to(end)?
    };
    if !is_whole {
        let has = source.bytes().len() - batch.start as usize;
        return Err(broken(Rule::BatchCut).detail(format!("It has {has} of {size} bytes.")).into());
    }
    Ok(Next::Batch(batch))
}

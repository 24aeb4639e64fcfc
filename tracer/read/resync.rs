//! Finding the next generation in a damaged file.
//!
//! Behind the damage the bytes tell nothing of where a batch begins. One is believed to begin where a header can be read,
//! and an event after it, and where its size leads to another one of the same generation or the next, and that to a third,
//! and so on, or to the end of the file. In the bytes of events each of these steps happens by chance once in some
//! thousand places.
//!
//! Invariants:
//!
//! Y1. Each byte MUST be looked at a bounded number of times, whatever the file says. Otherwise a file made for harm takes
//!     a time that grows with its square: so what is believed is passed over as a whole, and never looked at again.
//! Y2. What is in memory MUST be no more than a few batches.

use super::batch::{self, Glimpse};
use super::error::Error;
use super::source::{Input, Source};
use super::version::Version;
use crate::wire::{Ev, MAX_BATCH_BYTES, MAX_BATCH_HEADER_BYTES};

/// So many headers in a row are no chance.
const CHAIN: usize = 5;

/// The bytes that a chain takes at most.
const CHAIN_BYTES: usize = CHAIN * (MAX_BATCH_BYTES + MAX_BATCH_HEADER_BYTES + 2);

/// How many bytes are passed over before they are dropped.
const STEP: usize = 256 << 10;

/// Moves the beginning of the source to where a generation after `last` seems to begin that is not `damaged`. `false`, and the
/// source is at its end, if there is none.
pub(crate) fn find<R: Input>(source: &mut Source<R>, version: Version, last: u64, damaged: u64) -> Result<bool, Error> {
    let mut pos = 0;
    loop {
        if pos >= STEP {
            source.consume(pos); // Y2
            pos = 0;
        }
        source.fill_to(pos + CHAIN_BYTES)?;
        let bytes = source.bytes();
        let len = bytes.len();
        if pos >= len {
            source.consume(len);
            return Ok(false);
        }
        match believe(bytes, pos, version) {
            Some(found) if found.generation > last && found.generation != damaged => {
                source.consume(pos);
                return Ok(true);
            }
            Some(found) => pos = found.end, // Y1: the rest of what is damaged, or what was there before.
            None => pos += 1,
        }
    }
}

/// Whether the source seems to begin with a batch.
pub(crate) fn begins<R: Input>(source: &mut Source<R>, version: Version) -> Result<bool, Error> {
    source.fill_to(CHAIN_BYTES)?;
    Ok(believe(source.bytes(), 0, version).is_some())
}

/// The batch at `pos`, if there seems to be one. The bytes go far enough, or to the end of the file.
fn believe(bytes: &[u8], pos: usize, version: Version) -> Option<Glimpse> {
    let first = batch::glimpse(bytes, pos)?;
    let mut last = first;
    for _ in 1..CHAIN {
        let mut next = last.end;
        if version >= Version::Go126 && bytes.get(next) == Some(&(Ev::EndOfGeneration as u8)) {
            next += 1;
        }
        if next == bytes.len() {
            return Some(first);
        }
        let follows = batch::glimpse(bytes, next)?; // Also `None` beyond the file's end.
        if follows.generation != last.generation && follows.generation != last.generation.wrapping_add(1) {
            return None;
        }
        last = follows;
    }
    (last.end <= bytes.len()).then_some(first)
}

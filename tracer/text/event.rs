//! An event as both forms have it.

use crate::read::Version;
use crate::wire::{Ev, varint};

/// The names of a frame's numbers.
pub(super) const FRAME: [&str; 4] = ["pc", "func", "file", "line"];

/// An event as it stands in the file: framing, tables and what happened alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// Which.
    pub kind: Ev,
    /// Its arguments, and then four numbers for each frame of a stack.
    pub args: Vec<u64>,
    /// The bytes of a string or of a batch of an experiment.
    pub data: Vec<u8>,
    /// How many bytes each number takes in the trace, that of the data's length last; empty if each takes as few as it
    /// can.
    pub widths: Vec<u8>,
}

impl RawEvent {
    pub(super) fn empty() -> RawEvent {
        RawEvent { kind: Ev::EventBatch, args: Vec::new(), data: Vec::new(), widths: Vec::new() }
    }

    /// How many numbers it has in the trace.
    pub(super) fn numbers(&self) -> usize {
        self.args.len() + usize::from(self.kind.spec().data)
    }

    /// The arguments are as many as its kind has.
    pub(super) fn is_whole(&self) -> bool {
        let spec = self.kind.spec();
        let frames = if spec.frames { self.args.get(1).copied().unwrap_or(0) } else { 0 };
        self.args
            .len()
            .checked_sub(spec.args.len())
            .is_some_and(|rest| rest.is_multiple_of(4) && rest as u64 / 4 == frames)
            && (spec.data || self.data.is_empty())
    }

    /// Appends it as a trace has it. A width that the number does not fit counts for nothing.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        let len = self.kind.spec().data.then_some(self.data.len() as u64);
        for (i, number) in self.args.iter().copied().chain(len).enumerate() {
            put(out, number, self.widths.get(i).copied().unwrap_or(0));
        }
        out.extend_from_slice(&self.data);
    }
}

/// This event exists in this version.
pub(super) fn knows(version: Version, kind: Ev) -> bool {
    u32::from(kind.spec().since) <= version.minor()
}

/// Appends a number that takes `width` bytes, if it fits.
fn put(out: &mut Vec<u8>, number: u64, width: u8) {
    let width = usize::from(width).min(varint::MAX_BYTES);
    let len = varint::len(number);
    if width <= len {
        return varint::put(out, number);
    }
    let mut rest = number;
    for _ in 1..width {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

//! What a generation's ids stand for: its strings, its stacks, its clock.
//!
//! The tables own their bytes, so they may outlive the generation's batches: keep the `Arc` that
//! [`Reader::tables`](super::Reader::tables) gives.
//!
//! A PC stands for one frame in the whole generation: where a file has two for it, the first one is taken, as Go does.

use std::borrow::Cow;

use super::alloc_free::ExperimentBatch;
use super::error::{Broken, Resource};
use super::hash::IdMap;
use super::idtable::IdTable;
use super::rule::Rule;
use crate::wire::{Ev, MAX_FRAMES, MAX_STRING_BYTES, ext, varint};

/// What a trace clock, a monotonic clock and the wall clock said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSnapshot {
    /// The trace clock, in ns: the clock of [`Event::time`](super::Event::time).
    pub trace_ns: i64,
    /// The system's monotonic clock, in ns.
    pub mono_ns: u64,
    /// Seconds since 1970.
    pub wall_sec: u64,
    /// Nanoseconds of the second.
    pub wall_nsec: u64,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The program counter; where inlined calls share one, it says which of them.
    pub pc: u64,
    /// The function.
    pub func: Cow<'a, str>,
    /// The source file.
    pub file: Cow<'a, str>,
    /// The line in it.
    pub line: u64,
}

/// An extension record, its time in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtRecord {
    /// On the clock of [`Event::time`](super::Event::time).
    pub time: i64,
    /// What happened; `None` for a type that this version does not know.
    pub record: Option<ext::Record>,
}

#[derive(Clone, Copy, Debug)]
struct Text {
    start: u32,
    len: u16,
    /// Where the entry begins, in the generation.
    at: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pc {
    pc: u64,
    func: u64,
    file: u64,
    line: u64,
}

#[derive(Clone, Copy, Debug)]
struct StackEntry {
    start: u32,
    len: u8,
    at: u32,
}

/// The strings, the stacks and the clock of one generation.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    text: Vec<u8>,
    strings: IdTable<Text>,
    /// The strings that are entries of extension records.
    ext: Vec<Text>,
    /// Indexes in `pcs`, of all stacks.
    frames: Vec<u32>,
    stacks: IdTable<StackEntry>,
    pcs: Vec<Pc>,
    pc_index: IdMap<u32>,
    pub(crate) ns_per_unit: f64,
    /// The same, if it is a whole number and not too large; otherwise 0.
    whole_ns_per_unit: u64,
    pub(crate) snapshot: Option<ClockSnapshot>,
    experiments: Vec<ExperimentBatch>,
}

/// Units of the trace clock to nanoseconds, to the bit as Go computes it on amd64.
pub(crate) fn to_ns(units: u64, ns_per_unit: f64) -> i64 {
    let ns = units as f64 * ns_per_unit;
    // 2^63: what does not fit is the least number there.
    if ns < 9_223_372_036_854_775_808.0 { ns as i64 } else { i64::MIN }
}

/// Times below this are whole numbers of a `f64` after multiplication with a [`Tables::whole_ns_per_unit`], which is less
/// than the other of these.
const UNITS_MAX: u64 = 1 << 41;
const NS_PER_UNIT_MAX: f64 = 4096.0;

impl Tables {
    /// How the clock counts.
    pub(crate) fn set_clock(&mut self, ns_per_unit: f64) {
        self.ns_per_unit = ns_per_unit;
        let whole = ns_per_unit.fract() == 0.0 && (1.0..=NS_PER_UNIT_MAX).contains(&ns_per_unit);
        self.whole_ns_per_unit = if whole { ns_per_unit as u64 } else { 0 };
    }

    /// A time of the trace clock in nanoseconds: [`to_ns`], for small times without a detour.
    #[inline]
    pub(crate) fn ns(&self, units: u64) -> i64 {
        if units < UNITS_MAX && self.whole_ns_per_unit != 0 {
            (units * self.whole_ns_per_unit) as i64
        } else {
            to_ns(units, self.ns_per_unit)
        }
    }

    /// The string with this id, its invalid UTF-8 replaced. Id 0 is the empty string.
    pub fn string(&self, id: u64) -> Option<Cow<'_, str>> {
        self.string_bytes(id).map(String::from_utf8_lossy)
    }

    /// The bytes of the string with this id.
    #[inline]
    pub fn string_bytes(&self, id: u64) -> Option<&[u8]> {
        if id == 0 {
            return Some(&[]);
        }
        self.strings.get(id).map(|text| self.bytes_of(text))
    }

    fn bytes_of(&self, text: &Text) -> &[u8] {
        &self.text[text.start as usize..][..usize::from(text.len)]
    }

    /// The table has a stack with this id. Id 0 is the empty stack.
    #[inline]
    pub fn has_stack(&self, id: u64) -> bool {
        id == 0 || self.stacks.has(id)
    }

    /// The table has a string with this id. Id 0 is the empty string.
    #[inline]
    pub fn has_string(&self, id: u64) -> bool {
        id == 0 || self.strings.has(id)
    }

    /// The frames of the stack with this id, innermost first; none if there is no such stack.
    pub fn stack(&self, id: u64) -> impl ExactSizeIterator<Item = Frame<'_>> + DoubleEndedIterator {
        self.pcs_of(id).map(|pc| {
            let text = |id| self.string(id).unwrap_or_default();
            Frame { pc: pc.pc, func: text(pc.func), file: text(pc.file), line: pc.line }
        })
    }

    /// The same without looking the strings up: function, file, line.
    pub fn stack_ids(&self, id: u64) -> impl ExactSizeIterator<Item = (u64, u64, u64)> + DoubleEndedIterator {
        self.pcs_of(id).map(|pc| (pc.func, pc.file, pc.line))
    }

    /// The same with the program counter: PC, function, file, line.
    pub fn stack_numbers(&self, id: u64) -> impl ExactSizeIterator<Item = (u64, u64, u64, u64)> + DoubleEndedIterator {
        self.pcs_of(id).map(|pc| (pc.pc, pc.func, pc.file, pc.line))
    }

    fn pcs_of(&self, id: u64) -> impl ExactSizeIterator<Item = &Pc> + DoubleEndedIterator {
        let frames = match self.stacks.get(id) {
            Some(entry) => &self.frames[entry.start as usize..][..usize::from(entry.len)],
            None => &[],
        };
        frames.iter().map(|&i| &self.pcs[i as usize])
    }

    /// How many strings and how many stacks there are.
    pub fn sizes(&self) -> (usize, usize) {
        (self.strings.len(), self.stacks.len())
    }

    /// What the clocks said, once in this generation (since Go 1.25).
    pub fn clock_snapshot(&self) -> Option<ClockSnapshot> {
        self.snapshot
    }

    /// The batches of experiments, as they stand in the file; [`AllocFree`](super::alloc_free::AllocFree) understands those
    /// of one.
    pub fn experiment_batches(&self) -> &[ExperimentBatch] {
        &self.experiments
    }

    pub(crate) fn add_experiment(&mut self, experiment: u8, m: i64, data: &[u8]) {
        self.experiments.push(ExperimentBatch { experiment, m, data: data.to_vec() });
    }

    /// The extension records, in the order of their entries; a broken entry ends with `Err`.
    pub fn ext_records(&self) -> impl Iterator<Item = Result<ExtRecord, ext::Malformed>> {
        self.ext
            .iter()
            .filter_map(|text| ext::records(self.bytes_of(text)))
            .flatten()
            .map(|stamped| stamped.map(|s| ExtRecord { time: to_ns(s.time, self.ns_per_unit), record: s.record }))
    }

    /// Adds the strings of a batch that begins at `at` in the generation, and in the file at `at` + `base`.
    pub(crate) fn add_strings(&mut self, batch: &[u8], at: u32, base: u64) -> Result<(), Broken> {
        let mut entries = Entries { batch, pos: 1, at, base };
        while let Some(entry) = entries.begin(Ev::String)? {
            let id = entries.number(entry)?;
            let len = entries.number(entry)?;
            let broken = |rule| Broken::new(rule, Resource::String(id), base + u64::from(entry));
            if len > MAX_STRING_BYTES as u64 {
                return Err(broken(Rule::StringSize).detail(format!("It has {len}.")));
            }
            let len = len as usize; // At most 1,024.
            let bytes = batch.get(entries.pos..entries.pos + len).ok_or_else(|| broken(Rule::TableEntry))?;
            entries.pos += len;
            if id == 0 {
                return Err(broken(Rule::StringRepeated));
            }
            let text = Text { start: self.text.len() as u32, len: len as u16, at: entry };
            self.text.extend_from_slice(bytes);
            self.strings.push(id, text);
            if bytes.starts_with(&ext::MAGIC) {
                self.ext.push(text);
            }
        }
        Ok(())
    }

    /// Adds the stacks of a batch that begins at `at` in the generation, and in the file at `at` + `base`.
    pub(crate) fn add_stacks(&mut self, batch: &[u8], at: u32, base: u64) -> Result<(), Broken> {
        let mut entries = Entries { batch, pos: 1, at, base };
        while let Some(entry) = entries.begin(Ev::Stack)? {
            let id = entries.number(entry)?;
            let len = entries.number(entry)?;
            let broken = |rule| Broken::new(rule, Resource::Stack(id), base + u64::from(entry));
            if len > MAX_FRAMES as u64 {
                return Err(broken(Rule::StackSize).detail(format!("It has {len}.")));
            }
            let start = self.frames.len() as u32;
            for _ in 0..len {
                let pc = entries.number(entry)?;
                let (func, file, line) = (entries.number(entry)?, entries.number(entry)?, entries.number(entry)?);
                let next = self.pcs.len() as u32;
                let index = *self.pc_index.entry(pc as i64).or_insert(next);
                if index == next {
                    self.pcs.push(Pc { pc, func, file, line });
                }
                self.frames.push(index);
            }
            if id == 0 {
                return Err(broken(Rule::StackRepeated));
            }
            self.stacks.push(id, StackEntry { start, len: len as u8, at: entry });
        }
        Ok(())
    }

    /// Makes the tables ready for look-ups, and checks that no id stands twice.
    pub(crate) fn index(&mut self, base: u64) -> Result<(), Broken> {
        self.pc_index = IdMap::default();
        self.strings
            .finish()
            .map_err(|(id, text)| Broken::new(Rule::StringRepeated, Resource::String(id), base + u64::from(text.at)))?;
        self.stacks
            .finish()
            .map_err(|(id, entry)| Broken::new(Rule::StackRepeated, Resource::Stack(id), base + u64::from(entry.at)))
    }

    /// Checks that the strings of all frames are there. Comes after [`Tables::index`].
    pub(crate) fn check_frames(&self, base: u64) -> Result<(), Broken> {
        let missing = |id: u64| self.string_bytes(id).is_none();
        if self.pcs.iter().all(|pc| !missing(pc.func) && !missing(pc.file)) {
            return Ok(());
        }
        for (id, entry) in self.stacks.iter() {
            for &i in &self.frames[entry.start as usize..][..usize::from(entry.len)] {
                let pc = &self.pcs[i as usize];
                if let Some(string) = [pc.func, pc.file].into_iter().find(|&id| missing(id)) {
                    let detail = format!("Stack {id} names it.");
                    let at = base + u64::from(entry.at);
                    return Err(Broken::new(Rule::FrameString, Resource::String(string), at).detail(detail));
                }
            }
        }
        Ok(())
    }
}

/// Walks the entries of a batch of a table. Its first byte says which table, and has been read.
pub(crate) struct Entries<'a> {
    pub batch: &'a [u8],
    pub pos: usize,
    /// Where the batch begins in the generation.
    pub at: u32,
    /// Where the generation begins in the file.
    pub base: u64,
}

impl Entries<'_> {
    /// The next entry's place in the generation, if there is one and it is of this kind.
    pub fn begin(&mut self, kind: Ev) -> Result<Option<u32>, Broken> {
        let Some(&byte) = self.batch.get(self.pos) else { return Ok(None) };
        let at = self.at + self.pos as u32;
        if byte != kind as u8 {
            let broken = Broken::new(Rule::TableEvent, Resource::Trace, self.base + u64::from(at));
            return Err(broken.detail(format!("{} was expected, and event number {byte} found.", kind.name())));
        }
        self.pos += 1;
        Ok(Some(at))
    }

    /// The next number of the entry that begins at `entry`.
    pub fn number(&mut self, entry: u32) -> Result<u64, Broken> {
        varint::read(self.batch, &mut self.pos)
            .ok_or_else(|| Broken::new(Rule::TableEntry, Resource::Trace, self.base + u64::from(entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_times_are_the_same() {
        for ns_per_unit in [1.0, 2.0, 64.0, 4096.0, 0.5, 1.5, 5000.0, 1.0 / 3.0, f64::INFINITY] {
            let mut tables = Tables::default();
            tables.set_clock(ns_per_unit);
            for units in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
                assert_eq!(tables.ns(units), to_ns(units, ns_per_unit), "{units} times {ns_per_unit}");
            }
        }
    }

    #[test]
    fn times_are_gos() {
        assert_eq!(to_ns(0, 1.0), 0);
        assert_eq!(to_ns(1000, 1.0 / (2e9 / 1e9)), 500);
        assert_eq!(to_ns(u64::MAX, 1.0), i64::MIN);
        assert_eq!(to_ns(1, f64::INFINITY), i64::MIN);
        assert_eq!(to_ns(0, f64::INFINITY), i64::MIN);
    }
}

//! Reading on behind what is broken: every generation of a truncated, corrupted or crashed file that is whole.
//!
//! A [`Reader`] ends where a trace breaks. [`Salvage`] looks for the next generation behind that and goes on there, and keeps
//! a [`Report`] of what was kept, where the first bad byte is, and which rule it broke.
//!
//! ```no_run
//! # fn main() -> Result<(), tracer::read::Error> {
//! use tracer::read::salvage::{Salvage, Salvaged};
//!
//! let mut salvage = Salvage::new(std::fs::File::open("trace.out")?)?;
//! while let Some(next) = salvage.next() {
//!     match next {
//!         Salvaged::Event(event) => println!("{} {}", event.time, event.kind.name()),
//!         Salvaged::Gap => println!("--- broken {} times so far", salvage.report().damages),
//!     }
//! }
//! eprint!("{}", salvage.report());
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//!
//! V1. The events up to the first damage MUST be those that [`Reader`] gives: also those of the broken generation up to the
//!     break, as they have been told before anybody can know. The report counts them apart.
//! V2. Behind a gap nothing is known of what was before. Every generation tells the status of everything in it, so the
//!     events after a gap MUST make sense alone: they are those of a trace that begins there. Only time goes on. (A
//!     generation that is whole but does not follow from those before, as one in between is lost, begins again: its first
//!     events may have been told before the gap.)
//! V3. Wrong use of tasks and regions is the traced program's, not the file's: it MUST be a warning here. ([`Reader`] refuses
//!     it where Go's does.)

use super::source::Input;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::error::{Broken, Error};
use super::event::Event;
use super::generation::Info;
use super::reader::Reader;
use super::tables::Tables;
use super::version::Version;
use crate::wire::Ev;

/// How many damages, and how many warnings, a report describes. All are counted.
pub const DESCRIBED_MAX: usize = 64;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salvaged {
    /// An event.
    Event(Event),
    /// The trace is broken here, as the last damage of the report says, unless there are more than [`DESCRIBED_MAX`]. What
    /// follows, if anything, is a trace of its own.
    Gap,
}

/// A place where the trace is broken.
#[derive(Debug)]
pub struct Damage {
    /// The rule and the byte, or why the source failed.
    pub error: Error,
    /// So many events of the broken generation were told before.
    pub events_before: u64,
    /// The bytes that were looked through for the next generation; up to the end if there was none.
    pub searched: Range<u64>,
    /// Whether the trace goes on behind it.
    pub goes_on: bool,
}

/// What became of a trace.
#[derive(Debug, Default)]
pub struct Report {
    /// Generations that are whole.
    pub generations: u64,
    /// The numbers of the first and the last of them.
    pub numbers: Option<(u64, u64)>,
    /// Their bytes.
    pub bytes: u64,
    /// Their events.
    pub events: u64,
    /// Events of generations that are not whole.
    pub events_of_broken: u64,
    /// Bytes of the whole file, as far as it was read.
    pub file_bytes: u64,
    /// Bytes at the end of the file that belong to a generation without events. Go's tools pass over them.
    pub unfinished_bytes: u64,
    /// Places where the trace is broken.
    pub damages: u64,
    /// The first of them.
    pub damage: Vec<Damage>,
    /// Wrong uses of tasks and regions.
    pub warnings: u64,
    /// The first of them.
    pub warned: Vec<Broken>,
}

impl Report {
    /// Nothing is broken. There may be warnings.
    pub fn is_whole(&self) -> bool {
        self.damages == 0
    }

    /// The first bad byte, and what is wrong there.
    pub fn first_bad(&self) -> Option<&Broken> {
        self.damage.first().and_then(|damage| damage.error.broken())
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.searched;
        write!(f, "{}", self.error)?;
        match (self.goes_on, end - start) {
            (true, 0) => write!(f, " The next generation begins at byte {end}."),
            (true, lost) => write!(f, " {lost} bytes on, at byte {end}, the next generation begins."),
            (false, 0) => f.write_str(" Nothing follows."),
            (false, lost) => write!(f, " In the {lost} bytes after byte {start} no whole generation follows."),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = match (self.generations, self.numbers) {
            (1, Some((only, _))) => format!("generation {only} is"),
            (n, Some((first, last))) if n > 1 => format!("{n} generations, of {first} to {last}, are"),
            _ => "no generation is".to_owned(),
        };
        let Report { events, bytes, file_bytes, .. } = self;
        writeln!(f, "{kept} whole: {events} events in {bytes} of {file_bytes} bytes")?;
        if self.events_of_broken > 0 {
            writeln!(f, "{} more events are of generations that break", self.events_of_broken)?;
        }
        for damage in &self.damage {
            writeln!(f, "broken: {damage}")?;
        }
        if self.damages > self.damage.len() as u64 {
            writeln!(f, "broken: {} more times", self.damages - self.damage.len() as u64)?;
        }
        if self.unfinished_bytes > 0 {
            writeln!(f, "the last {} bytes belong to a generation without events", self.unfinished_bytes)?;
        }
        for warning in &self.warned {
            writeln!(f, "warning: {warning}")?;
        }
        if self.warnings > self.warned.len() as u64 {
            writeln!(f, "warning: {} more of these", self.warnings - self.warned.len() as u64)?;
        }
        Ok(())
    }
}

/// Reads what can be read of a trace.
#[derive(Debug)]
pub struct Salvage<R> {
    reader: Reader<R>,
    report: Report,
    /// The generation at hand, and its events so far.
    current: Option<(Info, u64)>,
    /// What is wrong with the header, until that has been told.
    header: Option<Broken>,
    ended: bool,
}

impl<R: Input> Salvage<R> {
    /// Fails if the file does not begin as a trace of a known version does, and no batches follow on what stands there instead.
    pub fn new(from: R) -> Result<Salvage<R>, Error> {
        let (mut reader, header) = Reader::new_without_header(from)?;
        reader.tolerate_annotations(); // V3
        Ok(Salvage { reader, report: Report::default(), current: None, header, ended: false })
    }

    /// The version of the trace.
    pub fn version(&self) -> Version {
        self.reader.version()
    }

    /// The generation of the last event.
    pub fn generation(&self) -> &Info {
        self.reader.generation()
    }

    /// What the ids of the last event stand for.
    pub fn tables(&self) -> &Arc<Tables> {
        self.reader.tables()
    }

    /// What has become of the trace so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Reads to the end for the report alone.
    pub fn finish(mut self) -> Report {
        while self.next().is_some() {}
        self.report
    }

    /// Gives everything up to the end to `each`, with what the reader says of its generation: events in their place, which
    /// costs less than a copy of each, and nothing for a gap behind which the trace goes on. Ends early with an error of `each`.
    pub fn each<E>(
        &mut self,
        mut each: impl FnMut(Option<&Event>, &Info, &Arc<Tables>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.tell_header() {
            each(None, self.reader.generation(), self.reader.tables())?;
        }
        while !self.ended {
            match self.reader.advance() {
                Ok(true) if self.reader.event().kind != Ev::Sync => {
                    if let Some((_, events)) = &mut self.current {
                        *events += 1;
                    }
                    each(Some(self.reader.event()), self.reader.generation(), self.reader.tables())?;
                }
                Ok(true) => {
                    if let Some(sync) = self.event(*self.reader.event()) {
                        each(Some(&sync), self.reader.generation(), self.reader.tables())?;
                    }
                }
                Err(error) => {
                    self.damage(error);
                    if !self.ended {
                        each(None, self.reader.generation(), self.reader.tables())?;
                    }
                }
                Ok(false) => self.end(),
            }
        }
        self.report.file_bytes = self.reader.bytes_read();
        Ok(())
    }

    fn event(&mut self, event: Event) -> Option<Event> {
        if event.kind == Ev::Sync {
            self.warn();
            self.close();
            if event.args[1] != 0 {
                self.current = Some((*self.reader.generation(), 1));
            } else if !self.reader.is_done() {
                return None; // Go's last event of a trace; but an error follows, and more may follow that.
            } else {
                self.report.events += 1;
            }
        } else if let Some((_, events)) = &mut self.current {
            *events += 1;
        }
        Some(event)
    }

    /// The generation at hand was whole.
    fn close(&mut self) {
        let Some((info, events)) = self.current.take() else { return };
        let report = &mut self.report;
        report.generations += 1;
        report.bytes += info.bytes;
        report.events += events;
        let first = report.numbers.map_or(info.number, |numbers| numbers.0);
        report.numbers = Some((first, info.number));
    }

    fn warn(&mut self) {
        let (count, warnings) = self.reader.take_tolerated();
        self.report.warnings += count;
        let room = DESCRIBED_MAX - self.report.warned.len();
        self.report.warned.extend(warnings.into_iter().take(room));
    }

    fn damage(&mut self, error: Error) {
        self.warn();
        let at = self.reader.bytes_read();
        let (mut searched, mut goes_on, mut error) = (at..at, false, error);
        if matches!(error, Error::Broken(_)) {
            let last = self.report.numbers.map_or(0, |numbers| numbers.1);
            match self.reader.resume(last) {
                Ok((bytes, found)) => (searched, goes_on) = (bytes, found),
                Err(failed) => error = failed,
            }
        }
        let events_before = self.current.take().map_or(0, |(_, events)| events);
        self.report.events_of_broken += events_before;
        self.report.damages += 1;
        self.ended = !goes_on;
        if self.report.damage.len() < DESCRIBED_MAX {
            self.report.damage.push(Damage { error, events_before, searched, goes_on });
        }
    }

    /// Reports what is wrong with the header, if anything is and that has not been done.
    fn tell_header(&mut self) -> bool {
        let Some(broken) = self.header.take() else { return false };
        self.report.damages += 1;
        let searched = 0..Version::HEADER_BYTES as u64;
        self.report.damage.push(Damage { error: broken.into(), events_before: 0, searched, goes_on: true });
        true
    }

    fn end(&mut self) {
        self.ended = true;
        self.report.unfinished_bytes = self.reader.unfinished_bytes();
    }
}

impl<R: Input> Iterator for Salvage<R> {
    type Item = Salvaged;

    fn next(&mut self) -> Option<Salvaged> {
        if self.tell_header() {
            return Some(Salvaged::Gap);
        }
        loop {
            if self.ended {
                self.report.file_bytes = self.reader.bytes_read();
                return None;
            }
            match self.reader.next() {
                Some(Ok(event)) => {
                    if let Some(event) = self.event(event) {
                        return Some(Salvaged::Event(event));
                    }
                }
                Some(Err(error)) => {
                    self.damage(error);
                    return Some(Salvaged::Gap);
                }
                None => self.end(),
            }
        }
    }
}

//! What is done with every input of a fuzzer, and what must hold then, whatever the input is.
//!
//! `cargo +nightly fuzz run reader` (or `text`, `analyses`) grows inputs for these; `tracer/tests/fuzz.rs` runs them on
//! stable, over inputs that it makes from the tests' own traces. An input that shows an error goes into `regressions/`.

use std::io::Read;

use tracer::analyze::profile::ProfileKind;
use tracer::analyze::{self, mmu, profile};
use tracer::read::alloc_free::AllocFree;
use tracer::read::print::Printer;
use tracer::read::salvage::{Salvage, Salvaged};
use tracer::read::{Error, Event, Input, NONE, Reader, Rule, validate};
use tracer::text::{self, Widths};
use tracer::wire::Ev;

/// What a reader says of an input.
fn read(from: impl Input) -> (Vec<Event>, Option<Error>) {
    let mut reader = match Reader::new(from) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    loop {
        match reader.advance() {
            Ok(true) => events.push(*reader.event()),
            Ok(false) => break,
            Err(error) => return (events, Some(error)),
        }
    }
    assert!(reader.next().is_none(), "nothing follows the end");
    (events, None)
}

/// Gives a few bytes at a time.
struct Drip<'a>(&'a [u8], usize);

impl Read for Drip<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 % 7 + 1;
        let n = self.0.len().min(self.1).min(buf.len());
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// Can be read at any place, a few bytes at a time, as a file can.
#[derive(Clone, Copy)]
struct Anywhere<'a>(&'a [u8]);

impl Input for Anywhere<'_> {
    fn read_next(&mut self, _buf: &mut [u8]) -> std::io::Result<usize> {
        panic!("it can be read at any place")
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len()).min(offset as usize % 4000 + 1);
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// The reader, salvage and the second opinion.
pub fn reader(data: &[u8]) {
    let (events, error) = read(data);
    // The same in any pieces, and so the same each time; and in any order.
    for (others, other) in [read(Drip(data, 0)), read(Anywhere(data))] {
        assert_eq!(events, others);
        assert_eq!(error.as_ref().map(Error::to_string), other.as_ref().map(Error::to_string));
    }
    for pair in events.windows(2) {
        // The end of time is the end of order.
        assert!(pair[0].time < pair[1].time || pair[0].time == i64::MAX, "{pair:?}");
    }
    for event in &events {
        assert!(event.offset <= data.len() as u64, "{event:?}");
    }
    if let Some(broken) = error.as_ref().and_then(Error::broken) {
        assert!(broken.offset <= data.len() as u64, "{broken}");
        assert!(broken.to_string().contains(broken.rule.name()));
    }
    let report = salvaged(data, data.len(), &events, error.as_ref());
    assert_eq!(report, salvaged(Anywhere(data), data.len(), &events, error.as_ref()));
    if let Ok(mut reader) = Reader::new(data) {
        let (findings, _) = validate::validate(&mut reader);
        assert!(findings.total >= findings.first.len() as u64);
        findings.first.iter().for_each(|finding| assert!(!finding.to_string().is_empty()));
    }
}

/// Salvage tells what the reader does, and then goes on. Answers its report.
fn salvaged(data: impl Input, len: usize, events: &[Event], error: Option<&Error>) -> String {
    let Ok(mut salvage) = Salvage::new(data) else {
        assert!(error.is_some() && events.is_empty());
        return String::new();
    };
    let (mut told, mut gaps) = (Vec::new(), 0u64);
    for next in &mut salvage {
        match next {
            Salvaged::Event(event) => told.push(event),
            Salvaged::Gap => gaps += 1,
        }
    }
    let report = salvage.finish();
    assert_eq!(report.damages, gaps);
    assert_eq!(report.events + report.events_of_broken, told.len() as u64);
    assert!(report.bytes <= report.file_bytes && report.file_bytes <= len as u64);
    assert!(!report.to_string().is_empty());
    let tolerated = [Rule::TaskConflict, Rule::RegionNesting];
    if matches!(error, Some(Error::NotATrace | Error::Version(_))) {
        assert!(events.is_empty() && gaps > 0, "{report}");
        assert_eq!(report.first_bad().map(|bad| bad.rule), Some(Rule::Header));
        return report.to_string();
    }
    match error.and_then(Error::broken) {
        None => assert!(told == events && gaps == 0, "{report}"),
        Some(broken) if tolerated.contains(&broken.rule) => assert!(report.warnings > 0, "{report}"),
        Some(broken) => {
            // The reader ends with a Sync where Go's does; salvage knows better.
            let last = events.last().filter(|event| event.kind == Ev::Sync && event.args[1] == 0);
            let events = &events[..events.len() - usize::from(last.is_some())];
            assert!(told.starts_with(events) && gaps > 0, "{report}");
            assert_eq!(report.first_bad(), Some(broken));
        }
    }
    report.to_string()
}

/// Both directions of the text form, from the input as a trace and as a text.
pub fn text(data: &[u8]) {
    let mut lines = Vec::new();
    let whole = text::to_text(data, &mut lines, Widths::Keep);
    if !lines.is_empty() {
        let mut again = Vec::new();
        text::to_trace(&lines[..], &mut again).expect("what we write we read");
        assert!(data.starts_with(&again) && (whole.is_err() || again.len() == data.len()));
    }
    let mut trace = Vec::new();
    if text::to_trace(data, &mut trace).is_ok() {
        let (mut lines, mut again) = (Vec::new(), Vec::new());
        text::to_text(&trace[..], &mut lines, Widths::Keep).expect("what we write we read");
        text::to_trace(&lines[..], &mut again).expect("what we write we read");
        assert_eq!(trace, again);
        reader(&trace);
    }
}

/// Whatever looks at events.
pub fn analyses(data: &[u8]) {
    if let Ok(mut reader) = Reader::new(data) {
        let (summary, _) = analyze::summarize(&mut reader);
        assert!(!summary.to_string().is_empty());
    }
    if let Ok(mut reader) = Reader::new(data) {
        let mut profiles = ProfileKind::ALL.map(profile::Builder::new);
        let mut curve = mmu::Builder::new(mmu::Causes::default());
        while reader.advance().unwrap_or(false) {
            profiles.iter_mut().for_each(|profile| profile.event(reader.event(), reader.tables()));
            curve.event(reader.event(), reader.tables());
        }
        let _ = profiles.map(|profile| profile.finish().total());
        if let Some((share, _)) = curve.finish().mmu(1_000_000) {
            assert!((0.0..=1.0).contains(&share), "{share}");
        }
    }
    let Ok(mut reader) = Reader::new(data) else { return };
    let (mut printer, mut heap, mut line) = (Printer::default(), AllocFree::default(), Vec::new());
    while reader.advance().unwrap_or(false) {
        let (event, tables) = (reader.event(), reader.tables());
        line.clear();
        printer.print(event, tables, &mut line);
        assert!(line.starts_with(b"M=") && line.ends_with(b"\n"));
        if event.kind == Ev::Sync {
            heap.update(tables);
            assert!(event.m == NONE && tables.ext_records().count() < data.len());
        }
        let _ = (heap.address(event), heap.bytes(event), heap.type_of(event), event.transition(), event.text(tables));
        assert!(tables.stack(event.stack()).len() <= tracer::wire::MAX_FRAMES);
    }
}

//! Traces in files, which are read where they lie.
#![cfg(feature = "read")]

mod common;
mod counting;

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use common::busy::busy;
use common::*;
use counting::peak;
use tracer::read::salvage::Salvage;
use tracer::read::{Error, Event, Input, Reader, TraceFile};

/// A file that goes with the value.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("gort-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("the folder for temporary files can be written to");
        Temporary(path)
    }

    fn open(&self) -> File {
        File::open(&self.0).expect("it was just written")
    }

    fn trace(&self) -> TraceFile {
        TraceFile::new(self.open()).expect("it can be looked at").expect("it is a file")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn all(from: impl Input) -> (Vec<Event>, Option<Error>) {
    rest(&mut Reader::new(from).expect("the header is good"))
}

#[test]
fn the_same_as_from_memory() {
    for (name, trace) in [("rich", rich()), ("busy", busy(5, 20_000, 1))] {
        let file = Temporary::new(name, &trace);
        let (events, error) = all(file.trace());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(events, all(&trace[..]).0, "{name}");
    }
}

#[test]
fn from_where_the_file_stands() {
    let trace = busy(2, 2_000, 2);
    let file = Temporary::new("stands", &[b"something else", &trace[..]].concat());
    let mut open = file.open();
    open.seek(SeekFrom::Start(14)).expect("it is a file");
    let from = TraceFile::new(open).expect("it can be looked at").expect("it is a file");
    assert_eq!(from.size(), Some(trace.len() as u64));
    assert_eq!(all(from).0, all(&trace[..]).0);
}

#[test]
fn damage_is_found_as_in_memory() {
    let mut trace = busy(6, 6_000, 3);
    let mut random = Random(4);
    for _ in 0..40 {
        let at = 16 + random.below(trace.len() - 16); // Behind the header.
        let good = trace[at];
        trace[at] ^= 1 << random.below(8);
        let file = Temporary::new("damage", &trace);
        let from_file = Salvage::new(file.trace()).expect("the header is good").finish();
        let from_memory = Salvage::new(&trace[..]).expect("the header is good").finish();
        assert_eq!(from_file.to_string(), from_memory.to_string(), "at {at}");
        trace[at] = good;
    }
}

#[test]
fn events_are_not_in_memory() {
    // A generation for which a mapping is worth it.
    let trace = busy(1, 1_600_000, 5);
    let file = Temporary::new("memory", &trace);
    let read = |from: TraceFile| {
        let mut reader = Reader::new(from).expect("the header is good");
        while reader.advance().expect("the trace is good") {}
    };
    let memory = peak(|| read(file.trace()));
    println!("{} bytes, {memory} of memory", trace.len());
    assert!(trace.len() > 6 << 20, "{} bytes", trace.len());
    assert!(memory < 3 << 20, "{memory} of {}", trace.len());
}

#[test]
fn a_file_that_is_cut_while_it_is_read() {
    let trace = busy(2, 400_000, 6);
    let file = Temporary::new("cut", &trace);
    let mut reader = Reader::new(file.trace()).expect("the header is good");
    assert!(reader.advance().expect("the first generation is there"));
    let writer = OpenOptions::new().write(true).open(&file.0).expect("it is ours");
    writer.set_len(1_000).expect("a file can be cut");
    let error = rest(&mut reader).1.expect("it does not end as if it were whole");
    assert!(matches!(&error, Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof), "{error}");
    assert!(!reader.advance().expect("nothing follows"));
}

#[test]
fn a_file_that_grows_while_it_is_read() {
    let trace = busy(2, 2_000, 7);
    let file = Temporary::new("grows", &trace);
    let mut reader = Reader::new(file.trace()).expect("the header is good");
    assert!(reader.advance().expect("the first generation is there"));
    let mut writer = OpenOptions::new().append(true).open(&file.0).expect("it is ours");
    writer.write_all(b"nothing that a trace has").expect("it is ours");
    let (events, end) = rest(&mut reader);
    // What was there in the beginning is all told, whatever stands behind it.
    assert!(1 + events.len() >= all(&trace[..]).0.len() - 1, "{}: {end:?}", events.len());
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_none() {
    let (end, _other) = std::io::pipe().expect("the system has a pipe");
    let file = File::from(std::os::fd::OwnedFd::from(end));
    assert!(TraceFile::new(file).expect("it can be looked at").is_none());
    let null = File::open("/dev/null").expect("every system has it");
    assert!(TraceFile::new(null).expect("it can be looked at").is_none());
}

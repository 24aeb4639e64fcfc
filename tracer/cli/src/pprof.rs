//! profile.proto, the format of pprof: the messages that we use, and a profile as one.
//!
//! The numbers of the fields are those of github.com/google/pprof/proto/profile.proto.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use tracer::analyze::profile::{Profile, ProfileKind};

/// What a value is, by the places of two strings.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Proto {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
}

#[derive(Default)]
struct Strings {
    table: Vec<String>,
    index: HashMap<String, i64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.index.get(text) {
            return id;
        }
        let id = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.index.insert(text.to_owned(), id);
        id
    }
}

fn positive(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A profile that began at this time, in ns since 1970, or nobody knows when.
pub(crate) fn proto(profile: &Profile, time_nanos: i64) -> Proto {
    let mut strings = Strings::default();
    strings.id(""); // The first must be.
    // Of the kinds that Go's tool makes, its words.
    let (count, total) =
        if profile.kind == ProfileKind::Running { ("stretches", "running") } else { ("contentions", "delay") };
    let mut value = |kind, unit| ValueType { kind: strings.id(kind), unit: strings.id(unit) };
    let sample_type = vec![value(count, "count"), value(total, "nanoseconds")];
    let period_type = Some(value("trace", "count"));

    let mut proto = Proto {
        sample_type,
        time_nanos,
        duration_nanos: positive(profile.duration_ns),
        period_type,
        period: 1,
        ..Proto::default()
    };
    let mut functions: HashMap<(i64, i64), u64> = HashMap::new();
    let mut locations: HashMap<usize, u64> = HashMap::new();
    for record in &profile.records {
        let mut location_id = Vec::new();
        for (place, frame) in profile.stacks.frames(record.stack) {
            let id = *locations.entry(place).or_insert_with(|| {
                let (name, filename) = (strings.id(&frame.func), strings.id(&frame.file));
                let function_id = *functions.entry((name, filename)).or_insert_with(|| {
                    let id = proto.function.len() as u64 + 1;
                    proto.function.push(Function { id, name, system_name: name, filename });
                    id
                });
                let id = proto.location.len() as u64 + 1;
                let line = vec![Line { function_id, line: positive(frame.line) }];
                proto.location.push(Location { id, address: profile.stacks.pc(place), line });
                id
            });
            location_id.push(id);
        }
        proto.sample.push(Sample { location_id, value: vec![positive(record.count), positive(record.ns)] });
    }
    proto.string_table = strings.table;
    proto
}

/// Writes it as pprof wants it: gzip'd.
pub(crate) fn write(proto: &Proto, to: &mut impl Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(to, Compression::default());
    gzip.write_all(&proto.encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

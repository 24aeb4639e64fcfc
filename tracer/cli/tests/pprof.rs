//! Profiles, decoded again by other eyes: a reader of profile.proto that shares nothing with the writer.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Command;

use assert_cmd::cargo::CommandCargoExt;
use flate2::read::GzDecoder;
use tracer::analyze::profile::{Builder, ProfileKind};
use tracer::read::Reader;
use tracer::wire::varint;

/// The fields of a message: number, and a number or bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let (mut pos, mut fields) = (0, Vec::new());
    while pos < message.len() {
        let key = varint::read(message, &mut pos).expect("a key");
        let value = varint::read(message, &mut pos).expect("a value");
        fields.push((
            key >> 3,
            match key & 7 {
                0 => Field::Number(value),
                2 => {
                    let bytes = &message[pos..pos + value as usize];
                    pos += value as usize;
                    Field::Bytes(bytes)
                }
                other => panic!("wire type {other}"),
            },
        ));
    }
    fields
}

fn numbers(message: &[u8]) -> BTreeMap<u64, u64> {
    let number = |(field, value)| match value {
        Field::Number(n) => Some((field, n)),
        Field::Bytes(_) => None,
    };
    fields(message).into_iter().filter_map(number).collect()
}

fn messages(message: &[u8], number: u64) -> Vec<&[u8]> {
    let bytes = |(field, value)| match value {
        Field::Bytes(bytes) if field == number => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(bytes).collect()
}

fn packed(bytes: &[u8]) -> Vec<u64> {
    let mut pos = 0;
    std::iter::from_fn(|| (pos < bytes.len()).then(|| varint::read(bytes, &mut pos).expect("a number"))).collect()
}

/// By stack, as functions and lines, innermost first: count and ns.
type Flat = BTreeMap<Vec<(String, u64)>, (u64, u64)>;

fn decode(gzip: &[u8]) -> (Vec<String>, Flat) {
    let mut profile = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut profile).expect("it is gzip");
    let strings: Vec<String> =
        messages(&profile, 6).iter().map(|bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8")).collect();
    assert_eq!(strings[0], "");
    let text = |id: u64| strings[id as usize].clone();
    let types = messages(&profile, 1).into_iter().map(numbers).map(|n| format!("{}/{}", text(n[&1]), text(n[&2])));
    let functions: BTreeMap<u64, String> =
        messages(&profile, 5).iter().map(|f| numbers(f)).map(|n| (n[&1], text(n[&2]))).collect();
    let location = |bytes: &&[u8]| {
        let line = numbers(messages(bytes, 4)[0]);
        (numbers(bytes)[&1], (functions[&line[&1]].clone(), line.get(&2).copied().unwrap_or(0)))
    };
    let locations: BTreeMap<u64, (String, u64)> = messages(&profile, 4).iter().map(location).collect();
    let mut flat = Flat::new();
    for sample in messages(&profile, 2) {
        let stack = messages(sample, 1).iter().flat_map(|ids| packed(ids)).map(|id| locations[&id].clone()).collect();
        let values = packed(messages(sample, 2)[0]);
        assert!(flat.insert(stack, (values[0], values[1])).is_none(), "each stack once");
    }
    (types.collect(), flat)
}

fn expected(kind: ProfileKind) -> Flat {
    let trace = common::rich();
    let mut reader = Reader::new(&trace[..]).expect("the header is good");
    let mut builder = Builder::new(kind);
    while let Some(event) = reader.next() {
        builder.event(&event.expect("the trace is good"), reader.tables());
    }
    let profile = builder.finish();
    let stack = |id| profile.stacks.frames(id).map(|(_, frame)| (frame.func.to_string(), frame.line)).collect();
    profile.records.iter().map(|record| (stack(record.stack), (record.count, record.ns))).collect()
}

#[test]
fn what_was_written_is_read_again() {
    let dir = tempfile::TempDir::new().expect("a folder for the test");
    let trace = dir.path().join("rich");
    std::fs::write(&trace, common::rich()).expect("the folder can be written");
    let mut samples = 0;
    for kind in ProfileKind::ALL {
        let profile = dir.path().join("profile");
        let mut command = Command::cargo_bin("gort").expect("it is built");
        command.args(["pprof", "--kind", kind.name(), "--output"]).arg(&profile).arg(&trace);
        assert!(command.status().expect("it starts").success());
        let (types, flat) = decode(&std::fs::read(&profile).expect("it is there"));
        let names = if kind == ProfileKind::Running { ["stretches", "running"] } else { ["contentions", "delay"] };
        assert_eq!(types, [format!("{}/count", names[0]), format!("{}/nanoseconds", names[1])]);
        assert_eq!(flat, expected(kind), "{kind:?}");
        samples += flat.len();
    }
    assert!(samples > 3);
}

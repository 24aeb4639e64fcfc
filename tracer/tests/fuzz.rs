//! The fuzzer's bodies on stable: over inputs made from our own traces, by changes of bytes and by changes of events that keep
//! the framing right, so that they reach what lies behind it; and over every input that has shown an error once.
//!
//! ```text
//! GORT_FUZZ_ROUNDS=1000000 GORT_SEED=7 cargo test --release -p gort-tracer --test fuzz -- --nocapture
//! ```
#![cfg(feature = "read")]

#[path = "../fuzz/src/bodies.rs"]
mod bodies;
mod common;

use common::busy::busy;
use common::*;
use tracer::text::{BinaryReader, BinaryWriter, RawEvent, Widths, to_text};
use tracer::wire::{Ev, HEADER, SPECS, varint};

/// Numbers at which something changes.
const EDGES: [u64; 14] = [0, 1, 2, 3, 4, 5, 127, 128, 255, 65_536, 65_537, u32::MAX as u64, i64::MAX as u64, u64::MAX];

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![rich(), busy(3, 60, 1), busy(2, 300, 2), HEADER.to_vec()];
    // The same in older versions, without the bytes between generations.
    for version in [&b"go 1.25 trace\0\0\0"[..], b"go 1.23 trace\0\0\0", b"go 1.22 trace\0\0\0"] {
        for i in 0..2 {
            // Nor do they know what Go 1.25 brought.
            let new = |kind: Ev| version[6] < b'5' && matches!(kind, Ev::Sync | Ev::ClockSnapshot);
            let old = |event: &RawEvent| event.kind != Ev::EndOfGeneration && !new(event.kind);
            let events: Vec<RawEvent> = events(&seeds[i]).into_iter().filter(old).collect();
            let mut old = encode(&events);
            old[..HEADER.len()].copy_from_slice(version);
            assert!(read(&old).1.is_none(), "a seed is good");
            seeds.push(old);
        }
    }
    seeds
}

fn events(trace: &[u8]) -> Vec<RawEvent> {
    let Ok(mut reader) = BinaryReader::new(trace) else { return Vec::new() };
    let mut events = Vec::new();
    while let Ok(Some(event)) = reader.next_event() {
        events.push(event.clone());
    }
    events
}

/// The trace of these events, the sizes of batches made right.
fn encode(events: &[RawEvent]) -> Vec<u8> {
    let piece = |event: &RawEvent| {
        let mut writer_out = Vec::new();
        let mut writer = BinaryWriter::new(&mut writer_out, tracer::read::Version::Go126).expect("memory is there");
        let good = writer.write(event).is_ok();
        writer.finish().expect("memory is there");
        if good { writer_out.split_off(HEADER.len()) } else { Vec::new() }
    };
    let mut out = HEADER.to_vec();
    let mut rest = events;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if first.kind != Ev::EventBatch {
            out.extend(piece(first));
            continue;
        }
        let ends =
            |event: &RawEvent| matches!(event.kind, Ev::EventBatch | Ev::ExperimentalBatch | Ev::EndOfGeneration);
        let len = rest.iter().position(ends).unwrap_or(rest.len());
        let data: Vec<u8> = rest[..len].iter().flat_map(piece).collect();
        rest = &rest[len..];
        let mut header = first.clone();
        header.args[3] = data.len() as u64;
        header.widths.clear();
        out.extend(piece(&header));
        out.extend(data);
    }
    out
}

fn number(random: &mut Random, old: u64) -> u64 {
    match random.below(5) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => EDGES[random.below(EDGES.len())],
        3 => random.next() >> random.below(64),
        _ => random.below(8) as u64,
    }
}

/// Changes events and keeps the framing.
fn change_events(random: &mut Random, trace: &[u8]) -> Vec<u8> {
    let mut events = events(trace);
    for _ in 0..1 + random.below(4) {
        if events.is_empty() {
            break;
        }
        let (at, other) = (random.below(events.len()), random.below(events.len()));
        match random.below(6) {
            0 => drop(events.remove(at)),
            1 => events.insert(at, events[other].clone()),
            2 => events.swap(at, other),
            3 => {
                // Another of the same shape.
                let shape = |ev: Ev| (ev.spec().args.len(), ev.spec().timed, ev.spec().frames, ev.spec().data);
                let alike: Vec<Ev> =
                    SPECS.iter().map(|spec| spec.ev).filter(|&ev| shape(ev) == shape(events[at].kind)).collect();
                events[at].kind = alike[random.below(alike.len())];
            }
            _ => {
                let event = &mut events[at];
                event.widths.clear();
                if event.kind != Ev::Stack && !event.args.is_empty() {
                    let i = random.below(event.args.len());
                    event.args[i] = number(random, event.args[i]);
                }
            }
        }
    }
    let mut out = encode(&events);
    out[..HEADER.len()].copy_from_slice(&trace[..HEADER.len()]);
    out
}

/// Changes bytes, whatever they mean.
fn change_bytes(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..1 + random.below(5) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(40)).min(bytes.len());
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next() as u8 >> random.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let mut piece = Vec::new();
                varint::put(&mut piece, EDGES[random.below(EDGES.len())]);
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = &others[random.below(others.len())];
                let from = random.below(other.len() + 1);
                let piece = other[from..(from + random.below(200)).min(other.len())].to_vec();
                bytes.splice(at..end, piece);
            }
        }
    }
}

fn rounds() -> usize {
    let set = std::env::var("GORT_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    set.unwrap_or(if cfg!(debug_assertions) { 500 } else { 5_000 })
}

/// Runs `body` over changed seeds. What it panics with comes with the input.
fn fuzz(name: &str, seeds: &[Vec<u8>], body: impl Fn(&[u8]) + std::panic::RefUnwindSafe, structured: bool) {
    let seed = std::env::var("GORT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1u64);
    println!("GORT_SEED={seed}");
    let mut random = Random(seed);
    for round in 0..rounds() {
        let mut input = seeds[random.below(seeds.len())].clone();
        if structured && random.below(3) > 0 {
            input = change_events(&mut random, &input);
        }
        if !structured || random.below(3) == 0 {
            change_bytes(&mut random, &mut input, seeds);
        }
        if let Err(panic) = std::panic::catch_unwind(|| body(&input)) {
            let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{seed}-{round}"));
            std::fs::write(&file, &input).expect("there is place for the input");
            eprintln!("round {round} of {name}: the input is {}; put it under tracer/fuzz/regressions", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn readers_stand_what_is_changed() {
    fuzz("reader", &seeds(), bodies::reader, true);
}

#[test]
fn analyses_stand_what_is_changed() {
    fuzz("analyses", &seeds(), bodies::analyses, true);
}

#[test]
fn the_text_form_stands_what_is_changed() {
    let mut all = seeds();
    for trace in seeds().iter().take(2) {
        for widths in [Widths::Keep, Widths::Drop] {
            let mut text = Vec::new();
            to_text(&trace[..], &mut text, widths).expect("the seed is good");
            all.push(text);
        }
    }
    fuzz("text", &all, bodies::text, false);
}

/// The changes reach deep, and not all of them do harm.
#[test]
fn the_changes_are_worth_it() {
    let (seeds, mut random) = (seeds(), Random(3));
    let mut verdicts = std::collections::BTreeMap::new();
    for _ in 0..if cfg!(debug_assertions) { 4_000 } else { 20_000 } {
        let seed = &seeds[random.below(seeds.len())];
        let input = change_events(&mut random, seed);
        let rule = read(&input).1.and_then(|error| error.broken().map(|broken| broken.rule));
        *verdicts.entry(rule.map(|rule| rule.name())).or_insert(0) += 1;
    }
    println!("{verdicts:?}");
    assert!(verdicts.len() > 25 && verdicts.contains_key(&None), "{verdicts:?}");
}

/// Inputs that have shown an error, or that are as bad as can be: each for all bodies.
#[test]
fn what_was_wrong_once() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("its entries can be read").path();
        let input = std::fs::read(&path).expect("the input can be read");
        println!("{}", path.display());
        bodies::reader(&input);
        bodies::text(&input);
        bodies::analyses(&input);
        files += 1;
    }
    assert!(files > 0, "no inputs in {}", folder.display());
}

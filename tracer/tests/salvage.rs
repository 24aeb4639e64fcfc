//! What salvage keeps of damaged files: every generation that is whole, also behind the damage, and a plain report.
#![cfg(feature = "read")]

mod common;
mod counting;

use common::busy::busy;
use common::*;
use counting::peak;
use tracer::read::salvage::{Report, Salvage, Salvaged};
use tracer::read::{Event, Reader, Rule};
use tracer::wire::{Ev, HEADER};

/// What was read: pieces between gaps, each with its events.
fn salvage(trace: &[u8]) -> (Vec<Vec<Event>>, Report) {
    let mut salvage = Salvage::new(trace).expect("the header is good");
    let mut pieces = vec![Vec::new()];
    for next in &mut salvage {
        match next {
            Salvaged::Event(event) => pieces.last_mut().expect("never empty").push(event),
            Salvaged::Gap => pieces.push(Vec::new()),
        }
    }
    let report = salvage.finish();
    assert_eq!(pieces.len() as u64, report.damages + 1);
    let events: usize = pieces.iter().map(Vec::len).sum();
    assert_eq!(events as u64, report.events + report.events_of_broken);
    assert!(!report.to_string().is_empty());
    (pieces, report)
}

/// Where each generation begins, and the end.
fn borders(trace: &[u8]) -> Vec<usize> {
    let mut reader = Reader::new(trace).expect("the header is good");
    let mut borders = vec![HEADER.len()];
    while let Some(event) = reader.next() {
        if event.expect("the trace is good").kind == Ev::Sync {
            let info = reader.generation();
            borders.push((info.offset + info.bytes) as usize);
        }
    }
    borders.dedup();
    borders
}

/// The same events, told of another place and at times that went on from elsewhere.
fn same(a: &[Event], b: &[Event]) -> bool {
    let plain = |e: &Event| (e.file_time, e.m, e.p, e.g, e.kind, e.prior);
    let told = |e: &&Event| e.kind != Ev::Sync;
    a.iter().filter(told).map(plain).eq(b.iter().filter(told).map(plain))
}

fn five() -> Vec<u8> {
    busy(5, 2_000, 1)
}

#[test]
fn a_good_trace_is_told_as_it_is() {
    for trace in [five(), rich(), HEADER.to_vec()] {
        let (pieces, report) = salvage(&trace);
        let (events, error) = read(&trace);
        assert!(error.is_none());
        assert_eq!(pieces, [events]);
        assert!(report.is_whole() && report.first_bad().is_none(), "{report}");
        assert_eq!(report.bytes as usize, trace.len() - HEADER.len());
        assert_eq!((report.file_bytes as usize, report.unfinished_bytes), (trace.len(), 0));
    }
    assert_eq!(salvage(&five()).1.to_string(), {
        let (events, len) = (read(&five()).0.len(), five().len());
        format!("5 generations, of 1 to 5, are whole: {events} events in {} of {len} bytes\n", len - 16)
    });
}

/// A generation that stands alone and does not follow from the one before: it begins anew, and is told once, samples and all.
#[test]
fn samples_of_a_generation_that_begins_anew() {
    let trace = Trace::new()
        .generation(1, |g| g.running(0).ev(Ev::GoStop, &[3, 1]).done())
        // Two, in which the goroutine went on, is missing.
        .generation(3, |g| {
            g.samples.extend([[3_000_500, 0, 0, 100, 1], [3_000_600, 0, 0, 100, 1]]);
            g.running(0).ev(Ev::GoStop, &[3, 1]).done();
        });
    let (pieces, report) = salvage(&trace.0);
    assert_eq!((report.generations, report.damages), (2, 1), "{report}");
    let samples = |events: &[Event]| events.iter().filter(|e| e.kind == Ev::CpuSample).count();
    assert_eq!(pieces.iter().map(|piece| samples(piece)).collect::<Vec<_>>(), [0, 2], "{report}");
}

/// Damages generation 3 of 5 and expects all others. Answers the rule, and the events of 3 that were told.
fn damaged_in_the_middle(damage: impl FnOnce(&mut Vec<u8>, std::ops::Range<usize>)) -> (Rule, u64) {
    let whole = five();
    let borders = borders(&whole);
    let mut trace = whole.clone();
    damage(&mut trace, borders[2]..borders[3]);
    let (pieces, report) = salvage(&trace);
    assert_eq!(report.generations, 4, "{report}");
    assert_eq!(report.numbers, Some((1, 5)));
    // Before the damage: what the reader says, to the last field.
    let (before, _) = read(&whole[..borders[2]]);
    assert_eq!(pieces[0][..before.len() - 1], before[..before.len() - 1]);
    // Behind it: a trace of its own.
    let (after, _) = read(&[&HEADER[..], &whole[borders[3]..]].concat());
    assert!(same(pieces.last().expect("never empty"), &after));
    let times: Vec<i64> = pieces.iter().flatten().map(|event| event.time).collect();
    assert!(times.is_sorted());
    let bad = report.first_bad().expect("it is broken");
    assert!(bad.offset as usize >= borders[2] && report.damage[0].goes_on, "{report}");
    assert!(report.to_string().contains("\nbroken: byte "), "{report}");
    (bad.rule, report.events_of_broken)
}

#[test]
fn the_generations_around_the_damage_are_kept() {
    let middle = |range: &std::ops::Range<usize>| range.start + range.len() / 2;
    // The first batch's header.
    assert_eq!(damaged_in_the_middle(|t, r| t[r.start] = 0), (Rule::BatchKind, 0));
    assert_eq!(damaged_in_the_middle(|t, r| t[r.start + 1] = 0), (Rule::GenerationZero, 0));
    // Bytes that are missing, and text that somebody's editor put there.
    damaged_in_the_middle(|t, r| drop(t.drain(middle(&r)..middle(&r) + 700)));
    damaged_in_the_middle(|t, r| drop(t.splice(middle(&r)..middle(&r), b"Hello, world!\n".repeat(9))));
    damaged_in_the_middle(|t, r| drop(t.drain(r.start + 1..r.end)));
    damaged_in_the_middle(|t, r| t[middle(&r)..r.end].fill(0));
    damaged_in_the_middle(|t, r| t[r].fill(7));
    // The byte that ends it: the next generation's batches seem to be its own.
    assert_eq!(damaged_in_the_middle(|t, r| _ = t.remove(r.end - 1)).0, Rule::GenerationMixed);
    // An order that cannot be: some of its events are told.
    let (rule, events) = damaged_in_the_middle(|t, r| {
        let start = |e: &Event| e.kind == Ev::GoStart && r.contains(&(e.offset as usize));
        let last = read(t).0.into_iter().rfind(start).expect("somebody starts");
        t[last.offset as usize] = Ev::ProcStart as u8;
    });
    assert!(events > 100 && rule == Rule::Stuck, "{rule}, {events}");
}

#[test]
fn text_between_generations_harms_none() {
    let whole = five();
    for border in borders(&whole) {
        let mut trace = whole.clone();
        trace.splice(border..border, b"Hello, world!\n".repeat(9_999));
        let (pieces, report) = salvage(&trace);
        assert_eq!((report.generations, report.damages, report.events_of_broken), (5, 1, 0), "{report}");
        assert_eq!(
            pieces.iter().map(Vec::len).sum::<usize>(),
            read(&whole).0.len() - usize::from(border == whole.len())
        );
    }
}

#[test]
fn a_generation_twice_and_two_in_the_wrong_order() {
    let whole = five();
    let borders = borders(&whole);
    let part = |i: usize| whole[borders[i]..borders[i + 1]].to_vec();
    let twice = [&HEADER[..], &part(0), &part(1), &part(1), &part(2)].concat();
    let (_, report) = salvage(&twice);
    assert_eq!((report.generations, report.numbers), (3, Some((1, 3))), "{report}");
    let swapped = [&HEADER[..], &part(0), &part(2), &part(1), &part(3)].concat();
    let (_, report) = salvage(&swapped);
    // The third comes first, then it is too late for the second.
    assert_eq!((report.generations, report.numbers), (3, Some((1, 4))), "{report}");
    let one_is_lost = [&HEADER[..], &part(0), &part(2), &part(3)].concat();
    let (pieces, report) = salvage(&one_is_lost);
    assert_eq!((report.generations, report.damages), (3, 1), "{report}");
    let (after, _) = read(&[&HEADER[..], &part(2), &part(3)].concat());
    assert!(same(&pieces[1], &after));
}

#[test]
fn wrong_annotations_are_warnings() {
    let trace = Trace::new().generation(1, |g| {
        g.running(0)
            .ev(Ev::UserTaskBegin, &[1, 0, 1, 0])
            .ev(Ev::UserTaskBegin, &[1, 0, 1, 0])
            .ev(Ev::UserRegionBegin, &[1, 1, 0])
            .ev(Ev::UserRegionEnd, &[1, 2, 0])
            .ev(Ev::UserRegionEnd, &[1, 2, 0])
            .ev(Ev::UserTaskEnd, &[7, 0])
            .ev(Ev::GoStop, &[1, 1])
            .done();
    });
    assert_eq!(broken_rule(&trace.0), Some(Rule::TaskConflict));
    let (pieces, report) = salvage(&trace.0);
    assert!(report.is_whole());
    assert_eq!(pieces[0].last().map(|e| e.kind), Some(Ev::Sync));
    let rules: Vec<Rule> = report.warned.iter().map(|warning| warning.rule).collect();
    assert_eq!((report.warnings, &rules[..]), (2, &[Rule::TaskConflict, Rule::RegionNesting][..]));
    assert!(report.to_string().contains("warning: byte"), "{report}");
}

#[test]
fn a_trace_before_go_1_26_too() {
    let version = *b"go 1.25 trace\0\0\0";
    let whole = five();
    let borders = borders(&whole);
    // There, no byte stands between generations.
    let part = |i: usize| &whole[borders[i]..borders[i + 1] - 1];
    let trace = [&version[..], part(0), part(1), b"something else", part(2), part(3)].concat();
    let (_, report) = salvage(&trace);
    assert_eq!((report.generations, report.damages), (4, 1), "{report}");
    assert_eq!(report.first_bad().map(|bad| bad.rule), Some(Rule::BatchKind));
}

/// Every damage of a file that the reader must stand: cuts, bits, batches twice and swapped, text inserted.
#[test]
fn a_trace_without_its_header_is_whole_otherwise() {
    let whole = five();
    let (pieces, _) = salvage(&whole);
    for header in [*b"go 1.26 trbce\0\0\0", *b"go 1.97 trace\0\0\0", [0xff; 16], *b"go 1.16 trace\0\0\0"] {
        let mut trace = whole.clone();
        trace[..16].copy_from_slice(&header);
        let (damaged, report) = salvage(&trace);
        assert_eq!(damaged[0], []);
        assert!(damaged[1..] == pieces[..], "{report}");
        assert_eq!((report.damages, report.generations), (1, 5), "{report}");
        assert_eq!(report.first_bad().map(|bad| (bad.rule, bad.offset)), Some((Rule::Header, 0)));
        let mut events = 0;
        Salvage::new(&trace[..])
            .expect("batches follow")
            .each(|event, _, _| {
                events += u64::from(event.is_some());
                Ok::<_, std::convert::Infallible>(())
            })
            .unwrap_or_else(|never| match never {});
        assert_eq!(events, report.events);
    }
}

fn stand(whole: &[u8], cut_every: usize, flips: usize, seed: u64) {
    println!("seed {seed}");
    let borders = borders(whole);
    let complete = |bytes: usize| (borders.iter().filter(|&&border| border <= bytes).count() as u64).saturating_sub(1);
    let allowed = |len: usize| 4 * len + (100 << 20);
    let longest = std::cell::Cell::new(std::time::Duration::ZERO);
    let judge = |trace: &[u8], good: usize, what: &str| {
        let mut report = None;
        let start = std::time::Instant::now();
        let memory = peak(|| report = Some(Salvage::new(trace).expect("the header is good").finish())) + trace.len();
        longest.set(longest.get().max(start.elapsed()));
        let report = report.expect("it was made");
        assert!(report.generations >= complete(good), "{what}: {report}");
        assert!(memory < allowed(trace.len()), "{what}: {memory} bytes of memory");
        report
    };
    for cut in (HEADER.len()..whole.len()).step_by(cut_every) {
        let report = judge(&whole[..cut], cut, &format!("cut at {cut}"));
        assert_eq!(report.generations, complete(cut), "cut at {cut}: {report}");
    }
    let mut random = Random(seed);
    let mut trace = whole.to_vec();
    for flip in 0..flips {
        let at = random.below(whole.len());
        // One that says another version which there is would be believed.
        let bit = 1 << random.below(if at < HEADER.len() { 2 } else { 8 });
        trace[at] ^= bit;
        let report = judge(&trace, at, &format!("flip {flip}, {bit} at {at}"));
        // One bit is one generation at most, the next one if it looks like its beginning.
        assert!(report.generations + 2 > borders.len() as u64 - 1, "flip {flip}, {bit} at {at}: {report}");
        trace[at] ^= bit;
    }
    let batches = batches(whole);
    for _ in 0..flips / 50 + 3 {
        let (a, b) = (batches[random.below(batches.len())].clone(), batches[random.below(batches.len())].clone());
        let mut twice = whole.to_vec();
        twice.splice(a.start..a.start, whole[a.clone()].iter().copied());
        judge(&twice, a.start, "twice");
        let (a, b) = if a.start < b.start { (a, b) } else { (b, a) };
        if a.end <= b.start {
            let swapped =
                [&whole[..a.start], &whole[b.clone()], &whole[a.end..b.start], &whole[a.clone()], &whole[b.end..]]
                    .concat();
            assert_eq!(swapped.len(), whole.len());
            judge(&swapped, a.start, "swapped");
        }
        let at = HEADER.len() + random.below(whole.len() - HEADER.len());
        let mut text = whole.to_vec();
        text.splice(at..at, *b"\nAll work and no play makes Jack a dull boy.\n");
        judge(&text, at, "text");
    }
    println!("{} bytes, {flips} flips: the longest took {:?}", whole.len(), longest.get());
}

/// Where each batch is, its header included.
fn batches(trace: &[u8]) -> Vec<std::ops::Range<usize>> {
    use tracer::wire::varint;
    let (mut batches, mut pos) = (Vec::new(), HEADER.len());
    while pos < trace.len() {
        let start = pos;
        pos += 1;
        if trace[start] == Ev::EventBatch as u8 {
            let mut size = 0;
            for _ in 0..4 {
                size = varint::read(trace, &mut pos).expect("the trace is good");
            }
            pos += size as usize;
            batches.push(start..pos);
        }
    }
    batches
}

#[test]
fn damage_of_all_kinds() {
    let (events, every, flips) = if cfg!(debug_assertions) { (3_000, 4 << 10, 60) } else { (20_000, 4 << 10, 400) };
    stand(&busy(6, events, 3), every, flips, 4);
}

/// `cargo test --release -p gort-tracer --test salvage -- --ignored`
#[test]
#[ignore = "takes half an hour"]
fn damage_of_a_large_file() {
    let whole = busy(16, 350_000, 5);
    assert!(whole.len() > 20 << 20, "{} bytes", whole.len());
    stand(&whole, 4 << 10, 10_000, 6);
}

#[test]
fn files_of_few_bytes() {
    let mut random = Random(7);
    for _ in 0..if cfg!(debug_assertions) { 2_000 } else { 20_000 } {
        let mut trace = HEADER.to_vec();
        let len = random.below(31);
        trace.extend((0..len).map(|_| if random.below(3) == 0 { 1 } else { random.next() as u8 >> random.below(8) }));
        let (_, report) = salvage(&trace);
        assert!(report.generations <= 1 && report.file_bytes <= trace.len() as u64);
    }
    for file in [&b""[..], b"g", b"go 1.26 trace\0\0", b"\x1f\x8b\x08", &[0; 30]] {
        assert!(Salvage::new(file).is_err());
    }
}

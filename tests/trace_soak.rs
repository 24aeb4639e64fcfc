//! The tracer for long and in large: a flight recorder at full load, generations of 50,000 goroutines, a file of millions of events. Memory
//! stays bounded, every file is good, and each generation alone is a trace.
//!
//! `RT_SOAK_SECONDS` sets for how long, `RT_SOAK_EVENTS` how many events; then everything is as large as it is meant to be.

mod common;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::alone::generations;
use common::{Buffer, judge, memory_kib, program, scaled, scratch_file};
use rt::chan::bounded;
use rt::trace::{FlightRecorder, Stream};
use tracer::read::Reader;
use tracer::read::validate::Validator;
use tracer::wire::{Ev, HEADER};

programs! { flies, flies_beside_a_stream, crowds, writes_millions }

/// For how long, if somebody has said it.
fn wished() -> Option<Duration> {
    let seconds = std::env::var("RT_SOAK_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("RT_SOAK_SECONDS: want a number")))
}

/// In a process of its own, since its memory is looked at; or here, where nobody ends it after a while.
fn run(name: &str, body: fn()) {
    if wished().is_some() || std::env::var_os("RT_SOAK_EVENTS").is_some() {
        return body();
    }
    let ended = program(name, &[]);
    ended.expect_code(0);
    print!("{}", ended.stdout);
}

/// Pairs that hand something to each other without a pause, until `stop`.
fn full_load(pairs: usize, stop: &Arc<AtomicBool>) -> Vec<rt::JoinHandle<u64>> {
    (0..pairs)
        .flat_map(|_| {
            let (tx, rx) = bounded(0);
            let stop = stop.clone();
            let hits = rt::go(move || {
                let mut n = 0;
                while !stop.load(Relaxed) {
                    tx.send(n).unwrap();
                    n += 1;
                }
                n
            });
            [hits, rt::go(move || rx.iter().count() as u64)]
        })
        .collect()
}

/// The first and the last time in a good trace; how many generations it has.
fn span(path: &PathBuf) -> (Duration, u64) {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    let mut validator = Validator::default();
    let (mut number, mut all) = (0, 0);
    while let Some(e) = reader.next() {
        let e = e.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        validator.event(&e, reader.tables());
        (first, last) = (first.min(e.time), last.max(e.time));
        if std::mem::replace(&mut number, reader.generation().number) != number {
            all += 1;
        }
    }
    let findings = validator.finish();
    assert!(findings.total == 0, "{}: {findings:?}", path.display());
    (Duration::from_nanos((last - first) as u64), all)
}

const MIN_AGE: Duration = Duration::from_secs(10);

/// A flight recorder, while all processors do nothing but make events.
fn flies() {
    fly(false);
}

/// The same beside a stream.
fn flies_beside_a_stream() {
    fly(true);
}

/// How much a process has grown by, in bytes, from sample to sample.
#[derive(Default)]
struct Grown {
    /// While no snapshot was in hand.
    alone: Vec<usize>,
    most: usize,
}

impl Grown {
    /// So many of a hundred samples without a snapshot are no larger.
    fn of_hundred(&mut self, n: usize) -> usize {
        self.alone.sort_unstable();
        self.alone[self.alone.len() * n / 100]
    }
}

fn fly(beside_a_stream: bool) {
    let time = wished().unwrap_or(Duration::from_secs(4));
    let (rounds, ring_bytes) = if wished().is_some() { (34, 16 << 20) } else { (2, 2 << 20) };
    rt::Config::new().gomaxprocs(2).run(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let load = full_load(4, &stop);
        rt::time::sleep(Duration::from_millis(100));
        // What the first session takes, the names of its functions above all, is there for good.
        let warm = Stream::start(std::io::sink()).unwrap();
        rt::time::sleep(Duration::from_millis(300));
        warm.stop().unwrap();
        let before_kib = memory_kib("VmRSS");
        let stream = beside_a_stream.then(|| Stream::start(std::io::sink()).unwrap());
        let recorder = Arc::new(FlightRecorder::new().max_bytes(ring_bytes).min_age(MIN_AGE));
        recorder.start().unwrap();
        let (began, most, in_hand) = (Instant::now(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let watch = {
            let (recorder, most, in_hand, stop) = (recorder.clone(), most.clone(), in_hand.clone(), stop.clone());
            rt::go(move || {
                let mut grown = Grown::default();
                while !stop.load(Relaxed) {
                    most.fetch_max(recorder.bytes(), Relaxed);
                    let before = in_hand.load(Relaxed);
                    let bytes = (memory_kib("VmRSS").saturating_sub(before_kib) << 10) as usize;
                    grown.most = grown.most.max(bytes);
                    if before == in_hand.load(Relaxed) && before % 2 == 0 {
                        grown.alone.push(bytes);
                    }
                    rt::time::sleep(Duration::from_millis(10));
                }
                grown
            })
        };
        let mut snapshots = Vec::new();
        for round in 0..rounds {
            rt::time::sleep(time / rounds);
            // Odd while there are any.
            in_hand.fetch_add(1, Relaxed);
            // Three at once, from goroutines of their own.
            let files: Vec<_> = (0..3)
                .map(|i| {
                    let (recorder, path) = (recorder.clone(), scratch_file(&format!("flight-{round}-{i}.trace")));
                    rt::go(move || {
                        let bytes = recorder.snapshot(File::create(&path).unwrap()).unwrap();
                        (path, bytes, began.elapsed())
                    })
                })
                .collect();
            snapshots.extend(files.into_iter().map(|h| h.join().unwrap()));
            in_hand.fetch_add(1, Relaxed);
        }
        stop.store(true, Relaxed);
        let mut grown = watch.join().unwrap();
        let handed: u64 = load.into_iter().map(|h| h.join().unwrap()).sum();
        recorder.stop();
        let streamed = stream.map(|stream| stream.stop().unwrap().bytes);
        // Judged when nobody is disturbed by that.
        let mut full = 0;
        for (path, bytes, since) in snapshots {
            let (covers, generations) = span(&path);
            // It reaches back as far as it is to, or to the start; or else there was no room for one generation more.
            let is_full = bytes as usize >= ring_bytes / 4;
            let reaches = covers + Duration::from_millis(200) >= MIN_AGE.min(since);
            assert!(reaches || is_full, "{covers:?} in {bytes} bytes, {generations} generations, {since:?} after the start");
            full += usize::from(is_full);
            fs::remove_file(path).unwrap();
        }
        let most = most.load(Relaxed);
        let rings = |bytes: usize| bytes as f64 / ring_bytes as f64;
        println!(
            "flight recorder: {handed} values in {time:?}, {} MB streamed beside it, {} snapshots ({full} full); at most {:.2} of \
             {} MiB kept; RSS {before_kib} KiB before, and more by so many times that: {:.2} in half of {} looks while no snapshot was \
             written, {:.2} in 99 of 100, {:.2} in all; {:.2} at most with snapshots",
            streamed.unwrap_or(0) / 1_000_000,
            rounds * 3,
            rings(most),
            ring_bytes >> 20,
            rings(grown.of_hundred(50)),
            grown.alone.len(),
            rings(grown.of_hundred(99)),
            rings(grown.alone.last().copied().unwrap_or(0)),
            rings(grown.most),
        );
        assert!(full > 0, "the load was too small to fill it");
        // What the program has grown by is the tracer's: the ring, what is on its way to it, and what snapshots and streams hold for as long
        // as they are written: a ring more, as a rule. On a machine that lets the tracer's threads wait, a generation may be larger than all
        // that. So the bound of a quarter above the bytes is for all but a few looks, when a machine does nothing else; and by default,
        // where the ring is small and others run beside it, for half of them, with something for what is not the ring's.
        let (alone, bound) = match wished() {
            Some(_) => (grown.of_hundred(99), ring_bytes + ring_bytes / 4),
            None => (grown.of_hundred(50), ring_bytes + ring_bytes / 4 + (16 << 20)),
        };
        assert!(beside_a_stream || alone <= bound, "{alone} more bytes of memory than before, {most} bytes kept");
        let bound = if wished().is_some() { 4 * ring_bytes } else { 256 << 20 };
        assert!(most <= bound && grown.most <= bound, "{most} bytes kept, {} more bytes of memory than before", grown.most);
    });
}

#[test]
fn stress_a_flight_recorder_at_full_load() {
    run("flies", flies);
}

#[test]
fn stress_a_flight_recorder_and_a_stream_at_full_load() {
    run("flies_beside_a_stream", flies_beside_a_stream);
}

const CROWD: usize = scaled(50_000, 5_000);

/// Many goroutines, most of which do nothing in most generations.
fn crowds() {
    let time = wished().unwrap_or(Duration::from_secs(3));
    let crowd = if wished().is_some() { 50_000 } else { CROWD };
    let buffer = Buffer::default();
    let out = buffer.clone();
    rt::run(move || {
        let (tx, rx) = bounded::<()>(0);
        let all: Vec<_> = (0..crowd)
            .map(|_| {
                let rx = rx.clone();
                rt::go(move || rx.iter().count())
            })
            .collect();
        let stream = Stream::start(out).unwrap();
        let began = Instant::now();
        while began.elapsed() < time {
            tx.send(()).unwrap();
            rt::time::sleep(Duration::from_micros(100));
        }
        stream.stop().unwrap();
        drop(tx);
        assert!(all.into_iter().map(|h| h.join().unwrap()).sum::<usize>() > 0);
    });
    let trace = buffer.take();
    judge("a crowd", &trace);
    let all = generations(&trace);
    let (mut alone_bytes, count) = (0, all.len());
    for (i, told) in all.into_iter().enumerate() {
        let alone = [&HEADER[..], &trace[told.bytes.clone()]].concat();
        judge(&format!("a crowd, generation {i} alone"), &alone);
        let named = generations(&alone).pop().expect("one").named;
        assert!(named.len() >= crowd, "{} of {crowd} goroutines in generation {i}", named.len());
        assert!(told.alive.is_subset(&named), "somebody lives and is not named in generation {i}");
        alone_bytes += alone.len();
        // For Go's reader, by way of the conformance checks.
        if i == 1 || wished().is_some() {
            common::keep(&format!("trace-soak/generation-{i}.trace"), &alone);
        }
    }
    assert!(count as u64 >= time.as_secs(), "{count} generations");
    println!("a crowd of {crowd}: {count} generations in {time:?}, {alone_bytes} bytes, each good alone");
}

#[test]
fn stress_each_generation_names_a_crowd() {
    run("crowds", crowds);
}

/// One large file.
fn writes_millions() {
    let events: u64 = match std::env::var("RT_SOAK_EVENTS") {
        Ok(n) => n.parse().expect("RT_SOAK_EVENTS: want a number"),
        Err(_) => scaled(4_000_000, 1_000_000) as u64,
    };
    let path = scratch_file("millions.trace");
    let file = File::create(&path).unwrap();
    rt::Config::new().gomaxprocs(2).run(move || {
        let stream = Stream::start(file).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let load = full_load(2, &stop);
        let bytes = |p: &PathBuf| fs::metadata(p).map_or(0, |m| m.len());
        // Six bytes for each, more or less: they are counted below.
        while bytes(&path) < events * 6 {
            rt::time::sleep(Duration::from_millis(50));
        }
        stop.store(true, Relaxed);
        let handed: u64 = load.into_iter().map(|h| h.join().unwrap()).sum();
        let took = began.elapsed();
        let stats = stream.stop().unwrap();
        let peak_kib = memory_kib("VmHWM");
        assert_eq!(stats.bytes, bytes(&path));
        let reader = Reader::new(BufReader::with_capacity(1 << 20, File::open(&path).unwrap())).unwrap();
        let (mut read, mut switches) = (0u64, 0u64);
        for e in reader {
            let e = e.unwrap();
            read += 1;
            switches += u64::from(e.kind == Ev::GoStart);
        }
        assert!(read >= events / 4 && switches > 0, "{read} events of {events}");
        println!(
            "{read} events in one file of {} MB, by {handed} hand-overs in {took:?}: {:.1} million/s, {:.0} MB/s; RSS {} MiB at \
             most while it was written, {} with its reading",
            stats.bytes / 1_000_000,
            read as f64 / took.as_secs_f64() / 1e6,
            stats.bytes as f64 / took.as_secs_f64() / 1e6,
            peak_kib >> 10,
            memory_kib("VmHWM") >> 10,
        );
        // What may wait for the writer, two generations with their tables, and the program.
        let most_kib = (tracer::record::PENDING_BYTES_MAX as u64 >> 10) + (200 << 10);
        assert!(peak_kib <= most_kib, "{peak_kib} KiB");
        fs::remove_file(path).unwrap();
    });
}

#[test]
fn stress_millions_of_events_in_one_file() {
    run("writes_millions", writes_millions);
}

//! Streams and flight recorders, any number at once: each gets whole generations from its start to its end.

mod common;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Buffer, HangGuard, Rng, everywhere, judge, scaled, seed, wait_for};
use rt::trace::{FlightRecorder, Options, SnapshotError, StartError, StopError, Stream, StreamError};
use tracer::read::Reader;
use tracer::wire::Ev;

/// Goroutines that do a bit of everything until they are told to stop.
fn load(goroutines: usize) -> impl FnOnce() {
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, rx) = rt::chan::bounded(4);
    let all: Vec<_> = (0..goroutines)
        .map(|i| {
            let (stop, tx, rx) = (stop.clone(), tx.clone(), rx.clone());
            rt::go(move || {
                while !stop.load(SeqCst) {
                    match i % 4 {
                        0 => drop(tx.send_timeout(i, Duration::from_millis(1))),
                        1 => drop(rx.recv_timeout(Duration::from_millis(1))),
                        2 => rt::time::sleep(Duration::from_micros(200)),
                        _ => rt::blocking(|| std::thread::sleep(Duration::from_micros(100))),
                    }
                }
            })
        })
        .collect();
    move || {
        stop.store(true, SeqCst);
        all.into_iter().for_each(|g| g.join().unwrap());
    }
}

/// When the first and the last event of a trace happened, in nanoseconds of its clock, and how many there are.
fn span(trace: &[u8]) -> (i64, i64, usize) {
    let reader = Reader::new(trace).expect("a good header");
    let (mut first, mut last, mut n) = (i64::MAX, i64::MIN, 0);
    for e in reader {
        let e = e.expect("a good event");
        (first, last, n) = (first.min(e.time), last.max(e.time), n + 1);
    }
    (first, last, n)
}

#[test]
fn smoke_recorder() {
    everywhere("smoke_recorder", || {
        let _guard = HangGuard::new("smoke_recorder");
        rt::run(|| {
            let recorder = FlightRecorder::new().max_bytes(1 << 20);
            assert!(!recorder.enabled());
            assert!(matches!(recorder.snapshot(io::sink()), Err(SnapshotError::NotStarted)));
            recorder.stop();
            recorder.start().unwrap();
            assert!(recorder.enabled() && rt::trace::enabled());
            assert!(matches!(recorder.start(), Err(StartError::AlreadyStarted)));
            let stop = load(8);
            for _ in 0..3 {
                rt::time::sleep(Duration::from_millis(10));
                let mut trace = Vec::new();
                assert_eq!(recorder.snapshot(&mut trace).unwrap(), trace.len() as u64);
                judge("snapshot", &trace);
                assert!(span(&trace).2 > 10);
            }
            recorder.stop();
            assert!(!recorder.enabled() && !rt::trace::enabled());
            // Again, and nothing of before is in it.
            recorder.start().unwrap();
            let mut trace = Vec::new();
            recorder.snapshot(&mut trace).unwrap();
            judge("snapshot after a restart", &trace);
            drop(recorder);
            assert!(!rt::trace::enabled());
            stop();
        });
    });
}

#[test]
fn streams_and_recorders_side_by_side() {
    everywhere("streams_and_recorders_side_by_side", || {
        let _guard = HangGuard::new("side_by_side");
        rt::run(|| {
            let stop = load(12);
            let seed = seed();
            let all: Vec<_> = (0..6u64)
                .map(|i| {
                    rt::go(move || {
                        let mut rng = Rng::new(seed + i);
                        for _ in 0..scaled(40, 8) {
                            if i % 2 == 0 {
                                let buffer = Buffer::default();
                                let stream = Stream::start(buffer.clone()).unwrap();
                                rt::time::sleep(Duration::from_micros(rng.below(5000)));
                                let stats = stream.stop().unwrap();
                                let trace = buffer.take();
                                assert_eq!(stats.bytes, trace.len() as u64);
                                assert!(stats.generations >= 1);
                                judge("one of many streams", &trace);
                            } else {
                                let recorder = FlightRecorder::new().max_bytes(1 << 20);
                                recorder.start().unwrap();
                                rt::time::sleep(Duration::from_micros(rng.below(5000)));
                                let mut trace = Vec::new();
                                recorder.snapshot(&mut trace).unwrap();
                                judge("one of many snapshots", &trace);
                            }
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
            stop();
            assert!(!rt::trace::enabled(), "the last one out turns off the light");
        });
    });
}

/// Snapshots at the same time, of one recorder, while another one and a trace run.
#[test]
fn snapshots_at_once() {
    let _guard = HangGuard::new("snapshots_at_once");
    rt::run(|| {
        let whole = Buffer::default();
        rt::trace::start(whole.clone()).unwrap();
        let stop = load(8);
        let recorder = Arc::new(FlightRecorder::new().max_bytes(1 << 19));
        recorder.start().unwrap();
        let all: Vec<_> = (0..8)
            .map(|_| {
                let recorder = recorder.clone();
                rt::go(move || {
                    for _ in 0..scaled(5, 2) {
                        let mut trace = Vec::new();
                        recorder.snapshot(&mut trace).unwrap();
                        judge("a snapshot of several", &trace);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        recorder.stop();
        assert!(rt::trace::enabled());
        stop();
        rt::trace::stop().unwrap();
        judge("the trace beside them", &whole.take());
    });
}

/// The bytes bound what is kept, and the age does.
#[test]
fn bounds() {
    let _guard = HangGuard::new("bounds");
    rt::run(|| {
        let small = FlightRecorder::new().max_bytes(1 << 19);
        let young = FlightRecorder::new().min_age(Duration::from_millis(1)).max_bytes(64 << 20);
        small.start().unwrap();
        young.start().unwrap();
        let stop = load(16);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            rt::time::sleep(Duration::from_millis(20));
            assert!(small.bytes() <= (1 << 19) + (1 << 18), "{} bytes are kept", small.bytes());
        }
        for (recorder, what) in [(&small, "small"), (&young, "young")] {
            let mut trace = Vec::new();
            recorder.snapshot(&mut trace).unwrap();
            judge(what, &trace);
        }
        stop();
    });
}

/// A stream whose writer blocks keeps nobody waiting: others go on and end.
#[test]
fn a_writer_that_blocks_blocks_nobody() {
    struct Stuck(std::sync::mpsc::Receiver<()>, Arc<AtomicBool>);
    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.store(true, SeqCst);
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let _guard = HangGuard::new("stuck writer");
    rt::run(|| {
        let (release, stuck) = std::sync::mpsc::channel();
        let reached = Arc::new(AtomicBool::new(false));
        let slow = Stream::start(Stuck(stuck, reached.clone())).unwrap();
        let stop = load(4);
        for _ in 0..5 {
            let buffer = Buffer::default();
            let stream = Stream::start(buffer.clone()).unwrap();
            rt::time::sleep(Duration::from_millis(2));
            assert!(stream.stop().unwrap().generations >= 1);
            judge("beside a writer that blocks", &buffer.take());
        }
        wait_for("the writer was called", || reached.load(SeqCst));
        // Another one that nobody lets go.
        let (_never, stuck) = std::sync::mpsc::channel();
        let hopeless = Stream::start(Stuck(stuck, Arc::default())).unwrap();
        match hopeless.stop_timeout(Duration::from_millis(20)) {
            Err(StopError::TimedOut) => {}
            other => panic!("{other:?}"),
        }
        let quick = Stream::start(io::sink()).unwrap();
        assert!(quick.stop_timeout(Duration::from_secs(1000)).unwrap().generations >= 1);
        stop();
        drop(release);
        assert!(slow.stop().unwrap().generations >= 5);
    });
}

/// One that fails ends with its error, and the others go on.
#[test]
fn a_writer_that_fails_fails_alone() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.checked_sub(bytes.len()) {
                Some(left) => self.0 = left,
                None => return Err(io::ErrorKind::StorageFull.into()),
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let _guard = HangGuard::new("failing writer");
    rt::run(|| {
        let buffer = Buffer::default();
        let good = Stream::start(buffer.clone()).unwrap();
        let bad = Stream::start(Full(100)).unwrap();
        rt::go(|| {}).join().unwrap();
        match bad.stop() {
            Err(StopError::Stream(StreamError::Write(e))) => assert_eq!(e.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        drop(Stream::start(Full(0)).unwrap());
        good.stop().unwrap();
        judge("beside one that fails", &buffer.take());
    });
}

/// From plain threads, too, and before anything else.
#[test]
fn from_threads() {
    let _guard = HangGuard::new("from_threads");
    let recorder = FlightRecorder::new();
    recorder.start().unwrap();
    let (tx, rx) = rt::chan::bounded(0);
    rt::go(move || tx.send(1).unwrap());
    assert_eq!(rx.recv(), Ok(1));
    let mut trace = Vec::new();
    recorder.snapshot(&mut trace).unwrap();
    judge("from a thread", &trace);
}

/// Without stacks a trace is as good as any, and goroutines still have their functions; who else records has them.
#[test]
fn without_stacks() {
    everywhere("without_stacks", || {
        /// How many events that could have a stack have one, and how many goroutines begin somewhere.
        fn stacks(trace: &[u8]) -> (usize, usize) {
            let (mut with, mut starts) = (0, 0);
            common::events(trace, |e, _| match e.kind {
                Ev::GoBlock | Ev::GoStop => with += usize::from(e.args[1] != 0),
                Ev::GoCreate => {
                    starts += usize::from(e.args[1] != 0);
                    with += usize::from(e.args[2] != 0);
                }
                Ev::GoUnblock => with += usize::from(e.args[2] != 0),
                Ev::GoStatusStack => with += 1,
                _ => {}
            });
            (with, starts)
        }
        let _guard = HangGuard::new("without_stacks");
        rt::run(|| {
            let bare = Options::new().stacks(false);
            let stop = load(8);
            let work = || (0..20).for_each(|_| rt::go(rt::yield_now).join().unwrap());
            let (buffer, second) = (Buffer::default(), Buffer::default());
            let stream = Stream::start_with(buffer.clone(), bare).unwrap();
            let recorder = FlightRecorder::new().options(bare);
            recorder.start().unwrap();
            work();
            stream.stop().unwrap();
            let trace = buffer.take();
            judge("without stacks", &trace);
            let (with, starts) = stacks(&trace);
            assert!(with == 0 && starts >= 20, "{with} stacks, {starts} starts");
            let rich = Stream::start(second.clone()).unwrap();
            work();
            rich.stop().unwrap();
            let trace = second.take();
            judge("beside one without stacks", &trace);
            let (with, starts) = stacks(&trace);
            assert!(starts >= 20 && (with > 20 || tracer::unwind::method() == tracer::unwind::Method::Off), "{with}");
            // The one with stacks has gone, and with it the stacks.
            recorder.stop();
            recorder.start().unwrap();
            work();
            let mut trace = Vec::new();
            recorder.snapshot(&mut trace).unwrap();
            judge("a snapshot without stacks", &trace);
            assert_eq!(stacks(&trace).0, 0);
            stop();
        });
    });
}

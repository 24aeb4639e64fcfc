//! What happens when the runtime is asked for something that cannot be: a clear word, no harm, and it goes on.

mod common;

use std::io::{self, Write};
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{Actor, Buffer, Rng, Started, judge, message, program, scaled, scratch_file, seed, wait_for};
use rt::trace::{StartError, StopError};
use tracer::read::Reader;

programs!(
    hello,
    hello_without_run,
    start_after_failure,
    bad_config,
    second_config,
    trace_twice,
    stop_without_start,
    stress_start_and_stop,
    failing_writers,
    half_a_trace,
    patient_with_writers,
    blocking_writer,
    run_twice,
    run_twice_at_once,
    main_panics,
    own_stop,
    own_start,
    maps_run_out,
    main_stays_locked,
);

/// A little of everything, so that a trace has something in it.
fn work() {
    let (tx, rx) = rt::chan::bounded(1);
    let handles: Vec<_> = (0..10)
        .map(|i| {
            let tx = tx.clone();
            rt::go(move || {
                rt::yield_now();
                tx.send(i).unwrap();
            })
        })
        .collect();
    drop(tx);
    assert_eq!(rx.iter().sum::<i32>(), 45);
    handles.into_iter().for_each(|h| h.join().unwrap());
    rt::blocking(|| ());
}

fn hello() {
    println!("before: {}", rt::gomaxprocs());
    rt::run(work);
    println!("hello from {}", rt::gomaxprocs());
}

fn hello_without_run() {
    rt::go(work).join().unwrap();
    println!("hello from {}", rt::gomaxprocs());
}

// GOMAXPROCS.

#[test]
fn gomaxprocs_in_the_environment() {
    for name in ["hello", "hello_without_run"] {
        for bad in ["abc", "0", "99999", "1025", "-1", "1.5", " 2", "2 "] {
            let ended = program(name, &[("GOMAXPROCS", bad)]);
            ended.expect_code(101).expect_stderr(&[
                "cannot start the runtime",
                &format!("GOMAXPROCS={bad}:"),
                "from 1 to 1024",
            ]);
            ended.expect("nothing to run", !ended.stdout.contains("hello"));
        }
        for good in ["1", "3", "1024"] {
            let ended = program(name, &[("GOMAXPROCS", good)]);
            ended.expect_code(0).expect(good, ended.stdout.contains(&format!("hello from {good}\n")));
        }
        let ended = program(name, &[("GOMAXPROCS", "")]);
        let cores = std::thread::available_parallelism().unwrap();
        ended.expect_code(0).expect("all cores", ended.stdout.contains(&format!("hello from {cores}\n")));
    }
    let ended = program("hello", &[("GOMAXPROCS", "7")]);
    ended.expect("the number is known before", ended.stdout.contains("before: 7\n"));
    let ended = program("hello", &[("GOMAXPROCS", "nonsense")]);
    ended.expect("some number even then", ended.stdout.contains("before: 1\n"));
}

fn start_after_failure() {
    for _ in 0..3 {
        let payload = catch_unwind(|| rt::run(|| ())).unwrap_err();
        assert!(message(&*payload).contains("GOMAXPROCS=none"));
        assert!(message(&*catch_unwind(|| rt::go(|| ())).unwrap_err()).contains("GOMAXPROCS=none"));
    }
    // What the program says overrides the environment.
    rt::Config::new().gomaxprocs(2).run(work);
    assert_eq!(rt::gomaxprocs(), 2);
    rt::run(work);
}

#[test]
fn a_start_that_failed_can_be_repeated() {
    program("start_after_failure", &[("GOMAXPROCS", "none")]).expect_code(0);
}

fn bad_config() {
    let of = |config: rt::Config| {
        let payload = catch_unwind(|| config.run(|| ())).unwrap_err();
        message(&*payload).to_owned()
    };
    for n in [0, 1025, usize::MAX] {
        let text = of(rt::Config::new().gomaxprocs(n));
        assert!(text.contains(&format!("gomaxprocs({n})")) && text.contains("from 1 to 1024"), "{text}");
    }
    for n in [0, 1, 4] {
        let text = of(rt::Config::new().gomaxprocs(4).max_threads(n));
        assert!(text.contains(&format!("max_threads({n})")) && text.contains("4"), "{text}");
    }
    rt::Config::new().gomaxprocs(4).max_threads(5).run(work);
    assert_eq!(rt::gomaxprocs(), 4);
}

fn second_config() {
    assert_eq!(rt::Config::new().gomaxprocs(2).run(rt::gomaxprocs), 2);
    let payload = catch_unwind(|| rt::Config::new().gomaxprocs(3).run(|| ())).unwrap_err();
    let text = message(&*payload);
    assert!(text.contains("GOMAXPROCS=2") && text.contains("not 3"), "{text}");
    let payload = catch_unwind(|| rt::Config::new().gomaxprocs(0).run(|| ())).unwrap_err();
    assert!(message(&*payload).contains("gomaxprocs(0)"));
    rt::Config::new().gomaxprocs(2).run(work);
    rt::run(work);
}

#[test]
fn config() {
    program("bad_config", &[]).expect_code(0);
    program("second_config", &[]).expect_code(0);
}

#[test]
fn border_in_the_environment() {
    let ended = program("hello", &[("RT_BORDER", "nonsense")]);
    ended.expect_code(0).expect_stderr(&["RT_BORDER=nonsense", "\"membarrier\"", "\"fence\""]);
    ended.expect("one line about it", ended.stderr.lines().count() == 1);
    for good in ["fence", "membarrier", ""] {
        let ended = program("hello", &[("RT_BORDER", good)]);
        ended.expect_code(0).expect("nothing to say", ended.stderr.is_empty());
    }
}

// Traces.

fn trace_twice() {
    for from in Actor::BOTH {
        let (first, second) = (Buffer::default(), Buffer::default());
        let (out, other) = (first.clone(), second.clone());
        let dropped = Arc::new(());
        let tells = TellsWhenDropped(other, dropped.clone());
        from.start(move || {
            rt::trace::start(out).unwrap();
            let e = rt::trace::start(tells).unwrap_err();
            assert!(matches!(e, StartError::AlreadyStarted));
            assert!(e.to_string().contains("rt::trace::stop()"), "{e}");
            assert!(rt::trace::enabled());
        })
        .join();
        assert_eq!(Arc::strong_count(&dropped), 1, "the writer that is not used is dropped");
        rt::run(work);
        let stats = rt::trace::stop().unwrap();
        let trace = first.take();
        assert_eq!((stats.bytes, stats.generations), (trace.len() as u64, 1));
        judge("trace_twice", &trace);
        assert!(common::count(&trace, tracer::wire::Ev::GoCreate) >= 10);
        assert_eq!(second.take().len(), 0);
    }
}

struct TellsWhenDropped(Buffer, #[allow(dead_code)] Arc<()>);

impl Write for TellsWhenDropped {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        self.0.write(b)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stop_without_start() {
    fn none() {
        let e = rt::trace::stop().unwrap_err();
        assert!(matches!(e, StopError::NotStarted) && e.to_string() == "no trace is running", "{e}");
        assert!(!rt::trace::enabled());
    }
    // Before there is a runtime, and from everywhere.
    none();
    rt::run(none);
    traced_work("after stops without a start");
    none();
    rt::run(none);
}

/// A good trace can be made.
fn traced_work(what: &str) {
    let buffer = Buffer::default();
    rt::trace::start(buffer.clone()).unwrap();
    rt::run(work);
    let stats = rt::trace::stop().unwrap();
    let trace = buffer.take();
    assert_eq!(stats.bytes, trace.len() as u64, "{what}");
    judge(what, &trace);
    assert!(common::count(&trace, tracer::wire::Ev::GoCreate) >= 10, "{what}");
}

/// Many start and stop at random: every trace that was started is stopped once and is good.
fn stress_start_and_stop() {
    let seed = seed();
    let over = Arc::new(AtomicBool::new(false));
    let o = over.clone();
    let busy = rt::go(move || {
        while !o.load(SeqCst) {
            work();
        }
    });
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let traces = Arc::new(Mutex::new(Vec::new()));
    let actors: Vec<_> = (0..6)
        .map(|i| {
            let (counts, traces) = (counts.clone(), traces.clone());
            let mut rng = Rng::new(seed ^ i);
            Actor::mixed(i as usize).start(move || {
                for _ in 0..scaled(100, 30) {
                    if rng.below(2) == 0 {
                        let buffer = Buffer::default();
                        match rt::trace::start(buffer.clone()) {
                            Ok(()) => {
                                counts.0.fetch_add(1, SeqCst);
                                traces.lock().unwrap().push(buffer);
                            }
                            Err(e) => assert!(matches!(e, StartError::AlreadyStarted)),
                        }
                    } else {
                        match rt::trace::stop() {
                            Ok(stats) => {
                                assert!(stats.generations >= 1);
                                counts.1.fetch_add(1, SeqCst);
                            }
                            Err(e) => assert!(matches!(e, StopError::NotStarted), "{e}"),
                        }
                    }
                    rt::yield_now();
                }
            })
        })
        .collect();
    actors.into_iter().for_each(Started::join);
    let last = usize::from(rt::trace::stop().is_ok());
    over.store(true, SeqCst);
    busy.join().unwrap();
    let (started, stopped) = (counts.0.load(SeqCst), counts.1.load(SeqCst));
    println!("{started} traces");
    assert_eq!(started, stopped + last);
    for (i, buffer) in traces.lock().unwrap().iter().enumerate() {
        judge(&format!("start and stop, seed {seed}, {i}"), &buffer.take());
    }
}

#[test]
fn trace_started_twice() {
    program("trace_twice", &[]).expect_code(0);
}

#[test]
fn trace_stopped_without_start() {
    program("stop_without_start", &[]).expect_code(0);
}

#[test]
fn stress_trace_start_and_stop() {
    for env in common::CONFIGURATIONS {
        program("stress_start_and_stop", env).expect_code(0);
    }
}

/// What a writer does when its bytes are used up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    Error,
    Zero,
    Panic,
    FlushError,
    FlushPanic,
    DropPanic,
}

struct Fails {
    after: usize,
    how: Failure,
    got: Buffer,
    /// Calls after the failure.
    late: Arc<AtomicUsize>,
    failed: bool,
}

impl Fails {
    fn fail(&mut self, panics: bool) -> io::Result<()> {
        self.failed = true;
        if panics {
            std::panic::resume_unwind(Box::new("the writer's panic"));
        }
        Err(io::Error::other("the writer's error"))
    }
}

impl Write for Fails {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        if self.failed {
            self.late.fetch_add(1, SeqCst);
        }
        let n = b.len().min(self.after);
        if n == 0 && !b.is_empty() {
            match self.how {
                Failure::Error => self.fail(false)?,
                Failure::Panic => self.fail(true)?,
                Failure::Zero => {
                    self.failed = true;
                    return Ok(0);
                }
                _ => return self.got.write(b),
            }
        }
        self.after -= n;
        self.got.write(&b[..n])
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.how {
            Failure::FlushError => self.fail(false),
            Failure::FlushPanic => self.fail(true),
            _ => Ok(()),
        }
    }
}

impl Drop for Fails {
    fn drop(&mut self) {
        if self.how == Failure::DropPanic {
            std::panic::resume_unwind(Box::new("the writer's panic"));
        }
    }
}

fn failing_writers() {
    use Failure::*;
    for (after, how) in
        [(0, Error), (20, Error), (600, Error), (0, Zero), (0, Panic), (600, Panic), (0, FlushError), (0, FlushPanic)]
    {
        for from in Actor::BOTH {
            let what = format!("a writer with {how:?} after {after} bytes, from a {from:?}");
            let (got, late) = (Buffer::default(), Arc::new(AtomicUsize::new(0)));
            let writer = Fails { after, how, got: got.clone(), late: late.clone(), failed: false };
            rt::trace::start(writer).unwrap();
            rt::run(work);
            let e = from.start(rt::trace::stop).join().expect_err(&what);
            assert!(matches!(&e, StopError::Stream(rt::trace::StreamError::Write(_))), "{what}: {e:?}");
            assert!(e.to_string().contains("writer"), "{what}: {e}");
            if how == Error {
                assert!(e.to_string().contains("the writer's error"), "{what}: {e}");
            }
            assert_eq!(late.load(SeqCst), 0, "{what} is not called again");
            // It may have got some bytes, but they say nothing wrong.
            read_as_far_as_it_goes(&got.take());
            traced_work(&format!("after {what}"));
        }
    }
    // All was written by then: that cannot be an error of the trace, nor the end of the program.
    let got = Buffer::default();
    let writer = Fails { after: 0, how: DropPanic, got: got.clone(), late: Arc::default(), failed: false };
    rt::trace::start(writer).unwrap();
    rt::run(work);
    let _ = rt::trace::stop();
    judge("a writer that panics when dropped", &got.take());
    traced_work("after a writer that panics when dropped");

    if Path::new("/dev/full").exists() {
        rt::trace::start(std::fs::File::create("/dev/full").unwrap()).unwrap();
        rt::run(work);
        let e = rt::trace::stop().unwrap_err();
        let StopError::Stream(rt::trace::StreamError::Write(e)) = e else { panic!("{e:?}") };
        assert_eq!(e.kind(), io::ErrorKind::StorageFull);
        traced_work("after /dev/full");
    }
}

/// How many events there are before the first that is wrong or missing.
fn read_as_far_as_it_goes(trace: &[u8]) -> usize {
    Reader::new(trace).map_or(0, |reader| reader.map_while(Result::ok).count())
}

#[test]
fn writers_that_fail() {
    program("failing_writers", &[]).expect_code(0);
}

/// A writer that fails in the second generation has got the first one whole.
fn half_a_trace() {
    let (got, late) = (Buffer::default(), Arc::new(AtomicUsize::new(0)));
    struct FailsLater(Buffer, Arc<AtomicUsize>, Arc<AtomicBool>);
    impl Write for FailsLater {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            if self.2.load(SeqCst) {
                self.1.fetch_add(1, SeqCst);
                return Err(io::Error::other("enough"));
            }
            self.0.write(b)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let enough = Arc::new(AtomicBool::new(false));
    let writer = FailsLater(got.clone(), late.clone(), enough.clone());
    let e = rt::run(move || {
        rt::trace::start(writer).unwrap();
        work();
        let all = Arc::new(Mutex::new(Vec::new()));
        wait_for("the first generation is written", || {
            let mut all = all.lock().unwrap();
            all.extend(got.take());
            all.last() == Some(&(tracer::wire::Ev::EndOfGeneration as u8)) && read_as_far_as_it_goes(&all) > 0
        });
        enough.store(true, SeqCst);
        work();
        let e = rt::trace::stop().unwrap_err();
        let first = all.lock().unwrap();
        judge("the first of two generations", &first);
        assert!(common::count(&first, tracer::wire::Ev::GoCreate) >= 10);
        assert_eq!(late.load(SeqCst), 1, "it is not called again");
        e
    });
    assert!(e.to_string().contains("enough"), "{e}");
    traced_work("after half a trace");
}

#[test]
fn writer_that_fails_half_way() {
    program("half_a_trace", &[]).expect_code(0);
}

/// Interruptions and short writes are no failures.
fn patient_with_writers() {
    struct Capricious(Buffer, Rng);
    impl Write for Capricious {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            match self.1.below(3) {
                0 => Err(io::ErrorKind::Interrupted.into()),
                1 => self.0.write(&b[..b.len().min(1)]),
                _ => self.0.write(&b[..b.len().min(100)]),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let got = Buffer::default();
    rt::trace::start(Capricious(got.clone(), Rng::new(seed()))).unwrap();
    rt::run(work);
    let stats = rt::trace::stop().unwrap();
    let trace = got.take();
    assert_eq!(stats.bytes, trace.len() as u64);
    judge("a capricious writer", &trace);
}

#[test]
fn writer_that_takes_little_at_a_time() {
    program("patient_with_writers", &[]).expect_code(0);
}

/// While a writer blocks the program goes on, for longer than the two generations that the tables hold.
fn blocking_writer() {
    struct Blocks(Buffer, mpsc::Sender<()>, mpsc::Receiver<()>);
    impl Write for Blocks {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            let _ = self.1.send(());
            // An error: the test has let all further writes through.
            let _ = self.2.recv();
            self.0.write(b)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (got, (in_write, is_in_write), (let_go, may_go)) = (Buffer::default(), mpsc::channel(), mpsc::channel());
    let writer = Blocks(got.clone(), in_write, may_go);
    rt::run(move || {
        rt::trace::start(writer).unwrap();
        rt::blocking(|| is_in_write.recv()).unwrap();
        // Now the writer holds the first generation.
        let began = Instant::now();
        let mut rounds = 0;
        while rounds < 20 || began.elapsed() < Duration::from_millis(2200) {
            work();
            rt::time::sleep(Duration::from_millis(10));
            rounds += 1;
        }
        assert!(got.take().is_empty());
        drop(let_go);
        let stats = rt::trace::stop().unwrap();
        let trace = got.take();
        assert_eq!(stats.bytes, trace.len() as u64);
        judge("a writer that blocks", &trace);
        assert!(stats.generations >= 2);
        assert!(common::count(&trace, tracer::wire::Ev::GoCreate) >= 10 * rounds);
    });
}

#[test]
fn writer_that_blocks() {
    program("blocking_writer", &[]).expect_code(0);
}

// RT_TRACE.

fn run_twice() {
    rt::run(work);
    rt::run(work);
}

fn run_twice_at_once() {
    let (first, second) = (mpsc::channel(), mpsc::channel());
    // The second run begins and ends within the first.
    let outer = std::thread::spawn(move || {
        rt::run(move || {
            work();
            let file = std::env::var("RT_TRACE").unwrap();
            wait_for("a generation is written", || std::fs::metadata(&file).unwrap().len() > 0);
            first.0.send(()).unwrap();
            rt::blocking(|| second.1.recv()).unwrap();
            work();
        });
    });
    first.1.recv().unwrap();
    rt::run(work);
    second.0.send(()).unwrap();
    outer.join().unwrap();
}

fn main_panics() {
    rt::run(|| {
        work();
        panic!("main has failed");
    });
}

fn own_stop() {
    rt::run(|| {
        work();
        assert!(rt::trace::enabled());
        rt::trace::stop().unwrap();
        work();
    });
}

fn own_start() {
    rt::run(|| {
        let own = Buffer::default();
        assert!(matches!(rt::trace::start(own), Err(StartError::AlreadyStarted)));
        work();
    });
}

#[test]
fn rt_trace_gives_a_good_file() {
    for (name, code, said) in [
        ("hello", 0, ""),
        ("run_twice", 0, ""),
        ("main_panics", 101, "main has failed"),
        ("own_stop", 0, ""),
        ("own_start", 0, ""),
    ] {
        let file = scratch_file(&format!("rt_trace-{name}"));
        let ended = program(name, &[("RT_TRACE", file.to_str().unwrap())]);
        ended
            .expect_code(code)
            .expect_stderr(&[said])
            .expect("no warning", !said.is_empty() || ended.stderr.is_empty());
        let trace = std::fs::read(&file).unwrap();
        judge(&format!("RT_TRACE for {name}"), &trace);
        assert!(common::count(&trace, tracer::wire::Ev::GoCreate) >= 10, "{name}");
        std::fs::remove_file(file).unwrap();
    }
}

/// The file belongs to the run that began first; another run at the same time must not touch it.
#[test]
fn rt_trace_of_two_runs_at_once() {
    let file = scratch_file("rt_trace-run_twice_at_once");
    program("run_twice_at_once", &[("RT_TRACE", file.to_str().unwrap())]).expect_code(0);
    let trace = std::fs::read(&file).unwrap();
    judge("RT_TRACE for two runs at once", &trace);
    // Both are in it.
    assert!(common::count(&trace, tracer::wire::Ev::GoCreate) >= 30);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn rt_trace_to_an_unwritable_path() {
    for path in ["/no/such/directory/trace", "/"] {
        let ended = program("hello", &[("RT_TRACE", path)]);
        ended.expect_code(0).expect("the program", ended.stdout.contains("hello from"));
        ended.expect_stderr(&[&format!("RT_TRACE={path}: "), "running without a trace"]);
        ended.expect("one line", ended.stderr.lines().count() == 1);
    }
    if Path::new("/dev/full").exists() {
        let ended = program("hello", &[("RT_TRACE", "/dev/full")]);
        ended.expect_code(0).expect("the program", ended.stdout.contains("hello from"));
        ended.expect_stderr(&["RT_TRACE=/dev/full: ", "os error 28"]);
    }
    let ended = program("hello", &[("RT_TRACE", "")]);
    ended.expect_code(0).expect("nothing to say", ended.stderr.is_empty());
}

// Memory.

/// Guards made by mprotect cost two mappings per stack, and the kernel has a limit on those.
fn maps_run_out() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    rt::run(move || {
        let check = |text: &str, live: usize| {
            for part in ["vm.max_map_count", &limit.to_string(), "stacks are in use"] {
                assert!(text.contains(part), "{part:?} in {text:?}");
            }
            let told: usize =
                text.split(" stacks are in use").next().unwrap().rsplit(['(', ' ']).next().unwrap().parse().unwrap();
            assert!(told.abs_diff(live) < 1000, "{told} are said to be in use, {live} wait: {text}");
        };
        let (about_to, (tx, rx)) = (Arc::new(AtomicUsize::new(0)), rt::chan::bounded::<()>(0));
        let (mut handles, mut refused) = (Vec::new(), None);
        while handles.len() < limit && refused.is_none() {
            let (a, r) = (about_to.clone(), rx.clone());
            let spawned = rt::Builder::new().spawn(move || {
                a.fetch_add(1, SeqCst);
                assert!(r.recv().is_err());
            });
            match spawned {
                Ok(h) => handles.push(h),
                Err(e) => refused = Some(e),
            }
            // So that they run: a goroutine that has not begun has no stack.
            if handles.len() % 16 == 0 {
                rt::yield_now();
            }
        }
        let e = refused.expect("the mappings do not suffice for that many");
        let live = about_to.load(SeqCst);
        println!("{live} wait, {} were spawned: {e}", handles.len());
        assert_eq!(e.kind(), io::ErrorKind::OutOfMemory);
        assert!(live > limit / 4, "{live} only, of {limit}");
        check(&e.to_string(), live);
        // `go` has no error to give.
        std::panic::set_hook(Box::new(|_| {}));
        let payload = catch_unwind(|| rt::go(|| ())).unwrap_err();
        let _ = std::panic::take_hook();
        assert!(message(&*payload).starts_with("rt::go: "));
        check(message(&*payload), live);
        // What was promised before is kept, with the stacks of those who end.
        drop((tx, rx));
        let n = handles.len();
        handles.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(about_to.load(SeqCst), n);
        work();
        let again: Vec<_> = (0..1000).map(|i| rt::Builder::new().spawn(move || i).unwrap()).collect();
        assert!(again.into_iter().enumerate().all(|(i, h)| h.join().unwrap() == i));
    });
}

#[test]
fn mappings_run_out() {
    for procs in ["1", "2"] {
        let ended = program("maps_run_out", &[("RT_STACK_GUARD", "mprotect"), ("GOMAXPROCS", procs)]);
        print!("{}", ended.expect_code(0).stdout);
    }
}

// Guards that are never dropped.

/// A main function that leaves its thread locked, and one that panics over it, harm nobody that comes afterwards.
fn main_stays_locked() {
    std::panic::set_hook(Box::new(|_| {}));
    for round in 0..20 {
        rt::run(|| std::mem::forget((rt::lock_os_thread(), rt::lock_os_thread())));
        let payload = catch_unwind(|| {
            rt::run(|| {
                let _guard = rt::lock_os_thread();
                std::mem::forget(rt::lock_os_thread());
                rt::yield_now();
                panic!("while locked");
            })
        });
        assert_eq!(message(&*payload.unwrap_err()), "while locked", "round {round}");
        rt::run(work);
    }
}

#[test]
fn locks_end_with_their_goroutine() {
    for procs in ["1", "2", "8"] {
        program("main_stays_locked", &[("GOMAXPROCS", procs)]).expect_code(0).expect_no_stderr("gort:");
    }
}

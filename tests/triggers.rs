//! Triggers of flight recorders: something happens, and a file tells what came before, up to that moment. Most of it in processes of its
//! own, which end in the ways that matter.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use common::{Ended, HangGuard, busy, events, judge, program, scratch_file, wait_for};
use rt::Context;
use rt::signal::Signal;
use rt::trace::{self, Armed, Files, FlightRecorder, Trigger};
use tracer::read::{Reader, Rule};
use tracer::wire::Ev;

programs! {
    slow_tasks_and_regions,
    late_turns,
    stays,
    panics_and_goes_on,
    panics_at_the_end,
    panics_under_a_hook_that_aborts,
    panics_twice,
    panics_many_at_once,
    overflows,
    dies,
    dies_inside,
    gets_signals,
    fires,
    fires_from_everywhere,
    cannot_write,
    deadlocks,
    fires_and_exits,
    leaves_streams,
    is_killed,
}

/// Where a program writes to.
const DIR: &str = "TRIGGERS_DIR";
/// What else it is told.
const HOW: &str = "TRIGGERS_HOW";

fn dir() -> PathBuf {
    std::env::var_os(DIR).expect("a directory").into()
}

fn how() -> String {
    std::env::var(HOW).unwrap()
}

/// In a directory that is yet to be made.
fn files() -> Files {
    Files::new(dir().join("made/{trigger}-{n}.trace").to_str().unwrap()).cool_down(Duration::ZERO)
}

fn recorder() -> FlightRecorder {
    let recorder = FlightRecorder::new();
    recorder.start().unwrap();
    recorder
}

/// A word in the trace.
fn mark(word: &str) {
    trace::log(&Context::background(), "mark", word);
}

fn written(armed: &Armed, n: usize) {
    wait_for("files are written", || armed.files().len() >= n);
}

fn metric(name: &str) -> u64 {
    rt::metrics::get(name).unwrap().as_u64().unwrap()
}

/// The words in a good trace.
fn marks(what: &str, path: &Path) -> Vec<String> {
    let trace = std::fs::read(path).unwrap();
    judge(what, &trace);
    let mut words = Vec::new();
    events(&trace, |e, tables| {
        let text = |i: usize| tables.string(e.args[i]).unwrap_or_default();
        if e.kind == Ev::UserLog && text(1) == "mark" {
            words.push(text(2).to_string());
        }
    });
    words
}

/// How a program ended, and the files that it left, by name, each with the words in it.
fn left(name: &str, env: &[(&str, &str)]) -> (Ended, Vec<(String, Vec<String>)>) {
    static NTH: AtomicUsize = AtomicUsize::new(0);
    let dir = scratch_file(&format!("triggers-{name}-{}", NTH.fetch_add(1, SeqCst)));
    let _ = std::fs::remove_dir_all(&dir);
    let ended = program(name, &[env, &[(DIR, dir.to_str().unwrap())]].concat());
    let made = std::fs::read_dir(dir.join("made"));
    let mut files: Vec<_> = made.map_or(Vec::new(), |d| d.map(|f| f.unwrap().path()).collect());
    files.sort();
    let name_of = |f: &PathBuf| f.file_name().unwrap().to_str().unwrap().to_owned();
    let files = files.iter().map(|f| (name_of(f), marks(&format!("{name} {}", name_of(f)), f))).collect();
    let _ = std::fs::remove_dir_all(&dir);
    (ended, files)
}

#[track_caller]
fn expect_files(ended: &Ended, files: &[(String, Vec<String>)], wanted: &[(&str, &str)]) {
    let same = files.len() == wanted.len()
        && files
            .iter()
            .zip(wanted)
            .all(|((name, words), (n, last))| name == n && words.last().is_some_and(|w| w == last));
    if !same {
        ended.fail(&format!("wanted files with a last word: {wanted:?}, got {files:?}"));
    }
}

fn slow_tasks_and_regions() {
    rt::run(|| {
        let recorder = recorder();
        let limit = Duration::from_millis(20);
        let ctx = Context::background();
        // Began before.
        let (_, early) = trace::Task::begin(&ctx, "early");
        let task = recorder.on(Trigger::Task(limit), files()).unwrap();
        let region = recorder.on(Trigger::Region(limit), files()).unwrap();
        rt::time::sleep(limit);
        early.end();
        for _ in 0..100 {
            drop(trace::Task::begin(&ctx, "short"));
            trace::with_region(&ctx, "short", || ());
        }
        trace::with_region(&ctx, "long", || {
            rt::time::sleep(limit);
            mark("in the region");
        });
        written(&region, 1);
        let (_, long) = trace::Task::begin(&ctx, "long");
        rt::time::sleep(limit);
        mark("in the task");
        // Elsewhere, on a thread.
        std::thread::spawn(|| long.end()).join().unwrap();
        written(&task, 1);
        drop((task, region));
        // Disarmed.
        trace::with_region(&ctx, "long", || rt::time::sleep(limit));
        rt::time::sleep(limit);
    });
}

#[test]
fn tasks_and_regions_that_take_long() {
    for procs in ["1", "4"] {
        let (ended, files) = left("slow_tasks_and_regions", &[("GOMAXPROCS", procs)]);
        ended.expect_code(0);
        expect_files(&ended, &files, &[("region-1.trace", "in the region"), ("task-1.trace", "in the task")]);
    }
}

fn late_turns() {
    rt::Config::new().gomaxprocs(1).run(|| {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Runnable(Duration::from_millis(5)), files().max_files(1)).unwrap();
        wait_for("one is late", || {
            let late = rt::go(|| ());
            mark("in front");
            busy(Duration::from_millis(6));
            late.join().unwrap();
            !armed.files().is_empty()
        });
        // The next one may be on its way already.
        rt::process::exit(0);
    });
}

#[test]
fn goroutines_that_wait_for_their_turn() {
    let (ended, files) = left("late_turns", &[]);
    ended.expect_code(0).expect("one file", files.len() == 1);
    ended.expect("with words", files[0].0.starts_with("runnable-") && files[0].1.iter().any(|w| w == "in front"));
}

fn stays() {
    let watchdog = Duration::from_millis(how().parse().unwrap());
    rt::Config::new().watchdog(watchdog).run(|| {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Stuck(Duration::from_millis(30)), files()).unwrap();
        for n in 1..=2 {
            mark("about to");
            // A second word for the same stay there is not.
            busy(Duration::from_millis(200));
            written(&armed, n);
        }
        rt::blocking(|| std::thread::sleep(Duration::from_millis(100)));
        rt::time::sleep(Duration::from_millis(20));
    });
}

#[test]
fn stays_in_plain_code() {
    // The watchdog off, sooner and later than the trigger.
    for watchdog in ["0", "10", "60"] {
        for procs in ["1", "2"] {
            let (ended, files) = left("stays", &[("GOMAXPROCS", procs), (HOW, watchdog)]);
            ended.expect_code(0);
            expect_files(&ended, &files, &[("stuck-1.trace", "about to"), ("stuck-2.trace", "about to")]);
        }
    }
}

fn panics_and_goes_on() {
    rt::run(|| {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Panic, files()).unwrap();
        mark("first");
        assert!(rt::go(|| panic!("in a goroutine")).join().is_err());
        assert_eq!(armed.files().len(), 1, "the panic waits for the file");
        mark("second");
        assert!(std::thread::spawn(|| panic!("in a thread")).join().is_err());
        assert_eq!(armed.files().len(), 2);
        // In a writer's hands.
        struct Panics;
        impl Write for Panics {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                panic!("in a writer")
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        mark("third");
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| recorder.snapshot(Panics))).is_err());
        assert_eq!(armed.files().len(), 3);
        // One of the tracer's own threads, which does not wait: the snapshot could be waiting for it.
        let stream = trace::Stream::start(Panics).unwrap();
        mark("fourth");
        assert!(stream.stop().is_err());
        written(&armed, 4);
        drop(armed);
        assert!(rt::go(|| panic!("disarmed")).join().is_err());
    });
}

#[test]
fn panics() {
    for procs in ["1", "4"] {
        let (ended, files) = left("panics_and_goes_on", &[("GOMAXPROCS", procs)]);
        ended.expect_code(0).expect_stderr(&["in a goroutine", "in a thread", "in a writer", "disarmed"]);
        let wanted = [
            ("panic-1.trace", "first"),
            ("panic-2.trace", "second"),
            ("panic-3.trace", "third"),
            ("panic-4.trace", "fourth"),
        ];
        expect_files(&ended, &files, &wanted);
    }
}

fn panics_at_the_end() {
    rt::run(|| {
        let recorder = recorder();
        let _armed = recorder.on(Trigger::Panic, files()).unwrap();
        mark("last");
        panic!("of the main goroutine");
    });
}

fn panics_under_a_hook_that_aborts() {
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    panics_at_the_end();
}

fn panics_twice() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    rt::run(|| {
        let recorder = recorder();
        let _armed = recorder.on(Trigger::Panic, files()).unwrap();
        mark("last");
        let _again = Again;
        panic!("once");
    });
}

#[test]
fn panics_that_end_the_process() {
    for procs in ["1", "4"] {
        let (ended, files) = left("panics_at_the_end", &[("GOMAXPROCS", procs)]);
        ended.expect_code(101).expect_stderr(&["of the main goroutine"]);
        expect_files(&ended, &files, &[("panic-1.trace", "last")]);
        let (ended, files) = left("panics_under_a_hook_that_aborts", &[("GOMAXPROCS", procs)]);
        ended.expect_signal(libc::SIGABRT);
        expect_files(&ended, &files, &[("panic-1.trace", "last")]);
        let (ended, files) = left("panics_twice", &[("GOMAXPROCS", procs)]);
        ended.expect_signal(libc::SIGABRT).expect_stderr(&["once", "again"]);
        // Std tells of a third one, by which it aborts.
        expect_files(
            &ended,
            &files,
            &[1, 2, 3].map(|n| (format!("panic-{n}.trace"), "last")).each_ref().map(|(n, w)| (n.as_str(), *w)),
        );
    }
}

fn panics_many_at_once() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload_as_str() != Some("one of many") {
            eprintln!("{info}");
        }
    }));
    rt::run(|| {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Panic, files().cool_down(Duration::from_secs(1000))).unwrap();
        mark("last");
        // So that there is a file, however busy the machine is with all those who panic.
        recorder.snapshot(io::sink()).unwrap();
        let all: Vec<_> = (0..200).map(|_| rt::go(|| panic!("one of many"))).collect();
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(|| panic!("one of many"))).collect();
        all.into_iter().for_each(|g| assert!(g.join().is_err()));
        threads.into_iter().for_each(|t| assert!(t.join().is_err()));
        written(&armed, 1);
        assert_eq!(metric("/gort/trace/snapshots/suppressed:triggers"), 207);
    });
}

#[test]
fn many_panics_make_one_file() {
    for procs in ["1", "4"] {
        let (ended, files) = left("panics_many_at_once", &[("GOMAXPROCS", procs)]);
        ended.expect_code(0);
        expect_files(&ended, &files, &[("panic-1.trace", "last")]);
    }
}

#[inline(never)]
fn recurses_without_end(depth: u64) -> u64 {
    let mine = std::hint::black_box([depth; 5]);
    if std::hint::black_box(depth) == u64::MAX {
        return 0;
    }
    recurses_without_end(depth + 1).wrapping_add(std::hint::black_box(mine)[2])
}

fn overflows() {
    rt::run(|| {
        let recorder = recorder();
        let trigger = if how() == "overflow" { Trigger::StackOverflow } else { Trigger::FatalSignal };
        let _armed = recorder.on(trigger, files()).unwrap();
        mark("last");
        recurses_without_end(0);
    });
}

#[test]
fn stack_overflow() {
    for procs in ["1", "4"] {
        for how in ["overflow", "fatal"] {
            let (ended, files) = left("overflows", &[("GOMAXPROCS", procs), (HOW, how)]);
            ended.expect_signal(libc::SIGSEGV);
            ended.expect_stderr(&[
                "fatal error: stack overflow",
                "recurses_without_end",
                "gort: flight recorder: stack-overflow",
            ]);
            expect_files(&ended, &files, &[("stack-overflow-1.trace", "last")]);
        }
    }
}

/// Dies as it is told.
fn die(how: &str) {
    // SAFETY: the end of the process is what is wanted.
    unsafe {
        match how {
            "abort" => std::process::abort(),
            "null" => std::ptr::without_provenance_mut::<u8>(8).write_volatile(1),
            "bus" => {
                // A page behind the end of a file.
                let file =
                    std::fs::File::options().read(true).write(true).create_new(true).open(dir().join("empty")).unwrap();
                let p = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0);
                assert_ne!(p, libc::MAP_FAILED);
                p.cast::<u8>().write_volatile(1);
            }
            "kill" => drop(libc::kill(libc::getpid(), libc::SIGABRT)),
            signal => drop(libc::raise(signal.parse().unwrap())),
        }
    }
    std::thread::sleep(Duration::from_secs(20));
}

fn dies() {
    rt::run(|| {
        let recorder = recorder();
        let _armed = recorder.on(Trigger::FatalSignal, files()).unwrap();
        let _other = recorder.on(Trigger::StackOverflow, files()).unwrap();
        let how = how();
        std::fs::create_dir_all(dir()).unwrap();
        mark("last");
        match how.split_once(' ') {
            Some(("thread", how)) => {
                let how = how.to_owned();
                std::thread::spawn(move || die(&how)).join().unwrap();
            }
            _ => die(&how),
        }
    });
}

#[test]
fn fatal_signals() {
    let raised = [libc::SIGILL, libc::SIGFPE].map(|s| (s.to_string(), s));
    let by_name = [("abort", libc::SIGABRT), ("null", libc::SIGSEGV), ("bus", libc::SIGBUS), ("kill", libc::SIGABRT)];
    let all = raised.into_iter().chain(by_name.map(|(how, s)| (how.to_owned(), s)));
    for (how, signal) in all {
        for (of, procs) in [("", "1"), ("thread ", "2")] {
            let (ended, files) = left("dies", &[("GOMAXPROCS", procs), (HOW, &format!("{of}{how}"))]);
            ended.expect_signal(signal);
            let name = Signal::from_raw(signal).unwrap().to_string().to_lowercase();
            ended.expect("a word", ended.stderr.contains(&format!("gort: flight recorder: {name}: wrote")));
            expect_files(&ended, &files, &[(&format!("{name}-1.trace"), "last")]);
        }
    }
}

/// Dies of a large piece of memory, if it is told to.
struct Fragile;

static FRAGILE_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: the system's allocator.
unsafe impl GlobalAlloc for Fragile {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size >= FRAGILE_FROM.load(SeqCst) && common::gettid() == VICTIM.load(SeqCst) as u64 {
            // SAFETY: the end of the process is what is wanted.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        }
        // SAFETY: passed on.
        unsafe { System.realloc(p, layout, size) }
    }
}

static VICTIM: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Fragile = Fragile;

/// In the middle of the runtime, with a processor and its timers' lock in its hands, when these need more room.
fn dies_inside() {
    rt::Config::new().gomaxprocs(1).run(|| {
        let recorder = recorder();
        let _armed = recorder.on(Trigger::FatalSignal, files()).unwrap();
        mark("before");
        recorder.snapshot(io::sink()).unwrap();
        FRAGILE_FROM.store(1 << 12, SeqCst);
        let sleep = || {
            // Each on its own, for another thread may have got the processor meanwhile.
            VICTIM.store(common::gettid() as usize, SeqCst);
            rt::time::sleep(Duration::from_secs(60));
        };
        let keep: Vec<_> = (0..5000).map(|_| rt::go(sleep)).collect();
        rt::time::sleep(Duration::from_secs(60));
        drop(keep);
    });
}

#[test]
fn dies_in_the_runtime() {
    let (ended, files) = left("dies_inside", &[]);
    ended.expect_signal(libc::SIGSEGV);
    ended.expect_stderr(&["sigsegv: wrote", "without what happened since the last whole generation"]);
    expect_files(&ended, &files, &[("sigsegv-1.trace", "before")]);
}

fn gets_signals() {
    rt::run(|| {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Signal(Signal::USR1), files()).unwrap();
        assert!(recorder.on(Trigger::Signal(Signal::KILL), files()).is_err());
        for n in 1..=2 {
            mark(&format!("before {n}"));
            rt::signal::raise(Signal::USR1).unwrap();
            written(&armed, n);
        }
        // Beside one who listens.
        let signals = rt::signal::notify(&[Signal::USR1]).unwrap();
        mark("before 3");
        rt::signal::raise(Signal::USR1).unwrap();
        assert_eq!(signals.recv(), Ok(Signal::USR1));
        written(&armed, 3);
        drop((signals, armed));
        rt::signal::raise(Signal::USR1).unwrap();
        rt::time::sleep(Duration::from_secs(20));
    });
}

#[test]
fn signals() {
    let (ended, files) = left("gets_signals", &[]);
    ended.expect_signal(libc::SIGUSR1);
    let wanted = [("sigusr1-1.trace", "before 1"), ("sigusr1-2.trace", "before 2"), ("sigusr1-3.trace", "before 3")];
    expect_files(&ended, &files, &wanted);
}

/// What was logged for us: level and text.
static LOGGED: StdMutex<Vec<(log::Level, String)>> = StdMutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target() == "gort"
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = (record.level(), record.args().to_string());
            println!("{}: {}", line.0, line.1);
            LOGGED.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    fn flush(&self) {}
}

/// Listens to what is logged.
fn listen() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
}

fn logged(level: log::Level, words: &[&str]) -> usize {
    let all = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter(|(l, text)| *l == level && words.iter().all(|w| text.contains(w))).count()
}

fn fires() {
    listen();
    std::fs::create_dir_all(dir().join("made")).unwrap();
    // Somebody else's.
    std::fs::write(dir().join("made/by-hand-2.trace"), b"not ours").unwrap();
    rt::run(|| {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Manual, files().max_files(2)).unwrap();
        for n in 1..=5 {
            mark(&format!("before {n}"));
            // A settled one is settled a moment after its file is there.
            wait_for("it fires", || armed.fire("by hand"));
            wait_for("it is told", || logged(log::Level::Info, &["flight recorder: by hand, goroutine", "wrote"]) == n);
        }
        let n_of = |path: &PathBuf| path.to_str().unwrap().rsplit_once('-').unwrap().1.to_owned();
        assert_eq!(armed.files().iter().map(n_of).collect::<Vec<_>>(), ["5.trace", "6.trace"]);
        assert_eq!(metric("/gort/trace/snapshots/written:files"), 5);
        assert_eq!(std::fs::read(dir().join("made/by-hand-2.trace")).unwrap(), b"not ours");
        std::fs::remove_file(dir().join("made/by-hand-2.trace")).unwrap();
        // By the caller.
        let path = dir().join("made/in/all/calm.trace");
        assert_eq!(recorder.dump_to(&path).unwrap(), std::fs::metadata(&path).unwrap().len());
        assert!(marks("dump_to", &path).contains(&"before 5".to_owned()));
        std::fs::remove_dir_all(dir().join("made/in")).unwrap();
        // Whoever has stopped it gets nothing.
        recorder.stop();
        assert!(recorder.dump_to(&path).is_err() && !path.exists());
        wait_for("it fires", || armed.fire("in vain"));
        wait_for("it is told", || logged(log::Level::Warn, &["in vain", "does not run"]) == 1);
        assert_eq!(metric("/gort/trace/snapshots/failed:files"), 1);
        // Nor do refused patterns.
        for bad in ["", "a/", "{date}", "{n"] {
            assert_eq!(recorder.on(Trigger::Manual, bad).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn by_hand() {
    let (ended, files) = left("fires", &[]);
    ended.expect_code(0);
    expect_files(&ended, &files, &[("by-hand-5.trace", "before 4"), ("by-hand-6.trace", "before 5")]);
}

fn fires_from_everywhere() {
    const EACH: usize = 50;
    rt::run(|| {
        let recorder = recorder();
        let rare = Arc::new(recorder.on(Trigger::Manual, files().cool_down(Duration::from_secs(1000))).unwrap());
        let often = Arc::new(recorder.on(Trigger::Manual, files().max_files(3)).unwrap());
        let (once, times) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let life = || {
            let (rare, often, once, times) = (rare.clone(), often.clone(), once.clone(), times.clone());
            move || {
                for _ in 0..EACH {
                    once.fetch_add(rare.fire("rare").into(), SeqCst);
                    times.fetch_add(often.fire("often").into(), SeqCst);
                    rt::yield_now();
                }
            }
        };
        mark("last");
        let goroutines: Vec<_> = (0..8).map(|_| rt::go(life())).collect();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(life())).collect();
        goroutines.into_iter().for_each(|g| g.join().unwrap());
        threads.into_iter().for_each(|t| rt::blocking(|| t.join().unwrap()));
        assert_eq!(once.load(SeqCst), 1);
        let wanted = 1 + times.load(SeqCst) as u64;
        wait_for("they are written", || metric("/gort/trace/snapshots/written:files") == wanted);
        assert_eq!(metric("/gort/trace/snapshots/suppressed:triggers"), 12 * EACH as u64 * 2 - wanted);
        assert_eq!((rare.files().len(), often.files().len()), (1, 3.min(times.load(SeqCst))));
    });
}

#[test]
fn fires_at_once() {
    for procs in ["1", "4"] {
        let (ended, files) = left("fires_from_everywhere", &[("GOMAXPROCS", procs)]);
        ended.expect_code(0);
        ended.expect("the rare one", files.iter().filter(|(name, _)| name == "rare-1.trace").count() == 1);
        ended.expect("the last of the others", (2..=4).contains(&files.len()));
    }
}

fn cannot_write() {
    listen();
    std::fs::create_dir_all(dir()).unwrap();
    std::fs::write(dir().join("file"), b"not a directory").unwrap();
    rt::run(|| {
        let recorder = recorder();
        let pattern = dir().join("file/{n}.trace");
        let files = || Files::new(pattern.to_str().unwrap());
        let armed = recorder.on(Trigger::Region(Duration::ZERO), files()).unwrap();
        let panics = recorder.on(Trigger::Panic, files()).unwrap();
        trace::with_region(&Context::background(), "any", || ());
        wait_for("it is told", || logged(log::Level::Warn, &["region", "no file was written", "file"]) == 1);
        assert!(rt::go(|| panic!("as ever")).join().is_err());
        wait_for("it is told", || logged(log::Level::Warn, &["panic", "no file was written"]) == 1);
        assert_eq!(metric("/gort/trace/snapshots/failed:files"), 2);
        assert!(armed.files().is_empty() && panics.files().is_empty());
        assert!(recorder.snapshot(io::sink()).is_ok());
    });
}

#[test]
fn a_directory_that_cannot_be_made() {
    let (ended, files) = left("cannot_write", &[]);
    ended.expect_code(0).expect("no file", files.is_empty());
}

fn deadlocks() {
    rt::run(|| {
        let recorder = recorder();
        let second = Duration::from_secs(1);
        let triggers = [
            Trigger::Task(second),
            Trigger::Region(second),
            Trigger::Runnable(second),
            Trigger::Stuck(second),
            Trigger::Panic,
            Trigger::StackOverflow,
            Trigger::FatalSignal,
            Trigger::Signal(Signal::USR1),
            Trigger::Manual,
        ];
        let armed: Vec<_> = triggers.into_iter().map(|t| recorder.on(t, files()).unwrap()).collect();
        if how() == "after a file" {
            mark("last");
            assert!(armed.last().unwrap().fire("manual"));
            rt::signal::raise(Signal::USR1).unwrap();
            written(armed.last().unwrap(), 1);
        }
        rt::chan::never::<()>().recv().unwrap();
    });
}

#[test]
fn deadlocks_are_found_while_armed() {
    for procs in ["1", "4"] {
        for how in ["at once", "after a file"] {
            let (ended, files) = left("deadlocks", &[("GOMAXPROCS", procs), (HOW, how)]);
            ended.expect_code(2).expect_stderr(&["all goroutines are asleep - deadlock!"]);
            ended.expect("files", files.is_empty() == (how == "at once"));
        }
    }
}

/// What was fired is written.
fn fires_and_exits() {
    let life = || {
        let recorder = recorder();
        let armed = recorder.on(Trigger::Manual, files()).unwrap();
        assert!(armed.fire("at the end"));
        rt::process::exit(7);
    };
    match how().as_str() {
        "thread" => life(),
        _ => rt::run(life),
    }
}

#[test]
fn exit_waits_for_files() {
    for procs in ["1", "4"] {
        for how in ["goroutine", "thread"] {
            let (ended, files) = left("fires_and_exits", &[("GOMAXPROCS", procs), (HOW, how)]);
            ended.expect_code(7).expect("a file", files.len() == 1);
        }
    }
}

// Streams, at the end of the process.

/// Their owners never come to stop them.
fn leaves_streams() {
    let path = |name: &str| {
        std::fs::create_dir_all(dir().join("made")).unwrap();
        std::fs::File::create(dir().join("made").join(name)).unwrap()
    };
    rt::run(move || {
        trace::start(path("a.trace")).unwrap();
        let streams = ["b.trace", "c.trace"].map(|name| trace::Stream::start(path(name)).unwrap());
        mark("last");
        match how().as_str() {
            "two" => {
                // Both at the same time, and somebody who stops one.
                let both = Arc::new(Barrier::new(2));
                let theirs = both.clone();
                std::thread::spawn(move || {
                    theirs.wait();
                    rt::process::exit(7);
                });
                both.wait();
                let [one, _other] = streams;
                drop(one);
                rt::process::exit(7);
            }
            _ => rt::process::exit(7),
        }
    });
}

#[test]
fn exit_ends_all_streams() {
    for procs in ["1", "4"] {
        for how in ["one", "two"] {
            let (ended, files) = left("leaves_streams", &[("GOMAXPROCS", procs), (HOW, how)]);
            ended.expect_code(7);
            expect_files(&ended, &files, &[("a.trace", "last"), ("b.trace", "last"), ("c.trace", "last")]);
        }
    }
}

fn is_killed() {
    std::fs::create_dir_all(dir()).unwrap();
    let path = dir().join("stream.trace");
    rt::run(move || {
        let _stream = trace::Stream::start(std::fs::File::create(&path).unwrap()).unwrap();
        let busy = Arc::new(AtomicBool::new(true));
        for _ in 0..4 {
            let busy = busy.clone();
            drop(rt::go(move || {
                while busy.load(SeqCst) {
                    rt::time::sleep(Duration::from_micros(100));
                }
            }));
        }
        for n in 0.. {
            mark(&format!("{n}"));
            rt::time::sleep(Duration::from_millis(10));
            // Two generations, and a part of the third.
            if std::fs::metadata(&path).unwrap().len() > 0 && n > 260 {
                println!("{n}");
                // SAFETY: the end of the process is what is wanted.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        }
    });
}

#[test]
fn a_killed_process_leaves_whole_generations() {
    let _guard = HangGuard::new("killed");
    let dir = scratch_file("triggers-killed");
    let ended = program("is_killed", &[(DIR, dir.to_str().unwrap())]);
    ended.expect_signal(libc::SIGKILL);
    let last: usize = ended.stdout.trim().parse().unwrap();
    let trace = std::fs::read(dir.join("stream.trace")).unwrap();
    let words = marks("killed", &dir.join("stream.trace"));
    // No word is missing up to the last generation that is there.
    assert!(words.iter().enumerate().all(|(i, w)| *w == i.to_string()) && words.len() <= last + 1);
    // The numbers of the generations, and how many events there were before each.
    let mut generations = vec![];
    let mut reader = Reader::new(&trace[..]).unwrap();
    let mut n = 0;
    while let Some(e) = reader.next() {
        e.unwrap();
        let number = reader.generation().number;
        if generations.last().is_none_or(|(last, _)| *last != number) {
            generations.push((number, n));
        }
        n += 1;
    }
    assert!(generations.len() >= 2, "{generations:?}");
    let before_last = generations.last().unwrap().1;
    // As if it had been killed in the middle of writing: what comes before the cut is good, and the cut is said.
    let step = trace.len() / 97 + 1;
    for at in (trace.len() / 2..trace.len()).step_by(step).chain([trace.len() - 1]) {
        let mut reader = Reader::new(&trace[..at]).unwrap();
        let (mut n, mut cut) = (0, None);
        for e in reader.by_ref() {
            match e {
                Ok(_) => n += 1,
                Err(e) => cut = Some(e.broken().unwrap_or_else(|| panic!("cut at {at}: {e}")).rule),
            }
        }
        assert!(at < trace.len() - 1 || n >= before_last, "cut at {at}: {n} events of {before_last}");
        assert!(matches!(cut, None | Some(Rule::GenerationCut | Rule::BatchCut)), "cut at {at}: {cut:?}");
        assert!(cut.is_some() || reader.unfinished_bytes() > 0, "cut at {at}: not a word of it");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

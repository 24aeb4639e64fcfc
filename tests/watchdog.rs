//! The watchdog: who keeps a thread to himself is reported once, with name and stack; so are deadlocks of a few, while
//! the others run on. Who waits, or has said that he blocks, is not.

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use common::{CONFIGURATIONS, busy, judge, program, scratch_file, wait_for};
use rt::sync::{Mutex, WaitGroup};
use tracer::read::Reader;
use tracer::wire::ext::Record;

programs! {
    hogs,
    hogs_without_watchdog,
    one_unwinds_for_long,
    locks_in_turn,
    locks_again,
    waits_for_long,
    loses_its_processor_to_a_change,
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

fn logged() -> Vec<(log::Level, String)> {
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How many log records have all these words.
fn count(words: &[&str]) -> usize {
    logged().iter().filter(|(_, text)| words.iter().all(|w| text.contains(w))).count()
}

/// How many deadlocks were reported.
fn errors() -> usize {
    logged().iter().filter(|(level, _)| *level == log::Level::Error).count()
}

#[track_caller]
fn expect_one(level: log::Level, words: &[&str]) {
    let all = logged();
    let of: Vec<_> = all.iter().filter(|(_, text)| words.iter().all(|w| text.contains(w))).collect();
    assert!(matches!(of[..], [(l, _)] if *l == level), "one with {words:?}: {all:#?}");
}

fn start(name: &str, life: impl FnOnce() + Send + 'static) -> rt::JoinHandle<()> {
    rt::Builder::new().name(name).spawn(life).unwrap()
}

/// Spins until it is over, and then for as long as a second report would take.
#[inline(never)]
fn spins(over: &AtomicBool) {
    while !over.load(SeqCst) {
        std::hint::spin_loop();
    }
    busy(Duration::from_millis(250));
    black_box(over);
}

#[inline(never)]
fn naps(over: &AtomicBool) {
    while !over.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(250));
    black_box(over);
}

#[inline(never)]
fn calls(over: &AtomicBool) {
    rt::blocking(|| naps(over));
    black_box(over);
}

/// One of each kind, until the first two were reported, if they will be; twice for the spinner. Others run beside them.
fn hogs_until(reported: fn() -> bool) {
    let over = Arc::new(AtomicBool::new(false));
    let of = |life: fn(&AtomicBool)| {
        let over = over.clone();
        move || life(&over)
    };
    let three = [start("caller", of(calls)), start("napper", of(naps)), start("spinner", of(spins))];
    wait_for("they are reported", reported);
    over.store(true, SeqCst);
    three.into_iter().for_each(|h| h.join().unwrap());
}

fn hogs() {
    listen();
    rt::run(|| {
        hogs_until(|| count(&["\"spinner\""]) > 0 && count(&["\"napper\""]) > 0);
        expect_one(
            log::Level::Warn,
            &["\"spinner\" has not called into the runtime for ", "limit 100 ms", "watchdog::spins\n\t"],
        );
        expect_one(log::Level::Warn, &["\"napper\" has not called into the runtime for ", "watchdog::naps\n\t"]);
        assert_eq!(count(&["\"caller\""]), 0, "{:#?}", logged());
        // A second stay is a second occasion.
        let again = start("spinner", || {
            spins(&AtomicBool::new(true));
            rt::yield_now();
            spins(&AtomicBool::new(true));
        });
        again.join().unwrap();
        wait_for("two more", || count(&["\"spinner\""]) == 3 || count(&["; it has gone on since"]) > 0);
    });
}

#[test]
fn hogs_are_reported_once() {
    for env in CONFIGURATIONS {
        let path = scratch_file("watchdog.trace");
        let ended = program("hogs", &[env, &[("RT_TRACE", path.to_str().unwrap())]].concat());
        ended.expect_code(0);
        let trace = std::fs::read(&path).unwrap();
        judge("the trace of hogs", &trace);
        let stalls: Vec<_> = records(&trace)
            .into_iter()
            .filter_map(|r| match r {
                Record::Stall { g, for_ns, m } => Some((g, for_ns, m)),
                _ => None,
            })
            .collect();
        // Whoever gets no processor of the kernel's for so long looks the same from outside.
        ended.expect("two and two more", stalls.len() >= 4);
        ended.expect("for so long", stalls.iter().all(|s| s.1 >= 100_000_000 && s.2 != 0));
        ended.expect("different goroutines", stalls[0].0 != stalls[1].0);
        std::fs::remove_file(&path).unwrap();
    }
}

/// GOMAXPROCS goes down, and with it the processor of one that is in a loop, before sysmon has seen anything wrong.
fn loses_its_processor_to_a_change() {
    listen();
    rt::Config::new().gomaxprocs(2).run(|| {
        static ROUNDS: AtomicUsize = AtomicUsize::new(0);
        for round in 1..=5 {
            assert_eq!(rt::set_gomaxprocs(2), if round == 1 { 2 } else { 1 });
            let spinner = start("spinner", || {
                ROUNDS.fetch_add(1, SeqCst);
                busy(Duration::from_millis(400));
                black_box(());
            });
            while ROUNDS.load(SeqCst) != round {
                rt::yield_now();
            }
            rt::set_gomaxprocs(1);
            spinner.join().unwrap();
            let reports = || rt::metrics::get("/gort/watchdog/reports:reports").unwrap().as_u64().unwrap();
            wait_for("it is reported", || reports() >= round as u64);
        }
        // A machine that is busy may report one when it has ended, and has no name any more.
        wait_for("it is named", || count(&["\"spinner\" has not called", "common::busy"]) > 0);
    });
}

#[test]
fn who_loses_his_processor_to_a_change_is_reported() {
    for border in ["membarrier", "fence"] {
        program("loses_its_processor_to_a_change", &[("RT_BORDER", border)]).expect_code(0);
    }
}

/// All extension records of a trace.
fn records(trace: &[u8]) -> Vec<Record> {
    let mut reader = Reader::new(trace).unwrap();
    let mut all = Vec::new();
    let mut generation = 0;
    while let Some(event) = reader.next() {
        event.unwrap();
        let number = reader.generation().number;
        if std::mem::replace(&mut generation, number) != number {
            all.extend(reader.tables().ext_records().filter_map(|r| r.unwrap().record));
        }
    }
    all
}

fn hogs_without_watchdog() {
    listen();
    let main = || {
        let over = Arc::new(AtomicBool::new(true));
        let two = [over.clone(), over].map(|over| start("spinner", move || spins(&over)));
        two.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(count(&[]), 0, "{:#?}", logged());
    };
    match std::env::var_os("WATCHDOG_CONFIG") {
        Some(_) => rt::Config::new().watchdog(Duration::ZERO).run(main),
        None => rt::run(main),
    }
}

#[test]
fn it_can_be_turned_off() {
    program("hogs_without_watchdog", &[("RT_WATCHDOG", "off")]).expect_code(0);
    program("hogs_without_watchdog", &[("RT_WATCHDOG", "0")]).expect_code(0);
    program("hogs_without_watchdog", &[("RT_WATCHDOG", "100000")]).expect_code(0);
    // The configuration has the last word.
    program("hogs_without_watchdog", &[("WATCHDOG_CONFIG", "1"), ("RT_WATCHDOG", "10")]).expect_code(0);
    let ended = program("hogs_without_watchdog", &[("RT_WATCHDOG", "soon")]);
    ended.expect_code(101).expect_stderr(&["RT_WATCHDOG=soon: want milliseconds, or off"]);
}

/// Does something when it is dropped.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// One that unwinds is not preempted, though it calls into the runtime all the time.
fn one_unwinds_for_long() {
    listen();
    rt::Config::new().gomaxprocs(1).watchdog(Duration::from_millis(50)).run(|| {
        let until_reported = || {
            while count(&["\"unwinder\" has kept its processor for "]) == 0 {
                // It crosses the border, and leaves something to do for others.
                drop(rt::go(|| ()));
                busy(Duration::from_micros(50));
            }
        };
        let unwinds = start("unwinder", move || {
            let _last = Last(until_reported);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(unwinds.join().is_err());
        let all = logged();
        let first = all.iter().find(|(_, text)| text.contains("has kept its processor")).unwrap();
        assert_eq!(first.0, log::Level::Warn);
        assert!(first.1.contains("while others wait for it (limit 50 ms)"), "{all:#?}");
    });
}

#[test]
fn who_keeps_his_processor_is_reported() {
    program("one_unwinds_for_long", &[]).expect_code(0);
}

// Deadlocks of a few.

/// Two goroutines take two locks in different order, while another one ticks.
fn locks_in_turn() {
    listen();
    rt::run(|| {
        let locks: Arc<[Mutex<()>; 2]> = Arc::default();
        let both = WaitGroup::new();
        both.add(2);
        for (name, i) in [("clerk", 0), ("counter", 1)] {
            let (locks, both) = (locks.clone(), both.clone());
            drop(start(name, move || {
                let _mine = locks[i].lock();
                both.done();
                both.wait();
                drop(locks[1 - i].lock());
            }));
        }
        let ticks = Arc::new(AtomicUsize::new(0));
        let ticked = ticks.clone();
        drop(start("ticker", move || {
            loop {
                rt::time::sleep(Duration::from_millis(5));
                ticked.fetch_add(1, SeqCst);
            }
        }));
        // One who waits for one of them, too.
        wait_for("both hold one", || locks.iter().all(|l| l.try_lock().is_none()));
        let tail = locks.clone();
        drop(start("tail", move || drop(tail[0].lock())));
        wait_for("it is reported", || count(&["deadlock by lock order: "]) > 0);
        let before = ticks.load(SeqCst);
        // Two more looks.
        rt::time::sleep(Duration::from_millis(2500));
        assert!(ticks.load(SeqCst) > before);
        expect_one(log::Level::Error, &["deadlock by lock order: goroutine ", "\"clerk\" -> ", "\"counter\" -> "]);
        expect_one(
            log::Level::Error,
            &[
                "\"clerk\" [sync, ",
                "on mutex at 0x",
                "rt::sync::mutex::Mutex<T>::lock\n\t",
                "which waits for the mutex at 0x",
            ],
        );
        assert_eq!(count(&["tail"]), 0);
        assert_eq!(errors(), 1, "{:#?}", logged());
    });
}

#[test]
fn a_deadlock_of_a_few_is_reported_once() {
    for env in CONFIGURATIONS {
        let path = scratch_file("cycle.trace");
        let ended = program("locks_in_turn", &[env, &[("RT_TRACE", path.to_str().unwrap())]].concat());
        ended.expect_code(0);
        let trace = std::fs::read(&path).unwrap();
        judge("the trace of a cycle", &trace);
        let links: Vec<_> = records(&trace)
            .into_iter()
            .filter_map(|r| match r {
                Record::LockCycle { g, holder, object } => Some((g, holder, object)),
                _ => None,
            })
            .collect();
        let closed = matches!(links[..], [a, b] if a.0 == b.1 && a.1 == b.0 && a.0 < b.0 && a.2 != b.2);
        ended.expect("two links", closed);
        std::fs::remove_file(&path).unwrap();
    }
}

fn locks_again() {
    listen();
    rt::run(|| {
        drop(start("forgetful", || {
            let lock = Mutex::new(());
            let _held = lock.lock();
            drop(lock.lock());
        }));
        wait_for("it is reported", || errors() > 0);
        expect_one(log::Level::Error, &["deadlock: goroutine ", "\"forgetful\" waits for what it holds itself"]);
    });
}

#[test]
fn who_locks_again_is_reported() {
    program("locks_again", &[]).expect_code(0);
}

/// Chains without an end in themselves are no deadlock, whatever they take.
fn waits_for_long() {
    listen();
    rt::Config::new().watchdog(Duration::from_millis(20)).run(|| {
        let locks: Arc<[Mutex<()>; 4]> = Arc::default();
        let held = locks[0].lock();
        for i in 1..4 {
            let locks = locks.clone();
            drop(start("link", move || {
                let _mine = locks[i].lock();
                drop(locks[i - 1].lock());
            }));
        }
        rt::time::sleep(Duration::from_millis(2300));
        drop(held);
        wait_for("they are done", || Arc::strong_count(&locks) == 1);
        assert_eq!(errors(), 0, "{:#?}", logged());
    });
}

#[test]
fn who_waits_for_long_is_not_reported() {
    program("waits_for_long", &[]).expect_code(0);
}

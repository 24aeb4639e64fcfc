//! Beginning and ending: again and again in one process, and with goroutines that never end.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{child_passes, is_child, program, scaled};
use rt::chan::{bounded, unbounded};
use rt::sync::{Mutex, WaitGroup};

programs!(main_returns_and_others_wait, main_panics_and_others_wait);

/// What a process has: threads, open files, mappings.
fn holdings() -> [usize; 3] {
    let entries = |dir| std::fs::read_dir(dir).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    [entries("/proc/self/task"), entries("/proc/self/fd"), maps.lines().count()]
}

/// A thousand runs in one process leave nothing behind.
#[test]
fn stress_runs() {
    const TEST: &str = "stress_runs";
    if !is_child(TEST) {
        for procs in ["1", "2", "8"] {
            child_passes(TEST, &[("GOMAXPROCS", procs)]);
        }
        return;
    }
    let runs = scaled(1000, 1000);
    let run = |i: usize| {
        let got = rt::run(move || {
            let (tx, rx) = bounded(1);
            for k in 0..4 {
                let tx = tx.clone();
                rt::go(move || {
                    if k == 0 {
                        rt::blocking(|| ());
                        rt::yield_now();
                    }
                    tx.send(i).unwrap();
                });
            }
            drop(tx);
            rx.iter().sum::<usize>()
        });
        assert_eq!(got, i * 4);
        // A trace now and then: it has a thread of its own.
        if i.is_multiple_of(50) {
            rt::trace::start(std::io::sink()).unwrap();
            rt::run(rt::yield_now);
            rt::trace::stop().unwrap();
        }
    };
    (0..runs / 4).for_each(run);
    let early = holdings();
    (runs / 4..runs).for_each(run);
    let mut late = holdings();
    println!(
        "GOMAXPROCS {}: threads, files, mappings: {early:?} after {} runs, {late:?} after {runs}",
        rt::gomaxprocs(),
        runs / 4
    );
    // The tracer's reader ends by itself. Threads that were needed for once (a call kept a P for long) stay, and each brings a few
    // mappings: so few, where a leak would be hundreds.
    for _ in 0..100 {
        if late[0] <= early[0] {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        late = holdings();
    }
    assert!(late[0] <= early[0] + 4, "threads");
    assert!(late[1] <= early[1], "files");
    assert!(late[2] <= early[2] + 60, "mappings");
}

/// A thousand goroutines that wait for ever, in every way there is.
fn park_a_thousand() {
    let waiting = Arc::new(AtomicUsize::new(0));
    let (full, kept) = bounded::<u32>(1);
    full.send(0).unwrap();
    let (rendezvous, kept_too) = bounded::<u32>(0);
    let (silent, nothing) = unbounded::<u32>();
    let lock = Arc::new(Mutex::new(()));
    std::mem::forget(lock.lock());
    let wg = WaitGroup::new();
    wg.add(1);
    let (pipe, writer) = std::io::pipe().unwrap();
    let pipe = Arc::new(pipe);
    for i in 0..1000 {
        let (full, rendezvous, nothing) = (full.clone(), rendezvous.clone(), nothing.clone());
        let (lock, wg, pipe, waiting) = (lock.clone(), wg.clone(), pipe.clone(), waiting.clone());
        rt::go(move || {
            waiting.fetch_add(1, SeqCst);
            match i % 8 {
                0 => drop(full.send(1)),
                1 => drop(rendezvous.send(1)),
                2 => drop(nothing.recv()),
                3 => drop(lock.lock()),
                4 => wg.wait(),
                5 => rt::time::sleep(Duration::from_secs(100_000)),
                6 => drop(rt::go(|| rt::time::sleep(Duration::from_secs(100_000))).join()),
                _ if i < 200 => {
                    use std::io::Read;
                    rt::blocking(|| drop((&*pipe).read(&mut [0])));
                }
                _ => loop {
                    rt::yield_now();
                },
            }
        });
    }
    while waiting.load(SeqCst) < 1000 {
        rt::time::sleep(Duration::from_millis(1));
    }
    std::mem::forget((kept, kept_too, silent, writer));
}

fn main_returns_and_others_wait() {
    rt::run(park_a_thousand);
    println!("over");
}

fn main_panics_and_others_wait() {
    rt::run(|| {
        park_a_thousand();
        std::panic::resume_unwind(Box::new("main ends"));
    });
}

#[test]
fn main_returns() {
    for procs in ["1", "2", "8"] {
        let ended = program("main_returns_and_others_wait", &[("GOMAXPROCS", procs)]);
        ended.expect_code(0).expect("nothing on stderr", ended.stderr.is_empty());
        assert_eq!(ended.stdout, "over\n");
    }
}

#[test]
fn main_panics() {
    let ended = program("main_panics_and_others_wait", &[]);
    ended.expect_code(101).expect("nothing on stderr", ended.stderr.is_empty());
}

/// With a trace of the whole run, which is whole.
#[test]
fn main_returns_traced() {
    let path = common::scratch_file("main-returns.trace");
    let ended = program("main_returns_and_others_wait", &[("RT_TRACE", path.to_str().unwrap())]);
    ended.expect_code(0).expect("nothing on stderr", ended.stderr.is_empty());
    common::judge("main returns", &std::fs::read(&path).unwrap());
    std::fs::remove_file(path).unwrap();
}

//! Goroutines: how they begin, what they leave behind, and that one's end is nobody else's business.

mod common;

use std::any::Any;
use std::hint::black_box;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::panicking;
use std::time::Duration;

use common::{Actor, Rng, Started, everywhere, memory_kib, message, program, scaled, seed, traced, wait_for};
use rt::chan::bounded;
use tracer::wire::Ev;

programs!(million, hundred_thousand_parked, run_in_threads, evil_results);

#[test]
fn smoke() {
    let (_, trace) = traced("smoke", || {
        assert_eq!(rt::go(|| "value").join().unwrap(), "value");
        let h = rt::go(|| ());
        wait_for("it ends", || h.is_finished());
        assert_eq!(format!("{h:?}"), format!("JoinHandle {{ id: {}, finished: true, .. }}", h.id()));
        h.join().unwrap();
        // What it captures and what it gives back may be large.
        let large = [7u8; 4000];
        let back = rt::go(move || large.map(|b| b + 1)).join().unwrap();
        assert!(back.iter().all(|&b| b == 8));
        assert!(rt::gomaxprocs() >= 1);
    });
    assert!(common::count(&trace, Ev::GoCreate) >= 3);
}

#[test]
fn captured_values_are_dropped_once() {
    traced("captured_values_are_dropped_once", || {
        let counted = Arc::new(());
        for ending in 0..4 {
            let captured = counted.clone();
            let h = rt::go(move || {
                let inner = captured.clone();
                if ending == 1 {
                    resume_unwind(Box::new(inner));
                }
                if ending == 2 {
                    drop(captured);
                }
                inner
            });
            match (ending, h.join()) {
                (1, Err(payload)) => drop(payload.downcast::<Arc<()>>().unwrap()),
                (_, Ok(value)) => assert!(Arc::ptr_eq(&value, &counted)),
                (_, Err(_)) => panic!("ending {ending}"),
            }
            assert_eq!(Arc::strong_count(&counted), 1, "ending {ending}");
        }
    });
}

#[test]
fn detached() {
    everywhere("detached", || {
        traced("detached", || {
            let count = Arc::new(AtomicUsize::new(0));
            for i in 0..500 {
                let count = count.clone();
                drop(rt::go(move || {
                    (0..i % 4).for_each(|_| rt::yield_now());
                    count.fetch_add(1, SeqCst);
                    count
                }));
            }
            wait_for("all run, with nobody to wait for them", || count.load(SeqCst) == 500);
            wait_for("their results are dropped", || Arc::strong_count(&count) == 1);
        });
    });
}

#[test]
fn nested() {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let (a, b) = (rt::go(move || tree(depth - 1)), rt::go(move || tree(depth - 1)));
        a.join().unwrap() + b.join().unwrap()
    }
    everywhere("nested", || {
        traced("nested", || {
            let depth = scaled(13, 10) as u32;
            assert_eq!(tree(depth), 1 << depth);
        });
    });
}

#[test]
fn from_threads() {
    everywhere("from_threads", || {
        traced("from_threads", || {
            let threads: Vec<_> = (0..8)
                .map(|t| {
                    Actor::Thread.start(move || {
                        let handles: Vec<_> = (0..100).map(|i| rt::go(move || t * 100 + i)).collect();
                        handles.into_iter().map(|h| h.join().unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let all: Vec<_> = threads.into_iter().flat_map(Started::join).collect();
            assert_eq!(all, (0..800).collect::<Vec<_>>());
        });
    });
}

/// A handle may be waited for by somebody else than its maker.
#[test]
fn join_elsewhere() {
    everywhere("join_elsewhere", || {
        traced("join_elsewhere", || {
            for i in 0..40 {
                let (tx, rx) = bounded::<()>(0);
                let h = Actor::mixed(i).start(move || rt::go(move || rx.recv().is_err())).join();
                let joiner = Actor::mixed(i / 2).start(move || h.join().unwrap());
                rt::yield_now();
                drop(tx);
                assert!(joiner.join());
            }
        });
    });
}

#[test]
fn names_are_labels() {
    let (_, trace) = traced("names_are_labels", || {
        for name in ["parser", "", "Überläufer 3"] {
            let h = rt::Builder::new().name(name).spawn(move || name.len()).unwrap();
            assert_eq!(h.join().unwrap(), name.len());
        }
        let long = "n".repeat(5000);
        rt::Builder::new().name(long).spawn(|| ()).unwrap().join().unwrap();
    });
    let mut labels = Vec::new();
    common::events(&trace, |e, tables| {
        if e.kind == Ev::GoLabel {
            labels.push(e.text(tables).unwrap().into_owned());
        }
    });
    for name in ["parser", "Überläufer 3"] {
        assert!(labels.iter().any(|l| l == name), "{name:?} in {labels:?}");
    }
    assert!(labels.iter().any(|l| l.len() > 1000 && l.bytes().all(|b| b == b'n')), "a long name is cut, not lost");
}

/// Goes down until `bytes` of stack are in use, and answers how many are.
fn dig(bytes: usize) -> usize {
    #[inline(never)]
    fn further(from: usize, bytes: usize) -> usize {
        let here = black_box([1u8; 256]);
        let used = from - std::ptr::from_ref(&here).addr();
        let used = if used < bytes { further(from, bytes) } else { used };
        assert!(black_box(&here).iter().all(|&b| b == 1));
        used
    }
    let here = 0u8;
    further(std::ptr::from_ref(black_box(&here)).addr(), bytes)
}

#[test]
fn stack_sizes() {
    // Requests are rounded up to 64 KiB, 256 KiB, 1 MiB, 8 MiB, of which a guard and the runtime take a little.
    traced("stack_sizes", || {
        let sizes = [(1, 40), (10_000, 40), (64 << 10, 40), ((64 << 10) + 1, 220), (300_000, 980), (8 << 20, 8100)];
        let sizes = sizes.map(|(asked, used_kib)| (asked, used_kib << 10));
        for (asked, used) in sizes {
            for _ in 0..3 {
                let h = rt::Builder::new().stack_size(asked).spawn(move || dig(used)).unwrap();
                assert!(h.join().unwrap() >= used, "{used} bytes of a stack of {asked}");
            }
        }
        rt::go(|| dig(220 << 10)).join().unwrap();
        for too_large in [(8 << 20) + 1, 1 << 40, usize::MAX] {
            let e = rt::Builder::new().stack_size(too_large).spawn(|| ()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            for part in [too_large.to_string(), (8 << 20).to_string()] {
                assert!(e.to_string().contains(&part), "{part} in {e}");
            }
        }
    });
}

/// Stacks are handed from one goroutine to the next; what one leaves there must not matter.
#[test]
fn stress_stacks_are_reused() {
    everywhere("stress_stacks_are_reused", || {
        let seed = seed();
        traced("stress_stacks_are_reused", move || {
            let mut rng = Rng::new(seed);
            let mut running = Vec::new();
            for _ in 0..scaled(3000, 500) {
                let (bytes, yields, panics) = (rng.below(20_000) as usize, rng.below(3), rng.below(10) == 0);
                let size = [1, 70_000, 300_000, 2 << 20][rng.below(4) as usize];
                let h = rt::Builder::new().stack_size(size).spawn(move || {
                    let dug = dig(bytes);
                    (0..yields).for_each(|_| rt::yield_now());
                    if panics {
                        resume_unwind(Box::new(dug));
                    }
                    dug >= bytes
                });
                running.push((h.unwrap(), panics));
                if running.len() > 60 {
                    let (h, panics) = running.swap_remove(rng.below(60) as usize);
                    assert_eq!(h.join().ok(), (!panics).then_some(true));
                }
            }
            for (h, panics) in running {
                assert_eq!(h.join().ok(), (!panics).then_some(true));
            }
        });
    });
}

// Panics.

#[test]
fn join_gives_the_panic() {
    traced("join_gives_the_panic", || {
        let of = |h: rt::JoinHandle<()>| -> Box<dyn Any + Send> { h.join().unwrap_err() };
        assert_eq!(message(&*of(rt::go(|| panic!("a text")))), "a text");
        assert_eq!(message(&*of(rt::go(|| panic!("number {}", black_box(3))))), "number 3");
        assert_eq!(of(rt::go(|| panic_any(42u64))).downcast_ref(), Some(&42u64));
        assert_eq!(of(rt::go(|| resume_unwind(Box::new('x')))).downcast_ref(), Some(&'x'));
        let h = rt::Builder::new().name("named").spawn(|| panic!("named")).unwrap();
        assert_eq!(message(&*of(h)), "named");
        // From a thread too.
        let h = rt::go(|| panic!("to a thread"));
        assert_eq!(message(&*Actor::Thread.start(move || of(h)).join()), "to a thread");
    });
}

/// A panicking goroutine is its JoinHandle's business and nobody else's.
#[test]
fn panic_harms_no_other() {
    everywhere("panic_harms_no_other", || {
        std::panic::set_hook(Box::new(|_| {}));
        traced("panic_harms_no_other", || {
            let steps = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..200)
                .map(|i| {
                    let steps = steps.clone();
                    rt::go(move || {
                        for step in 0..20 {
                            if i % 4 == 0 && step == i / 4 % 20 {
                                panic!("goroutine {i}");
                            }
                            steps.fetch_add(1, SeqCst);
                            rt::yield_now();
                        }
                        i
                    })
                })
                .collect();
            for (i, h) in handles.into_iter().enumerate() {
                match h.join() {
                    Ok(value) => assert!(value == i && i % 4 != 0),
                    Err(payload) => assert_eq!((message(&*payload), i % 4), (&*format!("goroutine {i}"), 0)),
                }
            }
            let of_panicking: usize = (0..200).step_by(4).map(|i| i / 4 % 20).sum();
            assert_eq!(steps.load(SeqCst), 150 * 20 + of_panicking);
        });
    });
}

/// Waits in its destructor.
struct WaitsWhenDropped {
    began: Arc<AtomicBool>,
    go_on: rt::chan::Receiver<()>,
}

impl Drop for WaitsWhenDropped {
    fn drop(&mut self) {
        assert!(panicking());
        self.began.store(true, SeqCst);
        let _ = self.go_on.recv();
        assert!(panicking(), "the panic was forgotten while its goroutine waited");
    }
}

/// A goroutine that waits in the middle of its unwinding: `std::thread::panicking()` is true for it, and for it alone, though
/// std counts panics per thread.
#[test]
fn panic_that_waits() {
    everywhere("panic_that_waits", || {
        traced("panic_that_waits", || {
            for round in 0..20 {
                let (began, (tx, go_on)) = (Arc::new(AtomicBool::new(false)), bounded(0));
                let guard = WaitsWhenDropped { began: began.clone(), go_on };
                let panics = rt::go(move || {
                    let _guard = guard;
                    resume_unwind(Box::new("waits"));
                });
                wait_for("it waits in its unwinding", || began.load(SeqCst));
                for i in 0..30 {
                    assert!(!panicking(), "round {round}: the main goroutine does not panic, another one does");
                    let (before, after) = rt::go(|| {
                        let before = panicking();
                        rt::yield_now();
                        (before, panicking())
                    })
                    .join()
                    .unwrap();
                    assert!(!before && !after, "round {round}, goroutine {i} does not panic, another one does");
                    assert_eq!(
                        message(&*rt::go(|| resume_unwind(Box::new("second"))).join().map(|()| 0).unwrap_err()),
                        "second"
                    );
                }
                drop(tx);
                assert_eq!(message(&*panics.join().map(|()| 0).unwrap_err()), "waits");
                assert!(!panicking());
            }
        });
    });
}

/// Panics that meet everything that can suspend a goroutine on their way out.
#[test]
fn stress_panics() {
    struct Meets(u64, Arc<rt::sync::Mutex<u64>>);
    impl Drop for Meets {
        fn drop(&mut self) {
            assert!(panicking());
            match self.0 {
                0 => rt::yield_now(),
                1 => rt::time::sleep(Duration::from_micros(100)),
                2 => {
                    let mut n = self.1.lock();
                    rt::yield_now();
                    *n += 1;
                }
                3 => rt::blocking(|| std::thread::sleep(Duration::from_micros(300))),
                4 => assert!(!rt::go(panicking).join().unwrap(), "a goroutine made by one that panics"),
                _ => {
                    let (tx, rx) = bounded(0);
                    rt::go(move || tx.send(1));
                    assert_eq!(rx.recv(), Ok(1));
                }
            }
            assert!(panicking(), "forgotten after {}", self.0);
        }
    }
    everywhere("stress_panics", || {
        let seed = seed();
        traced("stress_panics", move || {
            let m = Arc::new(rt::sync::Mutex::new(0));
            let handles: Vec<_> = (0..20)
                .map(|i| {
                    let m = m.clone();
                    let mut rng = Rng::new(seed ^ i);
                    rt::go(move || {
                        for _ in 0..scaled(200, 40) {
                            let what = rng.below(6);
                            assert!(!panicking(), "goroutine {i} does not panic, another one does");
                            let caught = catch_unwind(AssertUnwindSafe(|| {
                                let _meets = Meets(what, m.clone());
                                if what == 3 {
                                    rt::blocking(|| resume_unwind(Box::new(what)));
                                }
                                resume_unwind(Box::new(what));
                            }));
                            assert_eq!(caught.map(|()| 0).unwrap_err().downcast_ref(), Some(&what));
                            assert!(!panicking(), "goroutine {i} has caught its panic");
                            rt::yield_now();
                        }
                    })
                })
                .collect();
            handles.into_iter().for_each(|h| h.join().unwrap());
        });
    });
}

/// A value that panics when it is dropped.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        resume_unwind(Box::new("the result's destructor"));
    }
}

#[test]
fn results_that_panic_when_dropped() {
    everywhere("results_that_panic_when_dropped", || {
        traced("results_that_panic_when_dropped", || {
            let dropped = Arc::new(AtomicUsize::new(0));
            for round in 0..50 {
                let make = || {
                    let dropped = dropped.clone();
                    rt::go(move || Bomb(dropped))
                };
                // Nobody takes it: it is dropped where the goroutine ends, or, if that is faster, here.
                let drop_handle = |h: rt::JoinHandle<Bomb>| {
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(h))) {
                        assert_eq!(message(&*payload), "the result's destructor");
                    }
                };
                drop_handle(make());
                wait_for("the result is dropped", || dropped.load(SeqCst) == 4 * round + 1);
                let h = make();
                wait_for("it ends", || h.is_finished());
                drop_handle(h);
                wait_for("the result is dropped", || dropped.load(SeqCst) == 4 * round + 2);
                // It is taken.
                let bomb = make().join().ok().unwrap();
                assert!(catch_unwind(AssertUnwindSafe(|| drop(bomb))).is_err());
                // It is the payload of a panic that nobody takes.
                let bomb = Bomb(dropped.clone());
                drop_handle(rt::go(move || resume_unwind(Box::new(bomb))));
                wait_for("the payload is dropped", || dropped.load(SeqCst) == 4 * round + 4);
                assert_eq!(rt::go(|| 1).join().unwrap(), 1);
            }
        });
    });
}

/// A result whose destructor panics with a payload whose destructor panics. std ends the process when a thread does that; here
/// it must not take the scheduler's thread along, or must end with a word about it.
fn evil_results() {
    struct Evil(u32);
    impl Drop for Evil {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic_any(Evil(self.0 - 1));
            }
        }
    }
    rt::run(|| {
        for depth in 1..4 {
            for _ in 0..20 {
                let h = rt::go(move || Evil(depth));
                // If it has ended already, its result is dropped here.
                std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(h))));
                assert_eq!(rt::go(|| 1).join().unwrap(), 1);
            }
        }
        (0..100).for_each(|_| rt::yield_now());
        println!("all is well");
    });
}

#[test]
fn results_whose_panics_panic() {
    for env in common::CONFIGURATIONS {
        let ended = program("evil_results", env);
        ended.expect_code(0).expect("it to go on", ended.stdout.contains("all is well"));
    }
}

// Numbers.

/// Goroutines that have not begun own no stack.
fn million() {
    let n = scaled(1_000_000, 200_000);
    let before = memory_kib("VmHWM");
    rt::run(move || {
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..n {
            let count = count.clone();
            drop(rt::go(move || count.fetch_add(1, SeqCst)));
        }
        wait_for("all have run", || count.load(SeqCst) == n);
    });
    let used = (memory_kib("VmHWM") - before) * 1024;
    let of_stacks = n as u64 * 4096;
    println!("{n} goroutines: {} bytes each", used / n as u64);
    assert!(used < of_stacks / 2, "{n} goroutines took {used} bytes; their stacks alone would take {of_stacks}");
}

#[test]
fn a_million_at_once() {
    for procs in ["1", "2"] {
        let ended = program("million", &[("GOMAXPROCS", procs)]);
        print!("{}", ended.expect_code(0).stdout);
    }
}

#[test]
fn ten_thousand_traced() {
    let (_, trace) = traced("ten_thousand_traced", || {
        let handles: Vec<_> = (0..10_000).map(|i| rt::go(move || i)).collect();
        assert!(handles.into_iter().enumerate().all(|(i, h)| h.join().unwrap() == i));
    });
    assert!(common::count(&trace, Ev::GoCreate) >= 10_000);
}

/// Whether guards cost no mapping here (MADV_GUARD_INSTALL, Linux 6.13).
fn guards_are_cheap() -> bool {
    // SAFETY: a mapping of our own.
    unsafe {
        let page =
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        libc::madvise(page, 4096, 102) == 0
    }
}

fn hundred_thousand_parked() {
    const N: usize = 100_000;
    rt::run(|| {
        let (about_to, (tx, rx)) = (Arc::new(AtomicUsize::new(0)), bounded::<()>(0));
        let handles: Vec<_> = (0..N)
            .map(|i| {
                let (about_to, rx) = (about_to.clone(), rx.clone());
                rt::go(move || {
                    about_to.fetch_add(1, SeqCst);
                    let local = black_box(i);
                    assert!(rx.recv().is_err());
                    local
                })
            })
            .collect();
        wait_for("all are about to wait", || about_to.load(SeqCst) == N);
        assert!(!handles.iter().any(|h| h.is_finished()));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        println!("{N} goroutines wait: {maps} mappings, {} KiB", memory_kib("VmRSS"));
        drop(tx);
        assert!(handles.into_iter().enumerate().all(|(i, h)| h.join().unwrap() == i));
    });
}

#[test]
fn a_hundred_thousand_parked() {
    if !guards_are_cheap() {
        println!("LEFT OUT: this kernel has no MADV_GUARD_INSTALL, so vm.max_map_count bounds the stacks");
        return;
    }
    let ended = program("hundred_thousand_parked", &[]);
    print!("{}", ended.expect_code(0).stdout);
}

// rt::run.

#[test]
fn run_again() {
    assert_eq!(rt::run(|| 1), 1);
    // What the first one left running is still there for the second.
    let (tx, rx) = bounded::<u32>(0);
    let (back_tx, back) = bounded(0);
    rt::run(move || {
        rt::go(move || rx.into_iter().try_for_each(|n| back_tx.send(n * 2)));
    });
    assert_eq!(
        rt::run(move || {
            tx.send(21).unwrap();
            back.recv()
        }),
        Ok(42)
    );
    assert_eq!(rt::Config::new().run(rt::gomaxprocs), rt::gomaxprocs());
    assert_eq!(rt::Config::new().gomaxprocs(rt::gomaxprocs()).run(|| "the same"), "the same");
}

/// The first calls, from many threads at once: one of them starts the runtime.
fn run_in_threads() {
    let barrier = Arc::new(std::sync::Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                barrier.wait();
                if i % 4 == 3 {
                    return rt::go(move || i).join().unwrap();
                }
                rt::run(move || {
                    let handles: Vec<_> = (0..50).map(|k| rt::go(move || k)).collect();
                    assert_eq!(handles.into_iter().map(|h| h.join().unwrap()).sum::<u32>(), 1225);
                    i
                })
            })
        })
        .collect();
    assert_eq!(threads.into_iter().map(|t| t.join().unwrap()).sum::<i32>(), 28);
}

#[test]
fn run_from_threads_at_once() {
    for _ in 0..5 {
        for env in common::CONFIGURATIONS {
            program("run_in_threads", env).expect_code(0);
        }
    }
}

#[test]
fn run_from_a_goroutine() {
    let payload = rt::go(|| rt::run(|| 1)).join().unwrap_err();
    assert_eq!(message(&*payload), "rt::run was called from a goroutine: call the function itself, or rt::go");
    let payload = rt::run(|| rt::go(|| rt::Config::new().gomaxprocs(1).run(|| 1)).join()).unwrap_err();
    assert!(message(&*payload).contains("from a goroutine"));
}

#[test]
fn run_gives_mains_panic() {
    let payload = catch_unwind(|| rt::run(|| panic!("main has failed"))).map(|()| 0).unwrap_err();
    assert_eq!(message(&*payload), "main has failed");
    let payload = catch_unwind(|| rt::run(|| panic_any(5u8))).map(|()| 0).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&5u8));
    assert_eq!(rt::run(|| "and again"), "and again");
}

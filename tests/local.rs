//! Goroutine-locals: made at the first use, the goroutine's own wherever it runs, dropped once, when it ends.

mod common;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{Actor, Rng, everywhere, message, scaled, seed, traced};
use rt::chan::{Sender, bounded, unbounded};
use rt::goroutine_local;

goroutine_local! {
    static NUMBER: Cell<u64> = const { Cell::new(7) };
    static LIST: RefCell<Vec<u64>> = RefCell::new(vec![1]);
    static TEXT: String = String::from("initial")
}

#[test]
fn each_has_its_own() {
    for actor in Actor::BOTH {
        traced("own locals", move || {
            let all: Vec<_> = (0..50)
                .map(|i| {
                    actor.start(move || {
                        assert_eq!(
                            (NUMBER.get(), LIST.take(), TEXT.with(String::clone)),
                            (7, vec![1], "initial".into())
                        );
                        NUMBER.set(i);
                        LIST.with_borrow_mut(|l| l.extend([i, i + 1]));
                        rt::yield_now();
                        assert_eq!((NUMBER.replace(0), LIST.replace(vec![9])), (i, vec![i, i + 1]));
                        assert_eq!((NUMBER.take(), LIST.with_borrow(|l| l[0])), (0, 9));
                        LIST.set(vec![]);
                        assert!(LIST.with_borrow(Vec::is_empty));
                        assert_eq!(LIST.try_with(|l| l.borrow().len()), Ok(0));
                    })
                })
                .collect();
            all.into_iter().for_each(|s| s.join());
        });
    }
}

/// `set` as the first use does not run the initialiser; anything else does, once.
#[test]
fn made_at_first_use() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static COUNTED: Cell<u32> = {
            MADE.fetch_add(1, SeqCst);
            Cell::new(5)
        };
        static LISTED: RefCell<u32> = {
            MADE.fetch_add(1, SeqCst);
            RefCell::new(6)
        };
    }
    traced("first use", || {
        rt::go(|| {
            COUNTED.set(1);
            LISTED.set(2);
            assert_eq!((COUNTED.get(), LISTED.with_borrow(|n| *n), MADE.load(SeqCst)), (1, 2, 0));
        })
        .join()
        .unwrap();
        rt::go(|| ()).join().unwrap();
        assert_eq!(MADE.load(SeqCst), 0);
        rt::go(|| assert_eq!((COUNTED.get(), COUNTED.get(), LISTED.replace(1)), (5, 5, 6))).join().unwrap();
        assert_eq!(MADE.load(SeqCst), 2);
    });
}

#[test]
fn initialisers_may_fail_or_recurse() {
    static FAILS: AtomicBool = AtomicBool::new(true);
    goroutine_local! {
        static FRAIL: u32 = {
            if FAILS.swap(false, SeqCst) {
                resume_unwind(Box::new("not yet"));
            }
            3
        };
        /// Uses itself, once.
        static RECURSIVE: Cell<u32> = {
            DEPTH.set(DEPTH.get() + 1);
            let inner = if DEPTH.get() == 1 { RECURSIVE.get() } else { 10 };
            Cell::new(inner + 1)
        };
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }
    traced("initialisers", || {
        rt::go(|| {
            assert_eq!(message(&*catch_unwind(|| FRAIL.with(|n| *n)).unwrap_err()), "not yet");
            assert_eq!(FRAIL.with(|n| *n), 3);
            assert_eq!((RECURSIVE.get(), DEPTH.get()), (11, 2));
            assert_eq!(RECURSIVE.get(), 11);
        })
        .join()
        .unwrap();
    });
}

/// Values do not move, whatever else is made meanwhile and wherever the goroutine goes.
#[test]
fn references_stay_good() {
    macro_rules! many {
        ($($name:ident)*) => {
            goroutine_local! { $(static $name: RefCell<[u64; 4]> = const { RefCell::new([1; 4]) };)* }
            fn touch_all() -> u64 {
                [$($name.with_borrow_mut(|a| { a[3] += 1; a[3] })),*].into_iter().sum()
            }
        };
    }
    many!(A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 B0 B1 B2 B3 B4 B5 B6 B7 B8 B9 C0 C1 C2 C3 C4 C5 C6 C7 C8 C9);
    traced("references", || {
        let all: Vec<_> = (0..20u64)
            .map(|i| {
                rt::go(move || {
                    TEXT.with(|text| {
                        LIST.with_borrow_mut(|list| {
                            let address = text.as_ptr();
                            assert_eq!(touch_all(), 60);
                            list.push(i);
                            rt::time::sleep(Duration::from_micros(50 * i));
                            assert_eq!(touch_all(), 90);
                            rt::yield_now();
                            assert_eq!((text.as_str(), text.as_ptr()), ("initial", address));
                            assert_eq!(*list, [1, i]);
                        });
                    });
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    });
}

// Ends.

/// Says when it is dropped.
struct Told(u32, Sender<u32>);

impl Drop for Told {
    fn drop(&mut self) {
        self.1.send(self.0).unwrap();
    }
}

type TellCell = RefCell<Option<Told>>;

goroutine_local! {
    static FIRST: TellCell = RefCell::new(None);
    static SECOND: TellCell = RefCell::new(None);
    static THIRD: TellCell = RefCell::new(None);
}

#[test]
fn dropped_in_reverse_order_before_the_join() {
    for actor in Actor::BOTH {
        traced("order of drops", move || {
            for panics in [false, true] {
                let (tx, rx) = unbounded();
                let body = move || {
                    let captured = Told(9, tx.clone());
                    SECOND.set(Some(Told(2, tx.clone())));
                    FIRST.set(Some(Told(1, tx.clone())));
                    THIRD.set(Some(Told(3, tx.clone())));
                    // Neither use nor a new value changes the place in the order.
                    assert_eq!(SECOND.take().unwrap().0, 2);
                    SECOND.set(Some(Told(4, tx)));
                    if panics {
                        resume_unwind(Box::new(captured.0));
                    }
                };
                match actor {
                    Actor::Goroutine => assert_eq!(rt::go(body).join().is_err(), panics),
                    Actor::Thread => assert_eq!(rt::blocking(|| std::thread::spawn(body).join()).is_err(), panics),
                }
                // The second one's first value, what was captured, then the locals.
                assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2, 9, 3, 1, 4], "{actor:?}");
            }
        });
    }
}

/// A destructor uses a local that was used already, one that was not, its own, and waits.
#[test]
fn destructors_use_locals() {
    struct Curious(Sender<&'static str>);
    impl Drop for Curious {
        fn drop(&mut self) {
            let told = |text| self.0.send(text).unwrap();
            told("curious");
            assert!(CURIOUS.try_with(|_| ()).is_err(), "its own is being dropped");
            let caught = catch_unwind(|| CURIOUS.with(|_| ())).unwrap_err();
            assert_eq!(message(&*caught), "a goroutine-local was used during or after its destruction");
            assert_eq!(NUMBER.get(), 8, "made before, so still there");
            rt::yield_now();
            rt::time::sleep(Duration::from_millis(1));
            if LATE.try_with(|l| l.0.set(Some(self.0.clone()))).is_ok() {
                told("made late");
            }
            rt::yield_now();
        }
    }
    struct Late(Cell<Option<Sender<&'static str>>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let tell = self.0.take().unwrap();
            tell.send("late").unwrap();
            assert!(CURIOUS.try_with(|_| ()).is_err(), "it was dropped");
            assert!(LATE.try_with(|_| ()).is_err());
            assert_eq!(NUMBER.get(), 8);
        }
    }
    goroutine_local! {
        static CURIOUS: Cell<Option<Curious>> = const { Cell::new(None) };
        static LATE: Late = const { Late(Cell::new(None)) };
    }
    std::panic::set_hook(Box::new(|_| {}));
    for actor in Actor::BOTH {
        traced("destructors", move || {
            let (tx, rx) = unbounded();
            let started = actor.start(move || {
                NUMBER.set(8);
                CURIOUS.set(Some(Curious(tx)));
            });
            started.join();
            assert_eq!(rx.iter().collect::<Vec<_>>(), ["curious", "made late", "late"], "{actor:?}");
        });
    }
    let _ = std::panic::take_hook();
}

/// A result that nobody takes is dropped last, on the goroutine: locals that are gone say so, new ones are dropped too.
#[test]
fn results_use_locals() {
    struct Result(Sender<u32>);
    impl Drop for Result {
        fn drop(&mut self) {
            let gone = NUMBER.try_with(|_| ()).is_err();
            self.0.send(if gone { 1 } else { 0 }).unwrap();
            FIRST.set(Some(Told(2, self.0.clone())));
        }
    }
    traced("results", || {
        let (tx, rx) = unbounded();
        let (dropped, handle_is_dropped) = unbounded::<()>();
        drop(rt::go(move || {
            NUMBER.set(1);
            // Otherwise the result may be there first, and whoever drops the handle drops it.
            assert!(handle_is_dropped.recv().is_err());
            Result(tx)
        }));
        drop(dropped);
        assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 2]);
    });
}

/// A destructor that panics harms nobody else.
#[test]
fn destructors_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            resume_unwind(Box::new("a destructor"));
        }
    }
    goroutine_local! {
        static BOMB: RefCell<Option<Bomb>> = const { RefCell::new(None) };
    }
    traced("panicking destructors", || {
        let (tx, rx) = unbounded();
        for i in 0..100 {
            let tx = tx.clone();
            let h = rt::go(move || {
                FIRST.set(Some(Told(i, tx)));
                BOMB.set(Some(Bomb));
                i
            });
            assert_eq!(h.join().unwrap(), i);
            assert_eq!(rx.try_recv().unwrap(), i);
        }
        assert!(!std::thread::panicking());
    });
}

/// Every value is made once and dropped once, with panics, migrations and generations.
#[test]
fn stress_counts() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(Cell<u64>, Box<u64>);
    impl Counted {
        fn new(n: u64) -> Counted {
            MADE.fetch_add(1, SeqCst);
            Counted(Cell::new(n), Box::new(n))
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            assert_eq!(*self.1, 3);
            DROPPED.fetch_add(1, SeqCst);
            // Now and then a destructor makes another.
            if self.0.get().is_multiple_of(5) {
                let _ = Z.try_with(|z| z.0.set(1));
            }
        }
    }
    goroutine_local! {
        static X: Counted = Counted::new(3);
        static Y: RefCell<Counted> = RefCell::new(Counted::new(3));
        static Z: Counted = Counted::new(3);
    }
    everywhere("stress_counts", || {
        let seed = seed();
        traced("stress counts", move || {
            let n = scaled(4000, 1000);
            let uses = Arc::new(AtomicUsize::new(0));
            let panics = Arc::new(AtomicUsize::new(0));
            let (tx, rx) = bounded::<u64>(0);
            let feeder = rt::go(move || while tx.send(1).is_ok() {});
            let life = |i: u64| {
                let (uses, rx) = (uses.clone(), rx.clone());
                move || {
                    let mut rng = Rng::new(seed ^ i);
                    let (mut used, mut sum) = ([false; 2], [3, 3]);
                    for _ in 0..rng.below(12) {
                        let add = rng.below(100);
                        match rng.below(5) {
                            0 => X.with(|x| {
                                used[0] = true;
                                let before = x.0.get();
                                rt::yield_now();
                                x.0.set(before + add);
                                sum[0] += add;
                            }),
                            1 => Y.with_borrow_mut(|y| {
                                used[1] = true;
                                let before = *y.0.get_mut();
                                assert_eq!(rx.recv(), Ok(1));
                                *y.0.get_mut() = before + add;
                                sum[1] += add;
                            }),
                            2 => rt::time::sleep(Duration::from_micros(rng.below(100))),
                            3 => rt::blocking(|| std::thread::sleep(Duration::from_micros(20))),
                            _ => rt::yield_now(),
                        }
                    }
                    for (i, used) in used.into_iter().enumerate() {
                        uses.fetch_add(usize::from(used), SeqCst);
                        if used && i == 0 {
                            assert_eq!(X.with(|x| x.0.get()), sum[0]);
                        } else if used {
                            assert_eq!(Y.with_borrow(|y| y.0.get()), sum[1]);
                        }
                    }
                    if rng.below(3) == 0 {
                        resume_unwind(Box::new("on purpose"));
                    }
                }
            };
            let mut handles = Vec::new();
            for i in 0..n as u64 {
                handles.push(rt::go(life(i)));
                if handles.len() == 64 {
                    for h in handles.drain(..) {
                        let failed = h.join().is_err_and(|e| {
                            assert_eq!(message(&*e), "on purpose");
                            true
                        });
                        panics.fetch_add(usize::from(failed), SeqCst);
                    }
                    assert_eq!(MADE.load(SeqCst), DROPPED.load(SeqCst), "all are gone when the joins are over");
                }
            }
            for h in handles {
                let _ = h.join();
            }
            drop(rx);
            feeder.join().unwrap();
            let (made, dropped) = (MADE.load(SeqCst), DROPPED.load(SeqCst));
            println!("{made} made, {} of them by uses; {} panics", uses.load(SeqCst), panics.load(SeqCst));
            assert_eq!(made, dropped);
            // Those that destructors made come on top.
            assert!(made >= uses.load(SeqCst) && uses.load(SeqCst) > 0 && panics.load(SeqCst) > 0);
        });
    });
}

/// A panic in a use leaves the value what it is.
#[test]
fn panics_in_uses() {
    traced("panics in uses", || {
        rt::go(|| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                LIST.with_borrow_mut(|l| {
                    l.push(2);
                    rt::yield_now();
                    resume_unwind(Box::new("in use"));
                })
            }));
            assert!(caught.is_err());
            assert_eq!(LIST.take(), [1, 2]);
        })
        .join()
        .unwrap();
    });
}

/// A user's function may be called what the macro might have called its own.
#[test]
fn the_macro_hides_no_names() {
    fn init() -> u32 {
        7
    }
    rt::goroutine_local! {
        static SEVEN: u32 = init();
    }
    assert_eq!(SEVEN.with(|n| *n), 7);
    assert_eq!(rt::go(|| SEVEN.with(|n| *n)).join().unwrap(), 7);
}

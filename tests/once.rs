//! Once, OnceLock, LazyLock: done once, seen by all, and tried again after a panic.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use common::{Actor, Rng, Started, everywhere, message, scaled, seed, traced, wait_for};
use rt::sync::{LazyLock, Once, OnceLock};

#[test]
fn smoke() {
    static ONCE: Once = Once::new();
    static CELL: OnceLock<String> = OnceLock::new();
    static LAZY: LazyLock<Vec<u32>> = LazyLock::new(|| vec![1, 2, 3]);
    traced("smoke", || {
        let mut runs = 0;
        assert!(!ONCE.is_completed());
        ONCE.call_once(|| runs += 1);
        ONCE.call_once(|| runs += 1);
        ONCE.wait();
        assert_eq!((runs, ONCE.is_completed()), (1, true));
        assert_eq!(format!("{ONCE:?} {:?}", Once::default()), "Once { completed: true } Once { completed: false }");

        assert_eq!((CELL.get(), format!("{CELL:?}")), (None, "OnceLock(<not set>)".into()));
        assert_eq!(CELL.get_or_init(|| "first".into()), "first");
        assert_eq!(CELL.get_or_init(|| unreachable!()), "first");
        assert_eq!(CELL.set("second".into()), Err("second".into()));
        assert_eq!((CELL.wait(), format!("{CELL:?}")), (&"first".to_owned(), "OnceLock(\"first\")".into()));

        let mut cell = OnceLock::from(1);
        assert_eq!((cell.clone() == cell, OnceLock::default() == cell), (true, false));
        *cell.get_mut().unwrap() += 1;
        assert_eq!((cell.take(), cell.take(), cell.get_mut()), (Some(2), None, None));
        assert_eq!((cell.set(3), cell.into_inner(), OnceLock::<u8>::new().into_inner()), (Ok(()), Some(3), None));

        assert_eq!(format!("{LAZY:?}"), "LazyLock(<not made yet>)");
        assert_eq!((LAZY.len(), LazyLock::force(&LAZY).len()), (3, 3));
        assert_eq!(format!("{LAZY:?}"), "LazyLock([1, 2, 3])");
        assert_eq!(*LazyLock::<u8>::default(), 0);
    });
}

/// Many at once: one runs, all see what it did.
#[test]
fn stampede() {
    everywhere("stampede", || {
        let seed = seed();
        traced("stampede", move || {
            let mut rng = Rng::new(seed);
            for _ in 0..scaled(300, 40) {
                let shared = Arc::new((Once::new(), AtomicUsize::new(0), OnceLock::new()));
                let dawdle = rng.below(4);
                let running: Vec<_> = (0..16)
                    .map(|i| {
                        let shared = shared.clone();
                        Actor::mixed(usize::from(i % 8 == 0)).start(move || {
                            let (once, runs, cell) = &*shared;
                            if i % 5 == 4 {
                                once.wait();
                            }
                            once.call_once(|| {
                                match dawdle {
                                    0 => {}
                                    1 => rt::yield_now(),
                                    _ => rt::time::sleep(Duration::from_micros(100)),
                                }
                                runs.fetch_add(1, Relaxed);
                            });
                            assert_eq!(runs.load(Relaxed), 1);
                            if i % 2 == 0 {
                                return usize::from(cell.set(i).is_ok());
                            }
                            let mut mine = false;
                            cell.get_or_init(|| {
                                mine = true;
                                rt::yield_now();
                                i
                            });
                            usize::from(mine)
                        })
                    })
                    .collect();
                let winners: usize = running.into_iter().map(Started::join).sum();
                assert_eq!(winners, 1, "one sets the value");
            }
        });
    });
}

/// A panic lets one of those who wait try again.
#[test]
fn panic_lets_the_next_try() {
    everywhere("panic_lets_the_next_try", || {
        traced("panic_lets_the_next_try", || {
            for actor in Actor::BOTH {
                let shared = Arc::new((OnceLock::new(), AtomicUsize::new(0), AtomicUsize::new(0)));
                let running: Vec<_> = (0..12)
                    .map(|i| {
                        let shared = shared.clone();
                        let actor = if i == 0 { actor } else { Actor::mixed(usize::from(i % 4 == 0)) };
                        actor.start(move || {
                            let (cell, tries, _) = &*shared;
                            let result = catch_unwind(AssertUnwindSafe(|| {
                                *cell.get_or_init(|| {
                                    rt::time::sleep(Duration::from_micros(300));
                                    match tries.fetch_add(1, SeqCst) {
                                        n @ 0..3 => resume_unwind(Box::new(format!("try {n}"))),
                                        n => n,
                                    }
                                })
                            }));
                            match result {
                                Ok(n) => assert_eq!(n, 3),
                                Err(payload) => {
                                    assert!(message(&*payload).starts_with("try "));
                                    shared.2.fetch_add(1, SeqCst);
                                }
                            }
                        })
                    })
                    .collect();
                running.into_iter().for_each(Started::join);
                assert_eq!((shared.1.load(SeqCst), shared.2.load(SeqCst)), (4, 3), "tries, panics");
                assert_eq!(shared.0.get(), Some(&3));
            }
        });
    });
}

#[test]
fn panic_of_a_lazy_value() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    traced("panic_of_a_lazy_value", || {
        let lazy = Arc::new(LazyLock::new(|| match TRIES.fetch_add(1, SeqCst) {
            0 => resume_unwind(Box::new("not today")),
            n => vec![n; 3],
        }));
        let theirs = lazy.clone();
        let payload = rt::go(move || theirs.len()).join().unwrap_err();
        assert_eq!(message(&*payload), "not today");
        assert_eq!(format!("{lazy:?}"), "LazyLock(<not made yet>)");
        assert_eq!((**lazy).as_slice(), [1; 3]);
        assert_eq!(TRIES.load(SeqCst), 2);
    });
}

#[test]
fn errors_let_the_next_try() {
    traced("errors_let_the_next_try", || {
        let cell = Arc::new(OnceLock::new());
        let waiting: Vec<_> = (0..4)
            .map(|i| {
                let cell = cell.clone();
                Actor::mixed(i).start(move || *cell.wait())
            })
            .collect();
        assert_eq!(cell.get_or_try_init(|| Err("no")), Err("no"));
        (0..5).for_each(|_| rt::yield_now());
        assert_eq!(cell.get(), None);
        assert_eq!(cell.get_or_try_init(|| Ok::<_, &str>(5)), Ok(&5));
        assert_eq!(cell.get_or_try_init(|| Err("late")), Ok(&5));
        assert!(waiting.into_iter().all(|w| w.join() == 5));
    });
}

/// Each value is dropped once, whether or not it was set.
#[test]
fn drop_once() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    traced("drop_once", || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let now = || dropped.load(SeqCst);
        let mut cell = OnceLock::from(Counts(dropped.clone()));
        let second = cell.set(Counts(dropped.clone()));
        assert!(second.is_err());
        drop(second);
        assert_eq!(now(), 1);
        drop(cell.take());
        assert_eq!(now(), 2);
        assert!(cell.set(Counts(dropped.clone())).is_ok());
        drop(cell);
        assert_eq!(now(), 3);
        drop(OnceLock::<Counts>::new());
        let theirs = dropped.clone();
        let lazy = LazyLock::new(move || Counts(theirs.clone()));
        LazyLock::force(&lazy);
        drop(lazy);
        assert_eq!((now(), Arc::strong_count(&dropped)), (4, 1));
    });
}

/// Somebody waits for a call that has not been made yet.
#[test]
fn wait_before_the_call() {
    everywhere("wait_before_the_call", || {
        traced("wait_before_the_call", || {
            for actor in Actor::BOTH {
                let shared = Arc::new((Once::new(), AtomicUsize::new(0)));
                let theirs = shared.clone();
                let waiting = actor.start(move || {
                    theirs.1.fetch_add(1, SeqCst);
                    theirs.0.wait();
                    theirs.1.load(SeqCst)
                });
                wait_for("it is about to wait", || shared.1.load(SeqCst) == 1);
                // A call that panics does not count.
                let tried = catch_unwind(AssertUnwindSafe(|| shared.0.call_once(|| resume_unwind(Box::new(0)))));
                assert!(tried.is_err());
                rt::time::sleep(Duration::from_millis(2));
                shared.0.call_once(|| shared.1.store(5, SeqCst));
                assert_eq!(waiting.join(), 5);
            }
        });
    });
}

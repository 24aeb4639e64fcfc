//! Goroutines that make goroutines that make goroutines: how many there are at once, and that each of them begins in the end.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use common::{count, traced};
use rt::chan::{Sender, bounded};
use tracer::wire::Ev;

/// Runs `body` with so many Ps.
fn with_procs<T>(procs: usize, body: impl FnOnce() -> T) -> T {
    let before = rt::set_gomaxprocs(procs);
    let value = body();
    rt::set_gomaxprocs(before);
    value
}

#[derive(Default)]
struct Live {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Live {
    fn begins(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(now, Relaxed);
    }

    fn ends(&self) {
        self.now.fetch_sub(1, Relaxed);
    }
}

fn tree(up: &Sender<u64>, live: &Arc<Live>, leaves: u64) {
    if leaves == 1 {
        up.send(1).unwrap();
    } else {
        let (tx, rx) = bounded(0);
        for _ in 0..10 {
            let (tx, live) = (tx.clone(), Arc::clone(live));
            live.begins();
            rt::go(move || tree(&tx, &live, leaves / 10));
        }
        up.send((0..10).map(|_| rx.recv().unwrap()).sum()).unwrap();
    }
    live.ends();
}

/// P6: without it nearly all of a tree's leaves wait at once.
#[test]
fn trees_are_grown_in_depth() {
    const LEAVES: u64 = if cfg!(rt_chaos) { 10_000 } else { 100_000 };
    for procs in [1, 2, 4] {
        let ((most, sum), trace) = traced("trees_are_grown_in_depth", move || {
            with_procs(procs, || {
                let live = Arc::new(Live::default());
                let (tx, rx) = bounded(0);
                let root = live.clone();
                live.begins();
                rt::go(move || tree(&tx, &root, LEAVES));
                let sum = rx.recv().unwrap();
                (live.most.load(Relaxed), sum)
            })
        });
        assert_eq!(sum, LEAVES);
        assert!(count(&trace, Ev::GoCreate) as u64 > LEAVES);
        println!("{procs} Ps: at most {most} at once");
        // Under chaos many go to any queue there is.
        assert!(cfg!(rt_chaos) || most < 20_000, "{most} goroutines at once, {procs} Ps");
    }
}

/// P6: those that yield for ever never leave the queue empty.
#[test]
fn new_ones_begin_beside_many_that_yield() {
    // Under chaos a turn takes many times as long.
    const NEW: usize = if cfg!(rt_chaos) { 1_000 } else { 5_000 };
    const MANY: usize = if cfg!(rt_chaos) { 2_000 } else { 10_000 };
    for (procs, yielders) in [(1, 3), (1, 1_000), (1, MANY), (2, 300)] {
        traced("new_ones_begin_beside_many_that_yield", move || {
            with_procs(procs, || {
                let (over, turns, begun) = <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
                let all: Vec<_> = (0..yielders)
                    .map(|_| {
                        let (over, turns) = (over.clone(), turns.clone());
                        rt::go(move || {
                            while !over.load(Relaxed) {
                                turns.fetch_add(1, Relaxed);
                                rt::yield_now();
                            }
                        })
                    })
                    .collect();
                while turns.load(Relaxed) < yielders {
                    rt::yield_now();
                }
                for _ in 0..NEW {
                    let begun = begun.clone();
                    rt::go(move || begun.fetch_add(1, Relaxed));
                }
                let before = turns.load(Relaxed);
                while begun.load(Relaxed) < NEW {
                    rt::yield_now();
                }
                over.store(true, Relaxed);
                all.into_iter().for_each(|one| one.join().unwrap());
                let took = turns.load(Relaxed) - before;
                println!("{procs} Ps, {yielders} that yield: {took} turns");
                // Two rounds, and what the test itself takes to see it. A P that has made none of them takes 256 in a round.
                let rounds = if procs == 1 { 10 } else { 10 + NEW / 256 };
                assert!(took < rounds * yielders + 1_000, "{took} turns of {yielders} others until {NEW} had begun");
            });
        });
    }
}

/// P6: who makes many and yields waits until about as many have run.
#[test]
fn makers_that_yield_do_not_run_ahead() {
    const TURNS: usize = if cfg!(rt_chaos) { 30 } else { 300 };
    for (procs, makers, each) in [(1, 1, 300), (1, 3, 300), (1, 20, 64), (2, 4, 200)] {
        traced("makers_that_yield_do_not_run_ahead", move || {
            with_procs(procs, || {
                let live = Arc::new(Live::default());
                let all: Vec<_> = (0..makers)
                    .map(|_| {
                        let live = live.clone();
                        rt::go(move || {
                            for _ in 0..TURNS {
                                for _ in 0..each {
                                    let one = live.clone();
                                    live.begins();
                                    rt::go(move || one.ends());
                                }
                                rt::yield_now();
                            }
                        })
                    })
                    .collect();
                all.into_iter().for_each(|one| one.join().unwrap());
                let most = live.most.load(Relaxed);
                println!("{procs} Ps, {makers} that make {each}: at most {most} at once");
                assert!(most < 4 * makers * each + 2_000, "{most} at once");
            });
        });
    }
}

/// P6: the first ones that it makes do not wait for those that it makes later; nor beside one that takes each turn that the global queue has.
#[test]
fn makers_that_yield_leave_nobody_behind() {
    for (procs, makers, each, hogs) in [(1, 1, 300, 0), (1, 1, 1_000, 0), (1, 3, 300, 1), (2, 2, 500, 0)] {
        traced("makers_that_yield_leave_nobody_behind", move || {
            with_procs(procs, || {
                let (over, begun, longest) = <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
                let hogs: Vec<_> = (0..hogs)
                    .map(|_| {
                        let over = over.clone();
                        rt::go(move || {
                            let (_tx, rx) = bounded::<()>(1);
                            while !over.load(Relaxed) {
                                assert!(rx.try_recv().is_err());
                            }
                        })
                    })
                    .collect();
                let all: Vec<_> = (0..makers)
                    .map(|_| {
                        let (begun, longest) = (begun.clone(), longest.clone());
                        rt::go(move || {
                            for _ in 0..20_000 / each {
                                for _ in 0..each {
                                    let (begun, longest) = (begun.clone(), longest.clone());
                                    let before = begun.load(Relaxed);
                                    rt::go(move || {
                                        longest.fetch_max(begun.fetch_add(1, Relaxed) - before, Relaxed);
                                    });
                                }
                                rt::yield_now();
                            }
                        })
                    })
                    .collect();
                all.into_iter().for_each(|one| one.join().unwrap());
                over.store(true, Relaxed);
                hogs.into_iter().for_each(|one| one.join().unwrap());
                let longest = longest.load(Relaxed);
                println!("{procs} Ps, {makers} that make {each}: {longest} others began before one of them");
                assert!(longest < 4 * makers * each + 2_000, "{longest} others began before one of them");
            });
        });
    }
}

/// P6: who made them takes its turns from the global queue.
#[test]
fn new_ones_begin_beside_one_that_is_preempted() {
    const NEW: usize = 5_000;
    let ((), trace) = traced("new_ones_begin_beside_one_that_is_preempted", || {
        with_procs(1, || {
            let begun = Arc::new(AtomicUsize::new(0));
            for _ in 0..NEW {
                let begun = begun.clone();
                rt::go(move || begun.fetch_add(1, Relaxed));
            }
            let (_tx, rx) = bounded::<()>(1);
            while begun.load(Relaxed) < NEW {
                assert!(rx.try_recv().is_err());
            }
        });
    });
    // It has one turn of 61.
    let stops = count(&trace, Ev::GoStop);
    assert!(stops < 300, "{stops} turns until {NEW} had begun");
}

/// P6: there are always newer ones.
#[test]
fn the_oldest_begins_though_there_are_always_newer_ones() {
    for procs in [1, 2] {
        traced("the_oldest_begins_though_there_are_always_newer_ones", move || {
            with_procs(procs, || {
                let (over, made) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
                // Each makes another, and there are thousands of them.
                fn chain(over: Arc<AtomicBool>, made: Arc<AtomicUsize>) {
                    made.fetch_add(1, Relaxed);
                    if !over.load(Relaxed) {
                        rt::go(move || chain(over, made));
                    }
                }
                let first = over.clone();
                rt::go(move || first.store(true, Relaxed));
                for _ in 0..3_000 {
                    let (over, made) = (over.clone(), made.clone());
                    rt::go(move || chain(over, made));
                }
                let mut most = 0;
                while !over.load(Relaxed) {
                    rt::yield_now();
                    most = made.load(Relaxed);
                }
                println!("{procs} Ps: {most} others began before it");
                assert!(most < 100_000, "{most} others began before it");
            });
        });
    }
}

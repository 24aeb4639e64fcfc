//! Values that own each other, deeply: `Trace` follows what a value owns by recursion, on the stack of whoever is marking. How deep that may be,
//! and what becomes of who goes deeper.

mod common;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Ended, child_passes, in_child, is_child, traced};
use rt::gc::{self, Edge, Gc, Trace, Visitor};

/// The documentation of `Trace` says so.
const SAFE_DEPTH: usize = 64;
const SMALLEST: usize = 64 << 10;
const LARGEST: usize = 8 << 20;

/// An edge in a box in a box.
#[derive(Trace)]
struct Deep {
    inner: Option<Box<Deep>>,
    edge: Edge<u64>,
    probe: Probe,
}

/// The lowest address of a stack on which a probe was shown, for threads that are of interest.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Remembers how deep in the stack it was shown.
struct Probe;

// SAFETY: it has no edges, and nothing to drop.
unsafe impl Trace for Probe {
    const HAS_EDGES: bool = false;
    const NEEDS_DROP: bool = false;
    #[inline(never)]
    fn trace(&self, _: &mut Visitor<'_>) {
        let here = 0u8;
        LOWEST.fetch_min(black_box(&raw const here).addr(), Ordering::Relaxed);
    }
}

/// Nested so many times, with an edge at each level.
fn deep(levels: usize, target: &Gc<u64>) -> Deep {
    let new = |inner| Deep { inner, edge: Edge::new(target), probe: Probe };
    (1..levels).fold(new(None), |inner, _| new(Some(Box::new(inner))))
}

/// Takes it apart without recursion, which dropping it would be.
fn dismantle(deep: Deep) {
    let mut next = deep.inner;
    while let Some(mut deep) = next {
        next = deep.inner.take();
    }
}

/// Leaves it to the process's end.
fn keep(gc: &Gc<Deep>) {
    std::mem::forget(gc.clone());
}

fn on_stack<T: Send + 'static>(bytes: usize, f: impl FnOnce() -> T + Send + 'static) -> T {
    rt::Builder::new().name("deep diver").stack_size(bytes).spawn(f).unwrap().join().unwrap()
}

/// On the smallest stack there is, by who makes them, by who helps marking, and by the workers.
#[test]
fn values_nested_as_deep_as_is_safe() {
    let _ = traced("gc nested values", || {
        on_stack(SMALLEST, || {
            let target = Gc::new(7u64);
            let kept: Vec<Gc<Deep>> = (0..500).map(|_| Gc::new(deep(SAFE_DEPTH, &target))).collect();
            drop(target);
            // Garbage enough for cycles, in which this goroutine helps.
            for _ in 0..200_000 {
                black_box(Gc::new([0u64; 8]));
            }
            gc::collect();
            for gc in &kept {
                let mut at = &**gc;
                let mut levels = 1;
                while let Some(inner) = &at.inner {
                    at = inner;
                    levels += 1;
                }
                assert_eq!((levels, *at.edge.get().unwrap()), (SAFE_DEPTH, 7));
            }
        });
        gc::collect();
    });
}

/// What a level takes, measured; so that what the documentation promises holds with room to spare.
#[test]
fn levels_take_little_of_a_stack() {
    const TEST: &str = "levels_take_little_of_a_stack";
    // Alone: others with little stack would mark them, too.
    if !is_child(TEST) {
        return child_passes(TEST, &[]);
    }
    rt::run(|| {
        let target = Gc::new(7u64);
        for (what, most, level) in [
            ("Box", 200, of_a_level(|levels| deep(levels, &target))),
            (
                "Vec",
                300,
                of_a_level(|levels| nested(levels, |inner| Bushy { many: inner.into_iter().collect(), probe: Probe })),
            ),
            (
                "HashMap",
                900,
                of_a_level(|levels| {
                    nested(levels, |inner| Keyed { by: inner.into_iter().map(|k| (0, k)).collect(), probe: Probe })
                }),
            ),
        ] {
            println!("{what}: {level} bytes a level");
            assert!(level <= most, "a level of {what} takes {level} bytes");
            assert!(
                SAFE_DEPTH * level < SMALLEST - (SMALLEST >> 3),
                "{SAFE_DEPTH} levels of {what} take {level} bytes each"
            );
        }
    });
}

#[derive(Trace)]
struct Bushy {
    many: Vec<Bushy>,
    probe: Probe,
}

#[derive(Trace)]
struct Keyed {
    by: HashMap<u8, Keyed>,
    probe: Probe,
}

fn nested<T>(levels: usize, new: impl Fn(Option<T>) -> T) -> T {
    (1..levels).fold(new(None), |inner, _| new(Some(inner)))
}

/// Bytes of stack that a level takes while the object is made, which is when its edges are shown for the first time.
fn of_a_level<T: Trace + Send + 'static>(make: impl Fn(usize) -> T) -> usize {
    let lowest = |value: T| {
        on_stack(LARGEST, move || {
            LOWEST.store(usize::MAX, Ordering::Relaxed);
            let top = 0u8;
            let top = black_box(&raw const top).addr();
            std::mem::forget(Gc::new(value));
            top - LOWEST.load(Ordering::Relaxed)
        })
    };
    let (few, many) = (lowest(make(1)), lowest(make(1_001)));
    (many - few) / 1_000
}

/// The report of an overflow, and the usual end.
fn expect_overflow(test: &str, env: &[(&str, &str)], who: &str, stack_bytes: usize) {
    let out = in_child(test, env);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let ended = Ended { status: out.status, stdout: text(out.stdout), stderr: text(out.stderr) };
    ended.expect_signal(libc::SIGSEGV);
    ended.expect_stderr(&["fatal error: stack overflow\n", who, "Trace", "trace", "tests/gc_deep.rs:"]);
    ended.expect_stderr(&[&format!("has used up its stack of {stack_bytes} bytes")]);
}

/// Too deep for who makes it.
#[test]
fn too_deep_for_its_maker() {
    const TEST: &str = "too_deep_for_its_maker";
    if is_child(TEST) {
        rt::run(|| {
            let target = Gc::new(7u64);
            let value = deep(100_000, &target);
            on_stack(SMALLEST, move || keep(&Gc::new(value)));
        });
        return;
    }
    expect_overflow(TEST, &[], "\"deep diver\"", SMALLEST);
}

/// Made on a large stack, it is too deep for another goroutine that only helps marking.
#[test]
fn too_deep_for_who_helps() {
    const TEST: &str = "too_deep_for_who_helps";
    if is_child(TEST) {
        rt::run(|| {
            let target = Gc::new(7u64);
            let levels = if cfg!(debug_assertions) { 5_000 } else { 20_000 };
            // Very many, so that there is something left to mark for those who allocate.
            on_stack(LARGEST, move || (0..200).for_each(|_| keep(&Gc::new(deep(levels, &target)))));
            let helpers: Vec<_> = (0..8)
                .map(|_| {
                    let helper = rt::Builder::new().name("deep diver").stack_size(SMALLEST);
                    helper.spawn(|| {
                        loop {
                            black_box(Gc::new([0u64; 500]));
                        }
                    })
                })
                .collect();
            helpers.into_iter().for_each(|helper| helper.unwrap().join().unwrap());
        });
        return;
    }
    expect_overflow(TEST, &[("GOMAXPROCS", "2")], "\"deep diver\"", SMALLEST);
}

/// Made by somebody with more stack than there is, it is too deep for the collector.
#[test]
fn too_deep_for_a_worker() {
    const TEST: &str = "too_deep_for_a_worker";
    if is_child(TEST) {
        static MADE: AtomicBool = AtomicBool::new(false);
        // A plain thread may have as much stack as it wants.
        std::thread::Builder::new()
            .stack_size(1 << 30)
            .spawn(|| {
                let target = Gc::new(7u64);
                keep(&Gc::new(deep(1_000_000, &target)));
                MADE.store(true, Ordering::SeqCst);
            })
            .unwrap()
            .join()
            .unwrap();
        assert!(MADE.load(Ordering::SeqCst));
        rt::run(gc::collect);
        return;
    }
    expect_overflow(TEST, &[("GOMAXPROCS", "2")], "\"GC (", LARGEST);
}

/// Edges are no nesting: what they lead to queues.
#[test]
fn edges_do_not_recurse() {
    #[derive(Trace)]
    struct Link {
        next: Option<Box<Edge<Link>>>,
    }
    let _ = traced("gc deep edges", || {
        on_stack(SMALLEST, || {
            let mut list = Gc::new(Link { next: None });
            for _ in 0..200_000 {
                list = Gc::new(Link { next: Some(Box::new(Edge::from(list))) });
            }
            gc::collect();
            let mut links = 0;
            let mut at = Some(list);
            while let Some(link) = at {
                at = link.next.as_ref().and_then(|edge| edge.get());
                links += 1;
            }
            assert_eq!(links, 200_001);
        });
        gc::collect();
    });
}

/// A value that was taken out of reach of the collector is dropped by its owner, as deep as it is, by hand.
#[test]
fn dismantled_by_hand() {
    rt::run(|| {
        let target = Gc::new(7u64);
        let value = deep(200_000, &target);
        on_stack(SMALLEST, move || dismantle(value));
        gc::collect();
        assert_eq!(*target, 7);
    });
}

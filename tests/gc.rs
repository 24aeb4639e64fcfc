//! The collected heap: what stays, what goes, when `Drop` and finalisers run, and what a trace shows of it.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Buffer, count, judge, memory_kib, scaled, traced, wait_for};
use rt::gc::{self, Edge, Gc, Opaque, Trace, WeakGc};
use tracer::wire::Ev;

#[derive(Trace)]
struct Node {
    value: u64,
    next: Edge<Node>,
}

fn node(value: u64) -> Gc<Node> {
    Gc::new(Node { value, next: Edge::null() })
}

/// Counts how many of them were dropped.
#[derive(Trace)]
#[trace(drop)]
struct Counted {
    me: Edge<Counted>,
    dropped: Opaque<Arc<AtomicUsize>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(self.me.is_null() && self.me.get().is_none(), "edges are empty in a Drop");
        self.dropped.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted(dropped: &Arc<AtomicUsize>) -> Gc<Counted> {
    Gc::new(Counted { me: Edge::null(), dropped: Opaque(dropped.clone()) })
}

#[test]
fn smoke() {
    let (_, trace) = traced("gc smoke", || {
        let a = node(1);
        let b = Gc::new(Node { value: 2, next: Edge::new(&a) });
        a.next.set(Some(&b));
        gc::collect();
        let c = a.next.get().unwrap().next.get().unwrap();
        assert!(Gc::ptr_eq(&a, &c) && c.value == 1 && a.next.is(&b));
        assert!(a.next.take().is_some_and(|x| x.value == 2));
        assert!(a.next.get().is_none() && a.next.is_null());
        gc::collect();
        assert_eq!((a.value, b.value), (1, 2));
    });
    for ev in [Ev::GcBegin, Ev::GcEnd] {
        assert_eq!(count(&trace, ev), 2, "{ev:?}");
    }
    assert!(count(&trace, Ev::HeapGoal) >= 2 && count(&trace, Ev::HeapAlloc) >= 2);
}

#[test]
fn cycles_are_freed_and_dropped_once() {
    let n = scaled(20_000, 2_000);
    let _ = traced("gc cycles", move || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let kept: Vec<Gc<Counted>> = (0..10).map(|_| counted(&dropped)).collect();
        for _ in 0..n {
            let x = counted(&dropped);
            x.me.set(Some(&x));
        }
        gc::collect();
        wait_for("all are dropped", || dropped.load(Ordering::SeqCst) == n);
        gc::collect();
        assert_eq!(dropped.load(Ordering::SeqCst), n);
        drop(kept);
        gc::collect();
        wait_for("the rest is dropped", || dropped.load(Ordering::SeqCst) == n + 10);
        gc::collect();
        gc::collect();
        assert_eq!(Arc::strong_count(&dropped), 1);
    });
}

#[test]
fn compare_exchange_gives_what_is_there() {
    let _ = traced("gc compare_exchange", || {
        let (a, b, c) = (node(1), node(2), node(3));
        assert!(a.next.compare_exchange(None, Some(&b)).is_ok());
        let there = a.next.compare_exchange(None, Some(&c)).unwrap_err().unwrap();
        assert!(Gc::ptr_eq(&there, &b));
        assert!(a.next.compare_exchange(Some(&b), Some(&c)).is_ok());
        assert!(a.next.replace(Some(&b)).is_some_and(|x| Gc::ptr_eq(&x, &c)));
        assert!(a.next.compare_exchange(Some(&b), None).is_ok() && a.next.is_null());
        // The same with one that is no part of an object.
        let loose = Edge::new(&a);
        drop(a);
        gc::collect();
        assert_eq!(loose.get().unwrap().value, 1);
        assert!(loose.compare_exchange(Some(&b), None).is_err_and(|x| x.is_some_and(|x| x.value == 1)));
        loose.set(Some(&b));
        assert!(loose.compare_exchange(Some(&b), Some(&c)).is_ok());
        drop((b, c));
        gc::collect();
        assert_eq!(loose.take().unwrap().value, 3);
    });
}

/// An edge keeps its target wherever it lies: on a stack, in a box, in a cell inside an object that the collector does not look into.
#[test]
fn edges_outside_objects_keep_their_targets() {
    #[derive(Trace)]
    struct Holder {
        hidden: Mutex<Vec<Edge<Node>>>,
    }
    let _ = traced("gc loose edges", || {
        let before = gc::stats().freed_bytes;
        let loose = Edge::from(node(7));
        let holder = Gc::new(Holder { hidden: Mutex::new(vec![Edge::from(node(8))]) });
        gc::collect();
        assert_eq!(loose.get().unwrap().value, 7);
        let taken = std::mem::take(&mut *holder.hidden.lock().unwrap());
        gc::collect();
        assert_eq!(taken[0].get().unwrap().value, 8);
        let out = taken[0].get();
        drop((loose, taken, holder));
        gc::collect();
        assert_eq!(out.unwrap().value, 8);
        gc::collect();
        wait_for("all is freed", || {
            gc::collect();
            gc::stats().freed_bytes >= before + 3 * 24
        });
    });
}

/// Never recursive: a list as long as you like, on the smallest stack.
#[test]
fn a_long_list_is_marked_and_freed_on_a_small_stack() {
    let n = if cfg!(rt_chaos) { 20_000 } else { scaled(10_000_000, 200_000) } as u64;
    let _ = traced("gc long list", move || {
        let small = rt::Builder::new().stack_size(64 << 10);
        let freed = gc::stats().freed_bytes;
        let job = small.spawn(move || {
            let mut list = node(0);
            for i in 1..n {
                list = Gc::new(Node { value: i, next: Edge::from(list) });
            }
            gc::collect();
            let mut at = Some(list);
            let mut sum = 0;
            while let Some(node) = at {
                sum += node.value;
                at = node.next.get();
            }
            assert_eq!(sum, n * (n - 1) / 2);
            gc::collect();
        });
        job.unwrap().join().unwrap();
        assert!(gc::stats().freed_bytes - freed >= n * 24, "{:?}", gc::stats());
    });
}

#[test]
fn garbage_in_cycles_takes_bounded_memory() {
    let n = if cfg!(rt_chaos) { 30_000 } else { scaled(20_000_000, 300_000) };
    let before = memory_kib("VmRSS");
    rt::run(move || {
        for i in 0..n {
            let x = node(i as u64);
            x.next.set(Some(&x));
        }
    });
    let grown = memory_kib("VmRSS").saturating_sub(before);
    println!("{n} cycles: {grown} KiB, {:?}", gc::stats());
    assert!(gc::stats().cycles > 0 || n < 1_000_000);
    assert!(grown < 100 << 10, "the process has grown by {grown} KiB");
}

#[test]
fn a_finalizer_runs_once_and_may_keep_its_object() {
    static KEPT: Mutex<Option<Gc<Node>>> = Mutex::new(None);
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let _ = traced("gc finalizer", || {
        let x = Gc::new(Node { value: 17, next: Edge::from(Gc::new(Node { value: 4, next: Edge::from(node(5)) })) });
        let weak = WeakGc::new(&x);
        Gc::set_finalizer(&x, |x| {
            RUNS.fetch_add(1, Ordering::SeqCst);
            *KEPT.lock().unwrap() = Some(x);
        });
        gc::collect();
        assert_eq!(RUNS.load(Ordering::SeqCst), 0);
        drop(x);
        gc::collect();
        wait_for("the finaliser runs", || KEPT.lock().unwrap().is_some());
        assert!(weak.upgrade().is_none(), "weak handles do not lead to what was found dead");
        for _ in 0..3 {
            gc::collect();
            let kept = KEPT.lock().unwrap();
            let kept = kept.as_ref().unwrap();
            let next = kept.next.get().unwrap();
            assert_eq!((kept.value, next.value, next.next.get().unwrap().value), (17, 4, 5));
        }
        let last = KEPT.lock().unwrap().take().unwrap();
        let weak = WeakGc::new(&last);
        assert!(weak.upgrade().is_some());
        drop(last);
        gc::collect();
        assert!(weak.upgrade().is_none());
        gc::collect();
        assert_eq!(RUNS.load(Ordering::SeqCst), 1);
        // One that is taken off, and one that panics.
        let y = node(1);
        Gc::set_finalizer(&y, |_| panic!("never run"));
        Gc::clear_finalizer(&y);
        let z = node(2);
        Gc::set_finalizer(&z, |_| panic!("as it should"));
        drop((y, z));
        gc::collect();
        let w = node(3);
        Gc::set_finalizer(&w, |_| _ = RUNS.fetch_add(1, Ordering::SeqCst));
        drop(w);
        gc::collect();
        wait_for("the one after a panic runs", || RUNS.load(Ordering::SeqCst) == 2);
    });
}

#[test]
fn weak_handles_let_go() {
    let _ = traced("gc weak", || {
        let x = node(3);
        let (weak, again) = (WeakGc::new(&x), WeakGc::new(&x));
        assert!(WeakGc::ptr_eq(&weak, &again));
        gc::collect();
        assert_eq!(weak.upgrade().unwrap().value, 3);
        let other = Gc::new(Node { value: 4, next: Edge::new(&x) });
        drop(x);
        gc::collect();
        let back = again.upgrade().unwrap();
        assert_eq!(back.value, 3);
        drop((other, back));
        gc::collect();
        assert!(weak.upgrade().is_none() && weak.clone().upgrade().is_none());
    });
}

#[test]
fn a_drop_may_panic_block_allocate_and_collect() {
    #[derive(Trace)]
    #[trace(drop)]
    struct Rude {
        kind: u32,
        went: Opaque<rt::chan::Sender<u32>>,
        go_on: Opaque<rt::chan::Receiver<()>>,
    }
    impl Drop for Rude {
        fn drop(&mut self) {
            self.went.0.send(self.kind).unwrap();
            match self.kind {
                0 => panic!("a Drop that panics"),
                1 => drop(self.go_on.0.recv()),
                2 => drop((0..1000).map(node).collect::<Vec<_>>()),
                _ => gc::collect(),
            }
        }
    }
    let _ = traced("gc rude drops", || {
        let (tx, rx) = rt::chan::unbounded();
        let (on, off) = rt::chan::unbounded();
        for kind in 0..4 {
            let rude = Gc::new(Rude { kind, went: Opaque(tx.clone()), go_on: Opaque(off.clone()) });
            drop(rude);
        }
        gc::collect();
        // One of them blocks; what does not die by a Drop is collected all the same.
        for i in 0..scaled(100_000, 10_000) {
            node(i as u64);
        }
        gc::collect();
        on.send(()).unwrap();
        let mut kinds: Vec<u32> = (0..4).map(|_| rx.recv().unwrap()).collect();
        kinds.sort();
        assert_eq!(kinds, [0, 1, 2, 3]);
        let last = Gc::new(Rude { kind: 2, went: Opaque(tx.clone()), go_on: Opaque(off.clone()) });
        drop(last);
        gc::collect();
        assert_eq!(rx.recv(), Ok(2));
    });
}

/// What a panic carries may panic when it is dropped; the drops of others run all the same.
#[test]
fn a_panic_that_panics_again_ends_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    #[derive(Trace)]
    #[trace(drop)]
    struct Rude(Opaque<rt::chan::Sender<()>>);
    impl Drop for Rude {
        fn drop(&mut self) {
            self.0.0.send(()).unwrap();
            std::panic::panic_any(Bomb);
        }
    }
    let _ = traced("gc bombs", || {
        let (tx, rx) = rt::chan::unbounded();
        for _ in 0..3 {
            drop(Gc::new(Rude(Opaque(tx.clone()))));
            let finalised = Gc::new(Rude(Opaque(tx.clone())));
            Gc::set_finalizer(&finalised, |rude: Gc<Rude>| {
                rude.0.0.send(()).unwrap();
                std::panic::panic_any(Bomb);
            });
            drop(finalised);
            gc::collect();
            assert_eq!([rx.recv(), rx.recv()], [Ok(()), Ok(())]);
        }
    });
}

/// Garbage that has something to drop is made faster than one goroutine drops it: then it is waited for.
#[test]
fn garbage_with_drops_takes_bounded_memory() {
    #[derive(Trace)]
    struct Named {
        name: String,
        next: Edge<Named>,
    }
    const LIMIT: usize = 24 << 20;
    let _ = traced("gc garbage with drops", || {
        let before = gc::set_memory_limit(Some(LIMIT));
        let makers: Vec<_> = (0..8)
            .map(|m| {
                rt::go(move || {
                    for i in 0..scaled(150_000, 15_000) {
                        let new = Gc::new(Named { name: format!("{m} {i}"), next: Edge::null() });
                        new.next.set(Some(&new));
                        assert!(new.next.get().is_some_and(|same| same.name == new.name));
                    }
                })
            })
            .collect();
        makers.into_iter().for_each(|h| h.join().unwrap());
        assert!(gc::stats().used_bytes <= LIMIT);
        gc::set_memory_limit(before);
    });
}

#[test]
fn plain_threads_use_the_heap() {
    // Before the runtime is started, too.
    let first = node(11);
    let weak = WeakGc::new(&first);
    let n = scaled(200_000, 20_000) as u64;
    let threads: Vec<_> = (0..3)
        .map(|t| {
            let first = first.clone();
            std::thread::spawn(move || {
                let mut list = Gc::new(Node { value: t, next: Edge::new(&first) });
                for i in 0..n {
                    let next = Gc::new(Node { value: i, next: Edge::null() });
                    next.next.set(Some(&list));
                    if i % 100 != 99 {
                        list = next;
                    } else {
                        list = Gc::new(Node { value: t, next: Edge::new(&first) });
                    }
                }
                let mut last = list.clone();
                while let Some(next) = list.next.get() {
                    last = next.clone();
                    list = next;
                }
                last.value
            })
        })
        .collect();
    let collector = std::thread::spawn(|| (0..20).for_each(|_| gc::collect()));
    for t in threads {
        assert_eq!(t.join().unwrap(), 11);
    }
    collector.join().unwrap();
    drop(first);
    gc::collect();
    assert!(weak.upgrade().is_none());
    rt::run(|| assert_eq!(node(5).value, 5));
}

/// Unoptimised code moves large values through many frames.
fn on_large_stack(f: impl FnOnce() + Send + 'static) {
    let job = rt::Builder::new().stack_size(8 << 20).spawn(f);
    if let Err(panic) = job.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

#[derive(Trace)]
struct Big {
    bytes: [u8; 4000],
    next: Edge<Big>,
}

#[test]
fn at_the_limit_there_is_an_error() {
    gc::set_memory_limit(Some(8 << 20));
    let ((), trace) = traced("gc limit", || {
        let mut list: Option<Gc<Big>> = None;
        let mut n = 0;
        let err = loop {
            match Gc::try_new(Big { bytes: [1; 4000], next: Edge::from(list.clone()) }) {
                Ok(big) => list = Some(big),
                Err(e) => break e,
            }
            n += 1;
        };
        assert!((1500..2100).contains(&n), "{n} fit");
        let text = err.to_string();
        assert!(text.contains("no memory in the heap for 40") && text.contains("set_memory_limit"), "{text}");
        assert_eq!(err.value.bytes[3999], 1, "the value comes back");
        drop(err);
        on_large_stack(|| assert!(Gc::try_new([0u8; 40_000]).is_err()));
        let panic = rt::go(|| drop(Gc::new(Big { bytes: [1; 4000], next: Edge::null() }))).join().unwrap_err();
        assert!(common::message(&*panic).contains("rt::gc::Gc::new: no memory in the heap"));
        // Garbage does not count, and what is kept is intact.
        let mut length = 0;
        let mut at = list.clone();
        while let Some(big) = at {
            length += usize::from(big.bytes.iter().all(|b| *b == 1));
            at = big.next.get();
        }
        assert_eq!(length, n);
        drop(list);
        let list: Vec<Gc<Big>> =
            (0..1000).map(|_| Gc::try_new(Big { bytes: [2; 4000], next: Edge::null() }).unwrap()).collect();
        for _ in 0..5000 {
            Gc::try_new(Big { bytes: [2; 4000], next: Edge::null() }).unwrap();
        }
        assert!(list.iter().all(|b| b.bytes[2000] == 2));
        assert!(gc::stats().used_bytes <= 8 << 20);
    });
    assert!(count(&trace, Ev::GcBegin) >= 3);
}

#[test]
fn large_and_aligned_values() {
    #[derive(Trace)]
    #[repr(align(256))]
    struct Aligned {
        x: AtomicU64,
        to: Edge<Aligned>,
    }
    let _ = traced("gc large", || {
        on_large_stack(|| {
            let rounds = scaled(300, 40) as u64;
            let mut kept = Vec::new();
            for i in 0..rounds {
                let a = Gc::new(Aligned { x: AtomicU64::new(i), to: Edge::null() });
                assert_eq!(std::ptr::from_ref(&*a).addr() % 256, 0);
                a.to.set(Some(&a));
                let large = Gc::new([i; 4_500]);
                let boxes = Gc::new(vec![Some(Box::new(Edge::from(node(i))))]);
                if i % 10 == 0 {
                    kept.push((a, large, boxes));
                }
            }
            gc::collect();
            for (i, (a, large, boxes)) in kept.iter().enumerate() {
                let i = i as u64 * 10;
                assert_eq!((a.x.load(Ordering::Relaxed), large[0], large[4_499]), (i, i, i));
                assert!(a.to.is(a));
                assert_eq!(boxes[0].as_ref().unwrap().get().unwrap().value, i);
            }
            let used = gc::stats().used_bytes;
            drop(kept);
            gc::collect();
            gc::collect();
            assert!(gc::stats().used_bytes < used / 2, "{used}: {:?}", gc::stats());
        })
    });
}

#[test]
fn enums_and_generics_derive() {
    #[derive(Trace)]
    enum Tree<T> {
        Leaf(T),
        Fork { left: Edge<Tree<T>>, right: Edge<Tree<T>>, many: Vec<Tree<T>> },
        Nothing,
    }
    fn sum(t: &Tree<u64>) -> u64 {
        match t {
            Tree::Leaf(n) => *n,
            Tree::Fork { left, right, many } => {
                let of = |e: &Edge<Tree<u64>>| e.get().map_or(0, |t| sum(&t));
                of(left) + of(right) + many.iter().map(sum).sum::<u64>()
            }
            Tree::Nothing => 0,
        }
    }
    let _ = traced("gc derive", || {
        let leaf = Gc::new(Tree::Leaf(3));
        let fork = Tree::Fork {
            left: Edge::new(&leaf),
            right: Edge::from(Gc::new(Tree::Nothing)),
            many: vec![Tree::Leaf(4), Tree::Fork { left: Edge::new(&leaf), right: Edge::null(), many: Vec::new() }],
        };
        let root = Gc::new(fork);
        drop(leaf);
        gc::collect();
        assert_eq!(sum(&root), 10);
    });
    const {
        assert!(!<Node as Trace>::NEEDS_DROP && <Node as Trace>::HAS_EDGES && !<(u8, [u64; 3]) as Trace>::HAS_EDGES);
        assert!(<Counted as Trace>::NEEDS_DROP && <Vec<u8> as Trace>::NEEDS_DROP);
    }
}

/// A heap that takes a while to mark, some that make garbage, and one that collects; `body` runs beside them.
fn beside_collections(what: &str, body: impl FnOnce() + Send + 'static) {
    let _guard = common::HangGuard::new(what);
    rt::run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let mut list = node(0);
        for i in 0..scaled(400_000, 40_000) as u64 {
            list = Gc::new(Node { value: i, next: Edge::from(list) });
        }
        let jobs: Vec<_> = (0..5)
            .map(|i| {
                let stop = stop.clone();
                rt::go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if i == 0 {
                            gc::collect();
                            continue;
                        }
                        let x = node(1);
                        x.next.set(Some(&x));
                        std::hint::black_box([0u64; 8]);
                    }
                })
            })
            .collect();
        body();
        stop.store(true, Ordering::Relaxed);
        jobs.into_iter().for_each(|job| job.join().unwrap());
        drop(list);
    });
}

/// Cycles that were there at the begin, cycles that ended, sweeping; help, which is not always needed; begins.
const KINDS: [Ev; 5] = [Ev::GcActive, Ev::GcEnd, Ev::GcSweepBegin, Ev::GcMarkAssistBegin, Ev::GcBegin];

/// Makes so many traces, and more until all of it was seen, and judges them.
fn judge_until_seen(what: &str, least: usize, mut trace: impl FnMut(u64) -> Vec<u8>) {
    let mut seen = [0; 5];
    let (mut traces, mut kept) = (0, 0);
    while traces < least as u64 || seen[..3].contains(&0) {
        let trace = trace(traces);
        judge(what, &trace);
        if kept < 4 && count(&trace, Ev::GcActive) != 0 && count(&trace, Ev::GcEnd) != 0 {
            // For Go's reader.
            let name = format!("{}-{kept}.trace", what.replace(' ', "-"));
            common::keep(&name, &trace);
            kept += 1;
        }
        for (n, kind) in seen.iter_mut().zip(KINDS) {
            *n += count(&trace, kind);
        }
        traces += 1;
    }
    println!("{what}: {traces} traces: {:?}", KINDS.iter().zip(seen).collect::<Vec<_>>());
}

/// A trace may begin and end whenever it likes.
#[test]
fn traces_begin_in_the_middle() {
    let what = "gc in the middle";
    beside_collections(what, move || {
        let _ = rt::trace::stop();
        judge_until_seen(what, scaled(60, 20), |i| {
            let buffer = Buffer::default();
            rt::trace::start(buffer.clone()).unwrap();
            rt::time::sleep(Duration::from_micros(500 + i * 211 % 7000));
            rt::trace::stop().unwrap();
            buffer.take()
        });
    });
}

/// So may a generation; and what is kept begins with any of them.
#[test]
fn generations_begin_in_the_middle() {
    let what = "gc generations";
    beside_collections(what, move || {
        // Little memory: it keeps few generations.
        let recorder = rt::trace::FlightRecorder::new().max_bytes(200 << 10);
        recorder.start().unwrap();
        judge_until_seen(what, scaled(20, 5), |i| {
            for _ in 0..3 {
                rt::time::sleep(Duration::from_micros(200 + i * 211 % 4000));
                recorder.snapshot(std::io::sink()).unwrap();
            }
            let mut trace = Vec::new();
            recorder.snapshot(&mut trace).unwrap();
            trace
        });
        recorder.stop();
    });
}

/// The limit of the environment holds from the first object on.
#[test]
fn the_environment_limits_from_the_first_object_on() {
    const TEST: &str = "the_environment_limits_from_the_first_object_on";
    if common::is_child(TEST) {
        let all: Vec<_> = (0..64).map_while(|_| Gc::try_new([0u8; 64 << 10]).ok()).collect();
        assert!((8..=16).contains(&all.len()), "{} objects of 64 KiB within 1 MiB", all.len());
        assert_eq!(gc::memory_limit(), Some(1 << 20));
        return;
    }
    common::child_passes(TEST, &[("GOMEMLIMIT", "1MiB")]);
}

//! The objects of the collected heap in a trace: each that is freed was made or was there, nothing is made where something is, and types,
//! addresses and sizes are what they are.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Buffer, judge, keep, scaled, wait_for};
use rt::gc::{self, Edge, Gc, Opaque, Trace};
use rt::trace::{FlightRecorder, Options, Stream};
use tracer::read::alloc_free::AllocFree;
use tracer::wire::Ev;

#[derive(Trace)]
struct Node {
    value: u64,
    next: Edge<Node>,
}

#[derive(Trace)]
#[repr(align(128))]
struct Wide([u8; 300]);

#[derive(Trace)]
#[trace(drop)]
struct Noisy {
    dropped: Opaque<Arc<AtomicUsize>>,
    to: Edge<Node>,
}

impl Drop for Noisy {
    fn drop(&mut self) {
        self.dropped.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn node(value: u64) -> Gc<Node> {
    Gc::new(Node { value, next: Edge::null() })
}

fn objects() -> Options {
    Options::new().stacks(false).heap_objects(true)
}

/// What a trace says of the heap.
#[derive(Default, Debug)]
struct Heap {
    /// Objects that there are at the end, by address: the type's name and size.
    objects: HashMap<u64, (String, u64)>,
    /// Blocks, by address, and their sizes.
    spans: HashMap<u64, u64>,
    /// Objects that were there, were made, and were freed, by type.
    seen: HashMap<String, [usize; 3]>,
    /// What was there has been listed.
    is_listed: bool,
}

impl Heap {
    /// Follows the events. Who begins to record while others do so already gets some events before the list: what they say is in it.
    fn read(what: &str, trace: &[u8]) -> Heap {
        judge(what, trace);
        let mut reader = tracer::read::Reader::new(trace).unwrap();
        let (mut heap, mut names) = (Heap::default(), AllocFree::default());
        while reader.advance().unwrap() {
            let event = reader.event();
            if event.kind == Ev::Sync {
                names.update(reader.tables());
                assert_eq!(names.malformed(), 0, "{what}");
                continue;
            }
            let address = names.address(event);
            match event.kind {
                Ev::Span | Ev::SpanAlloc => {
                    heap.is_listed |= event.kind == Ev::Span;
                    let bytes = names.bytes(event).unwrap();
                    assert!(bytes >= 32 << 10 && address.unwrap().is_multiple_of(32 << 10), "{what}: {event:?}");
                    let before = heap.spans.insert(address.unwrap(), bytes);
                    let agrees = event.kind == Ev::Span && before == Some(bytes);
                    assert!(before.is_none() || agrees, "{what}: a block is made where one is: {event:?}");
                }
                Ev::SpanFree => {
                    let was = heap.spans.remove(&address.unwrap());
                    assert!(was.is_some() || !heap.is_listed, "{what}: a block is freed that was not there: {event:?}");
                }
                Ev::HeapObject | Ev::HeapObjectAlloc => {
                    let is_new = event.kind == Ev::HeapObjectAlloc;
                    heap.is_listed |= !is_new;
                    // Of one that is being made when it is listed, the type may not be known yet.
                    let kind = names.type_of(event);
                    assert_eq!(kind.is_none(), event.args[1] == 0, "{what}: {event:?}");
                    assert!(kind.is_some() || !is_new, "{what}: {event:?}");
                    let object = kind.map_or(("?".into(), 0), |kind| (kind.name().into_owned(), kind.bytes));
                    let name = object.0.clone();
                    let before = heap.objects.insert(address.unwrap(), object.clone());
                    if is_new || before.is_none() {
                        heap.seen.entry(name.clone()).or_default()[usize::from(is_new)] += 1;
                    }
                    let agrees = !is_new && (name == "?" || before.as_ref() == Some(&object));
                    assert!(
                        before.is_none() || agrees,
                        "{what}: an object is made where one is: {before:?}, {event:?}"
                    );
                }
                Ev::HeapObjectFree => match heap.objects.remove(&address.unwrap()) {
                    Some((name, _)) => heap.seen.entry(name).or_default()[2] += 1,
                    None => assert!(!heap.is_listed, "{what}: an object is freed that was not there: {event:?}"),
                },
                _ => {}
            }
        }
        heap.all_lie_in_blocks(what);
        heap
    }

    /// Each object lies in a block that is there, and no two overlap.
    fn all_lie_in_blocks(&self, what: &str) {
        let mut spans: Vec<_> = self.spans.iter().map(|(at, bytes)| (*at, *bytes)).collect();
        let mut objects: Vec<_> = self.objects.iter().map(|(at, (_, bytes))| (*at, *bytes)).collect();
        spans.sort_unstable();
        objects.sort_unstable();
        assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{what}: blocks overlap");
        assert!(objects.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{what}: objects overlap");
        for (at, bytes) in objects {
            let i = spans.partition_point(|(begin, _)| *begin <= at);
            let (begin, len) = spans[i.checked_sub(1).expect("a block lies before it")];
            assert!(at + bytes <= begin + len, "{what}: an object at {at:#x} lies in no block");
        }
    }

    /// There, made, and freed, of a type.
    fn of<T>(&self) -> [usize; 3] {
        self.seen.get(std::any::type_name::<T>()).copied().unwrap_or_default()
    }

    /// Whether an object is there, with its type and size.
    fn has<T>(&self, gc: &Gc<T>) -> bool {
        let at = std::ptr::from_ref(&**gc).addr() as u64;
        // The value lies behind the header, or where it is aligned.
        let (least, most) = (at - align_of::<T>().max(8) as u64, at);
        self.objects.iter().any(|(begin, (name, bytes))| {
            (least..most).contains(begin) && name == std::any::type_name::<T>() && *bytes == size_of::<T>() as u64
        })
    }
}

/// Only one of them records at a time, so that each knows what there is.
fn alone<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _guard = common::HangGuard::new(what);
    // Values travel over the stack.
    rt::run(|| rt::Builder::new().stack_size(8 << 20).spawn(body).unwrap().join().unwrap())
}

fn recorded<T>(body: impl FnOnce() -> T) -> (T, Vec<u8>) {
    let buffer = Buffer::default();
    let stream = Stream::start_with(buffer.clone(), objects()).unwrap();
    let value = body();
    stream.stop().unwrap();
    (value, buffer.take())
}

#[test]
fn what_was_there_is_made_and_is_freed_pairs_up() {
    let what = "gc objects";
    alone(what, move || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let old: Vec<Gc<Node>> = (0..100).map(node).collect();
        let (kept, trace) = recorded(|| {
            let kept = (node(1), Gc::new(Wide([7; 300])), Gc::new([3u32; 9_000]));
            for i in 0..1_000 {
                let dies = node(i);
                dies.next.set(Some(&dies));
                let counts = Opaque(dropped.clone());
                drop(Gc::new(Noisy { dropped: counts, to: Edge::from(dies) }));
            }
            gc::collect();
            wait_for("all are dropped", || dropped.load(Ordering::Relaxed) == 1_000);
            // The slots of what has a `Drop` are free after that, or at the next sweep.
            gc::collect();
            gc::collect();
            kept
        });
        keep("gc-objects.trace", &trace);
        let heap = Heap::read(what, &trace);
        assert_eq!(heap.of::<Noisy>(), [0, 1_000, 1_000]);
        let [there, made, freed] = heap.of::<Node>();
        // What other tests have left may be there, and go.
        assert!(there >= 100 && made == 1_001 && (1_000..=1_000 + there - 100).contains(&freed), "{heap:?}");
        assert_eq!((heap.of::<Wide>(), heap.of::<[u32; 9_000]>()), ([0, 1, 0], [0, 1, 0]));
        assert!(heap.has(&kept.0) && heap.has(&kept.1) && heap.has(&kept.2));
        assert!(old.iter().all(|gc| heap.has(gc)));
        assert!(!heap.has(&Gc::new(Wide([1; 300]))), "this one was made afterwards");
    });
}

/// It is recorded for those who ask, from when they do to when they stop; others see no such events.
#[test]
fn only_who_asks_is_told() {
    let what = "gc objects on request";
    alone(what, move || {
        let plain = Buffer::default();
        let stream = Stream::start_with(plain.clone(), Options::new()).unwrap();
        let before: Vec<Gc<Node>> = (0..50).map(node).collect();
        // One that comes later is told what there is.
        let ((), trace) = recorded(|| drop(node(50)));
        let heap = Heap::read(what, &trace);
        assert!(before.iter().all(|gc| heap.has(gc)));
        assert_eq!(heap.of::<Node>()[1], 1);
        // And so is one more, after some that nobody was told of.
        let after: Vec<Gc<Node>> = (0..50).map(node).collect();
        let ((), trace) = recorded(|| drop(node(50)));
        let heap = Heap::read(what, &trace);
        assert!(before.iter().chain(&after).all(|gc| heap.has(gc)));
        assert_eq!(heap.of::<Node>()[1], 1);
        stream.stop().unwrap();
        judge(what, &plain.take());

        let buffer = Buffer::default();
        let stream = Stream::start(buffer.clone()).unwrap();
        gc::collect();
        drop((before, after));
        gc::collect();
        let _ = (0..1_000).map(node).count();
        stream.stop().unwrap();
        let heap = Heap::read(what, &buffer.take());
        assert!(heap.seen.is_empty() && heap.spans.is_empty(), "{heap:?}");
    });
}

/// Cycles, goroutines and threads that allocate, and generations that end: still everything pairs up.
#[test]
fn beside_collections_everything_pairs_up() {
    let what = "gc objects beside collections";
    let traces = alone(what, move || {
        let stop = Arc::new(AtomicBool::new(false));
        let make = |i: u64, stop: Arc<AtomicBool>| {
            move || {
                let mut kept: Vec<Gc<Node>> = Vec::new();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let new = node(n);
                    new.next.set(kept.last());
                    if let Some(i) = (n * 7 + i).checked_rem(kept.len() as u64) {
                        kept[i as usize].next.set(Some(&new));
                    }
                    kept.push(new);
                    if kept.len() > 100 {
                        kept.drain(..50);
                    }
                    if n % 64 == i {
                        drop(Gc::new([n; 2_000]));
                        let counts = Opaque(Arc::new(AtomicUsize::new(0)));
                        let noisy = Gc::new(Noisy { dropped: counts, to: Edge::from(node(n)) });
                        Gc::set_finalizer(&noisy, |noisy| assert!(!noisy.to.is_null()));
                    }
                }
            }
        };
        let goroutines: Vec<_> = (0..4).map(|i| rt::go(make(i, stop.clone()))).collect();
        let threads: Vec<_> = (4..6).map(|i| std::thread::spawn(make(i, stop.clone()))).collect();
        let recorder = FlightRecorder::new().options(objects());
        recorder.start().unwrap();
        let traces: Vec<Vec<u8>> = (0..scaled(20, 5))
            .map(|i| {
                let ((), trace) = recorded(|| {
                    rt::time::sleep(std::time::Duration::from_micros(500 + i as u64 * 1_311 % 9_000));
                    if i % 3 == 0 {
                        recorder.snapshot(std::io::sink()).unwrap();
                    }
                    gc::collect();
                });
                trace
            })
            .collect();
        let mut snapshot = Vec::new();
        recorder.snapshot(&mut snapshot).unwrap();
        recorder.stop();
        stop.store(true, Ordering::Relaxed);
        goroutines.into_iter().for_each(|job| job.join().unwrap());
        threads.into_iter().for_each(|thread| rt::blocking(|| thread.join().unwrap()));
        // What a recorder has kept may begin anywhere.
        judge(what, &snapshot);
        traces
    });
    let mut all = [0; 3];
    for (i, trace) in traces.iter().enumerate() {
        if i == 1 {
            keep("gc-objects-beside.trace", trace);
        }
        let heap = Heap::read(what, trace);
        let [there, made, freed] = heap.of::<Noisy>();
        assert!(freed <= there + made);
        all.iter_mut().zip(heap.of::<Node>()).for_each(|(sum, n)| *sum += n);
    }
    println!("{what}: {} traces: {all:?} were there, were made, were freed", traces.len());
    assert!(all.iter().all(|n| *n > 0), "{all:?}");
}

//! The heap without goroutines: threads use it, and one of them leads cycles by hand. Small enough for Miri, which then sees each access.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::window::{Phase, Window, exclude_threads};
use super::*;

/// The phases are everybody's.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

struct Alone(#[expect(dead_code, reason = "held")] std::sync::MutexGuard<'static, ()>);

impl Alone {
    fn new() -> Alone {
        Alone(ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// As the coordinator, which stops the world besides; there is none here.
    fn begin_mark(&self) {
        self.sweep();
        let threads = exclude_threads();
        heap::flush(Phase::now(), true);
        Phase::advance();
        pace::begin_mark();
        mark::begin();
        drop(threads);
        mark::begin_finalizers();
    }

    fn end_mark(&self) {
        loop {
            while mark::work(usize::MAX, false) {}
            let _threads = exclude_threads();
            if !heap::flush_shades() && mark::is_quiet() {
                heap::flush(Phase::now(), false);
                Phase::advance();
                pace::end_mark();
                sweep::begin();
                return;
            }
        }
    }

    fn sweep(&self) {
        while sweep::some(&Window::open(), 1, None).any() {}
        // Those who allocate sweep, too.
        while !sweep::is_done() {
            std::thread::yield_now();
        }
    }

    fn collect(&self) {
        self.begin_mark();
        self.end_mark();
        self.sweep();
        death::drop_some();
    }
}

#[derive(Trace)]
#[trace(crate = crate)]
struct Node {
    value: u64,
    next: Edge<Node>,
    many: Vec<Edge<Node>>,
}

fn node(value: u64) -> Gc<Node> {
    Gc::new(Node { value, next: Edge::null(), many: Vec::new() })
}

#[derive(Trace)]
#[trace(crate = crate, drop)]
struct Noisy {
    me: Edge<Noisy>,
    dropped: Opaque<Arc<AtomicUsize>>,
}

impl Drop for Noisy {
    fn drop(&mut self) {
        assert!(self.me.is_null());
        self.dropped.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[repr(align(64))]
struct Wide([u8; 100]);

// SAFETY: there is nothing to show, and nothing to drop.
unsafe impl Trace for Wide {
    const HAS_EDGES: bool = false;
    const NEEDS_DROP: bool = false;
    fn trace(&self, _: &mut Visitor<'_>) {}
}

#[test]
fn gc_heap_on_one_thread() {
    let alone = Alone::new();
    let (a, b) = (node(1), node(2));
    a.next.set(Some(&b));
    b.next.set(Some(&a));
    let wide = Gc::new(Wide([7; 100]));
    let large = Gc::new([5u64; 1_200]);
    let weak = WeakGc::new(&b);
    let loose = Edge::new(&a);
    drop((a, b));
    alone.collect();
    assert_eq!((wide.0[99], large[1_199]), (7, 5));
    let a = loose.take().unwrap();
    assert!(a.next.get().unwrap().next.is(&a) && weak.upgrade().is_some_and(|b| b.value == 2));
    drop((a, large));
    let freed = sweep::freed_bytes();
    alone.collect();
    assert!(weak.upgrade().is_none());
    assert!(sweep::freed_bytes() > freed + 1_200 * 8);
    // What was freed is used again.
    let again: Vec<Gc<Node>> = (0..100).map(node).collect();
    assert!(again.iter().zip(0..).all(|(node, i)| node.value == i));
}

#[test]
fn gc_heap_drops_and_finalises() {
    let alone = Alone::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let noisy = || {
        let noisy = Gc::new(Noisy { me: Edge::null(), dropped: Opaque(dropped.clone()) });
        noisy.me.set(Some(&noisy));
        noisy
    };
    let kept = noisy();
    drop((noisy(), noisy()));
    let saved = Arc::new(std::sync::Mutex::new(None));
    let put = saved.clone();
    let finalised = node(9);
    finalised.next.set(Some(&node(10)));
    Gc::set_finalizer(&finalised, move |node| *put.lock().unwrap() = Some(node));
    drop(finalised);
    alone.collect();
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    death::finalize_some();
    alone.collect();
    let node = saved.lock().unwrap().take().expect("it was finalised");
    assert_eq!((node.value, node.next.get().unwrap().value), (9, 10));
    drop((node, kept));
    alone.collect();
    alone.collect();
    assert_eq!((dropped.load(Ordering::Relaxed), Arc::strong_count(&dropped)), (3, 1));
}

/// Threads change a graph while it is marked.
#[test]
fn gc_heap_on_threads() {
    let alone = Alone::new();
    let (rounds, cycles) = if cfg!(miri) { (40, 3) } else { (20_000, 50) };
    let roots: Vec<Gc<Node>> = (0..3)
        .map(|i| Gc::new(Node { value: i, next: Edge::null(), many: (0..4).map(|_| Edge::null()).collect() }))
        .collect();
    std::thread::scope(|s| {
        for t in 0..2 {
            let roots = &roots;
            s.spawn(move || {
                for i in 0..rounds {
                    let (from, to) = (&roots[(i + t) % 3], &roots[(i * 7 + t) % 3]);
                    let new = node(i as u64);
                    new.next.set(from.next.get().as_ref());
                    to.many[i % 4].set(Some(&new));
                    from.next.set(to.many[(i + 1) % 4].take().as_ref());
                    if i % 5 == 0 {
                        to.next.set(None);
                    }
                    assert_eq!(new.value, i as u64);
                }
            });
        }
        for _ in 0..cycles {
            alone.collect();
        }
    });
    alone.collect();
    assert!(roots.iter().zip(0..).all(|(root, i)| root.value == i));
}

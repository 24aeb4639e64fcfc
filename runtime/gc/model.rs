//! A model of the barrier against the marker, for the model checker: three objects, two edges, what [`super::bits`] does for roots and marks and
//! [`super::quiet`] for the end, and the steps of `Edge::get`, `Edge::set`, a handle's drop and `mark::work` in their order.

use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, RwLock};
use loom::thread;

use super::bits::Bits;
use super::quiet::Quiet;

/// Two objects that handles lead to and that have an edge each, and one that has neither.
const A: usize = 0;
const C: usize = 1;
const X: usize = 2;
const NULL: usize = usize::MAX;

/// What is left out, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    ShadeInGet,
    ShadeInSet,
}

struct Heap {
    /// Whether the phase is mark; windows are readers.
    windows: RwLock<bool>,
    quiet: Quiet,
    marks: Bits<1>,
    rooted: Bits<1>,
    counts: [AtomicU32; 3],
    edges: [AtomicUsize; 2],
    grey: Mutex<Vec<usize>>,
}

/// What leads to X in the beginning.
#[derive(Clone, Copy, PartialEq)]
enum From {
    EdgeOfA,
    Handle,
}

impl Heap {
    fn new(from: From) -> Heap {
        let (edge, count) = if from == From::Handle { (NULL, 1) } else { (X, 0) };
        let heap = Heap {
            windows: RwLock::new(true),
            quiet: Quiet::new(),
            marks: Bits::new(),
            rooted: Bits::new(),
            counts: [AtomicU32::new(1), AtomicU32::new(1), AtomicU32::new(count)],
            edges: [AtomicUsize::new(edge), AtomicUsize::new(NULL)],
            grey: Mutex::new(Vec::new()),
        };
        // Perhaps stale for X: it had a handle once.
        (A..=X).for_each(|i| _ = heap.rooted.set(i));
        heap
    }

    fn mark(&self, i: usize) {
        if self.marks.set(i) {
            self.quiet.put(1);
            self.grey.lock().unwrap().push(i);
        }
    }

    /// H3: a handle out of an edge.
    fn get(&self, edge: usize, without: Without) -> Option<usize> {
        let marking = self.windows.read().unwrap();
        let i = self.edges[edge].load(Ordering::Acquire);
        if i == NULL {
            return None;
        }
        self.rooted.raise(i, &self.counts[i]);
        if *marking && without != Without::ShadeInGet {
            self.mark(i);
        }
        Some(i)
    }

    /// H4
    fn set(&self, edge: usize, to: usize, without: Without) {
        let marking = self.windows.read().unwrap();
        if to != NULL && *marking && without != Without::ShadeInSet {
            self.mark(to);
        }
        self.edges[edge].swap(to, Ordering::AcqRel);
    }

    /// Traces until there is nothing to do.
    fn trace(&self) {
        loop {
            let next = self.grey.lock().unwrap().pop();
            let Some(i) = next else { break };
            if i < X {
                let to = self.edges[i].load(Ordering::Acquire);
                if to != NULL {
                    self.mark(to);
                }
            }
            self.quiet.took(1);
        }
    }

    /// Marks all, and ends the phase in a stopped world. What one root leads to is traced before the next root is looked for.
    fn collect(&self, roots: [usize; 3]) {
        let mut roots = roots.into_iter();
        loop {
            {
                let _window = self.windows.read().unwrap();
                self.quiet.begin();
            }
            self.trace();
            for i in roots.by_ref() {
                if self.rooted.get(i) && !self.marks.get(i) && self.rooted.is_root(i, &self.counts[i]) {
                    self.mark(i);
                }
                self.trace();
            }
            let _ = self.quiet.end();
            let mut marking = self.windows.write().unwrap();
            if self.quiet.is_quiet() {
                *marking = false;
                return;
            }
        }
    }
}

/// X moves from an edge of A by way of a handle, or from a handle that was there before, to an edge of C, while the marker is at work. Answers
/// whether it was marked.
fn is_marked(from: From, without: Without) -> bool {
    let heap = Arc::new(Heap::new(from));
    let mutator = {
        let heap = heap.clone();
        thread::spawn(move || {
            let handle = if from == From::Handle { Some(X) } else { heap.get(A, without) };
            heap.set(A, NULL, without);
            if let Some(i) = handle {
                heap.set(C, i, without);
                heap.counts[i].fetch_sub(1, Ordering::Release);
            }
        })
    };
    // The order in which there is most to lose.
    heap.collect(if from == From::Handle { [A, C, X] } else { [X, A, C] });
    mutator.join().unwrap();
    // When the phase ended an edge or the handle led to it, wherever the mutator was.
    heap.marks.get(X)
}

/// H5: whatever leads to an object at mark termination, it is marked.
#[test]
fn loom_gc_barrier_against_marker() {
    for from in [From::EdgeOfA, From::Handle] {
        loom::model(move || assert!(is_marked(from, Without::Nothing), "a living object was not marked"));
    }
}

/// The model notices what is missing: then some order of the steps loses the object.
fn loses_without(from: From, without: Without) {
    let lost = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = lost.clone();
    loom::model(move || {
        if !is_marked(from, without) {
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(lost.load(std::sync::atomic::Ordering::Relaxed), "nothing is lost without it");
}

#[test]
fn loom_gc_barrier_needs_the_shade_in_get() {
    loses_without(From::EdgeOfA, Without::ShadeInGet);
}

#[test]
fn loom_gc_barrier_needs_the_shade_in_set() {
    loses_without(From::Handle, Without::ShadeInSet);
}

//! Ours, with the collected heap.

use crate::drive::Outcome;
use crate::rivals::gort::share_out;
use crate::workload::{COLLECTIONS, RING, RINGS, RIVALRY, TREE_DEPTH_MAX, TREE_DEPTH_MIN, Workload, trees_of_depth};
use rt::gc::{Edge, Gc, Trace};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Collects again and again, with so many bytes of objects that live, beside a goroutine that never calls the runtime.
pub fn pauses(bytes: u64) -> Result<Outcome, String> {
    const PAUSES: &str = "/sched/pauses/total/gc:seconds";
    let objects = bytes / (16 + size_of::<Node>() as u64);
    let live: Vec<Gc<Node>> = (0..objects / RING).map(ring).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let stop = Arc::clone(&stop);
        rt::go(move || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    // What was paused for while these were made does not count.
    let histogram = || rt::metrics::get(PAUSES).ok_or("no such metric");
    let before = histogram()?;
    (0..COLLECTIONS).for_each(|_| rt::gc::collect());
    let mut all = histogram()?.as_histogram().expect("it is one").clone();
    let before = before.as_histogram().expect("it is one");
    all.counts.iter_mut().zip(&before.counts).for_each(|(now, before)| *now -= before);
    stop.store(true, Ordering::Relaxed);
    busy.join().expect("does not panic");
    assert!(live.iter().all(|first| first.previous.get().is_some_and(|last| last.next.is(first))));
    let us = |q| all.quantile(q).map_or(0.0, |seconds| seconds * 1e6);
    Ok(Outcome { values: vec![us(0.5), us(0.99)], ops_all: COLLECTIONS as u64 })
}

/// Makes so many objects.
pub fn run(workload: Workload, ops: u64) {
    match workload {
        Workload::GcTrees => trees(ops),
        Workload::GcGraph => share_out(RIVALRY, move || churn(ops / RIVALRY)),
        _ => unreachable!("has nothing to do with the heap"),
    }
}

#[derive(Trace)]
struct Tree {
    left: Edge<Tree>,
    right: Edge<Tree>,
}

fn tree(depth: u32) -> Gc<Tree> {
    let below = || if depth == 0 { Edge::null() } else { Edge::from(tree(depth - 1)) };
    Gc::new(Tree { left: below(), right: below() })
}

fn count(tree: &Tree) -> u64 {
    1 + tree.left.get().map_or(0, |t| count(&t)) + tree.right.get().map_or(0, |t| count(&t))
}

fn trees(ops: u64) {
    let long_lived = tree(TREE_DEPTH_MAX);
    let jobs: Vec<_> = (TREE_DEPTH_MIN..=TREE_DEPTH_MAX)
        .step_by(2)
        .map(|depth| {
            let trees = trees_of_depth(depth, ops);
            (depth, trees, rt::go(move || (0..trees).map(|_| count(&tree(depth))).sum::<u64>()))
        })
        .collect();
    for (depth, trees, job) in jobs {
        assert_eq!(job.join().expect("does not panic"), trees * ((2 << depth) - 1));
    }
    assert_eq!(count(&long_lived), (2 << TREE_DEPTH_MAX) - 1);
}

#[derive(Trace)]
struct Node {
    next: Edge<Node>,
    previous: Edge<Node>,
    value: [u64; 4],
}

fn ring(value: u64) -> Gc<Node> {
    let node = || Gc::new(Node { next: Edge::null(), previous: Edge::null(), value: [value; 4] });
    let first = node();
    let mut last = first.clone();
    for _ in 1..RING {
        let new = node();
        new.previous.set(Some(&last));
        last.next.set(Some(&new));
        last = new;
    }
    last.next.set(Some(&first));
    first.previous.set(Some(&last));
    first
}

/// Many rings live; one after the other is replaced by a new one, and is garbage, though each of its nodes is led to.
fn churn(ops: u64) {
    let mut live: Vec<Gc<Node>> = (0..RINGS as u64).map(ring).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for i in 0..ops / RING {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        live[random as usize % RINGS] = ring(i);
    }
    for first in live {
        let last = first.previous.get().expect("a ring is closed");
        assert!(last.next.is(&first) && last.value == first.value);
    }
}

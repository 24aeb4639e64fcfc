//! What one does in Rust without a collected heap, on plain threads: boxes for trees, counted references for graphs, with weak ones where
//! cycles would keep everything.

use crate::rivals::threads::share_out;
use crate::workload::{RING, RINGS, RIVALRY, TREE_DEPTH_MAX, TREE_DEPTH_MIN, Workload, trees_of_depth};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Makes so many objects.
pub fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::GcTrees => trees(ops),
        Workload::GcGraph => share_out(RIVALRY, || churn(ops / RIVALRY)),
        _ => unreachable!("has nothing to do with the heap"),
    }
}

struct Tree {
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

fn tree(depth: u32) -> Box<Tree> {
    let below = || (depth != 0).then(|| tree(depth - 1));
    Box::new(Tree { left: below(), right: below() })
}

fn count(tree: &Tree) -> u64 {
    1 + tree.left.as_deref().map_or(0, count) + tree.right.as_deref().map_or(0, count)
}

fn trees(ops: u64) {
    let long_lived = tree(TREE_DEPTH_MAX);
    std::thread::scope(|scope| {
        for depth in (TREE_DEPTH_MIN..=TREE_DEPTH_MAX).step_by(2) {
            let trees = trees_of_depth(depth, ops);
            scope.spawn(move || {
                let nodes = (0..trees).map(|_| count(&tree(depth))).sum::<u64>();
                assert_eq!(nodes, trees * ((2 << depth) - 1));
            });
        }
    });
    assert_eq!(count(&long_lived), (2 << TREE_DEPTH_MAX) - 1);
}

struct Node {
    /// The last one's leads nowhere: somebody has to let go of the ring.
    next: Mutex<Option<Arc<Node>>>,
    previous: Mutex<Weak<Node>>,
    value: [u64; 4],
}

fn set<T>(edge: &Mutex<T>, to: T) {
    *edge.lock().unwrap_or_else(PoisonError::into_inner) = to;
}

fn ring(value: u64) -> Arc<Node> {
    let node = || Arc::new(Node { next: Mutex::default(), previous: Mutex::default(), value: [value; 4] });
    let first = node();
    let mut last = Arc::clone(&first);
    for _ in 1..RING {
        let new = node();
        set(&new.previous, Arc::downgrade(&last));
        set(&last.next, Some(Arc::clone(&new)));
        last = new;
    }
    set(&first.previous, Arc::downgrade(&last));
    first
}

fn churn(ops: u64) {
    let mut live: Vec<Arc<Node>> = (0..RINGS as u64).map(ring).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for i in 0..ops / RING {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        live[random as usize % RINGS] = ring(i);
    }
    for first in live {
        let last = first.previous.lock().unwrap_or_else(PoisonError::into_inner).upgrade().expect("it lives");
        assert_eq!(last.value, first.value);
    }
}

//! Binary trees in the collected heap: a program that does little else than allocate, and lets go of nearly all of it.
//!
//!     cargo run --release --features gc --example gc_tree
//!     cargo run --release --features gc --example gc_tree -- 18
//!     GOGC=400 RT_TRACE=gc_tree.trace cargo run --release --features gc --example gc_tree -- 18
//!
//! One tree lives all the while. Beside it trees of all depths are made, counted and let go of, on a goroutine for each depth. Nobody frees anything:
//! a tree is garbage when its root's handle is dropped. The count of nodes at the end of each line shows that no living one was
//! collected; the last lines tell what the collector did meanwhile, while the goroutines ran.

use rt::gc::{Edge, Gc, Trace};

const DEPTH_MIN: u32 = 4;

#[derive(Trace)]
struct Tree {
    left: Edge<Tree>,
    right: Edge<Tree>,
}

fn tree(depth: u32) -> Gc<Tree> {
    if depth == 0 {
        return Gc::new(Tree { left: Edge::null(), right: Edge::null() });
    }
    Gc::new(Tree { left: Edge::from(tree(depth - 1)), right: Edge::from(tree(depth - 1)) })
}

fn count(tree: &Tree) -> u64 {
    1 + tree.left.get().map_or(0, |t| count(&t)) + tree.right.get().map_or(0, |t| count(&t))
}

fn main() {
    let depth_max = std::env::args().nth(1).map_or(14, |arg| arg.parse().expect("the argument is a depth"));
    rt::run(move || {
        println!("a tree of depth {}: {} nodes", depth_max + 1, count(&tree(depth_max + 1)));
        let long_lived = tree(depth_max);
        let jobs: Vec<_> = (DEPTH_MIN..=depth_max)
            .step_by(2)
            .map(|depth| {
                let trees = 1u64 << (depth_max - depth + DEPTH_MIN);
                let job = rt::go(move || (0..trees).map(|_| count(&tree(depth))).sum::<u64>());
                (depth, trees, job)
            })
            .collect();
        for (depth, trees, job) in jobs {
            println!("{trees} trees of depth {depth}: {} nodes", job.join().unwrap());
        }
        println!("the long-lived tree of depth {depth_max}: {} nodes", count(&long_lived));
        let stats = rt::gc::stats();
        println!();
        println!(
            "{} collections freed {} MB; the heap has {} KB",
            stats.cycles,
            stats.freed_bytes >> 20,
            stats.used_bytes >> 10
        );
        println!("{} pauses, {:.0?} in all, the longest {:.0?}", stats.pauses, stats.paused, stats.longest_pause);
    });
}

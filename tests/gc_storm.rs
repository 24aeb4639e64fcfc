//! Canaries: goroutines keep handles only in locals of nested frames, change a shared graph, block, migrate, and look at what they hold,
//! while others collect without pause.
//!
//! `RT_STORM_SECONDS` says for how long, `RT_SEED` which random numbers.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Rng, count, scaled, seed, traced, wait_for};
use rt::gc::{self, Edge, Gc, Opaque, Trace, WeakGc};
use tracer::wire::Ev;

const SALT: u64 = 0x5ca1_ab1e_0ddb_a115;

/// An object that can tell whether it is intact.
#[derive(Trace)]
struct Canary {
    id: u64,
    check: u64,
    left: Edge<Canary>,
    right: Edge<Canary>,
    told: Option<Told>,
}

/// Some of them have something to drop.
#[derive(Trace)]
#[trace(drop)]
struct Told {
    live: Opaque<Arc<AtomicUsize>>,
    text: String,
}

impl Drop for Told {
    fn drop(&mut self) {
        assert!(self.text.starts_with("canary"));
        self.live.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Trace)]
struct Watch {
    of: Edge<Canary>,
}

impl Watch {
    fn look(&self) {
        let canary = self.of.get().expect("nobody else has the edge");
        canary.sing();
        canary.left.get().inspect(|c| c.sing());
        canary.right.get().inspect(|c| c.sing());
    }
}

impl Canary {
    #[track_caller]
    fn sing(&self) {
        assert_eq!(self.check, self.id ^ SALT, "a canary is dead");
    }
}

struct Storm {
    next_id: AtomicU64,
    live: Arc<AtomicUsize>,
    /// A graph that all of them change.
    shared: Vec<Gc<Canary>>,
    stop: AtomicBool,
    ops: AtomicU64,
    /// Finalisers that are to run.
    finalizers: Arc<AtomicUsize>,
}

impl Storm {
    fn hatch(&self, rng: &mut Rng) -> Gc<Canary> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let told = rng.below(8) == 0;
        if told {
            self.live.fetch_add(1, Ordering::SeqCst);
        }
        let told = told.then(|| Told { live: Opaque(self.live.clone()), text: format!("canary {id}") });
        Gc::new(Canary { id, check: id ^ SALT, left: Edge::null(), right: Edge::null(), told })
    }

    /// Something that nothing leads to, and whose finaliser finds intact what it has led to all the while; and once more, when it was
    /// kept for a while.
    fn watch(&self, of: &Gc<Canary>) {
        let watch = Gc::new(Watch { of: Edge::new(of) });
        self.finalizers.fetch_add(1, Ordering::SeqCst);
        let left = self.finalizers.clone();
        Gc::set_finalizer(&watch, move |watch| {
            watch.look();
            Gc::set_finalizer(&watch, move |watch| {
                watch.look();
                left.fetch_sub(1, Ordering::SeqCst);
            });
        });
    }

    fn any(&self, rng: &mut Rng) -> &Gc<Canary> {
        &self.shared[rng.below(self.shared.len() as u64) as usize]
    }

    /// Each frame keeps some, on its stack alone.
    #[inline(never)]
    fn nest(&self, rng: &mut Rng, depth: u32) {
        let mine = self.hatch(rng);
        let own = self.hatch(rng);
        mine.left.set(Some(&own));
        let weak = WeakGc::new(&own);
        if rng.below(32) == 0 {
            self.watch(&own);
        }
        let found = self.walk(rng);
        for _ in 0..rng.below(4) {
            self.change(rng, &mine, found.as_ref());
        }
        match rng.below(12) {
            0 => rt::time::sleep(Duration::from_micros(rng.below(300))),
            1 => rt::blocking(|| std::thread::sleep(Duration::from_micros(50))),
            2..=4 => rt::yield_now(),
            _ => {}
        }
        if depth != 0 && !self.stop.load(Ordering::Relaxed) {
            self.nest(rng, depth - 1);
        }
        mine.sing();
        own.sing();
        weak.upgrade().expect("it has a handle").sing();
        if let Some(found) = found {
            found.sing();
            if let Some(next) = found.right.get() {
                next.sing();
            }
        }
        self.ops.fetch_add(1, Ordering::Relaxed);
    }

    /// Somewhere in the graph.
    fn walk(&self, rng: &mut Rng) -> Option<Gc<Canary>> {
        let mut at = self.any(rng).clone();
        for _ in 0..rng.below(6) {
            at.sing();
            let next = if rng.below(2) == 0 { at.left.get() } else { at.right.get() };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        Some(at)
    }

    fn change(&self, rng: &mut Rng, mine: &Gc<Canary>, found: Option<&Gc<Canary>>) {
        let at = self.any(rng);
        match rng.below(7) {
            0 => at.left.set(Some(mine)),
            1 => at.right.set(found),
            2 => drop(at.left.take().inspect(|c| c.sing())),
            3 => drop(at.right.replace(Some(mine)).inspect(|c| c.sing())),
            4 => {
                let there = at.left.get();
                if let Err(Some(other)) = at.left.compare_exchange(there.as_ref(), found) {
                    other.sing();
                }
            }
            5 => mine.right.set(Some(at)),
            _ => {
                // Reached over an edge that is cut at the same time by others.
                if let Some(x) = at.right.get().and_then(|x| x.left.get()) {
                    x.sing();
                    at.right.set(Some(&x));
                }
            }
        }
    }
}

fn storm(what: &'static str, procs: usize) {
    let seconds = std::env::var("RT_STORM_SECONDS").ok().and_then(|s| s.parse().ok()).map(Duration::from_secs);
    let time = seconds.unwrap_or(Duration::from_millis(1500));
    let first = seed();
    let goroutines = scaled(1000, 200) as u64;
    let ((), trace) = traced(what, move || {
        rt::set_gomaxprocs(procs);
        let (live, finalizers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut rng = Rng::new(first);
        let mut storm = Storm {
            next_id: AtomicU64::new(1),
            live: live.clone(),
            shared: Vec::new(),
            stop: AtomicBool::new(false),
            ops: AtomicU64::new(0),
            finalizers: finalizers.clone(),
        };
        storm.shared = (0..200).map(|_| storm.hatch(&mut rng)).collect();
        let storm = Arc::new(storm);
        let canaries: Vec<_> = (0..goroutines)
            .map(|i| {
                let storm = storm.clone();
                rt::go(move || {
                    let mut rng = Rng::new(first ^ (i << 20));
                    while !storm.stop.load(Ordering::Relaxed) {
                        storm.nest(&mut rng, 5);
                    }
                })
            })
            .collect();
        let thread = {
            let storm = storm.clone();
            std::thread::spawn(move || {
                let mut rng = Rng::new(first ^ 77);
                while !storm.stop.load(Ordering::Relaxed) {
                    let (mine, found) = (storm.hatch(&mut rng), storm.walk(&mut rng));
                    storm.change(&mut rng, &mine, found.as_ref());
                    mine.sing();
                }
            })
        };
        let until = Instant::now() + time;
        while Instant::now() < until {
            gc::collect();
            if rng.below(4) == 0 {
                rt::set_gomaxprocs(1 + rng.below(procs as u64) as usize);
            }
        }
        storm.stop.store(true, Ordering::Relaxed);
        canaries.into_iter().for_each(|job| job.join().unwrap());
        thread.join().unwrap();
        println!(
            "{what}: {} frames, {} canaries, {:?}",
            storm.ops.load(Ordering::Relaxed),
            storm.next_id.load(Ordering::Relaxed),
            gc::stats()
        );
        drop(storm);
        // Nothing is leaked.
        wait_for("all that can tell are finalised and dropped", || {
            gc::collect();
            finalizers.load(Ordering::SeqCst) == 0 && live.load(Ordering::SeqCst) == 0
        });
        wait_for("the heap is empty", || {
            gc::collect();
            gc::stats().marked_bytes < 4096
        });
    });
    assert!(count(&trace, Ev::GcBegin) > 0);
    if seconds.is_none() {
        // For Go's reader.
        let name = format!("gc-{}.trace", what.replace(' ', "-"));
        common::keep(&name, &trace);
    }
}

#[test]
fn canaries_on_one_p() {
    storm("canaries on 1", 1);
}

#[test]
fn canaries_on_two_ps() {
    storm("canaries on 2", 2);
}

#[test]
fn canaries_on_eight_ps() {
    storm("canaries on 8", 8);
}

//! The barrier: nobody passes before all have come, one leads, and again.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::{Actor, Rng, Started, everywhere, scaled, seed, traced};
use rt::sync::Barrier;

#[test]
fn smoke() {
    traced("smoke", || {
        for n in [0, 1] {
            let alone = Barrier::new(n);
            assert!(alone.wait().is_leader() && alone.wait().is_leader());
        }
        let three = Arc::new(Barrier::new(3));
        assert_eq!(format!("{three:?}"), "Barrier { n: 3, .. }");
        let others = [0, 1].map(|i| {
            let three = three.clone();
            Actor::mixed(i).start(move || three.wait())
        });
        let mine = three.wait();
        let results = others.map(Started::join);
        assert_eq!(results.into_iter().chain([mine]).filter(|r| r.is_leader()).count(), 1);
    });
}

/// Round after round, without a pause between them.
#[test]
fn stress_rounds() {
    everywhere("stress_rounds", || {
        let seed = seed();
        traced("stress_rounds", move || {
            for n in [2, 7, 16] {
                let rounds = scaled(1000, 100);
                let shared = Arc::new((Barrier::new(n), AtomicUsize::new(0), AtomicUsize::new(0)));
                let running: Vec<_> = (0..n)
                    .map(|a| {
                        let shared = shared.clone();
                        let mut rng = Rng::new(seed ^ a as u64);
                        Actor::mixed(usize::from(a % 4 == 1)).start(move || {
                            let (barrier, arrived, leaders) = &*shared;
                            for round in 0..rounds {
                                if rng.below(4) == 0 {
                                    rt::yield_now();
                                }
                                arrived.fetch_add(1, SeqCst);
                                let leads = barrier.wait().is_leader();
                                let now = arrived.load(SeqCst);
                                assert!(now >= (round + 1) * n, "passed after {now} arrivals in round {round}");
                                // Nobody can be two rounds ahead.
                                assert!(now < (round + 2) * n, "{now} arrivals in round {round}");
                                leaders.fetch_add(usize::from(leads), SeqCst);
                                barrier.wait();
                                assert_eq!(leaders.load(SeqCst), round + 1, "one leads");
                                barrier.wait();
                            }
                        })
                    })
                    .collect();
                running.into_iter().for_each(Started::join);
            }
        });
    });
}

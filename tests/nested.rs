//! Goroutines that switch to stacks of their own making: a generator inside a goroutine waits like anybody else.

mod common;

use common::{everywhere, traced};
use corosensei::{Coroutine, CoroutineResult};
use rt::chan::bounded;

/// Each goroutine runs generators, which receive, sleep and yield on their own stacks.
#[test]
fn generators_wait() {
    everywhere("generators_wait", || {
        let (sum, _) = traced("nested generators", || {
            let (tx, rx) = bounded::<u64>(0);
            let sender = rt::go(move || {
                for i in 0..2_000 {
                    tx.send(i).unwrap();
                }
            });
            let readers: Vec<_> = (0..8)
                .map(|_| {
                    let rx = rx.clone();
                    rt::go(move || {
                        let mut generator = Coroutine::new(move |yielder, ()| {
                            for v in rx.iter() {
                                rt::yield_now();
                                if v % 100 == 0 {
                                    rt::time::sleep(std::time::Duration::from_micros(50));
                                }
                                yielder.suspend(v);
                            }
                        });
                        let mut sum = 0;
                        // It is suspended and resumed here, and in between waits wherever it stands.
                        while let CoroutineResult::Yield(v) = generator.resume(()) {
                            sum += v;
                            rt::yield_now();
                        }
                        sum
                    })
                })
                .collect();
            sender.join().unwrap();
            readers.into_iter().map(|r| r.join().unwrap()).sum::<u64>()
        });
        assert_eq!(sum, 2_000 * 1_999 / 2);
    });
}

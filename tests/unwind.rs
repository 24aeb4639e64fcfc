//! Goroutines that wait while they unwind: std's panic count belongs to the thread, so they stay on theirs.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use rt::chan::{Receiver, bounded};

/// Waits for a message when it is dropped.
struct Waits(Receiver<u32>, Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        let before = std::thread::current().id();
        rt::yield_now();
        rt::blocking(|| std::thread::sleep(Duration::from_millis(2)));
        rt::time::sleep(Duration::from_millis(1));
        assert_eq!(self.0.recv(), Ok(7));
        assert!(std::thread::panicking(), "the panic was left behind on another thread");
        assert_eq!(std::thread::current().id(), before);
        self.1.fetch_add(1, SeqCst);
    }
}

#[test]
fn stress_waiting_while_unwinding() {
    if !common::is_child("stress_waiting_while_unwinding") {
        for procs in ["1", "2", "4"] {
            common::child_passes("stress_waiting_while_unwinding", &[("GOMAXPROCS", procs)]);
        }
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    common::traced("unwind", || {
        let n = 40;
        let done = Arc::new(AtomicUsize::new(0));
        let (tx, rx) = bounded(0);
        let unwinding: Vec<_> = (0..n)
            .map(|_| {
                let w = Waits(rx.clone(), done.clone());
                rt::go(move || {
                    let _w = w;
                    panic!("on purpose");
                })
            })
            .collect();
        // Others run meanwhile, on the same threads, and none of them is panicking.
        let others: Vec<_> = (0..n)
            .map(|_| {
                rt::go(|| {
                    for _ in 0..200 {
                        assert!(!std::thread::panicking(), "a goroutine sees another one's panic");
                        rt::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..n {
            tx.send(7).unwrap();
        }
        for h in unwinding {
            assert!(h.join().is_err());
        }
        for h in others {
            h.join().unwrap();
        }
        assert_eq!(done.load(SeqCst), n);
        // Nothing is left behind on any thread.
        let clean: Vec<_> = (0..n).map(|_| rt::go(|| assert!(!std::thread::panicking()))).collect();
        for h in clean {
            h.join().unwrap();
        }
    });
}

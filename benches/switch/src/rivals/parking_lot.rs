//! parking_lot, on plain threads.

use crate::rivals::threads::share_out;
use crate::workload::{RIVALRY, Workload};
use parking_lot::Mutex;
use std::hint::black_box;
use std::thread;

/// Does so many operations.
pub fn once(workload: Workload, ops: u64) {
    let mutex = Mutex::new(0_u64);
    match workload {
        Workload::Mutex => (0..ops).for_each(|_| *black_box(&mutex).lock() += 1),
        Workload::Mutex8 | Workload::MutexStorm => {
            let (shared, yields) = (&mutex, workload == Workload::MutexStorm);
            share_out(RIVALRY, move || {
                for _ in 0..ops / RIVALRY {
                    let mut locked = shared.lock();
                    *locked += 1;
                    if yields {
                        thread::yield_now();
                    }
                }
            });
        }
        _ => unreachable!("parking_lot does not take part in it"),
    }
    assert_eq!(mutex.into_inner(), ops);
}

//! may.

use crate::workload::{CROWD, Measured, Workload, measure};
use may::coroutine::{self, yield_now};
use may::go;
use may::sync::{Mutex, mpsc};
use std::hint::black_box;
use std::time::Duration;

/// Runs one workload.
pub fn run(workload: Workload, procs: usize, at_least: Duration) -> Result<Measured, String> {
    // Room for a whole batch in its pool of coroutines: otherwise each stack would be mapped anew.
    may::config().set_workers(procs).set_pool_capacity(2 * CROWD as usize);
    let main = go!(move || measure(at_least, |ops| once(workload, ops)));
    main.join().map_err(|_| format!("may panicked in {}", workload.word()))
}

fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::Yield1 => (0..ops).for_each(|_| yield_now()),
        Workload::Yield1000 => {
            let crowd: Vec<coroutine::JoinHandle<()>> =
                (0..CROWD).map(|_| go!(move || (0..ops / CROWD).for_each(|_| yield_now()))).collect();
            crowd.into_iter().for_each(|one| one.join().expect("does not panic"));
        }
        Workload::SpawnJoin => {
            for _ in 0..ops / CROWD {
                let batch: Vec<coroutine::JoinHandle<()>> = (0..CROWD).map(|_| go!(|| {})).collect();
                batch.into_iter().for_each(|one| one.join().expect("does not panic"));
            }
        }
        Workload::SpawnGroup => unreachable!("may has no wait group"),
        Workload::PingPong => {
            let (ping, pings) = mpsc::channel::<u64>();
            let (pong, pongs) = mpsc::channel::<u64>();
            let peer = go!(move || {
                while let Ok(i) = pings.recv() {
                    pong.send(i).expect("the other side reads");
                }
            });
            for i in 0..ops {
                ping.send(i).expect("the other side reads");
                black_box(pongs.recv()).expect("the other side answers");
            }
            drop(ping);
            peer.join().expect("does not panic");
        }
        Workload::Mutex => {
            let mutex = Mutex::new(0_u64);
            (0..ops).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
        }
    }
}

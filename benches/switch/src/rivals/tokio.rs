//! tokio.

use crate::workload::{CROWD, Measured, Workload, next_ops};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc};
use tokio::task::yield_now;

/// Runs one workload.
pub fn run(workload: Workload, procs: usize, at_least: Duration) -> Result<Measured, String> {
    // All drivers, as #[tokio::main] has them: without the I/O driver its workers sleep in another place.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(procs).enable_all().build();
    let runtime = runtime.map_err(|error| format!("tokio does not start: {error}"))?;
    // Spawned, because block_on's own future runs outside the workers.
    let main = runtime.spawn(measure(workload, at_least));
    runtime.block_on(main).map_err(|error| format!("tokio in {}: {error}", workload.word()))
}

/// As `workload::measure`, for a future.
async fn measure(workload: Workload, at_least: Duration) -> Measured {
    let (mut ops, mut ops_all) = (CROWD, 0);
    loop {
        let start = Instant::now();
        once(workload, ops).await;
        let took = start.elapsed();
        ops_all += ops;
        if took >= at_least {
            return Measured { ns: took.as_nanos() as f64 / ops as f64, ops_all };
        }
        ops = next_ops(ops, took, at_least);
    }
}

async fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::Yield1 => yields(ops).await,
        Workload::Yield1000 => {
            let crowd: Vec<_> = (0..CROWD).map(|_| tokio::spawn(yields(ops / CROWD))).collect();
            for one in crowd {
                one.await.expect("does not panic");
            }
        }
        Workload::SpawnJoin => {
            for _ in 0..ops / CROWD {
                let batch: Vec<_> = (0..CROWD).map(|_| tokio::spawn(async {})).collect();
                for one in batch {
                    one.await.expect("does not panic");
                }
            }
        }
        Workload::SpawnGroup => unreachable!("tokio has no wait group"),
        Workload::PingPong => ping_pong(ops).await,
        Workload::Mutex => {
            let mutex = Mutex::new(0_u64);
            for _ in 0..ops {
                *black_box(&mutex).lock().await += 1;
            }
        }
    }
}

async fn yields(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

async fn ping_pong(rounds: u64) {
    let (ping, mut pings) = mpsc::channel::<u64>(1);
    let (pong, mut pongs) = mpsc::channel::<u64>(1);
    let peer = tokio::spawn(async move {
        while let Some(i) = pings.recv().await {
            pong.send(i).await.expect("the other side reads");
        }
    });
    for i in 0..rounds {
        ping.send(i).await.expect("the other side reads");
        black_box(pongs.recv().await).expect("the other side answers");
    }
    drop(ping);
    peer.await.expect("does not panic");
}

//! may. Its channels have no bound: where the others' have one, a semaphore of its own holds the senders back. Two
//! players of ping-pong never have more than one message under way, so they need none.

use crate::drive::{Lateness, Outcome, Rival, Stacks, drive};
use crate::workload::{BRANCHES, BUFFER, CROWD, NAP, NAPS, RIVALRY, SLEEPERS, Workload};
use may::coroutine::{self, JoinHandle, yield_now};
use may::go;
use may::sync::{Mutex, Semphore, WaitGroup, mpmc, mpsc};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Measures one workload.
pub fn run(workload: Workload, procs: usize, at_least: Duration) -> Outcome {
    start(procs);
    drive(&May, workload, at_least)
}

/// Starts so many workers, once.
pub fn start(procs: usize) {
    // Room for a whole batch in its pool of coroutines: otherwise each stack would be mapped anew.
    may::config().set_workers(procs).set_pool_capacity(2 * CROWD as usize);
}

/// Its caller is a thread.
struct May;

impl Rival for May {
    fn run(&self, workload: Workload, ops: u64) {
        inside(move || once(workload, ops));
    }

    fn sleep_all(&self, lateness: &Arc<Lateness>) {
        let lateness = Arc::clone(lateness);
        inside(move || {
            let group = WaitGroup::new();
            for sleeper in 0..SLEEPERS {
                let (group, lateness) = (group.clone(), Arc::clone(&lateness));
                go!(move || {
                    for nap in 0..NAPS {
                        let start = Instant::now();
                        coroutine::sleep(NAP);
                        lateness.note(sleeper, nap, start.elapsed());
                    }
                    drop(group);
                });
            }
            group.wait();
        });
    }

    fn park(&self, count: usize, stacks: Stacks) -> Box<dyn FnOnce()> {
        let (keep, gone) = inside(move || {
            let (keep, wait) = mpmc::channel::<()>();
            let (arrived, gone) = (WaitGroup::new(), WaitGroup::new());
            for _ in 0..count {
                let (wait, arrived, gone) = (wait.clone(), arrived.clone(), gone.clone());
                let parked = move || {
                    drop(arrived);
                    let _ = wait.recv();
                    drop(gone);
                };
                let builder = coroutine::Builder::new();
                // The size is in words.
                let builder = if stacks == Stacks::Small { builder.stack_size((64 << 10) / 8) } else { builder };
                drop(go!(builder, parked).expect("a stack"));
            }
            arrived.wait();
            (keep, gone)
        });
        Box::new(move || {
            drop(keep);
            inside(move || gone.wait());
        })
    }
}

/// Runs it in a coroutine.
pub fn inside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let main: JoinHandle<T> = go!(f);
    main.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::Yield1 => yields(ops),
        Workload::Yield1000 => share_out(CROWD, move || yields(ops / CROWD)),
        Workload::SpawnJoin => (0..ops / CROWD).for_each(|_| share_out(CROWD, || {})),
        Workload::SpawnGroup => (0..ops / CROWD).for_each(|_| spawn_group(CROWD)),
        Workload::SpawnMillion => spawn_group(ops),
        Workload::PingPong | Workload::Cores => ping_pong(ops),
        Workload::Buffered1 => buffered(1, ops),
        Workload::Buffered4 => buffered(4, ops),
        Workload::Mutex => {
            let mutex = Mutex::new(0_u64);
            (0..ops).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
        }
        Workload::Mutex8 | Workload::MutexStorm => {
            let mutex = Arc::new(Mutex::new(0_u64));
            let shared = Arc::clone(&mutex);
            let yields = workload == Workload::MutexStorm;
            share_out(RIVALRY, move || {
                for _ in 0..ops / RIVALRY {
                    let mut locked = shared.lock().expect("not poisoned");
                    *locked += 1;
                    if yields {
                        yield_now();
                    }
                }
            });
            assert_eq!(*mutex.lock().expect("not poisoned"), ops);
        }
        Workload::Skynet => {
            let (up, sum) = mpsc::channel();
            drop(go!(move || skynet(&up, 0, ops)));
            assert_eq!(sum.recv(), Ok(ops * (ops - 1) / 2));
        }
        _ => unreachable!("no rate"),
    }
}

fn yields(count: u64) {
    (0..count).for_each(|_| yield_now());
}

/// Starts so many coroutines with one function and waits for all.
pub fn share_out(count: u64, part: impl FnOnce() + Send + Clone + 'static) {
    let all: Vec<JoinHandle<()>> = (0..count).map(|_| go!(part.clone())).collect();
    all.into_iter().for_each(|one| one.join().expect("does not panic"));
}

fn spawn_group(count: u64) {
    // A clone is an add, a drop a done.
    let group = WaitGroup::new();
    for _ in 0..count {
        let group = group.clone();
        drop(go!(move || drop(group)));
    }
    group.wait();
}

fn ping_pong(rounds: u64) {
    let (ping, pings) = mpsc::channel::<u64>();
    let (pong, pongs) = mpsc::channel::<u64>();
    let peer = go!(move || {
        while let Ok(i) = pings.recv() {
            pong.send(i).expect("the other side reads");
        }
    });
    for i in 0..rounds {
        ping.send(i).expect("the other side reads");
        black_box(pongs.recv()).expect("the other side answers");
    }
    drop(ping);
    peer.join().expect("does not panic");
}

/// So many senders and as many receivers.
fn buffered(pairs: u64, messages: u64) {
    let (tx, rx) = mpmc::channel::<u64>();
    let room = Arc::new(Semphore::new(BUFFER));
    let receivers: Vec<JoinHandle<u64>> = (0..pairs)
        .map(|_| {
            let (rx, room) = (rx.clone(), Arc::clone(&room));
            go!(move || {
                let mut count = 0;
                while let Ok(i) = rx.recv() {
                    room.post();
                    black_box(i);
                    count += 1;
                }
                count
            })
        })
        .collect();
    for _ in 0..pairs {
        let (tx, room) = (tx.clone(), Arc::clone(&room));
        drop(go!(move || {
            for i in 0..messages / pairs {
                room.wait();
                tx.send(i).expect("somebody reads");
            }
        }));
    }
    drop((tx, rx));
    let received: u64 = receivers.into_iter().map(|one| one.join().expect("does not panic")).sum();
    assert_eq!(received, messages);
}

/// Sends the sum of its leaves up.
fn skynet(up: &mpsc::Sender<u64>, number: u64, leaves: u64) {
    if leaves == 1 {
        return up.send(number).expect("the parent waits");
    }
    let (tx, rx) = mpsc::channel();
    let each = leaves / BRANCHES;
    for i in 0..BRANCHES {
        let tx = tx.clone();
        drop(go!(move || skynet(&tx, number + i * each, each)));
    }
    let sum = (0..BRANCHES).map(|_| rx.recv().expect("each child sends")).sum();
    up.send(sum).expect("the parent waits");
}

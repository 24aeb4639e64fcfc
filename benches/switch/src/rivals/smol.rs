//! smol: its executor, on threads as its own `smol::spawn` has them; async-channel, async-lock and async-io as it
//! re-exports them. Its channels have room for one at least. It has no wait group: a count and a channel make one.

use crate::drive::{Lateness, Outcome, Rival, Stacks, drive};
use crate::workload::{BRANCHES, BUFFER, CROWD, NAP, NAPS, RIVALRY, SLEEPERS, Workload};
use smol::channel::{Receiver, Sender, bounded};
use smol::future::yield_now;
use smol::lock::Mutex;
use smol::{Executor, Timer};
use std::future::pending;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whose tasks they are.
pub static EXECUTOR: Executor<'static> = Executor::new();

/// Measures one workload.
pub fn run(workload: Workload, procs: usize, at_least: Duration) -> Outcome {
    start(procs);
    drive(&Smol, workload, at_least)
}

/// Starts so many workers.
pub fn start(procs: usize) {
    for _ in 0..procs {
        std::thread::spawn(|| smol::block_on(EXECUTOR.run(pending::<()>())));
    }
}

/// Its caller is a thread.
struct Smol;

/// Runs it as a task. The caller only waits: `smol::block_on` would make a reactor of it, too.
pub fn inside<T: Send + 'static>(f: impl Future<Output = T> + Send + 'static) -> T {
    smol::future::block_on(EXECUTOR.spawn(f))
}

impl Rival for Smol {
    fn run(&self, workload: Workload, ops: u64) {
        inside(once(workload, ops));
    }

    fn sleep_all(&self, lateness: &Arc<Lateness>) {
        let lateness = Arc::clone(lateness);
        inside(async move {
            let group = Group::of(SLEEPERS as u64);
            for sleeper in 0..SLEEPERS {
                let (group, lateness) = (Arc::clone(&group), Arc::clone(&lateness));
                let sleeps = async move {
                    for nap in 0..NAPS {
                        let start = Instant::now();
                        Timer::after(NAP).await;
                        lateness.note(sleeper, nap, start.elapsed());
                    }
                    group.done();
                };
                EXECUTOR.spawn(sleeps).detach();
            }
            group.wait().await;
        });
    }

    fn park(&self, count: usize, _: Stacks) -> Box<dyn FnOnce()> {
        let (keep, wait) = bounded::<()>(1);
        let (arrived, gone) = (Group::of(count as u64), Group::of(count as u64));
        let all_gone = Arc::clone(&gone);
        inside(async move {
            for _ in 0..count {
                let (wait, arrived, gone) = (wait.clone(), Arc::clone(&arrived), Arc::clone(&gone));
                let parked = async move {
                    arrived.done();
                    let _ = wait.recv().await;
                    gone.done();
                };
                EXECUTOR.spawn(parked).detach();
            }
            arrived.wait().await;
        });
        Box::new(move || {
            drop(keep);
            inside(async move { all_gone.wait().await });
        })
    }
}

/// A wait group, for one that waits.
struct Group {
    left: AtomicU64,
    done: (Sender<()>, Receiver<()>),
}

impl Group {
    fn of(count: u64) -> Arc<Group> {
        Arc::new(Group { left: AtomicU64::new(count), done: bounded(1) })
    }

    fn done(&self) {
        // ORDER: AcqRel; as a count of references: whoever waits sees what was done before each.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.0.try_send(()).expect("room for one");
        }
    }

    async fn wait(&self) {
        self.done.1.recv().await.expect("not closed");
    }
}

async fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::Yield1 => yields(ops).await,
        Workload::Yield1000 => share_out(CROWD, || yields(ops / CROWD)).await,
        Workload::SpawnJoin => {
            for _ in 0..ops / CROWD {
                share_out(CROWD, || async {}).await;
            }
        }
        Workload::SpawnGroup => {
            for _ in 0..ops / CROWD {
                spawn_group(CROWD).await;
            }
        }
        Workload::SpawnMillion => spawn_group(ops).await,
        Workload::PingPong | Workload::Cores => ping_pong(ops).await,
        Workload::Buffered1 => buffered(1, ops).await,
        Workload::Buffered4 => buffered(4, ops).await,
        Workload::Mutex => {
            let mutex = Mutex::new(0_u64);
            for _ in 0..ops {
                *black_box(&mutex).lock().await += 1;
            }
        }
        Workload::Mutex8 | Workload::MutexStorm => {
            let mutex = Arc::new(Mutex::new(0_u64));
            let yields = workload == Workload::MutexStorm;
            let locks = |mutex: Arc<Mutex<u64>>| async move {
                for _ in 0..ops / RIVALRY {
                    let mut locked = mutex.lock().await;
                    *locked += 1;
                    if yields {
                        yield_now().await;
                    }
                }
            };
            share_out(RIVALRY, || locks(Arc::clone(&mutex))).await;
            assert_eq!(*mutex.lock().await, ops);
        }
        Workload::Skynet => {
            let (up, sum) = bounded(1);
            skynet(up, 0, ops);
            assert_eq!(sum.recv().await, Ok(ops * (ops - 1) / 2));
        }
        _ => unreachable!("no rate"),
    }
}

async fn yields(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Starts so many tasks with one function and waits for all.
pub async fn share_out<F: Future<Output = ()> + Send + 'static>(count: u64, part: impl Fn() -> F) {
    let all: Vec<_> = (0..count).map(|_| EXECUTOR.spawn(part())).collect();
    for one in all {
        one.await;
    }
}

async fn spawn_group(count: u64) {
    let group = Group::of(count);
    for _ in 0..count {
        let group = Arc::clone(&group);
        EXECUTOR.spawn(async move { group.done() }).detach();
    }
    group.wait().await;
}

async fn ping_pong(rounds: u64) {
    let (ping, pings) = bounded::<u64>(1);
    let (pong, pongs) = bounded::<u64>(1);
    let peer = EXECUTOR.spawn(async move {
        while let Ok(i) = pings.recv().await {
            pong.send(i).await.expect("the other side reads");
        }
    });
    for i in 0..rounds {
        ping.send(i).await.expect("the other side reads");
        black_box(pongs.recv().await).expect("the other side answers");
    }
    drop(ping);
    peer.await;
}

/// So many senders and as many receivers.
async fn buffered(pairs: u64, messages: u64) {
    let (tx, rx) = bounded::<u64>(BUFFER);
    let receive = |rx: Receiver<u64>| async move {
        let mut count = 0;
        while let Ok(i) = rx.recv().await {
            black_box(i);
            count += 1;
        }
        count
    };
    let receivers: Vec<_> = (0..pairs).map(|_| EXECUTOR.spawn(receive(rx.clone()))).collect();
    for _ in 0..pairs {
        let tx = tx.clone();
        let send = async move {
            for i in 0..messages / pairs {
                tx.send(i).await.expect("somebody reads");
            }
        };
        EXECUTOR.spawn(send).detach();
    }
    drop((tx, rx));
    let mut received = 0;
    for one in receivers {
        received += one.await;
    }
    assert_eq!(received, messages);
}

/// Starts a task that sends the sum of its leaves up. Not an async function: those would need a box at each level.
fn skynet(up: Sender<u64>, number: u64, leaves: u64) {
    let sends = async move {
        if leaves == 1 {
            return up.send(number).await.expect("the parent waits");
        }
        let (tx, rx) = bounded(BRANCHES as usize);
        let each = leaves / BRANCHES;
        for i in 0..BRANCHES {
            skynet(tx.clone(), number + i * each, each);
        }
        let mut sum = 0;
        for _ in 0..BRANCHES {
            sum += rx.recv().await.expect("each child sends");
        }
        up.send(sum).await.expect("the parent waits");
    };
    EXECUTOR.spawn(sends).detach();
}

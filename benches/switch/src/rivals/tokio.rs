//! tokio. Its bounded channel has room for one at least, and one receiver: where more receive, async-channel stands in,
//! as tokio's own documentation advises. It has no wait group: a count and its `Notify` make one.

use crate::drive::{Lateness, Outcome, Rival, Stacks, drive};
use crate::workload::{BRANCHES, BUFFER, CROWD, NAP, NAPS, RIVALRY, SLEEPERS, Workload};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::yield_now;

/// Measures one workload.
pub fn run(workload: Workload, procs: usize, at_least: Duration) -> Result<Outcome, String> {
    Ok(drive(&Tokio::start(procs)?, workload, at_least))
}

/// Its caller is a thread.
pub struct Tokio(Runtime);

impl Tokio {
    /// With so many workers.
    pub fn start(procs: usize) -> Result<Tokio, String> {
        // All drivers, as #[tokio::main] has them: without the I/O driver its workers sleep in another place.
        let runtime = Builder::new_multi_thread().worker_threads(procs).enable_all().build();
        runtime.map(Tokio).map_err(|error| format!("tokio does not start: {error}"))
    }

    /// Runs it as a task: `block_on`'s own future would run outside the workers.
    pub fn inside<T: Send + 'static>(&self, f: impl Future<Output = T> + Send + 'static) -> T {
        self.0.block_on(self.0.spawn(f)).expect("does not panic")
    }
}

impl Rival for Tokio {
    fn run(&self, workload: Workload, ops: u64) {
        self.inside(once(workload, ops));
    }

    fn sleep_all(&self, lateness: &Arc<Lateness>) {
        let lateness = Arc::clone(lateness);
        self.inside(async move {
            let group = Group::of(SLEEPERS as u64);
            for sleeper in 0..SLEEPERS {
                let (group, lateness) = (Arc::clone(&group), Arc::clone(&lateness));
                tokio::spawn(async move {
                    for nap in 0..NAPS {
                        let start = Instant::now();
                        tokio::time::sleep(NAP).await;
                        lateness.note(sleeper, nap, start.elapsed());
                    }
                    group.done();
                });
            }
            group.wait().await;
        });
    }

    fn park(&self, count: usize, _: Stacks) -> Box<dyn FnOnce() + '_> {
        let (keep, wait) = async_channel::bounded::<()>(1);
        let (arrived, gone) = (Group::of(count as u64), Group::of(count as u64));
        let all_gone = Arc::clone(&gone);
        self.inside(async move {
            for _ in 0..count {
                let (wait, arrived, gone) = (wait.clone(), Arc::clone(&arrived), Arc::clone(&gone));
                tokio::spawn(async move {
                    arrived.done();
                    let _ = wait.recv().await;
                    gone.done();
                });
            }
            arrived.wait().await;
        });
        Box::new(move || {
            drop(keep);
            self.inside(async move { all_gone.wait().await });
        })
    }
}

/// A wait group, for one that waits.
struct Group {
    left: AtomicU64,
    done: Notify,
}

impl Group {
    fn of(count: u64) -> Arc<Group> {
        Arc::new(Group { left: AtomicU64::new(count), done: Notify::new() })
    }

    fn done(&self) {
        // ORDER: AcqRel; as a count of references: whoever waits sees what was done before each.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    async fn wait(&self) {
        self.done.notified().await;
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
        Workload::Buffered1 => buffered(ops).await,
        Workload::Buffered4 => buffered_by_many(4, ops).await,
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
            let (up, mut sum) = mpsc::channel(1);
            skynet(up, 0, ops);
            assert_eq!(sum.recv().await, Some(ops * (ops - 1) / 2));
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
    let all: Vec<_> = (0..count).map(|_| tokio::spawn(part())).collect();
    for one in all {
        one.await.expect("does not panic");
    }
}

async fn spawn_group(count: u64) {
    let group = Group::of(count);
    for _ in 0..count {
        let group = Arc::clone(&group);
        tokio::spawn(async move { group.done() });
    }
    group.wait().await;
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

async fn buffered(messages: u64) {
    let (tx, mut rx) = mpsc::channel::<u64>(BUFFER);
    let receiver = tokio::spawn(async move {
        let mut count = 0;
        while let Some(i) = rx.recv().await {
            black_box(i);
            count += 1;
        }
        count
    });
    tokio::spawn(async move {
        for i in 0..messages {
            tx.send(i).await.expect("somebody reads");
        }
    });
    assert_eq!(receiver.await.expect("does not panic"), messages);
}

/// So many senders and as many receivers.
async fn buffered_by_many(pairs: u64, messages: u64) {
    let (tx, rx) = async_channel::bounded::<u64>(BUFFER);
    let receive = |rx: async_channel::Receiver<u64>| async move {
        let mut count = 0;
        while let Ok(i) = rx.recv().await {
            black_box(i);
            count += 1;
        }
        count
    };
    let receivers: Vec<_> = (0..pairs).map(|_| tokio::spawn(receive(rx.clone()))).collect();
    for _ in 0..pairs {
        let tx = tx.clone();
        tokio::spawn(async move {
            for i in 0..messages / pairs {
                tx.send(i).await.expect("somebody reads");
            }
        });
    }
    drop((tx, rx));
    let mut received = 0;
    for one in receivers {
        received += one.await.expect("does not panic");
    }
    assert_eq!(received, messages);
}

/// Starts a task that sends the sum of its leaves up. Not an async function: those would need a box at each level.
fn skynet(up: mpsc::Sender<u64>, number: u64, leaves: u64) {
    tokio::spawn(async move {
        if leaves == 1 {
            return up.send(number).await.expect("the parent waits");
        }
        let (tx, mut rx) = mpsc::channel(BRANCHES as usize);
        let each = leaves / BRANCHES;
        for i in 0..BRANCHES {
            skynet(tx.clone(), number + i * each, each);
        }
        let mut sum = 0;
        for _ in 0..BRANCHES {
            sum += rx.recv().await.expect("each child sends");
        }
        up.send(sum).await.expect("the parent waits");
    });
}

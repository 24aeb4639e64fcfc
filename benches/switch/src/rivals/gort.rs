//! Ours.

use crate::drive::{Lateness, Outcome, Rival, Stacks, drive};
use crate::rivals::{Sink, gort_heap};
use crate::workload::{BRANCHES, BUFFER, CROWD, NAP, NAPS, RIVALRY, SLEEPERS, Workload};
use rt::chan::{Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Measures one workload; answers how many bytes the trace has, too.
pub fn run(workload: Workload, procs: usize, at_least: Duration, sink: Option<Sink>) -> Result<(Outcome, u64), String> {
    inside(procs, sink, move || Ok(drive(&Gort, workload, at_least)))
}

/// Runs it as the first goroutine, traced or not; answers how many bytes the trace has, too.
pub fn inside<F>(procs: usize, sink: Option<Sink>, f: F) -> Result<(Outcome, u64), String>
where
    F: FnOnce() -> Result<Outcome, String> + Send + 'static,
{
    let bytes = Arc::new(AtomicU64::new(0));
    let file = std::env::temp_dir().join(format!("gort-switch-{}.trace", std::process::id()));
    let out = match sink {
        None | Some(Sink::Flight) => None,
        Some(Sink::Discard) => Some(Counter { bytes: Arc::clone(&bytes), out: Box::new(io::sink()) }),
        Some(Sink::File) => Some(Counter { bytes: Arc::clone(&bytes), out: Box::new(create(&file)?) }),
    };
    let outcome = rt::Config::new().gomaxprocs(procs).run(move || {
        let traced = out.is_some();
        if let Some(out) = out {
            rt::trace::start(out).map_err(|error| format!("cannot start the trace: {error}"))?;
        }
        let recorder = rt::trace::FlightRecorder::new();
        if matches!(sink, Some(Sink::Flight)) {
            recorder.start().map_err(|error| format!("cannot start the flight recorder: {error}"))?;
        }
        let outcome = f()?;
        if traced {
            rt::trace::stop().map_err(|error| format!("the trace is not whole: {error}"))?;
        }
        Ok::<Outcome, String>(outcome)
    });
    if matches!(sink, Some(Sink::File)) {
        std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
    }
    // ORDER: Relaxed; stop() has waited for the writer.
    Ok((outcome?, bytes.load(Ordering::Relaxed)))
}

fn create(path: &PathBuf) -> Result<BufWriter<File>, String> {
    File::create(path).map(BufWriter::new).map_err(|error| format!("cannot make {}: {error}", path.display()))
}

/// Counts what passes.
struct Counter {
    bytes: Arc<AtomicU64>,
    out: Box<dyn Write + Send>,
}

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        // ORDER: Relaxed; a count.
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Its caller is a goroutine.
struct Gort;

impl Rival for Gort {
    fn run(&self, workload: Workload, ops: u64) {
        match workload {
            Workload::Yield1 => yields(ops),
            Workload::Yield1000 => share_out(CROWD, move || yields(ops / CROWD)),
            Workload::SpawnJoin => (0..ops / CROWD).for_each(|_| share_out(CROWD, || {})),
            Workload::SpawnGroup => {
                let group = WaitGroup::new();
                (0..ops / CROWD).for_each(|_| spawn_group(&group, CROWD));
            }
            Workload::SpawnMillion => spawn_group(&WaitGroup::new(), ops),
            Workload::PingPong | Workload::Cores => ping_pong(ops),
            Workload::Buffered1 => buffered(1, ops),
            Workload::Buffered4 => buffered(4, ops),
            Workload::Mutex => {
                let mutex = Mutex::new(0_u64);
                (0..ops).for_each(|_| *black_box(&mutex).lock() += 1);
            }
            Workload::Mutex8 | Workload::MutexStorm => {
                let mutex = Arc::new(Mutex::new(0_u64));
                let shared = Arc::clone(&mutex);
                let yields = workload == Workload::MutexStorm;
                share_out(RIVALRY, move || {
                    for _ in 0..ops / RIVALRY {
                        let mut locked = shared.lock();
                        *locked += 1;
                        if yields {
                            rt::yield_now();
                        }
                    }
                });
                assert_eq!(*mutex.lock(), ops);
            }
            Workload::Skynet => {
                let (up, sum) = bounded(0);
                rt::go(move || skynet(&up, 0, ops));
                assert_eq!(sum.recv(), Ok(ops * (ops - 1) / 2));
            }
            Workload::GcTrees | Workload::GcGraph => gort_heap::run(workload, ops),
            _ => unreachable!("no rate"),
        }
    }

    fn sleep_all(&self, lateness: &Arc<Lateness>) {
        let group = WaitGroup::new();
        group.add(SLEEPERS);
        for sleeper in 0..SLEEPERS {
            let (group, lateness) = (group.clone(), Arc::clone(lateness));
            rt::go(move || {
                for nap in 0..NAPS {
                    let start = Instant::now();
                    rt::time::sleep(NAP);
                    lateness.note(sleeper, nap, start.elapsed());
                }
                group.done();
            });
        }
        group.wait();
    }

    fn park(&self, count: usize, stacks: Stacks) -> Box<dyn FnOnce()> {
        let (keep, wait) = bounded::<()>(0);
        let (arrived, gone) = (WaitGroup::new(), WaitGroup::new());
        arrived.add(count);
        gone.add(count);
        for _ in 0..count {
            let (wait, arrived, gone) = (wait.clone(), arrived.clone(), gone.clone());
            let parked = move || {
                arrived.done();
                let _ = wait.recv();
                gone.done();
            };
            match stacks {
                Stacks::Default => drop(rt::go(parked)),
                Stacks::Small => drop(rt::Builder::new().stack_size(64 << 10).spawn(parked).expect("a stack")),
            }
        }
        arrived.wait();
        Box::new(move || {
            drop(keep);
            gone.wait();
        })
    }

    fn pause(&self, duration: Duration) {
        rt::time::sleep(duration);
    }
}

fn yields(count: u64) {
    (0..count).for_each(|_| rt::yield_now());
}

/// Starts so many goroutines with one function and waits for all.
pub fn share_out(count: u64, part: impl FnOnce() + Send + Clone + 'static) {
    let all: Vec<_> = (0..count).map(|_| rt::go(part.clone())).collect();
    all.into_iter().for_each(|one| one.join().expect("does not panic"));
}

fn spawn_group(group: &WaitGroup, count: u64) {
    group.add(count as usize);
    for _ in 0..count {
        let group = group.clone();
        rt::go(move || group.done());
    }
    group.wait();
}

fn ping_pong(rounds: u64) {
    let (ping, pings) = bounded::<u64>(0);
    let (pong, pongs) = bounded::<u64>(0);
    let peer = rt::go(move || {
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
    let (tx, rx) = bounded::<u64>(BUFFER);
    let receivers: Vec<_> = (0..pairs)
        .map(|_| {
            let rx = rx.clone();
            rt::go(move || {
                let mut count = 0;
                while let Ok(i) = rx.recv() {
                    black_box(i);
                    count += 1;
                }
                count
            })
        })
        .collect();
    for _ in 0..pairs {
        let tx = tx.clone();
        rt::go(move || (0..messages / pairs).for_each(|i| tx.send(i).expect("somebody reads")));
    }
    drop((tx, rx));
    let received: u64 = receivers.into_iter().map(|one| one.join().expect("does not panic")).sum();
    assert_eq!(received, messages);
}

/// Sends the sum of its leaves up.
fn skynet(up: &Sender<u64>, number: u64, leaves: u64) {
    if leaves == 1 {
        return up.send(number).expect("the parent waits");
    }
    let (tx, rx) = bounded(0);
    let each = leaves / BRANCHES;
    for i in 0..BRANCHES {
        let tx = tx.clone();
        rt::go(move || skynet(&tx, number + i * each, each));
    }
    let sum = (0..BRANCHES).map(|_| rx.recv().expect("each child sends")).sum();
    up.send(sum).expect("the parent waits");
}

//! Ours.

use crate::rivals::Sink;
use crate::workload::{CROWD, Measured, Workload, measure};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Runs one workload; answers what it cost and how many bytes the trace has.
pub fn run(
    workload: Workload,
    procs: usize,
    at_least: Duration,
    sink: Option<Sink>,
) -> Result<(Measured, u64), String> {
    let bytes = Arc::new(AtomicU64::new(0));
    let file = std::env::temp_dir().join(format!("gort-switch-{}.trace", std::process::id()));
    let out = match sink {
        None => None,
        Some(Sink::Discard) => Some(Counter { bytes: Arc::clone(&bytes), out: Box::new(io::sink()) }),
        Some(Sink::File) => Some(Counter { bytes: Arc::clone(&bytes), out: Box::new(create(&file)?) }),
    };
    let measured = rt::Config::new().gomaxprocs(procs).run(move || {
        let traced = out.is_some();
        if let Some(out) = out {
            rt::trace::start(out).map_err(|error| format!("cannot start the trace: {error}"))?;
        }
        let measured = measure(at_least, |ops| once(workload, ops));
        if traced {
            rt::trace::stop().map_err(|error| format!("the trace is not whole: {error}"))?;
        }
        Ok::<Measured, String>(measured)
    });
    if matches!(sink, Some(Sink::File)) {
        std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
    }
    // ORDER: Relaxed; stop() has waited for the writer.
    Ok((measured?, bytes.load(Ordering::Relaxed)))
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

fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::Yield1 => (0..ops).for_each(|_| rt::yield_now()),
        Workload::Yield1000 => {
            let crowd: Vec<_> =
                (0..CROWD).map(|_| rt::go(move || (0..ops / CROWD).for_each(|_| rt::yield_now()))).collect();
            crowd.into_iter().for_each(|one| one.join().expect("does not panic"));
        }
        Workload::SpawnJoin => {
            for _ in 0..ops / CROWD {
                let batch: Vec<_> = (0..CROWD).map(|_| rt::go(|| {})).collect();
                batch.into_iter().for_each(|one| one.join().expect("does not panic"));
            }
        }
        Workload::SpawnGroup => {
            let group = Arc::new(rt::sync::WaitGroup::new());
            for _ in 0..ops / CROWD {
                group.add(CROWD as usize);
                for _ in 0..CROWD {
                    let group = Arc::clone(&group);
                    rt::go(move || group.done());
                }
                group.wait();
            }
        }
        Workload::PingPong => {
            let (ping, pings) = rt::chan::bounded::<u64>(0);
            let (pong, pongs) = rt::chan::bounded::<u64>(0);
            let peer = rt::go(move || {
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
            let mutex = rt::sync::Mutex::new(0_u64);
            (0..ops).for_each(|_| *black_box(&mutex).lock() += 1);
        }
    }
}

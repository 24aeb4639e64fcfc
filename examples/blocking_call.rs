//! Calls that block the thread, beside a goroutine that must not be held up. There is one processor (GOMAXPROCS=1).
//!
//! Prints, for each kind of call, how long it took, how often the ticker ticked meanwhile (a tick is due every
//! millisecond), and its longest gap. A goroutine in `rt::blocking` loses its processor as soon as the scheduler looks and
//! the ticker needs it: expect a gap of a few milliseconds. Plain code that blocks looks like any other code, so it
//! loses its processor after 10 ms: expect one gap of 10 to 15 ms, and no other.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_millis(150);

/// What the ticker measures.
#[derive(Default)]
struct Ticks {
    count: AtomicU64,
    longest_gap_ns: AtomicU64,
}

/// Ticks for ever: `rt::run` does not wait for it.
fn ticker(ticks: &Ticks) {
    let mut last = Instant::now();
    loop {
        rt::time::sleep(TICK);
        let gap = last.elapsed();
        last += gap;
        ticks.count.fetch_add(1, Ordering::Relaxed);
        ticks.longest_gap_ns.fetch_max(gap.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Does `call` and tells how the ticker fared.
fn beside<T>(ticks: &Ticks, what: &str, call: impl FnOnce() -> T) -> T {
    rt::time::sleep(5 * TICK); // What was before is over.
    ticks.count.store(0, Ordering::Relaxed);
    ticks.longest_gap_ns.store(0, Ordering::Relaxed);
    let begin = Instant::now();
    let value = call();
    let took = begin.elapsed().as_secs_f64() * 1e3;
    rt::time::sleep(2 * TICK); // A gap counts when it has ended.
    let gap = ticks.longest_gap_ns.load(Ordering::Relaxed) as f64 / 1e6;
    println!("{what:<30} {took:>8.1} ms {:>8} {gap:>9.1} ms", ticks.count.load(Ordering::Relaxed));
    value
}

/// Writes to a file for a while, each time through to the disk.
fn write_log(path: &Path) -> io::Result<()> {
    let begin = Instant::now();
    let mut file = File::create(path)?;
    while begin.elapsed() < NAP {
        file.write_all(b"a line that must not get lost\n")?;
        file.sync_data()?;
    }
    Ok(())
}

fn calls() -> io::Result<()> {
    let ticks = Arc::new(Ticks::default());
    let for_ticker = ticks.clone();
    rt::go(move || ticker(&for_ticker));

    println!("{:<30} {:>11} {:>8} {:>12}", "call", "took", "ticks", "longest gap");
    beside(&ticks, "rt::blocking(thread::sleep)", || rt::blocking(|| std::thread::sleep(NAP)));
    beside(&ticks, "thread::sleep", || std::thread::sleep(NAP));
    let path = std::env::temp_dir().join(format!("gort-blocking-call-{}", std::process::id()));
    let declared = beside(&ticks, "rt::blocking(fs write, sync)", || rt::blocking(|| write_log(&path)));
    let plain = beside(&ticks, "fs write, sync", || write_log(&path));
    std::fs::remove_file(&path)?;
    declared.and(plain)
}

fn main() -> io::Result<()> {
    rt::Config::new().gomaxprocs(1).run(calls)
}

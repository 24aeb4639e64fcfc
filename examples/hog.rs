//! One endless loop beside a hundred goroutines, on one processor (GOMAXPROCS=1).
//!
//! The loop calls nothing of the runtime, and the compiler has put no check into it: nobody can ask it to yield. So after
//! 10 ms the scheduler takes the processor away from the loop's thread and hands it to another. The loop runs on, wherever
//! the operating system lets it; the others have their processor back.
//!
//! Expect the tickers' median gap to be a little over a millisecond, and the longest, once, 10 to 15 ms: the time slice,
//! and the time until the scheduler looks (more where other programs take the cores). The program traces itself into
//! hog.trace in the current folder, and prints what the trace says of that moment.

use rt::sync::{Mutex, WaitGroup};
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracer::read::{Event, Reader};
use tracer::wire::Ev;
use tracer::wire::ext::Record;

const TICKERS: usize = 100;
const TICK: Duration = Duration::from_millis(1);
const TIME: Duration = Duration::from_millis(500);
const TRACE: &str = "hog.trace";
const NAME: &str = "hog";

type Failure = Box<dyn Error + Send + Sync>;

/// Never ends, never calls anybody.
fn hog() {
    let mut n = 0u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

/// Ticks every millisecond for a while, and answers its gaps.
fn ticker(end: Instant) -> Vec<Duration> {
    let mut gaps = Vec::new();
    let mut last = Instant::now();
    while last < end {
        rt::time::sleep(TICK);
        let gap = last.elapsed();
        last += gap;
        gaps.push(gap);
    }
    gaps
}

/// The gaps of all tickers in order of length.
fn race() -> Result<Vec<Duration>, Failure> {
    rt::trace::start(File::create(TRACE)?)?;
    let end = Instant::now() + TIME;
    let gaps = Arc::new(Mutex::new(Vec::new()));
    let tickers = WaitGroup::new();
    for _ in 0..TICKERS {
        let gaps = gaps.clone();
        tickers.go(move || {
            let mine = ticker(end);
            gaps.lock().extend(mine);
        });
    }
    rt::time::sleep(TIME / 5); // They all tick.
    rt::Builder::new().name(NAME).spawn(hog)?;
    tickers.wait();
    rt::trace::stop()?;
    let mut gaps = std::mem::take(&mut *gaps.lock());
    gaps.sort_unstable();
    Ok(gaps)
}

/// What the trace says of the hog: when, and what.
fn story() -> Result<Vec<(i64, String)>, Failure> {
    let mut reader = Reader::new(File::open(TRACE)?)?;
    let mut story = Vec::new();
    let (mut hog, mut start, mut taken) = (None, None::<Event>, false);
    while let Some(event) = reader.next() {
        let event = event?;
        let Event { time, m, p, g, .. } = event;
        match event.kind {
            Ev::Sync if story.is_empty() => {
                // Beyond Go's format; the tables of a generation hold all of them.
                for record in reader.tables().ext_records().flatten() {
                    if let Some(Record::HandOff { p, cause, from_m }) = record.record {
                        story.push((record.time, format!("HandOff         P {p} is taken from M {from_m}: {cause}")));
                    }
                }
            }
            Ev::GoStart => start = Some(event),
            Ev::GoLabel if reader.tables().string(event.args[0]).as_deref() == Some(NAME) => {
                hog = Some(g);
                let start = start.as_ref().map_or(time, |start| start.time);
                story.push((start, format!("GoStart         goroutine {g} ({NAME}) begins on M {m} with P {p}")));
            }
            Ev::GoSyscallBegin if hog == Some(g) => {
                story.push((time, format!("GoSyscallBegin  goroutine {g} goes on, on M {m} without a P")));
            }
            Ev::ProcSteal => {
                taken = true;
                story.push((time, format!("ProcSteal       P {} is free", event.args[0])));
            }
            Ev::ProcStart if taken => {
                taken = false;
                story.push((time, format!("ProcStart       M {m} has P {}, for the tickers", event.args[0])));
            }
            _ => {}
        }
    }
    story.sort_by_key(|(time, _)| *time);
    Ok(story)
}

fn main() -> Result<(), Failure> {
    let gaps = rt::Config::new().gomaxprocs(1).run(race)?;
    let ms = |share: f64| gaps[((gaps.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{TICKERS} tickers, {} gaps: median {:.2} ms, longest {:.2} ms", gaps.len(), ms(0.5), ms(1.0));

    let story = story()?;
    let begin = story.first().ok_or("the trace does not name the hog")?.0;
    println!("\nwhat {TRACE} says of it");
    for (time, what) in &story {
        println!("{:>10.3} ms  {what}", (time - begin) as f64 / 1e6);
    }
    let handed = story.iter().any(|(_, what)| what.starts_with("HandOff"));
    let stolen = story.iter().any(|(_, what)| what.starts_with("ProcSteal"));
    if handed && stolen { Ok(()) } else { Err("the trace has no hand-off".into()) }
}

//! A pipeline: one goroutine makes numbers, four work on them side by side, one collects what they found.
//!
//! The stages are joined by channels that hold 16 messages, so a fast stage waits for a slow one and memory stays small.
//! No stage is told to stop: each ends when the channel it reads from is closed, and closes the next one by dropping it.
//! Prints which start below a million has the longest Collatz sequence (837799, with 525 numbers), and how the workers
//! shared the numbers.

use rt::chan::{Receiver, Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use std::ops::Range;
use std::sync::Arc;

const WORKERS: usize = 4;
const LIMIT: u64 = 1_000_000;
const CHUNK: u64 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    length: u32,
    start: u64,
}

/// First stage: ranges of numbers.
fn generate(out: &Sender<Range<u64>>) {
    for begin in (1..LIMIT).step_by(CHUNK as usize) {
        let end = LIMIT.min(begin + CHUNK);
        if out.send(begin..end).is_err() {
            return; // Nobody reads any more.
        }
    }
}

fn collatz(start: u64) -> Found {
    let (mut n, mut length) = (start, 1);
    while n != 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        length += 1;
    }
    Found { length, start }
}

/// Second stage, several times: the longest sequence of each range. Answers how many ranges it had.
fn search(ranges: &Receiver<Range<u64>>, out: &Sender<Found>) -> usize {
    let mut count = 0;
    for range in ranges {
        count += 1;
        let Some(longest) = range.map(collatz).max() else { continue };
        if out.send(longest).is_err() {
            break;
        }
    }
    count
}

fn pipeline() -> (Found, Vec<usize>) {
    let (ranges_tx, ranges) = bounded(16);
    let (found_tx, found) = bounded(16);
    rt::go(move || generate(&ranges_tx));

    let shares = Arc::new(Mutex::new(Vec::new()));
    let workers = WaitGroup::new();
    for _ in 0..WORKERS {
        let (ranges, found_tx, shares) = (ranges.clone(), found_tx.clone(), shares.clone());
        workers.go(move || {
            let share = search(&ranges, &found_tx);
            shares.lock().push(share);
        });
    }
    drop(found_tx); // The workers have theirs.

    // Last stage: the fan-in is the channel itself.
    let longest = found.iter().max().expect("there is at least one range");
    workers.wait();
    (longest, std::mem::take(&mut *shares.lock()))
}

fn main() {
    let (longest, shares) = rt::run(pipeline);
    println!(
        "the longest Collatz sequence from below {LIMIT} starts at {} and has {} numbers",
        longest.start, longest.length
    );
    println!("{WORKERS} workers did {shares:?} ranges of {CHUNK} numbers each");
    assert_eq!((longest.start, longest.length), (837_799, 525));
}

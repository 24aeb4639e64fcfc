//! Two goroutines hand a number to each other over channels without room, so every send is a switch.
//!
//! Prints what one round trip takes: two messages, two switches from one goroutine to the other. Expect a few hundred
//! nanoseconds, where two threads that do the same over the same channels need several microseconds.

use rt::chan::{Receiver, Sender, bounded};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 200_000;
const THREAD_ROUNDS: u32 = 10_000;

/// Gives every number back, one higher.
fn pong(balls: &Receiver<u32>, back: &Sender<u32>) {
    for ball in balls {
        if back.send(ball + 1).is_err() {
            return;
        }
    }
}

/// Plays `rounds` rounds against `pong` and answers how long they took.
fn ping(rounds: u32, there: &Sender<u32>, back: &Receiver<u32>) -> Duration {
    let begin = Instant::now();
    for round in 0..rounds {
        there.send(round).expect("pong receives until the channel is closed");
        assert_eq!(back.recv(), Ok(round + 1));
    }
    begin.elapsed()
}

fn goroutines(rounds: u32) -> Duration {
    let (there, balls) = bounded(0);
    let (answers, back) = bounded(0);
    rt::go(move || pong(&balls, &answers));
    ping(rounds, &there, &back)
}

/// The same functions and channels on two threads.
fn threads(rounds: u32) -> Duration {
    let (there, balls) = bounded(0);
    let (answers, back) = bounded(0);
    let other = std::thread::spawn(move || pong(&balls, &answers));
    let took = ping(rounds, &there, &back);
    drop(there);
    other.join().expect("pong does not panic");
    took
}

fn report(what: &str, rounds: u32, took: Duration) {
    let ns = took.as_nanos() as f64 / f64::from(rounds);
    println!("{what:<16} {rounds:>8} round trips  {ns:>8.0} ns each");
}

fn main() {
    report("two goroutines", ROUNDS, rt::run(|| goroutines(ROUNDS)));
    report("two threads", THREAD_ROUNDS, threads(THREAD_ROUNDS));
}

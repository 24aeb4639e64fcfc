//! The tour: two seconds of a busy print shop, recorded, and then explained from the recording alone.
//!
//! The shop does what programs do. Workers share a queue of orders; each order goes into a ledger behind one lock, and is
//! written to a slow disk under it (the mistake to find). Leaflets are folded by hundreds of short goroutines.
//! Presses compute without a pause and lose their processor. A courier, who is a plain thread, brings the post.
//!
//! Writes tour.trace into the current folder, reads it back and prints what it holds, with the lines of this file at
//! which goroutines waited, and the commands that open it. Expect the ledger's lock on top.

use rt::chan::{Receiver, Sender, bounded, unbounded};
use rt::sync::{Mutex, WaitGroup};
use std::error::Error;
use std::fs::File;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[path = "tour/report.rs"]
mod report;

const TRACE: &str = "tour.trace";
const PROCS: usize = 4;
const DAY: Duration = Duration::from_secs(2);

type Failure = Box<dyn Error + Send + Sync>;

/// What everybody in the shop can reach.
struct Shop {
    is_open: AtomicBool,
    orders: (Sender<u64>, Receiver<u64>),
    ledger: Mutex<Vec<u64>>,
    post: (Sender<String>, Receiver<String>),
}

static SHOP: LazyLock<Shop> = LazyLock::new(|| Shop {
    is_open: AtomicBool::new(true),
    orders: bounded(8),
    ledger: Mutex::new(Vec::new()),
    post: unbounded(),
});

fn is_open() -> bool {
    SHOP.is_open.load(Ordering::Relaxed)
}

/// Computes for so long, and calls nobody.
#[inline(never)]
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Takes orders, faster than they can be done: the channel makes it wait.
fn counter() {
    let mut number = 0;
    while is_open() && SHOP.orders.0.send(number).is_ok() {
        number += 1;
    }
    SHOP.orders.0.close();
}

/// Does orders, side by side with others.
fn worker() {
    for number in &SHOP.orders.1 {
        compute(Duration::from_micros(100));
        enter(number);
    }
}

/// Enters an order into the ledger.
#[inline(never)]
fn enter(number: u64) {
    let mut ledger = SHOP.ledger.lock();
    ledger.push(number);
    rt::blocking(slow_disk); // The mistake: everybody waits for the disk, since the lock is held.
}

fn slow_disk() {
    thread::sleep(Duration::from_micros(300));
}

/// Looks at the clock every few milliseconds. How late it is shows how busy the processors are.
fn clock() {
    while is_open() {
        rt::time::sleep(Duration::from_millis(5));
    }
}

/// Prints without a pause from time to time. While it does, nobody can ask it for anything.
fn press() {
    while is_open() {
        rt::time::sleep(Duration::from_millis(400));
        compute(Duration::from_millis(30));
    }
}

/// Has hundreds of leaflets folded at once: work that idle processors steal.
fn folder() {
    while is_open() {
        let leaflets = WaitGroup::new();
        for _ in 0..300 {
            leaflets.go(leaflet);
        }
        leaflets.wait();
        rt::time::sleep(Duration::from_millis(150));
    }
}

fn leaflet() {
    compute(Duration::from_micros(20));
    rt::yield_now();
    compute(Duration::from_micros(20));
}

/// Brings the post: a plain thread, not a goroutine.
fn courier() {
    for number in 0.. {
        thread::sleep(Duration::from_millis(20));
        if SHOP.post.0.send(format!("letter {number}")).is_err() {
            return;
        }
    }
}

/// Waits for the post.
fn mailroom() {
    for letter in &SHOP.post.1 {
        compute(Duration::from_micros(letter.len() as u64));
    }
}

/// Opens the shop, and closes it after two seconds.
fn day() -> Result<(), Failure> {
    rt::trace::start(File::create(TRACE)?)?;
    let courier = thread::Builder::new().name("courier".into()).spawn(courier)?;
    let hire = |name: String| rt::Builder::new().name(name);
    let mut staff = vec![
        hire("counter".into()).spawn(counter)?,
        hire("clock".into()).spawn(clock)?,
        hire("folder".into()).spawn(folder)?,
        hire("mailroom".into()).spawn(mailroom)?,
    ];
    for i in 1..=6 {
        staff.push(hire(format!("worker {i}")).spawn(worker)?);
    }
    for i in 1..=PROCS {
        staff.push(hire(format!("press {i}")).spawn(press)?);
    }

    rt::time::sleep(DAY);
    SHOP.is_open.store(false, Ordering::Relaxed);
    SHOP.post.1.close();
    for goroutine in staff {
        goroutine.join().map_err(|_| "one of the staff panicked")?;
    }
    courier.join().map_err(|_| "the courier panicked")?;
    rt::trace::stop()?;
    Ok(())
}

fn main() -> ExitCode {
    println!("the shop is open for two seconds ...");
    match rt::Config::new().gomaxprocs(PROCS).run(day).and_then(|()| report::print(TRACE)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tour: {error}");
            ExitCode::FAILURE
        }
    }
}

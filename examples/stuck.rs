//! A deadlock, and what the runtime says of it.
//!
//! The clerk takes the ledger and waits for an order to enter. The orders come from the counter, which looks into the ledger
//! first. So neither can go on, nor can the boss, who waits for both; and the runtime knows. It prints "all goroutines are
//! asleep - deadlock!", then each goroutine with its name, what it waits on and where, and who holds that, and ends the
//! process with exit code 2.

use rt::chan::{Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use std::io;
use std::sync::Arc;

type Ledger = Mutex<Vec<String>>;

/// Starts a goroutine with a name, for whose end `day` waits.
#[track_caller]
fn start(name: &str, day: &WaitGroup, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    day.add(1);
    let day = day.clone();
    rt::Builder::new().name(name).spawn(move || {
        job();
        day.done();
    })?;
    Ok(())
}

fn clerk(ledger: &Arc<Ledger>, day: &WaitGroup) -> io::Result<()> {
    let mut book = ledger.lock();
    let (orders_tx, orders) = bounded(1);
    let for_counter = ledger.clone();
    start("counter", day, move || counter(&for_counter, &orders_tx))?;
    // The mistake: to wait for somebody while holding what he needs.
    book.extend(orders.recv());
    Ok(())
}

fn counter(ledger: &Ledger, orders: &Sender<String>) {
    let number = ledger.lock().len() + 1;
    orders.send(format!("order {number}")).expect("the clerk is there");
}

fn boss() -> io::Result<()> {
    let day = WaitGroup::new();
    let (ledger, for_clerk) = (Arc::new(Ledger::default()), day.clone());
    start("clerk", &day, move || clerk(&ledger, &for_clerk).expect("there is memory for a goroutine"))?;
    println!("the shop is open until clerk and counter are done");
    day.wait();
    println!("closed"); // Never.
    Ok(())
}

fn main() -> io::Result<()> {
    rt::run(boss)
}

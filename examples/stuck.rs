//! A deadlock, and what the runtime says of it.
//!
//! The clerk holds the ledger and waits for an order. The orders come from the counter, which needs the ledger first.
//! Nobody can go on, and the runtime knows: it prints "all goroutines are asleep - deadlock!", then each goroutine with
//! its name, what it waits on and where, and ends the process with exit code 2.

use rt::chan::{Receiver, Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use std::io;
use std::sync::Arc;

type Ledger = Mutex<Vec<String>>;

fn clerk(ledger: &Ledger, orders: &Receiver<String>) {
    let mut book = ledger.lock();
    // The mistake: waiting for others while holding what they need.
    if let Ok(order) = orders.recv() {
        book.push(order);
    }
}

fn counter(ledger: &Ledger, orders: &Sender<String>) {
    rt::yield_now(); // The clerk was first.
    let number = ledger.lock().len() + 1;
    orders.send(format!("order {number}")).expect("the clerk is there");
}

fn shop() -> io::Result<()> {
    let ledger = Arc::new(Ledger::default());
    let (orders_tx, orders) = bounded(1);
    let day = WaitGroup::new();
    day.add(2);

    let (book, done) = (ledger.clone(), day.clone());
    rt::Builder::new().name("clerk").spawn(move || {
        clerk(&book, &orders);
        done.done();
    })?;
    let (book, done) = (ledger, day.clone());
    rt::Builder::new().name("counter").spawn(move || {
        counter(&book, &orders_tx);
        done.done();
    })?;

    println!("the shop is open; closing when clerk and counter are done");
    day.wait();
    println!("closed"); // Never.
    Ok(())
}

fn main() -> io::Result<()> {
    rt::run(shop)
}

//! std, on plain threads.

use crate::rivals::threads::share_out;
use crate::workload::{BUFFER, RIVALRY, Workload};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;

/// Does so many operations.
pub fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::PingPong => ping_pong(ops),
        Workload::Buffered1 => buffered(ops),
        Workload::Mutex => {
            let mutex = Mutex::new(0_u64);
            (0..ops).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
        }
        Workload::Mutex8 | Workload::MutexStorm => {
            let mutex = Mutex::new(0_u64);
            let (shared, yields) = (&mutex, workload == Workload::MutexStorm);
            share_out(RIVALRY, move || {
                for _ in 0..ops / RIVALRY {
                    let mut locked = shared.lock().expect("not poisoned");
                    *locked += 1;
                    if yields {
                        thread::yield_now();
                    }
                }
            });
            assert_eq!(mutex.into_inner().expect("not poisoned"), ops);
        }
        _ => unreachable!("std does not take part in it"),
    }
}

fn ping_pong(rounds: u64) {
    let (ping, pings) = sync_channel::<u64>(0);
    let (pong, pongs) = sync_channel::<u64>(0);
    let peer = thread::spawn(move || {
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

fn buffered(messages: u64) {
    let (tx, rx) = sync_channel::<u64>(BUFFER);
    let sender = thread::spawn(move || (0..messages).for_each(|i| tx.send(i).expect("somebody reads")));
    let mut received = 0;
    while let Ok(i) = rx.recv() {
        black_box(i);
        received += 1;
    }
    sender.join().expect("does not panic");
    assert_eq!(received, messages);
}

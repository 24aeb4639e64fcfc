//! crossbeam-channel, on plain threads.

use crate::workload::{BUFFER, Workload};
use crossbeam_channel::bounded;
use std::hint::black_box;
use std::thread;

/// Does so many operations.
pub fn once(workload: Workload, ops: u64) {
    match workload {
        Workload::PingPong => ping_pong(ops),
        Workload::Buffered1 => buffered(1, ops),
        Workload::Buffered4 => buffered(4, ops),
        _ => unreachable!("crossbeam-channel does not take part in it"),
    }
}

fn ping_pong(rounds: u64) {
    let (ping, pings) = bounded::<u64>(0);
    let (pong, pongs) = bounded::<u64>(0);
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

/// So many senders and as many receivers.
fn buffered(pairs: u64, messages: u64) {
    let (tx, rx) = bounded::<u64>(BUFFER);
    let receivers: Vec<_> = (0..pairs)
        .map(|_| {
            let rx = rx.clone();
            thread::spawn(move || {
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
        thread::spawn(move || (0..messages / pairs).for_each(|i| tx.send(i).expect("somebody reads")));
    }
    drop((tx, rx));
    let received: u64 = receivers.into_iter().map(|one| one.join().expect("does not panic")).sum();
    assert_eq!(received, messages);
}

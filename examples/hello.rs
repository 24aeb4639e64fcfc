//! The smallest program: goroutines and a channel.
//!
//! Prints three lines "hello from goroutine", in any order.

fn main() {
    rt::run(|| {
        let (tx, rx) = rt::chan::bounded(1);
        for i in 1..=3 {
            let tx = tx.clone();
            rt::go(move || tx.send(format!("hello from goroutine {i}")));
        }
        drop(tx); // The goroutines have theirs: the last to end closes the channel.
        for line in rx {
            println!("{line}");
        }
    });
}

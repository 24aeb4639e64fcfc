//! The smallest program: goroutines, a channel, a value back.
//!
//! Prints three "hello from goroutine" lines in any order, and the sum of what came over the channel.

fn main() {
    let sum = rt::run(|| {
        let (tx, rx) = rt::chan::bounded(1);
        for i in 1..=3 {
            let tx = tx.clone();
            rt::go(move || {
                println!("hello from goroutine {i}");
                tx.send(i).expect("the receiver is there");
            });
        }
        drop(tx); // The goroutines have theirs: the last to end closes the channel.
        rx.iter().sum::<i32>()
    });
    println!("the sum of what they sent is {sum}");
    assert_eq!(sum, 6);
}

//! The smallest program: a goroutine, a channel, a value back.
//!
//! Prints "hello from goroutine" lines and the sum they computed.

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
        drop(tx);
        rx.iter().sum::<i32>()
    });
    println!("the sum of what they sent is {sum}");
    assert_eq!(sum, 6);
}

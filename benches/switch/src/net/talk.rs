//! What is said through connections, and by whom: for those that wait by blocking. What it means that an answer is right is
//! the same for all.

use super::{ECHO_BUFFER, MESSAGE, STREAM_BUFFER};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The message of a connection's round: no two are alike.
pub fn message(connection: u64, round: u64) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    for (i, word) in message.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(connection << 44 ^ round << 4 ^ i as u64).to_le_bytes());
    }
    message
}

/// Panics unless it is the message that was sent.
pub fn compare(reply: &[u8], connection: u64, round: u64) {
    assert!(
        reply == message(connection, round),
        "connection {connection}, round {round}: not what was sent comes back"
    );
}

/// A client: so many round trips.
pub fn converse(stream: &mut (impl Read + Write), connection: u64, rounds: u64) {
    let mut reply = [0; MESSAGE];
    for round in 0..rounds {
        stream.write_all(&message(connection, round)).expect("the server reads");
        stream.read_exact(&mut reply).expect("the server answers");
        compare(&reply, connection, round);
    }
}

/// An echoing server, until its client closes; how many bytes it has echoed.
pub fn serve(stream: &mut (impl Read + Write)) -> u64 {
    let mut buffer = [0; ECHO_BUFFER];
    let mut echoed = 0;
    loop {
        let len = stream.read(&mut buffer).expect("the client writes");
        if len == 0 {
            return echoed;
        }
        stream.write_all(&buffer[..len]).expect("the client reads");
        echoed += len as u64;
    }
}

/// A server that returns one byte.
pub fn answer(stream: &mut (impl Read + Write)) {
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("the client writes");
    stream.write_all(&byte).expect("the client reads");
}

/// Its client.
pub fn ask(stream: &mut (impl Read + Write), byte: u8) {
    stream.write_all(&[byte]).expect("the server reads");
    let mut reply = [!byte];
    stream.read_exact(&mut reply).expect("the server answers");
    assert_eq!(reply, [byte], "another byte comes back");
}

/// What a stream carries, again and again.
pub fn water() -> Vec<u8> {
    (0..STREAM_BUFFER as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

/// Sends so many bytes; a multiple of the buffer.
pub fn pour(stream: &mut impl Write, bytes: u64) {
    let water = water();
    for _ in 0..bytes / STREAM_BUFFER as u64 {
        stream.write_all(&water).expect("somebody reads");
    }
}

/// Reads to the end.
pub fn drain(stream: &mut impl Read, bytes: u64) {
    let (mut gauge, mut buffer) = (Gauge::new(), vec![0; STREAM_BUFFER]);
    loop {
        let len = stream.read(&mut buffer).expect("somebody writes");
        if !gauge.passes(&buffer[..len]) {
            return gauge.reads(bytes);
        }
    }
}

/// Sees what comes out of a stream.
pub struct Gauge {
    water: Vec<u8>,
    seen: u64,
}

impl Gauge {
    /// Nothing has passed.
    pub fn new() -> Gauge {
        Gauge { water: water(), seen: 0 }
    }

    /// Counts a piece and looks at its ends; false: it is the end.
    pub fn passes(&mut self, piece: &[u8]) -> bool {
        let [first, .., last] = *piece else {
            self.seen += piece.len() as u64;
            return !piece.is_empty();
        };
        let at = |offset: u64| self.water[(offset % STREAM_BUFFER as u64) as usize];
        let end = self.seen + piece.len() as u64;
        assert!(first == at(self.seen) && last == at(end - 1), "another byte comes out, near {end}");
        self.seen = end;
        true
    }

    /// Panics unless so many have passed.
    pub fn reads(&self, bytes: u64) {
        assert_eq!(self.seen, bytes, "not as many bytes come out");
    }
}

/// Keeps a processor busy, without a call into any library.
pub fn compute(stop: &AtomicBool) -> u64 {
    let mut random = 1_u64;
    // ORDER: Relaxed; it orders nothing.
    while !stop.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
    }
    random
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_messages_are_alike() {
        let mut all: Vec<_> = (0..100).flat_map(|i| (0..100).map(move |round| message(i, round))).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100 * 100);
        compare(&message(3, 4), 3, 4);
    }

    #[test]
    #[should_panic(expected = "connection 3, round 4")]
    fn a_wrong_reply_is_found() {
        let mut reply = message(3, 4);
        reply[63] ^= 1;
        compare(&reply, 3, 4);
    }

    #[test]
    fn what_is_poured_is_drained() {
        let mut stream = Vec::new();
        pour(&mut stream, 2 * STREAM_BUFFER as u64);
        // In pieces that fit nothing.
        let mut gauge = Gauge::new();
        stream.chunks(1_000).for_each(|piece| assert!(gauge.passes(piece)));
        assert!(!gauge.passes(&[]));
        gauge.reads(2 * STREAM_BUFFER as u64);
    }

    #[test]
    #[should_panic(expected = "another byte comes out, near 131071")]
    fn a_lost_byte_is_found() {
        let mut stream = Vec::new();
        pour(&mut stream, 2 * STREAM_BUFFER as u64);
        let mut gauge = Gauge::new();
        gauge.passes(&stream[..1_000]);
        gauge.passes(&stream[1_001..]);
    }
}

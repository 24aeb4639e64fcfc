//! Where a goroutine begins, as an entry of the stack table.
//!
//! Go names a goroutine after the function it starts in, which it knows by its address. In Rust that function is a
//! generic shim, often inlined and folded with its twins; its address says nothing. The type's name and the place that
//! called `go` say all, and both are in static memory. A start is therefore two words that no code address can equal:
//! the tagged addresses of a [`Start`] and of a [`Location`].
//!
//! - A1: words with these tags MUST be made by [`encode`] only. Otherwise [`decode`] would follow a stray address. Code
//!   addresses on our targets are below 2^56.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;

const START_TAG: u64 = 0xfe << 56;
const LOCATION_TAG: u64 = 0xfd << 56;
const TAG_MASK: u64 = 0xff << 56;

/// The name of the function that a goroutine starts in.
#[derive(Debug)]
pub struct Start {
    /// Gives the name; a function, because a type's name is not a constant.
    pub name: fn() -> &'static str,
}

pub(crate) fn encode(start: &'static Start, at: &'static Location<'static>) -> [u64; 2] {
    [
        std::ptr::from_ref(start).expose_provenance() as u64 | START_TAG,
        std::ptr::from_ref(at).expose_provenance() as u64 | LOCATION_TAG,
    ]
}

/// The start that the words of a stack-table entry stand for, if they do.
pub(crate) fn decode(words: &[u64]) -> Option<(&'static Start, &'static Location<'static>)> {
    let &[s, l] = words else { return None };
    if s & TAG_MASK != START_TAG || l & TAG_MASK != LOCATION_TAG {
        return None;
    }
    // SAFETY: A1: words with both tags come from encode(), which took them from references to statics.
    unsafe {
        Some((
            &*std::ptr::with_exposed_provenance::<Start>((s & !TAG_MASK) as usize),
            &*std::ptr::with_exposed_provenance::<Location<'static>>((l & !TAG_MASK) as usize),
        ))
    }
}

/// The PC under which the stream shows a start: a name of the place itself, since tools merge what shares a PC, over all
/// generations. No code address has its top byte.
pub(crate) fn pc(name: &str, at: &Location<'_>) -> u64 {
    let mut h = DefaultHasher::new();
    (name, at.file(), at.line()).hash(&mut h);
    START_TAG | (h.finish() & !TAG_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        static START: Start = Start { name: || "app::worker" };
        let here = Location::caller();
        let words = encode(&START, here);
        let (s, l) = decode(&words).expect("a start");
        assert_eq!((s.name)(), "app::worker");
        assert_eq!(l, here);
        assert!(decode(&[0x5555_0000_1000, 0x5555_0000_2000]).is_none());
        assert!(decode(&words[..1]).is_none());
    }
}

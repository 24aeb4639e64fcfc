//! Goroutine stacks: where they lie, how the current one is found, how they are made and kept warm.
//!
//! ```text
//!   arena (one PROT_NONE reservation, NORESERVE)
//!   | 64 KiB stacks ...        | 256 KiB stacks ...       | 1 MiB stacks ...         | 8 MiB stacks ...         |
//!     <- one region per class, all of one size; stacks are aligned to their size ->
//!
//!   one stack:   | guard |  ...  <- grows down  ... | Header |
//!                low                                      top = low + class size
//! ```
//!
//! - A1: an address inside the arena tells its class from its region, and so its stack's top by masking. The word before the
//!   top names the goroutine. So the fault handler finds the goroutine of an address, and where threads have no word for theirs
//!   (see [`crate::prim::current`]) a goroutine finds itself by its stack pointer.
//! - A2: the lowest pages of a stack are a guard. Where the kernel has MADV_GUARD_INSTALL (Linux 6.13) it costs no mapping;
//!   otherwise mprotect splits the mapping, and `vm.max_map_count` bounds the number of stacks.
//! - A3: a stack that was used stays warm: it keeps its pages and its suspended coroutine, and is handed out again as it is. Nothing is
//!   given back to the kernel when a goroutine ends (16 us and a TLB shootdown); a trim does that for those that lay idle for a while, in
//!   batches, neighbours together ([`crate::sched::trim`]).
//! - A6: a trim makes stacks cold: they give back all their pages, header included, and are made anew when they are handed out again. The
//!   coroutine is forgotten, as it may be (C1, C3): it stands in the outermost frame of its body, and neither that nor
//!   the header owns anything. Guards stay as they are. Page tables stay, too: 8 bytes for each page of a stack.
//! - A5: the header's place in the top page depends on the stack's index (its colour). With all headers at the same offset, a
//!   thousand goroutines that take turns would meet in one set of the cache.
//! - A4: a stack is in exactly one place: bound to a goroutine, in a P's cache, among its region's warm or cold ones, or in
//!   the hands of a trim.
//!
//! Rejected: one mapping per stack (dies at 32,750 with the default map count); segmented or copied stacks (Rust has
//! pointers into frames).

pub(crate) mod arena;
pub(crate) mod header;
pub(crate) mod overflow;

use std::io;

/// How many size classes there are.
pub(crate) const CLASSES: usize = 4;
const _: () = assert!(CLASSES.is_power_of_two());

/// The size classes, in bytes.
pub(crate) const CLASS_BYTES: [usize; CLASSES] = [64 << 10, 256 << 10, 1 << 20, 8 << 20];

/// Index into [`CLASS_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The class of a goroutine that asks for nothing.
    pub(crate) const DEFAULT: Class = Class(1);

    /// The smallest class that holds `bytes`.
    pub(crate) fn for_bytes(bytes: usize) -> io::Result<Class> {
        // With pages of 64 KiB the guard would be all of the smallest class.
        let least = 4 * arena::guard_bytes();
        let Some(i) = CLASS_BYTES.iter().position(|&c| bytes <= c && least <= c) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("stack size {bytes} is more than the largest, {} bytes", CLASS_BYTES[CLASS_BYTES.len() - 1]),
            ));
        };
        Ok(Class(i as u8))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) fn bytes(self) -> usize {
        // The mask says what is so in any case, without a branch: this is asked at each event.
        CLASS_BYTES[self.index() & (CLASSES - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up() {
        assert_eq!(Class::for_bytes(0).unwrap().bytes(), 64 << 10);
        assert_eq!(Class::for_bytes(1).unwrap().bytes(), 64 << 10);
        assert_eq!(Class::for_bytes(10_000).unwrap().bytes(), 64 << 10);
        assert_eq!(Class::for_bytes((64 << 10) + 1).unwrap().bytes(), 256 << 10);
        assert_eq!(Class::for_bytes(8 << 20).unwrap().bytes(), 8 << 20);
        let e = Class::for_bytes((8 << 20) + 1).unwrap_err();
        assert!(e.to_string().contains("8388608"), "{e}");
    }
}

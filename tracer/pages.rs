//! A buffer with holes: it may become as large as a generation of a trace, and what is not written takes no memory.
//!
//! Address space is set aside for all that there can be, so it grows where it stands, and nothing is cleared or copied for that.
//!
//! - B1: all of `[at, at + RESERVED)` is one mapping of ours, private and anonymous, readable and writable. It is initialised at any time:
//!   zeros, or what was written.
//! - B2: `len <= RESERVED`.
//!
//! # Rejected
//! - To map the file: its bytes would not even be copied. But a file that somebody cuts meanwhile ends the process that has it mapped.
//! - Huge pages: the faults become few, and the time stays the same, as it is the clearing that takes it.

use std::ops::{Deref, DerefMut};

/// A vector of bytes that only grows and shrinks at its end.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// A small one, or where there is nothing else.
    Heap(Vec<u8>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    Mapped(mapped::Mapped),
}

/// From how many bytes on. Below, it is not worth a mapping.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
const MAPPED_FROM: usize = 1 << 20;

impl Buffer {
    pub(crate) fn new() -> Buffer {
        Buffer::Heap(Vec::new())
    }

    /// Makes it this long. What is new at its end is initialised, and may be anything.
    pub(crate) fn resize(&mut self, len: usize) {
        match self {
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Buffer::Heap(vec) if len > MAPPED_FROM.max(vec.len()) => match mapped::Mapped::new() {
                Some(mut mapped) => {
                    mapped.resize(len);
                    mapped[..vec.len()].copy_from_slice(vec);
                    *self = Buffer::Mapped(mapped);
                }
                None => vec.resize(len, 0),
            },
            Buffer::Heap(vec) => vec.resize(len, 0),
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Buffer::Mapped(mapped) => mapped.resize(len),
        }
    }

    /// Gives back to the system what lies behind its end.
    pub(crate) fn shrink_to_fit(&mut self) {
        match self {
            Buffer::Heap(vec) => vec.shrink_to_fit(),
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Buffer::Mapped(mapped) => mapped.shrink_to_fit(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Heap(vec) => vec,
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Buffer::Mapped(mapped) => mapped,
        }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Heap(vec) => vec,
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Buffer::Mapped(mapped) => mapped,
        }
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod mapped {
    use std::ops::{Deref, DerefMut};
    use std::ptr::NonNull;

    /// Address space for the largest buffer there can be.
    const RESERVED: usize = 4 << 30;

    #[derive(Debug)]
    pub(crate) struct Mapped {
        at: NonNull<u8>,
        len: usize,
    }

    // SAFETY: plain memory, which the value owns as a `Vec` does its own.
    unsafe impl Send for Mapped {}
    // SAFETY: as above; through a shared one it is only read.
    unsafe impl Sync for Mapped {}

    impl Mapped {
        /// An empty one; `None` if the system has no address space for it.
        pub(crate) fn new() -> Option<Mapped> {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), RESERVED, prot, flags, -1, 0) };
            if at == libc::MAP_FAILED {
                return None;
            }
            // With huge pages the holes would be filled.
            // SAFETY: advice about a mapping of our own; nothing but memory depends on whether the kernel follows it.
            unsafe { libc::madvise(at, RESERVED, libc::MADV_NOHUGEPAGE) };
            Some(Mapped { at: NonNull::new(at.cast())?, len: 0 })
        }

        /// # Panics
        ///
        /// If it is to be longer than 4 GiB.
        pub(crate) fn resize(&mut self, len: usize) {
            assert!(len <= RESERVED, "a buffer of {len} bytes");
            self.len = len;
        }

        pub(crate) fn shrink_to_fit(&mut self) {
            const PAGE: usize = 64 << 10; // Of the largest that systems have.
            let from = self.len.next_multiple_of(PAGE);
            // SAFETY: B1 and B2: the rest of our mapping, in whole pages; behind `len` nobody has a reference. Afterwards it is zeros.
            unsafe { libc::madvise(self.at.as_ptr().add(from).cast(), RESERVED - from, libc::MADV_DONTNEED) };
        }
    }

    impl Deref for Mapped {
        type Target = [u8];

        #[inline]
        fn deref(&self) -> &[u8] {
            // SAFETY: B1, B2; borrowed as `self` is.
            unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
        }
    }

    impl DerefMut for Mapped {
        #[inline]
        fn deref_mut(&mut self) -> &mut [u8] {
            // SAFETY: as in deref(), and `self` is borrowed exclusively.
            unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: B1: the mapping is ours, of this length, and nobody has a reference any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), RESERVED) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_and_growing_again() {
        let mut buffer = Buffer::new();
        for len in [3 << 20, 2 << 20, 1 << 10, 5 << 20, 0, 2 << 20] {
            buffer.resize(len);
            buffer.shrink_to_fit();
            assert_eq!(buffer.len(), len);
            buffer.fill(1);
        }
        // Where the system has had no room for a mapping, and has some now.
        let mut buffer = Buffer::Heap(vec![2; 4 << 20]);
        buffer.resize(2 << 20);
        buffer.resize(5 << 20);
        assert_eq!((buffer[0], buffer[(2 << 20) - 1]), (2, 2));
    }

    #[test]
    fn what_was_written_stays() {
        let mut buffer = Buffer::new();
        let mut written = 0;
        for len in [1, 1000, (1 << 20) - 1, (1 << 20) + 1, 9 << 20, 70 << 20] {
            buffer.resize(len);
            assert_eq!(buffer.len(), len);
            for i in (written..len).step_by(997) {
                buffer[i] = i as u8;
            }
            written = len.next_multiple_of(997);
            assert!((0..len).step_by(997).all(|i| buffer[i] == i as u8), "{len}");
        }
        let len = 10_000_000;
        buffer.resize(len);
        buffer.shrink_to_fit();
        assert!((0..len).step_by(997).all(|i| buffer[i] == i as u8));
        buffer.resize(71 << 20);
        assert_eq!(buffer[70 << 20], 0, "what was given back is zeros");
    }
}

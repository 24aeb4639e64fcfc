//! Address space that is reserved, made usable and given back, by the page.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of a page: 4 KiB to 64 KiB.
#[inline]
pub(crate) fn page_bytes() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf reads a constant.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        known => known,
    }
}

/// Reserves so many bytes of address space, for ever; answers where they begin. They cannot be touched yet.
pub(crate) fn reserve(bytes: usize) -> io::Result<usize> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            if cfg!(miri) { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE },
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE },
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the range is the mapping just made. A refusal only costs memory: a huge page stays in use for as long as anything in it.
    unsafe {
        libc::madvise(p, bytes, libc::MADV_NOHUGEPAGE);
    }
    Ok(p.expose_provenance())
}

/// Makes a part of a reservation usable; it holds zeros.
pub(crate) fn make_usable(begin: usize, bytes: usize) -> io::Result<()> {
    // Miri knows no mprotect: there everything is usable.
    if cfg!(miri) {
        return Ok(());
    }
    let p = std::ptr::with_exposed_provenance_mut(begin);
    // SAFETY: the range is part of a reservation, and nobody uses it yet.
    match unsafe { libc::mprotect(p, bytes, libc::PROT_READ | libc::PROT_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the pages back to the kernel. What they held is lost, or not: who uses them again must not rely on either. Guards in the range
/// stay, of either kind.
///
/// # Safety
///
/// The range is whole pages of a reservation, and nobody else touches it meanwhile.
pub(crate) unsafe fn give_back(begin: usize, bytes: usize) {
    // Where DONTNEED is no more than a hint.
    let advice = if cfg!(target_os = "linux") { libc::MADV_DONTNEED } else { libc::MADV_FREE };
    // SAFETY: passed on to the caller. A refusal (locked pages) only costs memory.
    unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(begin), bytes, advice) };
}

/// Gives the pages back to the kernel. From then on they hold zeros; meanwhile others may read, and find zeros or what was there.
///
/// # Safety
///
/// The range is whole usable pages of a reservation. Nobody writes to it meanwhile, and whoever reads does so by atomics and is content with
/// zeros.
pub(crate) unsafe fn give_back_zeroed(begin: usize, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: passed on to the caller.
        let r = unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(begin), bytes, libc::MADV_DONTNEED) };
        if r == 0 {
            return;
        }
    }
    // Elsewhere, or where the pages are locked.
    for at in (begin..begin + bytes).step_by(size_of::<u64>()) {
        // SAFETY: in the range; others only read it, by atomics.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(at) }.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_zeroed_and_go_zeroed() {
        let bytes = 3 * page_bytes();
        let p = reserve(bytes).unwrap();
        make_usable(p, bytes).unwrap();
        let at = |i: usize| std::ptr::with_exposed_provenance_mut::<u64>(p + i);
        for i in (0..bytes).step_by(1024) {
            // SAFETY: within the mapping, aligned, and the test's own.
            unsafe {
                assert_eq!(at(i).read_volatile(), 0);
                at(i).write_volatile(7);
            }
        }
        // SAFETY: whole pages of the test's own.
        unsafe { give_back_zeroed(p + page_bytes(), page_bytes()) };
        for i in (0..bytes).step_by(1024) {
            let middle = (page_bytes()..2 * page_bytes()).contains(&i);
            // SAFETY: as above.
            assert_eq!(unsafe { at(i).read_volatile() }, if middle { 0 } else { 7 });
        }
    }
}

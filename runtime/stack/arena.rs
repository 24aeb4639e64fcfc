//! The reservation, the slabs in it, and the free lists.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::stack::header::StackRef;
use crate::stack::{CLASS_BYTES, Class};

/// The region size that is tried first, per class: room for four million default stacks.
const REGION_BYTES_WANTED: usize = 1 << 40;
/// Below this a region is of no use.
const REGION_BYTES_MIN: usize = 1 << 30;
/// Address space made usable at a time.
const SLAB_BYTES: usize = 128 << 20;
/// Warm stacks per class that stay warm; a trim takes the pages of the rest.
const WARM_MAX: usize = 1024;

/// The one reservation of the process.
pub(crate) struct Arena {
    /// Lowest address; `usize::MAX` before there is a reservation, so that no stack pointer lies in it.
    pub(crate) base: AtomicUsize,
    /// Bytes of all regions.
    pub(crate) bytes: AtomicUsize,
    /// log2 of a region's bytes.
    pub(crate) region_shift: AtomicU32,
    regions: [Mutex<Region>; CLASS_BYTES.len()],
    guard: AtomicU8,
    live: AtomicUsize,
    exhausted: AtomicBool,
}

struct Region {
    /// Stacks never used: from here to `usable_end`.
    next: usize,
    usable_end: usize,
    end: usize,
    free: Vec<StackRef>,
    /// The first so many of `free` have given their pages back.
    cold: usize,
}

/// Why there is no stack.
enum NoStack {
    /// The class's region is full.
    AddressSpace(usize),
    /// The kernel refused what was tried.
    Kernel(&'static str, io::Error),
}

const GUARD_UNKNOWN: u8 = 0;
const GUARD_MADVISE: u8 = 1;
const GUARD_MPROTECT: u8 = 2;

/// MADV_GUARD_INSTALL, Linux 6.13.
const MADV_GUARD_INSTALL: libc::c_int = 102;

pub(crate) static ARENA: Arena = Arena {
    base: AtomicUsize::new(usize::MAX),
    bytes: AtomicUsize::new(0),
    region_shift: AtomicU32::new(0),
    regions: [const { Mutex::new(Region { next: 0, usable_end: 0, end: 0, free: Vec::new(), cold: 0 }) }; 4],
    guard: AtomicU8::new(GUARD_UNKNOWN),
    live: AtomicUsize::new(0),
    exhausted: AtomicBool::new(false),
};

impl Arena {
    /// Makes the reservation. Called once, before the first goroutine.
    pub(crate) fn init(&self) -> io::Result<()> {
        if self.bytes.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let mut region = REGION_BYTES_WANTED;
        let alignment = CLASS_BYTES[CLASS_BYTES.len() - 1];
        let base = loop {
            let bytes = region * CLASS_BYTES.len() + alignment;
            // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
            let p = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if p != libc::MAP_FAILED {
                break (p as usize).next_multiple_of(alignment);
            }
            let e = io::Error::last_os_error();
            region /= 2;
            if region < REGION_BYTES_MIN {
                return Err(io::Error::new(
                    e.kind(),
                    format!("cannot reserve {bytes} bytes of address space for stacks: {e} (is `ulimit -v` set?)"),
                ));
            }
        };
        for (i, r) in self.regions.iter().enumerate() {
            let mut r = r.lock();
            r.next = base + i * region;
            r.usable_end = r.next;
            r.end = r.next + region;
        }
        #[cfg(target_os = "linux")]
        // SAFETY: the range is the mapping just made. A refusal only costs memory.
        unsafe {
            libc::madvise(base as *mut _, region * CLASS_BYTES.len(), libc::MADV_NOHUGEPAGE);
        }
        if std::env::var_os("RT_STACK_GUARD").is_some_and(|v| v == "mprotect") {
            self.guard.store(GUARD_MPROTECT, Ordering::Relaxed);
        }
        self.region_shift.store(region.trailing_zeros(), Ordering::Relaxed);
        // ORDER: `bytes` is published last, with Release, and read first: who sees it sees the base.
        self.base.store(base, Ordering::Relaxed);
        self.bytes.store(region * CLASS_BYTES.len(), Ordering::Release);
        Ok(())
    }

    /// A stack of the class: a warm one if there is one, otherwise a new one. The error says what ran out.
    fn take(&self, class: Class) -> io::Result<StackRef> {
        self.take_or(class).map_err(|e| self.explain(&e))
    }

    /// A stack of the class, if there is one: for the scheduler, which has nobody to tell.
    pub(crate) fn take_quietly(&self, class: Class) -> Option<StackRef> {
        self.take_or(class).ok()
    }

    fn take_or(&self, class: Class) -> Result<StackRef, NoStack> {
        let mut region = self.regions[class.index()].lock();
        if let Some(s) = region.free.pop() {
            region.cold = region.cold.min(region.free.len());
            return Ok(s);
        }
        let r = self.fresh(&mut region, class);
        drop(region);
        match &r {
            Ok(_) => {
                self.live.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => self.exhausted.store(true, Ordering::SeqCst),
        }
        r
    }

    /// Gives back a stack; its pages stay.
    pub(crate) fn put(&self, s: StackRef) {
        self.regions[s.header().class.index()].lock().free.push(s);
    }

    /// Whether the last attempt to make a stack failed. Spawning asks first, so that the error reaches somebody.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// After [`Arena::is_exhausted`]: tries whether there is a stack now.
    pub(crate) fn probe(&self, class: Class) -> io::Result<()> {
        let s = self.take(class)?;
        self.put(s);
        self.exhausted.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Stacks made so far.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    fn fresh(&self, region: &mut Region, class: Class) -> Result<StackRef, NoStack> {
        let bytes = class.bytes();
        if region.next + bytes > region.usable_end {
            let slab = SLAB_BYTES.max(bytes).min(region.end - region.usable_end);
            if slab < bytes {
                return Err(NoStack::AddressSpace(bytes));
            }
            // SAFETY: the range is part of the reservation that was not yet used.
            let r = unsafe { libc::mprotect(region.usable_end as *mut _, slab, libc::PROT_READ | libc::PROT_WRITE) };
            if r != 0 {
                return Err(NoStack::Kernel("making stacks usable", io::Error::last_os_error()));
            }
            region.usable_end += slab;
        }
        let low = region.next;
        self.install_guard(low)?;
        region.next += bytes;
        // SAFETY: the stack is mapped, new, and by the region's lock ours alone.
        Ok(unsafe { StackRef::init(low, class) })
    }

    fn install_guard(&self, low: usize) -> Result<(), NoStack> {
        let bytes = guard_bytes();
        if self.guard.load(Ordering::Relaxed) != GUARD_MPROTECT {
            // SAFETY: the range is the low end of a stack nobody uses; an old kernel answers EINVAL and does nothing.
            let r = unsafe { libc::madvise(low as *mut _, bytes, MADV_GUARD_INSTALL) };
            if r == 0 {
                self.guard.store(GUARD_MADVISE, Ordering::Relaxed);
                return Ok(());
            }
            let e = io::Error::last_os_error();
            if self.guard.load(Ordering::Relaxed) == GUARD_MADVISE {
                return Err(NoStack::Kernel("installing a stack guard", e));
            }
            self.guard.store(GUARD_MPROTECT, Ordering::Relaxed);
        }
        // SAFETY: as above; the pages become inaccessible, which is the purpose.
        if unsafe { libc::mprotect(low as *mut _, bytes, libc::PROT_NONE) } == 0 {
            return Ok(());
        }
        Err(NoStack::Kernel("protecting a stack guard", io::Error::last_os_error()))
    }

    /// Makes the guard at `low` readable, for the fault handler that walks a stack whose pointer lies in it. Answers whether
    /// that worked. Async-signal-safe.
    pub(crate) fn open_guard(&self, low: usize) -> bool {
        const MADV_GUARD_REMOVE: libc::c_int = 103;
        let bytes = guard_bytes();
        // SAFETY: the range is the guard of a stack whose goroutine is about to end with the process; both calls only make
        // it accessible.
        unsafe {
            let removed = libc::madvise(low as *mut _, bytes, MADV_GUARD_REMOVE) == 0;
            // Harmless where the guard was of the other kind.
            let opened = libc::mprotect(low as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0;
            opened && (removed || self.guard.load(Ordering::Relaxed) == GUARD_MPROTECT)
        }
    }

    /// An error that says what ran out and which knob turns it.
    fn explain(&self, e: &NoStack) -> io::Error {
        let live = self.live();
        let text = match e {
            NoStack::AddressSpace(bytes) => {
                format!("no address space for another stack of {bytes} bytes ({live} stacks are in use)")
            }
            NoStack::Kernel(what, e) if e.raw_os_error() == Some(libc::ENOMEM) => {
                let max = std::fs::read_to_string("/proc/sys/vm/max_map_count");
                let max = max.as_deref().map_or("unknown", str::trim);
                format!(
                    "{what} failed: {e} ({live} stacks are in use); each stack costs two memory mappings on this kernel and \
                     vm.max_map_count is {max}: raise it with `sysctl vm.max_map_count=N`, or use a kernel with \
                     MADV_GUARD_INSTALL (Linux 6.13)"
                )
            }
            NoStack::Kernel(what, e) => format!("{what} failed: {e} ({live} stacks are in use)"),
        };
        io::Error::new(io::ErrorKind::OutOfMemory, text)
    }

    /// Gives the pages of idle stacks beyond the warm ones back to the kernel; at most `batch` stacks per call.
    pub(crate) fn trim(&self, batch: usize) {
        for region in &self.regions {
            let mut region = region.lock();
            // The free list is a stack: its bottom was used longest ago.
            let cold_target = region.free.len().saturating_sub(WARM_MAX);
            let until = cold_target.min(region.cold + batch);
            for k in region.cold..until {
                let s = region.free[k];
                let low = s.low() + guard_bytes();
                // The top pages hold the header and the suspended coroutine's frames.
                let keep = guard_bytes();
                let high = (s.top() - keep) & !(keep - 1);
                debug_assert!(high > low);
                // SAFETY: the stack is in the free list (A4), under the region's lock, and nothing below its top pages
                // is live: the coroutine on it is suspended in its outermost function.
                unsafe { libc::madvise(low as *mut _, high - low, libc::MADV_FREE) };
            }
            region.cold = region.cold.max(until);
        }
    }
}

/// Bytes of the guard at the low end of each stack, and of what a trim leaves alone at its top: whole pages, at least 16 KiB.
pub(crate) fn guard_bytes() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: sysconf reads a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let bytes = page.max(16 << 10);
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

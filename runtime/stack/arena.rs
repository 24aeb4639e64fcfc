//! The reservation, the slabs in it, and who is free.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::prim::bits::Bits;
use crate::prim::pages;
use crate::stack::header::StackRef;
use crate::stack::{CLASS_BYTES, Class};

/// The region size that is tried first, per class: room for four million default stacks.
const REGION_BYTES_WANTED: usize = 1 << 40;
/// Below this a region is of no use.
const REGION_BYTES_MIN: usize = 1 << 30;
/// Address space made usable at a time.
const SLAB_BYTES: usize = 128 << 20;
/// Warm stacks per class that a trim leaves alone if they were used lately, and those that it always does. Between the two, it takes
/// half of what lay idle for an interval.
const WARM_MAX: usize = 1024;
const WARM_MIN: usize = 64;

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
    begin: usize,
    end: usize,
    /// Free stacks with their pages and coroutines. The last one in is the first one out, so those in front lie idle longest.
    warm: VecDeque<StackRef>,
    /// The fewest that were in `warm` since the last [`Arena::age`]: so many in front were not used.
    unused: usize,
    /// How many in front are to be given back.
    due: usize,
    /// Free stacks that have given back all their pages, by their index in the region.
    cold: Bits,
    /// A trim has some in its hands.
    trimming: bool,
}

impl Region {
    const NONE: Region = Region {
        next: 0,
        usable_end: 0,
        begin: 0,
        end: 0,
        warm: VecDeque::new(),
        unused: 0,
        due: 0,
        cold: Bits::new(),
        trimming: false,
    };
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
    regions: [const { Mutex::new(Region::NONE) }; CLASS_BYTES.len()],
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
            let e = match pages::reserve(bytes) {
                Ok(p) => break p.next_multiple_of(alignment),
                Err(e) => e,
            };
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
            r.begin = base + i * region;
            r.next = r.begin;
            r.usable_end = r.begin;
            r.end = r.begin + region;
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
        let low = loop {
            let mut region = self.regions[class.index()].lock();
            if let Some(s) = region.warm.pop_back() {
                region.unused = region.unused.min(region.warm.len());
                return Ok(s);
            }
            if let Some(i) = region.cold.pop_first() {
                break region.begin + i * class.bytes();
            }
            let fresh = self.fresh(&mut region, class);
            let trimming = region.trimming;
            drop(region);
            match fresh {
                Ok(low) => {
                    self.live.fetch_add(1, Ordering::Relaxed);
                    break low;
                }
                // There are some, and they come back at once.
                Err(_) if trimming => std::thread::sleep(Duration::from_micros(20)),
                Err(e) => {
                    self.exhausted.store(true, Ordering::SeqCst);
                    return Err(e);
                }
            }
        };
        // SAFETY: the stack is usable above its guard. It is new, or nothing on it is needed any more (A6); and ours alone, since it was
        // taken from its place under the region's lock (A4).
        Ok(unsafe { StackRef::init(low, class) })
    }

    /// Gives back a stack; its pages stay.
    pub(crate) fn put(&self, s: StackRef) {
        self.regions[s.header().class.index()].lock().warm.push_back(s);
    }

    /// Whether the last attempt to make a stack failed. Spawning asks first, so that the error reaches somebody.
    #[inline]
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

    /// Stacks that have given their pages back.
    pub(crate) fn cold(&self) -> usize {
        self.regions.iter().map(|region| region.lock().cold.len()).sum()
    }

    /// The low end of a stack that was never used.
    fn fresh(&self, region: &mut Region, class: Class) -> Result<usize, NoStack> {
        let bytes = class.bytes();
        if region.next + bytes > region.usable_end {
            let slab = SLAB_BYTES.max(bytes).min(region.end - region.usable_end);
            if slab < bytes {
                return Err(NoStack::AddressSpace(bytes));
            }
            pages::make_usable(region.usable_end, slab).map_err(|e| NoStack::Kernel("making stacks usable", e))?;
            region.usable_end += slab;
        }
        let low = region.next;
        self.install_guard(low)?;
        region.next += bytes;
        Ok(low)
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

    /// An interval is over: finds out how many warm stacks were not used in it.
    pub(crate) fn age(&self) {
        for region in &self.regions {
            let mut region = region.lock();
            region.due = match region.unused {
                n if n > WARM_MAX => n - WARM_MAX,
                n => n.saturating_sub(WARM_MIN).div_ceil(2),
            };
            region.unused = region.warm.len();
        }
    }

    /// Gives the pages of up to `most` stacks of a class back that are due; answers of how many. Sysmon's alone.
    pub(crate) fn trim(&self, most: usize) -> usize {
        let mut trimmed = 0;
        let mut batch = Vec::new();
        for (region, &bytes) in self.regions.iter().zip(&CLASS_BYTES) {
            let begin = {
                let mut region = region.lock();
                let n = region.due.min(region.unused).min(most);
                if n == 0 {
                    continue;
                }
                region.due -= n;
                region.unused -= n;
                region.trimming = true;
                batch.clear();
                batch.extend(region.warm.drain(..n).map(|s| s.top() & !(bytes - 1)));
                region.begin
            };
            batch.sort_unstable();
            // Each range costs an interrupt of all processors: the longer, the better. Guards within stay.
            for run in batch.chunk_by(|&a, &b| cfg!(target_os = "linux") && a + bytes == b) {
                let low = run[0] + guard_bytes();
                // SAFETY: whole pages of stacks that are in our hands (A4), and nothing on them is needed (A6).
                unsafe { pages::give_back(low, run[0] + run.len() * bytes - low) };
            }
            trimmed += batch.len();
            let mut region = region.lock();
            region.trimming = false;
            for low in &batch {
                region.cold.insert((low - begin) / bytes);
            }
            let enough = 2 * region.warm.len().max(WARM_MAX);
            if region.due == 0 && region.warm.capacity() > 2 * enough {
                region.warm.shrink_to(enough);
            }
        }
        trimmed
    }
}

/// Bytes of the guard at the low end of each stack: whole pages, at least 16 KiB.
pub(crate) fn guard_bytes() -> usize {
    pages::page_bytes().max(16 << 10)
}

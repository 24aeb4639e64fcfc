//! Stacks that are none: a walk stays inside its bounds, ends, and does not fault, whatever it reads.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 4;

/// Pages of our own between two that cannot be touched.
struct Guarded(usize);

impl Guarded {
    fn new() -> Guarded {
        let (len, flags) = ((PAGES + 2) * PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the inner pages of that mapping.
        let opened =
            unsafe { libc::mprotect(base.wrapping_byte_add(PAGE), PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        Guarded(base as usize + PAGE)
    }

    fn low(&self) -> usize {
        self.0
    }

    fn high(&self) -> usize {
        self.0 + PAGES * PAGE
    }

    fn words(&self) -> &[AtomicUsize] {
        // SAFETY: the pages are ours, aligned, zeroed at first, and used through atomics only.
        unsafe { std::slice::from_raw_parts(self.0 as *const AtomicUsize, PAGES * PAGE / 8) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: our mapping, used no more.
        unsafe { libc::munmap((self.0 - PAGE) as *mut libc::c_void, (PAGES + 2) * PAGE) };
    }
}

struct Rng(u64);

impl Rng {
    fn new() -> Rng {
        let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let seed = std::env::var("RT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(random);
        println!("RT_SEED={seed}");
        Rng(seed | 1)
    }

    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 3) as usize
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() % n
    }

    /// What word number `at` of a stack may hold: noise, small numbers, addresses in and just outside of the stack, and,
    /// so that walks get somewhere, the address of a word a little above, and code.
    fn word(&mut self, at: usize, memory: &Guarded, code: &std::ops::Range<usize>) -> usize {
        match self.below(16) {
            0 => self.next() << 3,
            1 => self.below(100_000),
            2 => usize::MAX - self.below(64),
            3 => memory.low() - 2 * PAGE + self.below((PAGES + 4) * PAGE),
            4..9 => memory.low() + (at + 1 + self.below(8)) * 8,
            _ => code.start + self.below(code.len()),
        }
    }
}

fn code() -> std::ops::Range<usize> {
    method();
    crate::unwind::origin(code as *const () as usize).expect("this program is a module").code
}

#[test]
fn random_words() {
    let rounds = if cfg!(debug_assertions) { 3_000 } else { 60_000 };
    let (memory, code, mut rng) = (Guarded::new(), code(), Rng::new());
    let (mut cache, mut longest) = (Cache::new(), [0; 2]);
    for round in 0..rounds {
        if round % 50 == 0 {
            for (i, w) in memory.words().iter().enumerate() {
                w.store(rng.word(i, &memory, &code), Ordering::Relaxed);
            }
        }
        let bound = |rng: &mut Rng| match rng.below(4) {
            0 => memory.low(),
            1 => memory.high(),
            2 => memory.low() + rng.below(PAGES * PAGE + 1),
            _ => (memory.low() + rng.below(PAGES * PAGE + 1)) & !7,
        };
        let (sp, top) = (bound(&mut rng), bound(&mut rng));
        let pc = code.start + rng.below(code.len());
        let at = sp.saturating_sub(memory.low()) / 8;
        let regs = Regs { pc, sp, fp: rng.word(at, &memory, &code), lr: rng.word(at, &memory, &code) };
        for (i, method) in [Method::FramePointers, Method::Dwarf].into_iter().enumerate() {
            let mut out = [0; 300];
            let room = rng.below(out.len() + 1);
            // SAFETY: [sp, top) lies in the mapping, or is empty.
            let n = unsafe { walk_by(method, regs, top, &mut cache, &mut out[..room]) };
            assert!(n <= room);
            assert!(out[..n].iter().skip(1).all(|pc| (4096..1 << 48).contains(pc)));
            // Frames take at least a word each, but for the first PC's, and a leaf's on aarch64.
            assert!(n <= 1 + usize::from(cfg!(target_arch = "aarch64")) + top.saturating_sub(sp) / 8);
            longest[i] = longest[i].max(n);
        }
    }
    println!("longest walks: {longest:?}");
    assert!(longest.iter().all(|&n| n > 4), "the garbage is too bad to test anything: {longest:?}");
}

/// A chain of frame pointers that leads in a circle, or down.
#[test]
fn circles() {
    let memory = Guarded::new();
    let (words, code) = (memory.words(), code());
    let at = |i: usize| memory.low() + i * 8;
    for (first, second) in [(10, 10), (10, 12), (12, 10), (10, 9), (words.len() - 2, 10), (words.len() - 1, 10)] {
        words.iter().for_each(|w| w.store(code.start + 64, Ordering::Relaxed));
        words[first].store(at(second), Ordering::Relaxed);
        words[second].store(at(first), Ordering::Relaxed);
        let regs = Regs { pc: code.start + 64, sp: memory.low(), fp: at(first), lr: 0 };
        let mut out = [0; 50];
        for method in [Method::FramePointers, Method::Dwarf] {
            // SAFETY: the whole mapping.
            let n = unsafe { walk_by(method, regs, memory.high(), &mut Cache::new(), &mut out) };
            assert!(n <= 50 && (method != Method::FramePointers || n <= 3), "{method:?} {first} {second}: {n}");
        }
    }
}

/// The stack changes under the walk.
#[test]
fn torn() {
    let (memory, code) = (Guarded::new(), code());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new();
            while !stop.load(Ordering::Relaxed) {
                let at = rng.below(memory.words().len());
                memory.words()[at].store(rng.word(at, &memory, &code), Ordering::Relaxed);
            }
        });
        let (mut rng, mut cache, mut out) = (Rng::new(), Cache::new(), [0; 128]);
        let rounds = if cfg!(debug_assertions) { 3_000 } else { 100_000 };
        for _ in 0..rounds {
            let sp = (memory.low() + rng.below(PAGE)) & !7;
            let fp = (sp + rng.below(PAGE)) & !7;
            let regs = Regs { pc: code.start + rng.below(code.len()), sp, fp, lr: 0 };
            for method in [Method::FramePointers, Method::Dwarf] {
                // SAFETY: inside the mapping.
                unsafe { walk_by(method, regs, memory.high(), &mut cache, &mut out) };
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

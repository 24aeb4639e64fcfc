//! Real stacks: chains with inlining, closures, std and C between, depth, and other threads'.

use super::*;
use std::sync::mpsc;

/// Calls `f` with the registers of a frame `depth` calls further in.
#[inline(never)]
pub(super) fn recurse(depth: usize, f: &mut dyn FnMut(Regs)) -> usize {
    if depth == 0 {
        f(Regs::here());
    } else {
        recurse(black_box(depth - 1), f);
    }
    black_box(depth) + 1
}

/// The functions between `regs` and the address `top` by every method of this build; all must agree.
fn agreed(regs: Regs, top: usize) -> Vec<String> {
    let mut s = Symbolizer::new();
    let walks: Vec<_> = methods().into_iter().map(|m| (m, walk_up(m, regs, top))).collect();
    // `top` is inside of the test's frame. aarch64's frame records lie at the low end of frames, so that there the chain
    // leads one or two frames further than the tables.
    let further = if cfg!(target_arch = "aarch64") { 2 } else { 0 };
    let shortest = walks.iter().map(|(_, pcs)| pcs.len()).min().unwrap_or(0);
    for (method, pcs) in &walks {
        let names = format!("{:?} and {:?}", functions(&mut s, pcs), functions(&mut s, &walks[0].1));
        assert_eq!(pcs[..shortest], walks[0].1[..shortest], "{method:?}: {names}");
        assert!(pcs.len() <= shortest + further, "{method:?}: {names}");
    }
    functions(&mut s, &walks.last().expect("no method works").1)
}

/// `found` begins with `expected`.
fn assert_begins(found: &[String], expected: &[&str]) {
    assert!(found.len() >= expected.len() && found.iter().zip(expected).all(|(f, e)| f == e), "{found:?}");
}

type See<'a> = &'a mut dyn FnMut(Regs);

#[inline(never)]
fn leaf(see: See) -> u32 {
    see(Regs::here());
    black_box(1)
}

#[inline(always)]
fn inlined_one(see: See) -> u32 {
    black_box(leaf(see)) + 1
}

#[inline(always)]
fn inlined_two(see: See) -> u32 {
    black_box(inlined_one(see)) + 1
}

#[inline(never)]
fn physical(see: See) -> u32 {
    black_box(inlined_two(see)) + 1
}

#[test]
fn inlining() {
    let top = black_box(0usize);
    let mut found = Vec::new();
    assert_eq!(physical(&mut |regs| found = agreed(regs, &raw const top as usize)), 4);
    assert_begins(&found, &["leaf", "inlined_one", "inlined_two", "physical"]);
}

/// Returns early where it can: an optimiser may leave the frame's set-up to the other way, past Regs::here.
#[inline(never)]
fn early(x: u32, see: See) -> u32 {
    let regs = Regs::here();
    if x == 0 {
        return 1;
    }
    see(regs);
    black_box(x) + 1
}

#[inline(never)]
fn calls_early(x: u32, see: See) -> u32 {
    black_box(early(black_box(x), see)) + 1
}

#[test]
fn no_frame_is_skipped() {
    let top = black_box(0usize);
    let mut found = Vec::new();
    assert_eq!(calls_early(0, &mut |_| unreachable!()), 2);
    assert_eq!(calls_early(1, &mut |regs| found = agreed(regs, &raw const top as usize)), 3);
    assert_begins(&found, &["early", "calls_early"]);
}

#[inline(never)]
fn calls_back(f: impl Fn(u32) -> u32, n: u32) -> u32 {
    black_box(f(black_box(n))) + 1
}

#[test]
fn closure() {
    let top = black_box(0usize);
    let found = std::cell::RefCell::new(Vec::new());
    calls_back(
        |n| {
            leaf(&mut |regs| *found.borrow_mut() = agreed(regs, &raw const top as usize));
            black_box(n)
        },
        7,
    );
    let found = found.into_inner();
    // The closure goes by its function's name; or, with line tables only, by its module's or none.
    let outer = ["closure", "stacks", "{closure#0}"].into_iter().find(|o| found[1] == *o).expect("the closure's name");
    assert_begins(&found, &["leaf", outer, "calls_back"]);
}

#[test]
fn sort_callback() {
    let top = black_box(0usize);
    let mut found = Vec::new();
    let mut values: Vec<u32> = (0..200).map(|i| i * 7919 % 200).collect();
    values.sort_by(|a, b| {
        if found.is_empty() {
            leaf(&mut |regs| found = agreed(regs, &raw const top as usize));
        }
        a.cmp(b)
    });
    assert_begins(&found, &["leaf"]);
    let me = |f: &String| f == "sort_callback";
    assert!(found.iter().any(me), "complete up to this function: {found:?}");
    assert!(found.iter().any(|f| f.contains("sort") && !me(f)), "std's frames are between: {found:?}");
}

/// C code without frame pointers, or with others: the tables must lead through it.
#[cfg(target_os = "linux")]
#[test]
fn qsort_callback() {
    use std::cell::RefCell;
    thread_local!(static FOUND: RefCell<(usize, Vec<usize>)> = const { RefCell::new((0, Vec::new())) });
    #[inline(never)]
    unsafe extern "C" fn compare(a: *const libc::c_void, b: *const libc::c_void) -> libc::c_int {
        FOUND.with_borrow_mut(|(top, pcs)| {
            leaf(&mut |regs| *pcs = walk_up(Method::Dwarf, regs, *top));
        });
        // SAFETY: qsort passes elements of the array of u32 below.
        unsafe { (*a.cast::<u32>()).cmp(&*b.cast::<u32>()) as libc::c_int }
    }
    let top = black_box(0usize);
    FOUND.set((&raw const top as usize, Vec::new()));
    let mut values = [3u32, 1, 2, 9, 4];
    // SAFETY: the array's own length and element size, and a comparison of such elements.
    unsafe { libc::qsort(values.as_mut_ptr().cast(), values.len(), 4, Some(compare)) };
    assert_eq!(values, [1, 2, 3, 4, 9]);
    let (_, pcs) = FOUND.take();
    let mut s = Symbolizer::new();
    let found = functions(&mut s, &pcs);
    assert_begins(&found, &["leaf"]);
    let compare = found.iter().position(|f| f == "compare").unwrap_or_else(|| panic!("{found:?}"));
    let me = found.iter().position(|f| f == "qsort_callback").unwrap_or_else(|| panic!("{found:?}"));
    assert!(me > compare + 1, "libc's frames are between: {found:?}");
    let library = |pc: &&usize| crate::unwind::origin(**pc).is_some_and(|o| o.path.is_some());
    assert!(pcs.iter().filter(library).count() >= 1);
}

/// From a signal handler on its alternate stack, out of the C function that was interrupted, without an allocation.
#[cfg(target_os = "linux")]
#[test]
fn signal_handler() {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
    static WALKER: AtomicPtr<Cache> = AtomicPtr::new(std::ptr::null_mut());
    static TOP: AtomicUsize = AtomicUsize::new(0);
    static FOUND: Mutex<([usize; 64], usize)> = Mutex::new(([0; 64], 0));

    extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: installed with SA_SIGINFO.
        let regs = unsafe { Regs::from_signal(context) };
        let mut found = FOUND.try_lock().expect("one signal");
        let (pcs, n) = &mut *found;
        // SAFETY: the cache was leaked and is this handler's; from the interrupted frame to a local of the test's.
        *n = unsafe {
            walk_by(Method::Dwarf, regs, TOP.load(Ordering::Relaxed), &mut *WALKER.load(Ordering::Relaxed), pcs)
        };
    }

    let top = black_box(0usize);
    TOP.store(&raw const top as usize, Ordering::Relaxed);
    WALKER.store(Box::into_raw(Box::new(Cache::new())), Ordering::Relaxed);
    let mut alternate = vec![0u8; 64 << 10];
    // SAFETY: the alternate stack is in use until it is replaced below, and lives longer; the handler touches nothing but
    // the statics above; nobody else uses this signal, whose disposition is restored.
    unsafe {
        let on = libc::stack_t { ss_sp: alternate.as_mut_ptr().cast(), ss_flags: 0, ss_size: alternate.len() };
        let mut before = on;
        assert_eq!(libc::sigaltstack(&on, &mut before), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGWINCH, &action, &mut old), 0);
        recurse(3, &mut |_| assert_eq!(libc::raise(libc::SIGWINCH), 0));
        assert_eq!(libc::sigaction(libc::SIGWINCH, &old, std::ptr::null_mut()), 0);
        assert_eq!(libc::sigaltstack(&before, std::ptr::null_mut()), 0);
    }
    let (pcs, n) = *FOUND.lock().unwrap();
    let mut s = Symbolizer::new();
    // The first PC is exact.
    let mut found = functions(&mut s, &[pcs[0] + 1]);
    assert!(crate::unwind::origin(pcs[0]).is_some_and(|o| o.path.is_some()), "interrupted in libc: {found:?}");
    found.extend(functions(&mut s, &pcs[1..n]));
    assert_eq!(found.iter().filter(|f| *f == "recurse").count(), 4, "{found:?}");
    assert!(found.iter().any(|f| f == "signal_handler"), "{found:?}");
}

/// Through a signal frame: the kernel saved the registers on the stack, and the table says where by expressions.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn through_a_signal_frame() {
    use std::sync::Mutex;
    static FOUND: Mutex<(usize, Vec<usize>)> = Mutex::new((0, Vec::new()));

    #[inline(never)]
    extern "C" fn signalled(_: libc::c_int) {
        let mut found = FOUND.try_lock().expect("one signal");
        // Allocates, which is all right for a signal that is raised by a call.
        found.1 = walk_up(Method::Dwarf, Regs::here(), found.0);
        black_box(&found);
    }

    let top = black_box(0usize);
    FOUND.lock().unwrap().0 = &raw const top as usize;
    // SAFETY: the handler runs inside raise(), on this thread; nobody else uses this signal, whose disposition is restored.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = signalled as *const () as usize;
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGURG, &action, &mut old), 0);
        recurse(3, &mut |_| assert_eq!(libc::raise(libc::SIGURG), 0));
        assert_eq!(libc::sigaction(libc::SIGURG, &old, std::ptr::null_mut()), 0);
    }
    let found = functions(&mut Symbolizer::new(), &FOUND.lock().unwrap().1);
    assert_begins(&found, &["signalled"]);
    assert_eq!(found.iter().filter(|f| *f == "recurse").count(), 4, "{found:?}");
    assert!(found.iter().any(|f| f == "through_a_signal_frame"), "{found:?}");
}

/// A walk yields at most as many PCs as there is room for, and those are the first of the whole walk.
#[test]
fn depth() {
    let top = black_box(0usize);
    let top = &raw const top as usize;
    recurse(40, &mut |regs| {
        for method in methods() {
            let whole = walk_up(method, regs, top);
            assert!(whole.len() >= 41, "{method:?}: {}", whole.len());
            for room in 0..whole.len() + 3 {
                let mut out = vec![1; room];
                // SAFETY: from a live frame to a live local.
                let n = unsafe { walk_by(method, regs, top, &mut Cache::new(), &mut out) };
                assert_eq!(n, room.min(whole.len()));
                assert_eq!(out[..n], whole[..n]);
                assert!(out[n..].iter().all(|&w| w == 1), "nothing is written past the answer");
            }
        }
    });
}

/// A frame's registers stay good while the frame lives, whatever its callees do: here another thread walks the stack of
/// one that is blocked far below.
#[test]
fn another_threads_stack() {
    #[inline(never)]
    fn parks(tell: &mpsc::Sender<(Regs, usize, Vec<Vec<usize>>)>, top: usize, wake: &mpsc::Receiver<()>) -> u32 {
        let regs = Regs::here();
        let own = methods().into_iter().map(|m| walk_up(m, regs, top)).collect();
        tell.send((regs, top, own)).unwrap();
        // Blocks, with many frames of std and libc below this one.
        recurse(10, &mut |_| wake.recv().unwrap());
        black_box(1)
    }
    let (tell, told) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let top = black_box(0usize);
        recurse(3, &mut |_| _ = parks(&tell, &raw const top as usize, &woken));
    });
    let (regs, top, own) = told.recv().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let seen: Vec<_> = methods().into_iter().map(|m| walk_up(m, regs, top)).collect();
    wake.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(seen, own, "as the thread itself saw it before it blocked");
    let found = functions(&mut Symbolizer::new(), seen.last().unwrap());
    assert_begins(&found, &["parks"]);
    assert_eq!(found.iter().filter(|f| *f == "recurse").count(), 4, "{found:?}");
}

/// Rules are remembered per PC; walks with a full cache and with an empty one agree.
#[test]
fn a_used_cache_tells_the_same() {
    let top = black_box(0usize);
    let top = &raw const top as usize;
    let mut cache = Cache::new();
    for depth in [0, 3, 9, 3, 0, 30] {
        recurse(depth, &mut |regs| {
            let mut out = [0; 128];
            // SAFETY: from a live frame to a live local.
            let n = unsafe { walk_by(Method::Dwarf, regs, top, &mut cache, &mut out) };
            assert_eq!(out[..n], walk_up(Method::Dwarf, regs, top));
        });
    }
}

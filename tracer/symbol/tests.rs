//! Names of this very program: functions, inlined calls, libraries, and what cannot be named.

use super::*;
use crate::unwind::Regs;
use std::path::Path;

#[inline(never)]
fn here() -> (usize, u32) {
    (std::hint::black_box(Regs::here().pc), line!())
}

#[inline(always)]
fn inlined() -> (usize, u32) {
    (std::hint::black_box(Regs::here().pc), line!())
}

#[inline(never)]
fn calls_inlined() -> ((usize, u32), u32) {
    (inlined(), line!())
}

/// The path of this module, as names have it.
const ME: &str = module_path!();

/// Whether `func` is the inlined function `path`: by its last part alone where the program has only line tables, which
/// leave the rest out.
fn is_inlined(func: &str, path: &str) -> bool {
    func == path
        || path
            .rsplit("::")
            .next()
            .is_some_and(|last| func.contains(last) || func.contains(r"{closure#") && last == "{{closure}}")
            && !cfg!(debug_assertions)
}

#[test]
fn function_file_line() {
    let mut s = Symbolizer::new();
    let (pc, line) = here();
    for is_return_address in [true, false] {
        let frames = s.frames(pc, is_return_address);
        // Regs::here is inlined.
        let frame = frames.last().unwrap();
        assert_eq!(*frame.func, *format!("{ME}::here"), "{frames:?}");
        assert!(frame.file.ends_with("symbol/tests.rs"), "{frames:?}");
        assert_eq!(frame.line, line);
        assert!(is_inlined(&frames[0].func, "tracer::unwind::regs::Regs::here"), "{frames:?}");
    }
    let kept = s.frames(pc, true).as_ptr();
    assert_eq!(s.frames(pc, true).as_ptr(), kept, "the second time from memory");
}

#[test]
fn inlined_calls() {
    let mut s = Symbolizer::new();
    let ((pc, inner_line), outer_line) = calls_inlined();
    let frames = s.frames(pc, true);
    let at = frames.len() - 2;
    assert!(is_inlined(&frames[at].func, &format!("{ME}::inlined")), "{frames:?}");
    assert_eq!(*frames[at + 1].func, *format!("{ME}::calls_inlined"));
    assert_eq!([frames[at].line, frames[at + 1].line], [inner_line, outer_line]);
}

/// S1: at the first byte of a function, a return address belongs to the one before it.
#[test]
fn return_addresses_belong_to_the_call() {
    let mut s = Symbolizer::new();
    let entry = here as *const () as usize;
    assert_eq!(*s.frames(entry, false).last().unwrap().func, *format!("{ME}::here"));
    assert_ne!(*s.frames(entry, true).last().unwrap().func, *format!("{ME}::here"));
    assert_eq!(*s.frames(entry + 1, true).last().unwrap().func, *format!("{ME}::here"));
}

#[test]
fn generic_functions_and_closures() {
    #[inline(never)]
    fn generic<T: Copy>(f: impl Fn(T) -> usize, t: T) -> usize {
        std::hint::black_box(f(t))
    }
    let mut s = Symbolizer::new();
    let pc = generic(|_: u32| std::hint::black_box(Regs::here().pc), 3);
    let frames = s.frames(pc, true);
    // From the optimised function's inside out: Regs::here, the closure, generic (unless that is inlined, too).
    assert!(
        is_inlined(&frames[1].func, &format!("{ME}::generic_functions_and_closures::{{{{closure}}}}")),
        "{frames:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn library_functions() {
    let mut s = Symbolizer::new();
    let frames = s.frames(libc::qsort as *const () as usize, false);
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert!(frames[0].func.contains("qsort"), "{frames:?}");
    assert!(frames[0].file.contains("libc"), "{frames:?}");
}

#[test]
fn unknown_places() {
    let mut s = Symbolizer::new();
    for (pc, name) in [(0x1234, "0x1234"), (usize::MAX - 1, "0xfffffffffffffffe"), (0, "0x0")] {
        let frames = s.frames(pc, false);
        assert_eq!(frames, [Frame { func: name.into(), file: "".into(), line: 0 }]);
    }
    let on_the_stack = &raw const s as usize;
    assert_eq!(s.frames(on_the_stack, true).len(), 1);
    assert!(s.known.is_empty(), "unknown places are not kept");
}

/// S2: the file of an object cannot be read.
#[test]
fn unreadable_object() {
    let mut s = Symbolizer::new();
    let pc = here().0;
    let path = Some(Path::new("/nonexistent/libapp.so"));
    s.objects.push(Object::open(&Origin { code: pc - 100..pc + 100, bias: 0, path }));
    let frames = s.frames(pc, false);
    assert_eq!(frames, [Frame { func: format!("{pc:#x}").into(), file: "/nonexistent/libapp.so".into(), line: 0 }]);
}

/// A program that was deleted while it runs (as after an upgrade) still has its names. In a copy of this program.
#[cfg(target_os = "linux")]
#[test]
fn deleted_program() {
    const MARK: &str = "RT_TEST_DELETE_PROGRAM";
    if std::env::var_os(MARK).is_some() {
        let me = std::env::current_exe().unwrap();
        std::fs::remove_file(&me).unwrap();
        assert!(!me.exists());
        let mut s = Symbolizer::new();
        assert_eq!(*s.frames(here().0, true).last().unwrap().func, *format!("{ME}::here"));
        return;
    }
    let copy = std::env::temp_dir().join(format!("gort-symbol-test-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let test = format!("{}::deleted_program", ME.split_once("::").unwrap().1);
    let out = std::process::Command::new(&copy).args(["--exact", &test]).env(MARK, "1").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(!copy.exists());
}

#[test]
fn frame_pcs_are_distinct() {
    let pcs: Vec<_> = (0..300).map(|depth| frame_pc(0x7fff_1234_5678, depth)).collect();
    assert_eq!(pcs[0], 0x7fff_1234_5678);
    assert_eq!(pcs[1], 0x0100_7fff_1234_5678);
    assert!((0..=0xfd).all(|d| pcs[d] >> 56 == d as u64));
    assert_eq!(pcs[299], pcs[0xfd]);
}

/// A real stack, trimmed. All functions of this crate count as the runtime's; so the program's gets a name of its own.
#[test]
fn trims_a_thread() {
    #[inline(never)]
    #[unsafe(export_name = "body_of_the_program")]
    fn body() -> Vec<u64> {
        let regs = Regs::here();
        let mut pcs = [0usize; 64];
        let mut cache = unwind::Cache::new();
        // SAFETY: the 2 KiB above `regs` are this thread's stack, which began far higher.
        let n = unsafe { unwind::walk_by(unwind::Method::Dwarf, regs, regs.sp + 2048, &mut cache, &mut pcs) };
        std::hint::black_box(pcs[..n].iter().map(|&pc| pc as u64).collect())
    }
    let pcs = std::thread::spawn(|| std::hint::black_box(body())).join().unwrap();
    assert!(pcs.len() > 4, "the thread's beginning was captured");
    let mut s = Symbolizer::new();
    let frames = trimmed(&mut s, &pcs);
    // (With line tables only, the closure of this test is a name without a path, which is the program's.)
    let names: Vec<_> = frames.iter().map(|f| &*f.func).filter(|f| *f != "{closure#0}").collect();
    assert_eq!(names, [&*s.frames(pcs[0] as usize, true)[0].func, "body_of_the_program"]);
    assert_eq!([frames[0].pc, frames[1].pc], [frame_pc(pcs[0] as usize, 1), pcs[0]]);
}

/// Run with `--release -- --ignored --nocapture bench`.
#[test]
#[ignore = "a measurement"]
fn bench() {
    unwind::refresh_modules();
    let code = unwind::origin(here as *const () as usize).unwrap().code;
    let mut s = Symbolizer::new();
    let at = std::time::Instant::now();
    s.frames(code.start + 64, false);
    println!("open the program and its first PC: {:?}", at.elapsed());
    let pcs: Vec<_> = (0..10_000).map(|i| code.start + (code.len() - 64) / 10_000 * i).collect();
    let at = std::time::Instant::now();
    let frames: usize = pcs.iter().map(|&pc| s.frames(pc, true).len()).sum();
    println!("10,000 PCs all over the code, {frames} frames: {:.1} us per PC", at.elapsed().as_micros() as f64 / 1e4);
    let at = std::time::Instant::now();
    pcs.iter().for_each(|&pc| assert!(!s.frames(pc, true).is_empty()));
    println!("again: {:.0} ns per PC", at.elapsed().as_nanos() as f64 / 1e4);
}

#[test]
fn names_without_traits() {
    for (name, short) in [
        ("<rt::net::TcpStream as std::io::Read>::read", "rt::net::TcpStream::read"),
        ("<alloc::vec::Vec<T> as core::ops::Drop<(A, B)>>::drop::{{closure}}", "alloc::vec::Vec<T>::drop::{{closure}}"),
        ("<&T as a::B>::c", "&T::c"),
        ("<fn(A) -> B as a::C>::d", "fn(A) -> B::d"),
        ("<rt::chan::Receiver<i32>>::recv", "<rt::chan::Receiver<i32>>::recv"),
        ("app::main", "app::main"),
        ("<broken as", "<broken as"),
    ] {
        assert_eq!(super::without_trait(name), short);
    }
}

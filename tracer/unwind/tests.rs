//! Walks of real stacks, of other threads' stacks, of garbage; and every row of every table against another unwinder.
//!
//! The walks by frame pointers are checked where the program has some: run the tests with
//! `RUSTFLAGS="-C force-frame-pointers=yes"` as well.

use super::*;
use crate::symbol::Symbolizer;
use std::hint::black_box;

mod garbage;
#[cfg(target_os = "linux")]
mod oracle;
mod stacks;

/// The methods that this build allows.
fn methods() -> Vec<Method> {
    refresh_modules();
    let all = [Method::FramePointers, Method::Dwarf];
    all.into_iter().filter(|&m| probe::finds_chain(m)).collect()
}

/// The stack of `regs` up to `top`, both of this thread.
fn walk_up(method: Method, regs: Regs, top: usize) -> Vec<usize> {
    let mut out = [0; 128];
    // SAFETY: callers pass the registers of a live frame and the address of a local further out.
    let n = unsafe { walk_by(method, regs, top, &mut Cache::new(), &mut out) };
    out[..n].to_vec()
}

/// The functions on a stack, innermost first, without their paths, and without Regs::here.
fn functions(s: &mut Symbolizer, pcs: &[usize]) -> Vec<String> {
    let mut all = Vec::new();
    for &pc in pcs {
        all.extend(s.frames(pc, true).iter().map(|f| {
            let path = f.func.split('<').next().unwrap_or_default();
            path.rsplit("::").find(|p| !p.starts_with('{') && !p.is_empty()).unwrap_or(&f.func).to_owned()
        }));
    }
    all.retain(|f| f != "here");
    all
}

#[test]
fn the_probe_decides() {
    let able = methods();
    assert!(able.contains(&Method::Dwarf) || !cfg!(target_os = "linux"), "tables work on Linux");
    assert_eq!(probe::probe(), able.first().copied().unwrap_or(Method::Off), "frame pointers win");
    println!("this build allows {able:?}");
}

/// In a copy of this process: the environment is read once.
#[cfg(target_os = "linux")]
#[test]
fn the_environment_overrides() {
    const CHILD: &str = "RT_TEST_PRINT_METHOD";
    if std::env::var_os(CHILD).is_some() {
        println!("method: {:?}", method());
        return;
    }
    let test = concat!(module_path!(), "::the_environment_overrides").split_once("::").unwrap().1;
    let ask = |value: Option<&str>| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").env_remove("RT_TRACE_STACKS");
        let out = child.envs(value.map(|v| ("RT_TRACE_STACKS", v))).output().unwrap();
        let method =
            String::from_utf8(out.stdout).unwrap().split_once("method: ").unwrap().1.lines().next().unwrap().to_owned();
        (method, String::from_utf8(out.stderr).unwrap().lines().filter(|l| l.starts_with("gort")).collect::<String>())
    };
    // The probe needs the list of modules, which this process has not made if nothing else ran in it.
    refresh_modules();
    let probed = format!("{:?}", probe::probe());
    assert_eq!(ask(Some("off")), ("Off".into(), String::new()));
    assert_eq!(ask(Some("fp")), ("FramePointers".into(), String::new()));
    assert_eq!(ask(Some("dwarf")), ("Dwarf".into(), String::new()));
    assert_eq!(ask(Some("")), (probed.clone(), String::new()));
    assert_eq!(ask(None), (probed.clone(), String::new()));
    let warning = "gort: RT_TRACE_STACKS=DWARF: expected off, fp or dwarf; choosing automatically";
    assert_eq!(ask(Some("DWARF")), (probed, warning.into()));
}

#[test]
fn off_and_nothing() {
    let here = Regs::here();
    let mut out = [7; 4];
    let mut cache = Cache::new();
    // SAFETY: empty ranges.
    unsafe {
        assert_eq!(walk_by(Method::Off, here, here.sp, &mut cache, &mut out), 0);
        assert_eq!(walk_by(Method::Dwarf, Regs::default(), 0, &mut cache, &mut out), 0);
        assert_eq!(walk_by(Method::Dwarf, here, here.sp, &mut cache, &mut []), 0);
        assert_eq!(walk_by(Method::FramePointers, here, here.sp, &mut cache, &mut []), 0);
        for method in [Method::FramePointers, Method::Dwarf] {
            assert_eq!(
                walk_by(method, here, here.sp, &mut cache, &mut out),
                1,
                "the first PC is known without the stack"
            );
            assert_eq!(out[0], here.pc);
        }
    }
    assert_eq!(out[1..], [7; 3]);
}

#[cfg(target_os = "linux")]
#[test]
fn libraries_come_and_go() {
    use std::ffi::CStr;
    method();
    let open = |name: &CStr| {
        // SAFETY: loading a system library, whose initialisers are harmless.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
    };
    let Some((library, symbol)) = [(c"libm.so.6", c"sinf"), (c"libresolv.so.2", c"ns_name_pton")]
        .into_iter()
        .find_map(|(name, symbol)| Some((open(name), symbol)).filter(|(library, _)| !library.is_null()))
    else {
        println!("no library to load here");
        return;
    };
    // SAFETY: an open library and a C string.
    let code = unsafe { libc::dlsym(library, symbol.as_ptr()) } as usize;
    assert_ne!(code, 0);
    let before = modules::current().unwrap();
    let mut out = [0; 4];
    let mut cache = Cache::new();
    let fresh = before.find(code).is_none();
    if fresh {
        // A walk that meets the unknown code says so. (Nobody else clears the flag meanwhile, unless by a refresh.)
        let regs = Regs { pc: code, ..Regs::here() };
        // SAFETY: 64 bytes of this function's frame and its caller's.
        unsafe { walk_by(Method::Dwarf, regs, regs.sp + 64, &mut cache, &mut out) };
        assert!(modules_stale() || modules::current().unwrap().find(code).is_some());
    }
    refresh_modules();
    let with = modules::current().unwrap();
    let module = with.find(code).expect("the list has the library");
    assert!(module.tables.is_some());
    refresh_modules();
    assert!(std::ptr::eq(with, modules::current().unwrap()), "no new list if nothing changed");
    let main = the_probe_decides as *const () as usize;
    assert!(with.find(main).is_some_and(|m| m.tables.is_some()));
    // SAFETY: nobody uses the library.
    unsafe { libc::dlclose(library) };
    refresh_modules();
    if fresh {
        assert!(modules::current().unwrap().find(code).is_none(), "the list forgets it");
    }
    // Walkers that still have the old list read the old tables.
    let frames = &module.tables.as_ref().unwrap().frames;
    let bases = &module.tables.as_ref().unwrap().bases;
    let mut n = 0;
    let mut entries = gimli::UnwindSection::entries(frames, bases);
    while let Ok(Some(_)) = entries.next() {
        n += 1;
    }
    assert!(n > 3, "{n} entries");
}

/// Run with `--release -- --ignored --nocapture bench`, also with frame pointers.
#[test]
#[ignore = "a measurement"]
fn bench() {
    let top = black_box(0usize);
    let top = &raw const top as usize;
    for depth in [0, 4, 12, 28, 60] {
        stacks::recurse(depth, &mut |regs| {
            for method in methods() {
                let (mut cache, mut out, mut n) = (Cache::new(), [0; 128], 0);
                let mut best = f64::MAX;
                for _ in 0..20 {
                    let at = std::time::Instant::now();
                    for _ in 0..20_000 {
                        // SAFETY: from a live frame to a live local.
                        n = unsafe { walk_by(method, black_box(regs), top, &mut cache, &mut out) };
                        black_box(&out);
                    }
                    best = best.min(at.elapsed().as_nanos() as f64 / 20_000.0);
                }
                println!("{method:?}: {n:3} frames {best:6.1} ns, {:.2} per frame", best / n as f64);
            }
        });
    }
    let at = std::time::Instant::now();
    let mut caches: Vec<_> = (0..100).map(|_| Cache::new()).collect();
    println!("a cache: {:.1} us", at.elapsed().as_nanos() as f64 / 1e5);
    stacks::recurse(4, &mut |regs| {
        let (mut out, mut n) = ([0; 128], 0);
        let at = std::time::Instant::now();
        for cache in &mut caches {
            // SAFETY: from a live frame to a live local.
            n = unsafe { walk_by(Method::Dwarf, regs, top, cache, &mut out) };
        }
        println!("with an empty cache: {:.0} ns per frame", at.elapsed().as_nanos() as f64 / (100 * n) as f64);
    });
}

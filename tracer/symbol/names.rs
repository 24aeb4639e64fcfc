//! What a function's name tells: its crate, and whether that is ours.
//!
//! Names come demangled, from either mangling scheme:
//!
//! ```text
//!   legacy   rt::chan::Receiver<T>::recv            app::main::{{closure}}
//!            <rt::sync::MutexGuard<T> as core::ops::drop::Drop>::drop
//!   v0       <rt::chan::Receiver<i32>>::recv        app::main::{closure#0}
//!            <app::main::{closure#0} as core::ops::function::FnOnce<()>>::call_once
//!   bare     recv<i32>                              {closure#0}<i32>
//! ```

use std::borrow::Cow;

/// A function's name, ready to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    /// It has its whole path, as a mangled name does.
    pub(super) full: bool,
}

/// A name from debug information or a symbol table. A bare one gets the module path that `file` suggests.
pub(super) fn readable(raw: &str, file: &str) -> Name {
    match rustc_demangle::try_demangle(raw) {
        Ok(name) => Name { text: format!("{name:#}"), full: true },
        // An operating system's function, say, or one without a mangled name.
        Err(_) => match module_of(file) {
            Some(module) => Name { text: format!("{module}::{raw}"), full: false },
            None => Name { text: raw.into(), full: false },
        },
    }
}

/// The module that a source file holds, if its path shows the crate: std's, a registry's, or this runtime's.
fn module_of(file: &str) -> Option<String> {
    let file: Cow<str> = if cfg!(windows) { file.replace('\\', "/").into() } else { file.into() };
    let (krate, rest) = standard(&file).or_else(|| own(&file)).or_else(|| registry(&file))?;
    let rest = rest.strip_suffix(".rs")?;
    let mut module = krate;
    for part in rest.split('/').filter(|&p| !matches!(p, "lib" | "main" | "mod" | "")) {
        module.push_str("::");
        module.push_str(part);
    }
    Some(module)
}

/// `/rustc/<hash>/library/core/src/num.rs`, or the same below a toolchain's `lib/rustlib/src/rust/`.
fn standard(file: &str) -> Option<(String, &str)> {
    let library = file.find("/library/").filter(|&at| file.starts_with("/rustc/") || file[..at].ends_with("/rust"))?;
    let (krate, rest) = file[library + "/library/".len()..].split_once("/src/")?;
    (!krate.contains('/')).then(|| (krate.into(), rest))
}

/// The directories of this repository, for its own crates in a workspace.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../");

/// The libraries of this repository: package, library, directory below the package (or the workspace).
const OWN: [(&str, &str, &str); 3] =
    [("gort", "rt", "runtime/"), ("gort-tracer", "tracer", "tracer/"), ("gort-netpoll", "netpoll", "netpoll/")];

/// A file of one of our own crates, from a workspace or a registry.
fn own(file: &str) -> Option<(String, &str)> {
    let workspace = WORKSPACE.strip_suffix("tracer/../").unwrap_or(WORKSPACE);
    OWN.iter().find_map(|&(package, library, dir)| {
        let rest = match file.strip_prefix(workspace) {
            Some(rest) => rest.strip_prefix(dir),
            None => packaged(file)
                .filter(|(name, _)| *name == package)
                .map(|(_, rest)| rest.strip_prefix(dir).unwrap_or(rest)),
        };
        Some((library.to_owned(), rest?))
    })
}

/// `…/registry/src/<index>/<name>-<version>/src/…`: a crate from a registry, whose library we take to be named alike.
fn registry(file: &str) -> Option<(String, &str)> {
    let (name, rest) = packaged(file)?;
    Some((name.replace('-', "_"), rest.strip_prefix("src/").unwrap_or(rest)))
}

/// The package's name, and the path within it.
fn packaged(file: &str) -> Option<(&str, &str)> {
    let (_, below) = file.split_once("/registry/src/")?;
    let mut parts = below.splitn(3, '/').skip(1);
    let (dir, rest) = (parts.next()?, parts.next()?);
    // The version begins after the first hyphen that a digit follows.
    let (at, _) = dir.match_indices('-').find(|&(at, _)| dir[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?;
    Some((&dir[..at], rest))
}

/// Whether a function belongs to this runtime: its crates are `rt`, `tracer` and `netpoll`.
///
/// An implementation belongs to the crate that must have written it: `<rt::chan::Receiver<T> as core::clone::Clone>::clone`
/// to the runtime, `<rt::chan::Receiver<T> as app::Source>::next` to `app`.
pub fn is_runtime(func: &str) -> bool {
    matches!(owner(func), Some("rt" | "tracer" | "netpoll"))
}

/// Whether a function is a mere go-between of the runtime and the program: the standard library, and what the runtime is
/// built on; including the shims that call a closure.
pub(super) fn is_glue(func: &str) -> bool {
    const CRATES: [&str; 10] = [
        "core",
        "alloc",
        "std",
        "corosensei",
        "parking_lot",
        "parking_lot_core",
        "lock_api",
        "crossbeam_deque",
        "crossbeam_epoch",
        "crossbeam_utils",
    ];
    owner(func).is_some_and(|krate| CRATES.contains(&krate)) || is_call_shim(func)
}

/// `<app::main::{closure#0} as core::ops::function::FnOnce<()>>::call_once`: not the closure, but the way there.
fn is_call_shim(func: &str) -> bool {
    implementation(func).is_some_and(|(_, of)| of.starts_with("core::ops::function::Fn"))
}

/// Whether a function is how threads and programs begin, or cannot be told.
pub(super) fn is_start_or_unknown(func: &str) -> bool {
    func.starts_with("0x")
        || matches!(
            func,
            "main" | "_start" | "__rust_try" | "start_thread" | "clone" | "clone3" | "rust_eh_personality"
        )
        || ["__libc_start", "__clone", "stack_init_trampoline", "stack_call_trampoline"]
            .iter()
            .any(|s| func.starts_with(s))
}

/// The crate that wrote a function; `None` for a name without a path.
fn owner(func: &str) -> Option<&str> {
    let Some((ty, of)) = implementation(func) else { return root(func) };
    let (ty, of) = (root(ty), root(of));
    match (ty, of) {
        // Foreign traits can only be implemented for one's own types, and foreign types get only one's own traits.
        (Some(ty), Some("core" | "alloc" | "std")) => Some(ty),
        (Some("core" | "alloc" | "std") | None, Some(of)) => Some(of),
        (Some("rt" | "tracer" | "netpoll"), Some(of)) => Some(of),
        (ty, None) => ty,
        (Some(ty), Some(_)) => Some(ty),
    }
}

/// The two halves of a name that begins `<type as trait>`.
fn implementation(func: &str) -> Option<(&str, &str)> {
    let inside = func.strip_prefix('<')?;
    let (mut depth, mut as_at) = (1usize, None);
    for (at, c) in inside.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            // An arrow is no bracket.
            '>' if inside[..at].ends_with('-') => {}
            '>' | ')' | ']' => depth -= 1,
            ' ' if depth == 1 && as_at.is_none() && inside[at..].starts_with(" as ") => as_at = Some(at),
            _ => {}
        }
        if depth == 0 {
            return as_at.map(|a| (&inside[..a], &inside[a + 4..at]));
        }
    }
    None
}

/// A function's name as a trace has it: `<rt::net::TcpStream as std::io::Read>::read` becomes `rt::net::TcpStream::read`. Go's
/// `pprof` takes what stands in angle brackets for type arguments and leaves it out.
pub fn without_trait(func: &str) -> Cow<'_, str> {
    match implementation(func) {
        // `<`, the type, ` as `, the trait, `>`.
        Some((of, by)) => format!("{of}{}", &func[of.len() + by.len() + 6..]).into(),
        None => func.into(),
    }
}

/// The first part of a path, past what may stand before one: `<&mut rt::chan::Foo>::bar` gives `rt`. `None` for `T`,
/// `u32`, `[u8]` and other names without `::`.
fn root(path: &str) -> Option<&str> {
    let mut path = path;
    while let Some(rest) =
        ["<", "&", "(", "[", "mut ", "*const ", "*mut ", "dyn ", "impl "].iter().find_map(|p| path.strip_prefix(p))
    {
        path = rest;
    }
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(path.len());
    (end > 0 && path[end..].starts_with("::")).then(|| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_names() {
        for ours in [
            "rt::sched::park",
            "rt::chan::Receiver<T>::recv",
            "<rt::chan::Receiver<T>>::recv",
            "<rt::chan::Receiver<alloc::vec::Vec<app::Thing>>>::recv",
            "<rt::sync::MutexGuard<T> as core::ops::drop::Drop>::drop",
            "<&mut rt::chan::IntoIter<u32> as core::iter::traits::iterator::Iterator>::next",
            "rt::chan::<impl core::fmt::Debug for rt::chan::Sender<T>>::fmt",
            "rt::go::<app::main::{closure#0}>",
            "rt::sched::park::{{closure}}",
            "rt::sched::park::{closure#0}",
            "<F as rt::task::Body>::call",
            "<std::net::TcpStream as rt::net::AsFd>::fd",
            "<&T as rt::net::Named>::name",
            "<(A, B) as rt::sync::Tuple>::first",
            "tracer::record::slot::Guard::stack",
            "<netpoll::Poller as core::ops::drop::Drop>::drop",
            "<dyn rt::net::Conn as core::fmt::Debug>::fmt",
        ] {
            assert!(is_runtime(ours), "{ours}");
        }
        for theirs in [
            "rtfoo::park",
            "rt_utils::chan::recv",
            "<rtfoo::A as core::ops::drop::Drop>::drop",
            "app::rt::park",
            "app::main::{{closure}}",
            "<app::Job as rt::task::Body>::call",
            "<rt::chan::Receiver<T> as app::Source>::next",
            "<app::Guard<rt::sync::Mutex<u32>> as core::ops::drop::Drop>::drop",
            "<app::main::{closure#0} as core::ops::function::FnOnce<(rt::chan::Receiver<u32>,)>>::call_once",
            "<alloc::vec::Vec<rt::chan::Sender<u32>> as app::Close>::close",
            "core::ptr::drop_in_place<rt::sync::MutexGuard<u32>>",
            "alloc::vec::Vec<T>::push",
            "rt",
            "rt<u32>",
            "recv<u32>",
            "main",
            "",
            "<",
            "<T",
            "0x55555678",
        ] {
            assert!(!is_runtime(theirs), "{theirs}");
        }
    }

    #[test]
    fn glue_names() {
        for glue in [
            "core::ops::function::FnOnce::call_once",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
            "<app::main::{closure#0} as core::ops::function::FnOnce<()>>::call_once",
            "<fn(u32) -> u32 as core::ops::function::FnMut<(u32,)>>::call_mut",
            "std::panicking::catch_unwind::do_call",
            "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once",
            "corosensei::coroutine::Yielder<Input,Yield>::suspend",
            "core::ptr::drop_in_place<rt::sync::MutexGuard<u32>>",
        ] {
            assert!(is_glue(glue), "{glue}");
        }
        for other in
            ["app::main::{closure#0}", "rt::sched::park", "stdx::f", "<app::A as core::fmt::Debug>::fmt", "main"]
        {
            assert!(!is_glue(other), "{other}");
        }
        assert!(is_start_or_unknown("__libc_start_main_impl") && is_start_or_unknown("0x7f12"));
        assert!(!is_start_or_unknown("app::main") && !is_start_or_unknown("main_loop"));
    }

    #[test]
    fn mangled_names_lose_their_hash() {
        let legacy = readable("_ZN7mycrate6module10W$LT$T$GT$14inlined_method17ha5e56d62f73d22c2E", "src/main.rs");
        assert_eq!(legacy, Name { text: "mycrate::module::W<T>::inlined_method".into(), full: true });
        let v0 = readable("_RNvNtCs1234_7mycrate6module8function", "src/main.rs");
        assert_eq!(v0, Name { text: "mycrate::module::function".into(), full: true });
        assert_eq!(readable("qsort_r", ""), Name { text: "qsort_r".into(), full: false });
    }

    #[test]
    fn bare_names_get_their_module() {
        let registry = "/home/u/.cargo/registry/src/an-index-1949cf8c6b5b557f";
        let own = |file: &str| format!("{}/{file}", env!("CARGO_MANIFEST_DIR").trim_end_matches("/tracer"));
        for (file, expected) in [
            ("/rustc/59807616e1fa/library/core/src/iter/adapters/map.rs".into(), "core::iter::adapters::map::f<u32>"),
            ("/opt/rust/lib/rustlib/src/rust/library/std/src/sys/mod.rs".into(), "std::sys::f<u32>"),
            (format!("{registry}/crossbeam-deque-0.8.8/src/deque.rs"), "crossbeam_deque::deque::f<u32>"),
            (format!("{registry}/sha2-0.10.8/src/lib.rs"), "sha2::f<u32>"),
            (format!("{registry}/gort-0.1.0/runtime/chan/mod.rs"), "rt::chan::f<u32>"),
            (format!("{registry}/gort-tracer-0.1.0/record/slot.rs"), "tracer::record::slot::f<u32>"),
            ("/home/u/app/src/main.rs".into(), "f<u32>"),
            ("/home/u/app/library/core/src/main.rs".into(), "f<u32>"),
            ("src/main.rs".into(), "f<u32>"),
            (String::new(), "f<u32>"),
        ] {
            assert_eq!(readable("f<u32>", &file).text, expected, "{file}");
        }
        // In the repository itself (the tests' harness may live elsewhere).
        if env!("CARGO_MANIFEST_DIR").ends_with("/tracer") {
            assert_eq!(readable("f", &own("runtime/chan/inner.rs")).text, "rt::chan::inner::f");
            assert_eq!(readable("f", &own("tracer/lib.rs")).text, "tracer::f");
            assert_eq!(readable("f", &own("examples/hello.rs")).text, "f");
        }
    }
}

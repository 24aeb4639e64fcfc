//! Stacks as people read them: which frame is of the program.

use std::sync::Arc;

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub func: Arc<str>,
    /// The source file.
    pub file: Arc<str>,
    /// The line in it.
    pub line: u64,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        write!(f, "{} ({file}:{})", self.func, self.line)
    }
}

/// A stack, innermost frame first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The frames.
    pub frames: Vec<Frame>,
    pub(super) user: Option<usize>,
}

impl Stack {
    /// The innermost frame that is not of a library of the runtime or the language; the innermost of all if there is
    /// none.
    pub fn site(&self) -> Option<&Frame> {
        self.user.and_then(|i| self.frames.get(i)).or(self.frames.first())
    }

    /// The outermost frame that is not of such a library: what a goroutine was started with.
    pub fn root(&self) -> Option<&Frame> {
        self.frames.iter().rfind(|frame| !is_library(&frame.func)).or(self.frames.last())
    }
}

/// The function belongs to gort, to its foundations, to Rust's or Go's library, or to the system: not to the program.
pub fn is_library(func: &str) -> bool {
    const CRATES: [&str; 12] = [
        "rt::",
        "tracer::",
        "netpoll::",
        "corosensei::",
        "core::",
        "std::",
        "alloc::",
        "crossbeam",
        "parking_lot",
        "mio::",
        "hashbrown::",
        "test::",
    ];
    // Of Go's library what blocks, so that the line that called it shows.
    const OTHERS: [&str; 19] = [
        "runtime.",
        "runtime/",
        "internal/",
        "sync.",
        "syscall.",
        "sync/atomic.",
        "time.",
        "net.",
        "os.",
        "io.",
        "bufio.",
        "context.",
        "os/exec.",
        "os/signal.",
        "crypto/tls.",
        "__rust",
        "_start",
        "__libc",
        "rust_",
    ];
    // `<&mut rt::Chan as ...>::f` is of rt, too.
    let mut name = func;
    while let Some(rest) =
        ["<", "&", "(", "[", "*const ", "*mut ", "mut ", "dyn ", "impl "].iter().find_map(|p| name.strip_prefix(p))
    {
        name = rest;
    }
    CRATES.iter().chain(&OTHERS).any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_the_program() {
        for func in [
            "rt::chan::Sender<T>::send",
            "<rt::chan::Receiver<T> as core::iter::Iterator>::next",
            "<&rt::net::TcpStream as std::io::Read>::read",
            "corosensei::coroutine::on_stack",
            "core::ops::function::FnOnce::call_once",
            "<alloc::boxed::Box<F> as core::ops::function::FnOnce<A>>::call_once",
            "runtime.gopark",
            "net.(*conn).Read",
            "time.Sleep",
        ] {
            assert!(is_library(func), "{func}");
        }
        for func in [
            "main",
            "ping::main",
            "<app::Server as core::ops::Drop>::drop",
            "rtmp::connect",
            "main.main.func1",
            "net/http.(*conn).serve",
            "timeline.draw",
            "stdlib::x",
        ] {
            assert!(!is_library(func), "{func}");
        }
    }

    #[test]
    fn the_site_is_the_first_frame_of_the_program() {
        let frame = |func: &str| Frame { func: func.into(), file: "/a/b.rs".into(), line: 7 };
        let frames = vec![frame("rt::a"), frame("app::work"), frame("app::root"), frame("std::b")];
        let stack = Stack { frames, user: Some(1) };
        assert_eq!(stack.site().map(ToString::to_string).as_deref(), Some("app::work (b.rs:7)"));
        assert_eq!(stack.root().map(|f| &*f.func), Some("app::root"));
    }
}

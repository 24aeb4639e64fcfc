//! What to show of a stack: the program's part, and the function of ours that it called.
//!
//! ```text
//!   rt::sched::park                        |  inside: how the runtime does it
//!   rt::chan::Inner<T>::recv_slow          |
//!   rt::chan::Receiver<T>::recv            <- shown: what the program called
//!   app::worker                            <- shown
//!   core::iter::Iterator::for_each         <- shown: between two of the program's
//!   app::main::{{closure}}                 <- shown: the goroutine's entry
//!   core::ops::function::FnOnce::call_once |  below: how a goroutine begins
//!   rt::coro::entry                        |
//!   corosensei::unwind::...                |
//! ```
//!
//! T1  Nothing of the program's own MUST be dropped, wherever it stands: a closure inside a generic function of ours is the
//!     program's.
//! T2  A stack MUST keep at least one frame. One without any frame of the program's (a goroutine of the runtime) keeps the
//!     outermost function of ours that is not a beginning.
//! T3  Go-betweens (the standard library, shims) count as ours when ours are on both sides of them.

use super::names::{is_glue, is_runtime, is_start_or_unknown};
use super::{Frame, Symbolizer, frame_pc};
use std::ops::Range;
use std::sync::Arc;

/// One frame of a stack, with the PC that stands for it in a trace ([`frame_pc`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// A PC that no other function's frame has.
    pub pc: u64,
    /// As [`Frame::func`].
    pub func: Arc<str>,
    /// As [`Frame::file`].
    pub file: Arc<str>,
    /// As [`Frame::line`].
    pub line: u32,
}

/// The frames of a stack as [`crate::unwind::walk`] captured it, with inlined calls, trimmed, innermost first. Empty only
/// if `pcs` is.
pub fn trimmed(symbolizer: &mut Symbolizer, pcs: &[u64]) -> Vec<StackFrame> {
    let mut frames = Vec::with_capacity(pcs.len() * 2);
    for &pc in pcs {
        // 64-bit targets only: a word of the table is an address.
        let found = symbolizer.frames(pc as usize, true);
        let depths = (0..found.len()).rev();
        frames.extend(found.iter().zip(depths).map(|(Frame { func, file, line }, depth)| StackFrame {
            pc: frame_pc(pc as usize, depth),
            func: func.clone(),
            file: file.clone(),
            line: *line,
        }));
    }
    let keep = trim(frames.len(), |i| &frames[i].func);
    frames.truncate(keep.end);
    frames.drain(..keep.start);
    frames
}

/// Which frames of a stack to show, of `len`, innermost first; `func` names them. Empty only if `len` is 0.
pub fn trim<'a>(len: usize, func: impl Fn(usize) -> &'a str) -> Range<usize> {
    let ours = |i: usize| is_runtime(func(i));
    let between = |i: usize| is_glue(func(i));
    let end = match (0..len).rev().find(|&i| !ours(i) && !between(i) && !is_start_or_unknown(func(i))) {
        Some(outermost_of_the_program) => outermost_of_the_program + 1,
        // T2: none of the program's.
        None => (0..len).rev().find(|&i| ours(i) && !is_beginning(func(i))).map_or(len, |i| i + 1),
    };
    // The run of ours at the inner end, with what is between them (T3); its last is what the program called.
    let start = (0..end).take_while(|&i| ours(i) || between(i)).filter(|&i| ours(i)).last().unwrap_or(0);
    start..end
}

/// Whether a function of ours is how goroutines and threads begin.
fn is_beginning(func: &str) -> bool {
    func.starts_with("rt::coro::") || func.starts_with("<rt::coro::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stack: &[&str], shown: &[&str]) {
        assert_eq!(&stack[trim(stack.len(), |i| stack[i])], shown, "of {stack:#?}");
    }

    const BEGINNING: [&str; 6] = [
        "core::ops::function::FnOnce::call_once",
        "std::panicking::catch_unwind::do_call",
        "__rust_try",
        "rt::coro::entry",
        "corosensei::unwind::coroutine_func",
        "stack_init_trampoline_return",
    ];

    #[test]
    fn blocked_in_a_channel() {
        for (inside, public) in [
            (["rt::sched::park", "rt::chan::Inner<T>::recv_slow"], "rt::chan::Receiver<T>::recv"),
            (
                ["rt::sched::park::<rt::chan::Wait>", "<rt::chan::Inner<u32>>::recv_slow"],
                "<rt::chan::Receiver<u32>>::recv",
            ),
            (
                ["rt::sched::ready", "rt::sync::Mutex<T>::unlock"],
                "<rt::sync::MutexGuard<T> as core::ops::drop::Drop>::drop",
            ),
        ] {
            let mut stack = inside.to_vec();
            stack.extend([public, "app::worker", "app::main::{{closure}}"]);
            let expected = stack[2..].to_vec();
            stack.extend(BEGINNING);
            check(&stack, &expected);
        }
    }

    #[test]
    fn closures_of_the_program_survive() {
        check(
            &[
                "rt::sched::park",
                "rt::time::sleep",
                "app::run::{closure#0}",
                "rt::scope::scope::<app::run::{closure#0}>",
                "app::run",
            ],
            &["rt::time::sleep", "app::run::{closure#0}", "rt::scope::scope::<app::run::{closure#0}>", "app::run"],
        );
        check(
            &["app::cmp::{{closure}}", "rt::heap::Heap<T>::sift", "app::run", "rt::coro::entry"],
            &["app::cmp::{{closure}}", "rt::heap::Heap<T>::sift", "app::run"],
        );
        // An implementation of our trait for the program's type.
        check(
            &["<app::Job as rt::task::Body>::call", "rt::task::run", "rt::coro::entry"],
            &["<app::Job as rt::task::Body>::call"],
        );
        // Names without a path are the program's.
        check(
            &["rt::sched::park", "recv<u32>", "{closure#0}", "rt::coro::entry"],
            &["rt::sched::park", "recv<u32>", "{closure#0}"],
        );
    }

    #[test]
    fn not_ours() {
        check(&["rtfoo::park", "rtfoo::recv", "app::main"], &["rtfoo::park", "rtfoo::recv", "app::main"]);
        check(&["app::spin", "app::main", "main", "__libc_start_call_main", "0x7f12"], &["app::spin", "app::main"]);
        check(&["memcpy", "app::copy", "rt::coro::entry"], &["memcpy", "app::copy"]);
    }

    /// T3: what lies between two of ours is ours; what lies between ours and the program's is not.
    #[test]
    fn between() {
        check(
            &[
                "corosensei::Yielder::suspend",
                "rt::sched::park",
                "core::ops::function::FnOnce::call_once",
                "rt::chan::recv",
                "app::f",
            ],
            &["rt::chan::recv", "app::f"],
        );
        check(
            &[
                "rt::sched::park",
                "<rt::net::TcpStream as std::io::Read>::read",
                "std::io::BufReader<R>::fill_buf",
                "app::f",
                "std::rt::lang_start",
            ],
            &["<rt::net::TcpStream as std::io::Read>::read", "std::io::BufReader<R>::fill_buf", "app::f"],
        );
        check(
            &[
                "rt::sched::ready",
                "<rt::sync::Guard as core::ops::drop::Drop>::drop",
                "core::ptr::drop_in_place<rt::sync::Guard>",
                "app::f",
            ],
            &[
                "<rt::sync::Guard as core::ops::drop::Drop>::drop",
                "core::ptr::drop_in_place<rt::sync::Guard>",
                "app::f",
            ],
        );
        check(&["core::fmt::write", "app::f"], &["core::fmt::write", "app::f"]);
    }

    /// T2
    #[test]
    fn never_empty() {
        let mut system = vec!["rt::sched::park", "rt::time::sleep", "rt::trace::advancer"];
        system.extend(BEGINNING);
        check(&system, &["rt::trace::advancer"]);
        check(&["rt::sched::park"], &["rt::sched::park"]);
        check(&["rt::coro::entry", "corosensei::x"], &["rt::coro::entry", "corosensei::x"]);
        check(&["core::ops::function::FnOnce::call_once"], &["core::ops::function::FnOnce::call_once"]);
        check(&["0x7fff1234", "0x7fff5678"], &["0x7fff1234", "0x7fff5678"]);
        check(&[], &[]);
    }
}

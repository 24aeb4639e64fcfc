//! What every goroutine is doing, as text.

use std::fmt::Write;

use tracer::record::symbolizer;
use tracer::symbol;
use tracer::unwind::{self, Cache};

use crate::sched::g::{G, Kind};
use crate::sched::slab::SLAB;
use crate::sched::state::{Scan, Status};

/// Frames shown per goroutine.
const FRAMES_MAX: usize = 64;

/// All goroutines that stand still, in Go's form. Those that run are named without a stack.
pub(crate) fn all() -> String {
    let mut out = String::new();
    let mut cache = Cache::new();
    for g in SLAB.iter() {
        one(&mut out, g, &mut cache);
    }
    out
}

fn one(out: &mut String, g: &'static G, cache: &mut Cache) {
    for _ in 0..1000 {
        match g.state.scan() {
            Scan::Nothing => return,
            Scan::Busy => std::thread::yield_now(),
            Scan::Running => {
                let _ = writeln!(
                    out,
                    "goroutine {} [running]:\n\t(running on another thread; stack unavailable)\n",
                    g.id()
                );
                return;
            }
            Scan::Held(status, hold) => {
                if g.marks.is_system() {
                    return;
                }
                // The word is held, so everything of the goroutine stands still; texts are made after it is let go.
                // SAFETY: N2: SCAN is held.
                let name = unsafe { g.name() }.cloned();
                // SAFETY: as above.
                let ((regs, wait), origin) = (unsafe { g.standing() }, g.origin.get());
                let mut frames = [0usize; FRAMES_MAX];
                let n = match g.walk_end() {
                    0 => 0,
                    // SAFETY: as for name; the frame that took the registers is alive while the goroutine stands in it.
                    end => unsafe { unwind::walk_by(unwind::Method::Dwarf, regs, end, cache, &mut frames) },
                };
                let id = g.id();
                drop(hold);
                let _ = write!(out, "goroutine {id} ");
                if let Some(name) = name {
                    let _ = write!(out, "{name:?} ");
                }
                let _ = match status {
                    Status::Waiting if wait.kind == Kind::None => writeln!(out, "[{}]:", wait.reason.text()),
                    Status::Waiting => {
                        writeln!(out, "[{}, on {} at {:#x}]:", wait.reason.text(), wait.kind.text(), wait.object)
                    }
                    Status::Syscall => writeln!(out, "[syscall]:"),
                    _ => writeln!(out, "[runnable]:"),
                };
                stack(out, &frames[..n]);
                if let Some(o) = origin {
                    let _ = write!(out, "created by ");
                    let _ = match o.creator {
                        0 => write!(out, "a thread"),
                        id => write!(out, "goroutine {id}"),
                    };
                    let _ = writeln!(out, " to run {}\n\t{}:{}", (o.start.name)(), o.at.file(), o.at.line());
                }
                out.push('\n');
                return;
            }
        }
    }
}

/// A stack with functions, files and lines, without the runtime's own frames at its ends.
pub(crate) fn stack(out: &mut String, pcs: &[usize]) {
    let words: Vec<u64> = pcs.iter().map(|&pc| pc as u64).collect();
    for f in symbol::trimmed(&mut symbolizer().lock(), &words) {
        let _ = writeln!(out, "{}\n\t{}:{}", f.func, f.file, f.line);
    }
}

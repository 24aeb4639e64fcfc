//! What the program says itself in a trace: tasks, regions, logs. Go's user annotations (`runtime/trace`).
//!
//! - A1: regions of a goroutine MUST end in the reverse order of their begin: Go's reader refuses a file otherwise. So each goroutine has a
//!   list of those that began while something was recorded, and have not ended; one that ends, ends those that began inside it first.
//! - A2: of regions, only what was recorded at its begin is recorded at its end, and by the same goroutine, as the trace knows it: one that was
//!   silent at one of the two is not (E3 in emit.rs). What began while tracing was off has no end in a trace.
//! - A3: a task's number is its own for good, so no reader meets one twice. An end without a begin is fine with readers.
//! - A4: user code (a message's `Display`) runs before the runtime is entered.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use tracer::clock::mono_ns;
use tracer::record::{self, Name};
use tracer::unwind::Regs;
use tracer::wire::cut_string;

use crate::context::Context;
use crate::sched::emit::{self, At, Note};
use crate::sched::park::Inside;
use crate::sched::tripwire::{self, Kind};
use crate::stack::header::current_g;

/// Records a note of the calling goroutine's. Answers `None` if nothing is recorded or the caller is no goroutine; else by which number the trace
/// knows it, 0 if it is silent.
#[inline(never)]
fn note(note: Note<'_>) -> Option<u64> {
    let inside = Inside::enter()?;
    let m = inside.m();
    let guard = m.slot.acquire_if_on()?;
    let mut w = guard.writer()?;
    Some(emit::note(&mut w, m, note, At::on(inside.g(), Regs::here())))
}

/// Whether what the caller says would be recorded: it is a goroutine, and not silent.
fn is_heard() -> bool {
    Inside::enter().is_some_and(|inside| !emit::is_silent(inside.g()))
}

/// The time, if somebody wants to be told of long ones of this kind; otherwise 0.
#[inline]
fn begins(kind: Kind) -> u64 {
    if tripwire::is_set(kind) { mono_ns() } else { 0 }
}

/// What began at `began_ns` has ended, and that is recorded.
#[inline]
fn ended(kind: Kind, name: &'static str, began_ns: u64) {
    if began_ns != 0 && tripwire::is_set(kind) {
        let ns = mono_ns().saturating_sub(began_ns);
        if ns >= tripwire::limit_ns(kind) {
            tripwire::trip_if_long(kind, name, ns, current_g().map_or(0, |g| g.id()));
        }
    }
}

/// Something that the program does for a purpose, across goroutines: a request, a job. `go tool trace` shows how long tasks took, and
/// what was done for each.
///
/// It ends when it is [ended](Task::end) or dropped. What belongs to it is found by way of its [`Context`]: [regions](Region),
/// [logs](log()), tasks inside it.
///
/// ```
/// use rt::trace::{self, Task};
/// use rt::Context;
///
/// rt::run(|| {
///     let (ctx, task) = Task::begin(&Context::background(), "request");
///     let worker = rt::go({
///         let ctx = ctx.clone();
///         move || {
///             let _region = trace::region(&ctx, "parse");
///             trace::log(&ctx, "bytes", 17);
///         }
///     });
///     worker.join().unwrap();
///     task.end();
/// });
/// ```
#[must_use = "a task ends when it is dropped"]
#[derive(Debug)]
pub struct Task {
    number: u64,
    /// 0: nobody asks how long it takes.
    began_ns: u64,
    /// Its begin was left out, and so will be its end.
    silent: bool,
}

/// What a context knows of its task.
struct TaskOf(u64);

/// The task of a context, 0 for none.
fn task_of(ctx: &Context) -> u64 {
    ctx.value::<TaskOf>().map_or(0, |t| t.0)
}

impl Task {
    /// Begins a task, inside the one of `ctx` if that has one. Answers a context that is derived from `ctx` and carries it.
    ///
    /// `name` is the kind of task, by which tools group them: one of a few. It is cut to 1 KiB.
    ///
    /// It is recorded when the caller is a goroutine and a trace is being recorded; an end without a begin is shown by tools, too. Where [only labelled
    /// goroutines](crate::trace::Options::only_labelled) are recorded, the caller of this has to be one, and whoever ends the task.
    pub fn begin(ctx: &Context, name: &str) -> (Context, Task) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let begin = || note(Note::TaskBegin { task: number, parent: task_of(ctx), name: Name::register(name) });
        let silent = record::enabled() && begin() == Some(0);
        (ctx.with_value(TaskOf(number)), Task { number, began_ns: begins(Kind::Task), silent })
    }

    /// Ends it.
    pub fn end(self) {}
}

impl Drop for Task {
    fn drop(&mut self) {
        if record::enabled() && !self.silent {
            note(Note::TaskEnd { task: self.number });
        }
        ended(Kind::Task, "task", self.began_ns);
    }
}

/// A part of a goroutine's work, from [`region`] until this is dropped.
///
/// Regions of a goroutine lie inside each other. Where guards are dropped in another order, one that ends, ends those that
/// began after it.
#[must_use = "a region ends when this is dropped"]
pub struct Region {
    /// Which of the goroutine's regions; 0: nothing was recorded when it began.
    serial: u64,
    /// It belongs to its goroutine.
    _not_send: PhantomData<*mut ()>,
}

/// A region that has not ended (A1).
#[derive(Clone, Copy)]
struct Open {
    serial: u64,
    /// The number of the goroutine under which it was recorded; 0: it was not, as the goroutine was silent (A2).
    g: u64,
    task: u64,
    name: Name,
    /// 0: nobody asks how long it takes.
    began_ns: u64,
}

crate::goroutine_local! {
    static REGIONS: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
    static SERIAL: Cell<u64> = const { Cell::new(0) };
}

/// Begins a region of the calling goroutine, for the task of `ctx` if that has one.
///
/// `name` is the kind of region, by which tools group them: one of a few. It is cut to 1 KiB. While no trace is recorded this costs a
/// load.
///
/// ```
/// use rt::Context;
///
/// rt::run(|| {
///     let region = rt::trace::region(&Context::background(), "sum");
///     let sum: u64 = (1..=10).sum();
///     drop(region);
///     assert_eq!(sum, 55);
/// });
/// ```
#[inline]
pub fn region(ctx: &Context, name: &str) -> Region {
    let serial = if record::enabled() { begin(ctx, name) } else { 0 };
    Region { serial, _not_send: PhantomData }
}

/// Runs `f` in a [`region`].
#[inline]
pub fn with_region<T>(ctx: &Context, name: &str, f: impl FnOnce() -> T) -> T {
    let _region = region(ctx, name);
    f()
}

/// Begins a region; answers its serial number, 0 if nothing is recorded.
#[cold]
pub(super) fn begin(ctx: &Context, name: &str) -> u64 {
    let (task, name) = (task_of(ctx), Name::register(name));
    let Ok(serial) = SERIAL.try_with(|s| s.replace(s.get() + 1) + 1) else { return 0 };
    // The list first: what is recorded has to be on it.
    let open = Open { serial, g: 0, task, name, began_ns: begins(Kind::Region) };
    if REGIONS.try_with(|r| r.borrow_mut().push(open)).is_err() {
        return 0;
    }
    let told = note(Note::RegionBegin { task, name });
    let _ = REGIONS.try_with(|r| {
        let mut all = r.borrow_mut();
        match (told, all.last_mut()) {
            (Some(g), Some(last)) => last.g = g,
            _ => drop(all.pop()),
        }
    });
    told.map_or(0, |_| serial)
}

impl Drop for Region {
    #[inline]
    fn drop(&mut self) {
        if self.serial != 0 {
            end(self.serial);
        }
    }
}

/// Ends a region, and before it those that began after it (A1). Nothing happens if it has ended so.
#[cold]
pub(super) fn end(serial: u64) {
    let is_open =
        REGIONS.try_with(|r| r.borrow().iter().rev().find(|o| o.serial <= serial).is_some_and(|o| o.serial == serial));
    if is_open != Ok(true) {
        return;
    }
    loop {
        let last = REGIONS.try_with(|r| {
            let mut open = r.borrow_mut();
            if open.last().is_some_and(|o| o.serial >= serial) { open.pop() } else { None }
        });
        let Ok(Some(open)) = last else { return };
        if record::enabled() && open.g != 0 {
            note(Note::RegionEnd { g: open.g, task: open.task, name: open.name });
        }
        ended(Kind::Region, "region", open.began_ns);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded = REGIONS.try_with(|r| r.borrow().iter().any(|o| o.serial == self.serial && o.g != 0));
        f.debug_struct("Region").field("recorded", &(recorded == Ok(true))).finish()
    }
}

/// Says something in the trace, for the task of `ctx` if that has one. `category` is one of a few; both are cut to 1 KiB.
///
/// It is recorded when the caller is a goroutine, with labels if [only those](crate::trace::Options::only_labelled) are recorded, and a trace is being
/// recorded. Otherwise `message` is not formatted, and while none is this costs a load.
#[inline]
pub fn log(ctx: &Context, category: &str, message: impl fmt::Display) {
    if record::enabled() {
        log_slow(ctx, category, &message);
    }
}

#[cold]
fn log_slow(ctx: &Context, category: &str, message: &dyn fmt::Display) {
    if emit::only_labelled() && !is_heard() {
        return;
    }
    // A4
    let text = message.to_string();
    note(Note::Log { task: task_of(ctx), category: Name::register(category), message: cut_string(&text) });
}

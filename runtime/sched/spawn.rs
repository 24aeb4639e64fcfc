//! Making goroutines: `go`, the builder, and the first moments of a new G.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use tracer::record::Start;
use tracer::unwind::Regs;

use crate::sched::block::Block;
use crate::sched::emit::{self, At};
use crate::sched::g::{G, GList, Origin};
use crate::sched::labels::LabelSet;
use crate::sched::m::M;
use crate::sched::park::{Caller, Inside};
use crate::sched::slab::{ID_BLOCK, SLAB};
use crate::sched::task::{self, JoinHandle, RawTask};
use crate::sched::{creator, queue, run};
use crate::stack::Class;
use crate::stack::arena::ARENA;

/// Starts a goroutine.
///
/// It runs concurrently with its maker, on whichever processor is free. Dropping the handle detaches it.
///
/// Works from goroutines and from threads; the first call starts the runtime.
///
/// The closure travels by value and passes over the stacks of its maker and of the goroutine: box what is large (tens of
/// kilobytes) before you capture it.
///
/// # Panics
///
/// If no stack can be had, with the words that [`Builder::spawn`] returns as an error. If the runtime cannot be started (see
/// [`Config::run`](crate::Config::run)).
///
/// ```
/// let h = rt::go(|| 6 * 7);
/// assert_eq!(h.join().unwrap(), 42);
/// ```
#[track_caller]
#[inline(never)]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match spawn(Settings::default(), Regs::here(), Location::caller(), f) {
        Ok(handle) => handle,
        Err(e) => panic!("rt::go: {e}"),
    }
}

/// Starts goroutines with settings of their own: a name, a stack size.
///
/// ```
/// let h = rt::Builder::new().name("parser").stack_size(1 << 20).spawn(|| "parsed").unwrap();
/// assert_eq!(h.join().unwrap(), "parsed");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until spawn is called"]
pub struct Builder {
    name: Option<Arc<str>>,
    stack_size: Option<usize>,
    labels: Vec<(String, String)>,
}

impl Builder {
    /// The settings of [`go`].
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the goroutine, for dumps and (as a label) for the trace.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(Arc::from(name.into()));
        self
    }

    /// Sets the stack size in bytes, rounded up to 64 KiB, 256 KiB (the default), 1 MiB or 8 MiB. This is address space:
    /// memory is used as far as the stack is touched.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Adds a label to those that the goroutine inherits; of two values of a key the last one counts. See
    /// [`goroutine::with_labels`](crate::goroutine::with_labels).
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Builder {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Starts the goroutine.
    ///
    /// # Errors
    ///
    /// - [`InvalidInput`](io::ErrorKind::InvalidInput): the stack size is more than 8 MiB.
    /// - [`OutOfMemory`](io::ErrorKind::OutOfMemory): no stack can be had. Where that is the kernel's limit on memory
    ///   mappings, the error names the sysctl, its value, and how many stacks there are.
    #[track_caller]
    #[inline(never)]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn(self.settings()?, Regs::here(), Location::caller(), f)
    }

    pub(crate) fn settings(&self) -> io::Result<Settings<'_>> {
        let class = match self.stack_size {
            Some(bytes) => Class::for_bytes(bytes)?,
            None => Class::DEFAULT,
        };
        Ok(Settings { name: self.name.clone(), class, labels: &self.labels, ..Settings::default() })
    }
}

/// What a new goroutine is like.
pub(crate) struct Settings<'a> {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) class: Class,
    pub(crate) system: bool,
    /// What the trace calls it; the closure's own type if not given.
    pub(crate) start: Option<&'static Start>,
    /// Labels besides those that it inherits.
    pub(crate) labels: &'a [(String, String)],
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Settings { name: None, class: Class::DEFAULT, system: false, start: None, labels: &[] }
    }
}

/// Makes a goroutine and lets it run.
pub(crate) fn spawn<F, T>(
    settings: Settings<'_>,
    regs: Regs,
    at: &'static Location<'static>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if ARENA.is_exhausted() {
        ARENA.probe(settings.class)?;
    }
    let start = settings.start.unwrap_or_else(task::start_of::<F>);
    let (handle, id) = match Caller::here() {
        Caller::Goroutine(inside) => {
            let (raw, handle) = task::new(f, || inside.m().must_p().take_block());
            let me = inside.g();
            let p = inside.m().must_p();
            let g = p.new_g();
            if me.has_stopped() {
                p.makes_later();
            }
            let id = g.id();
            // SAFETY: N2: it is the caller, inside.
            let inherited = unsafe { me.labels() };
            let origin = Origin { start, at, creator: me.id(), stack: creator::of(me, regs) };
            equip(g, settings, raw, origin, inherited);
            announce(&inside, g, regs);
            queue::submit_next(inside.m(), g);
            (handle, id)
        }
        Caller::Thread(_) => {
            run::start_default();
            let (raw, handle) = task::new(f, Block::new);
            let id = from_thread(settings, raw, Origin { start, at, creator: 0, stack: None }, foreign_id());
            (handle, id)
        }
        Caller::Machine(_) | Caller::Monitor(_) => unreachable!("nobody is the runtime itself here"),
    };
    Ok(handle.of(id))
}

/// Makes the first of the runtime's own goroutines, while the runtime is being started.
pub(crate) fn system(f: fn()) {
    let (raw, _) = task::new(f, Block::new);
    let settings = Settings { system: true, ..Settings::default() };
    let origin = Origin { start: task::start_of::<fn()>(), at: Location::caller(), creator: 0, stack: None };
    from_thread(settings, raw, origin, SYSTEM_ID);
}

/// Makes one more of the runtime's own goroutines, by whoever is outside. As one that a thread makes, it is announced by the M that takes it.
#[cfg(feature = "gc")]
pub(crate) fn system_named<F: FnOnce() + Send + 'static>(name: &str, f: F) {
    let (raw, _) = task::new(f, Block::new);
    // The largest stack, of which what is not used is address space only: users' code runs there, as deep as their values are nested.
    let class = Class::for_bytes(8 << 20).unwrap_or(Class::DEFAULT);
    let settings = Settings { system: true, class, name: Some(name.into()), ..Settings::default() };
    let origin = Origin { start: task::start_of::<F>(), at: Location::caller(), creator: 0, stack: None };
    from_thread(settings, raw, origin, foreign_id());
}

/// Makes a goroutine from a thread without a P, and gives its id.
fn from_thread(settings: Settings<'_>, task: RawTask, origin: Origin, id: u64) -> u64 {
    let mut one = GList::new();
    SLAB.take(1, &mut one);
    let g = one.pop_front().expect("the slab gives at least one slot");
    g.recycle(id);
    equip(g, settings, task, origin, None);
    // It stays Idle: the M that takes it announces it, since GoCreate needs a P (V3).
    queue::submit_global(g);
    id
}

#[inline]
fn equip(g: &'static G, settings: Settings<'_>, task: RawTask, origin: Origin, inherited: Option<&Arc<LabelSet>>) {
    g.class.set(settings.class);
    g.marks.set_system(settings.system);
    g.task.set(Some(task));
    g.origin.set(Some(origin));
    // SAFETY: N2: the goroutine is Idle and known to its maker only.
    unsafe {
        *g.name.get() = settings.name;
        g.swap_labels(inherited.cloned());
    }
    if !settings.labels.is_empty() {
        label(g, settings.labels);
    }
}

/// Labels a goroutine besides what it has inherited.
#[cold]
#[inline(never)]
fn label(g: &'static G, more: &[(String, String)]) {
    let more: Vec<(&str, &str)> = more.iter().map(|(k, v)| (&**k, &**v)).collect();
    // SAFETY: N2: the goroutine is Idle and known to its maker only.
    unsafe {
        let labels = LabelSet::with(g.labels().map(|l| &**l), &more);
        g.swap_labels(labels);
    }
}

/// Idle -> Runnable, with its event.
#[inline]
fn announce(inside: &Inside, g: &'static G, regs: Regs) {
    let m = inside.m();
    if m.slot.is_on() { announce_traced(inside, m, g, regs) } else { g.state.create() }
}

/// Apart, since what it needs of registers would be paid for without a trace, too.
#[inline(never)]
fn announce_traced(inside: &Inside, m: &'static M, g: &'static G, regs: Regs) {
    let guard = m.slot.acquire();
    if let Some(mut w) = guard.writer() {
        let o = g.origin.get().expect("just equipped");
        emit::go_create(&mut w, m, g, o.start, o.at, At::on(inside.g(), regs));
    }
    g.state.create();
}

/// The id of the runtime's own goroutine, the advancer: the last of the first block.
const SYSTEM_ID: u64 = ID_BLOCK;

/// Ids, one at a time: for goroutines that threads make, and for [those that begin to exist anew](emit::relabelled).
pub(crate) fn foreign_id() -> u64 {
    use parking_lot::Mutex;
    // The first block, less the id of the runtime's own goroutine: a program's main goroutine is number 1.
    static BLOCK: Mutex<(u64, u64)> = Mutex::new((1, SYSTEM_ID));
    let mut block = BLOCK.lock();
    if block.0 == block.1 {
        let first = SLAB.ids();
        *block = (first, first + ID_BLOCK);
    }
    block.0 += 1;
    block.0 - 1
}

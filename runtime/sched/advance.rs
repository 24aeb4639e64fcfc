//! The advancer: a goroutine of the runtime's own that starts and stops traces and moves them from one generation to the
//! next.
//!
//! ```text
//!   start    begin()  stop the world  publish(first)  [ProcsChange, STWBegin]  start the world  [STWEnd]
//!   advance  every P has a status  census of goroutines  publish(next)  [ProcsChange]  close(old)
//!   attach   start, if tracing is off, or else advance; the subscriber gets the generation that begins then
//!   detach   advance, or stop if it is the last subscriber; the generation that ends then is the last one it gets
//!   procs    stop the world  [STWBegin]  resize  [ProcsChange]  start the world  [STWEnd]
//!   stop     every P has a status  census of goroutines  publish(0)                    close(old, last)
//! ```
//!
//! - V1: before `publish`, every P was named in the old generation (by itself, by a visit, or under the scheduler's lock if
//!   idle), and every goroutine was named in it or is noted (T5). A running one is named through its M, never noted. (Of one that is left out
//!   nothing is written or noted: E3 in emit.rs.)
//! - V2: noted statuses are written after the close, if still nobody named the goroutine. If nobody did, it has not moved
//!   since, so the note is true.
//! - V7: every goroutine with a name or labels tells them in each generation: when it is made or first runs in it, or the census notes
//!   them, for those that are only named, too. Such a note has the time at which it was true, and is written unless the goroutine told
//!   them after all.
//! - V5: GOMAXPROCS changes between advances, by the advancer. So the Ps that a census names are those that there are when it is over.
//! - V3: a goroutine that is Idle is not announced yet: whoever announces it does so in a later guard, and names it then.
//! - V6: a session lasts from the first subscriber to the last. The next one begins when the reader of the last one is through.
//! - V4: a start needs a stopped world, because an M with a P does not announce itself while tracing is off. Otherwise a
//!   move that was made under "off" could fall after the first event that names its goroutine.
//!
//! The advancer runs as a goroutine because ProcsChange and STW events need one (T8). Requests come from any thread and
//! travel through [`submit`]; sysmon reminds it once a second.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracer::clock::mono_ns;
use tracer::record::{self, End, Fixed, StackWalker, Subscriber};
use tracer::unwind::Regs;

use crate::sched::counts::OTHER_PAUSES;
use crate::sched::emit::{self, At};
use crate::sched::g::{G, Kind, Wait};
use crate::sched::p::P;
use crate::sched::park::{Caller, Inside, Turn};
use crate::sched::slab::SLAB;
use crate::sched::world::{self, Stopped};
use crate::sched::{SCHED, census, resize};
use crate::sync::waiter::WaitList;

/// How long a generation lasts.
const GENERATION_NS: u64 = 1_000_000_000;
/// A generation with more bytes than this ends early, so that little waits for the stream.
const GENERATION_BYTES: u64 = 32 << 20;

/// An answer that somebody waits for.
pub(crate) struct Reply<T> {
    value: Mutex<Option<T>>,
    done: AtomicBool,
    waiters: WaitList,
}

impl<T> Reply<T> {
    pub(crate) fn new() -> Arc<Reply<T>> {
        Arc::new(Reply { value: Mutex::new(None), done: AtomicBool::new(false), waiters: WaitList::new() })
    }

    pub(crate) fn set(&self, value: T) {
        *self.value.lock() = Some(value);
        self.done.store(true, Ordering::SeqCst);
        self.waiters.wake_all(Turn::Next);
    }

    pub(crate) fn wait(&self) -> T {
        Caller::here().wait_until(&self.waiters, Fixed::Sync, Kind::Trace, || self.done.load(Ordering::SeqCst));
        self.value.lock().take().expect("a reply is taken once")
    }

    /// As [`Reply::wait`], for so long at most.
    pub(crate) fn wait_timeout(&self, most: Duration) -> Option<T> {
        let until = mono_ns().saturating_add(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
        let done = || self.done.load(Ordering::SeqCst);
        Caller::here().wait_until_time(&self.waiters, Some(until), Fixed::Sync, Kind::Trace, done);
        // It may have come at the last moment.
        self.value.lock().take()
    }
}

enum Request {
    /// A new subscriber, and whether it wants stacks. The answer is its number.
    Attach(Subscriber, Wishes, Arc<Reply<io::Result<u64>>>),
    /// The subscriber with this number has enough. The answer comes when it has got its last generation.
    Detach(u64, Arc<Reply<()>>),
    /// The generation is to end now. The answer comes when all subscribers have got it.
    Flush(Arc<Reply<()>>),
    /// GOMAXPROCS, and where it is asked for: in the frame of a function that waits for the reply.
    Procs(usize, Option<At>, Arc<Reply<usize>>),
}

/// What the advancer waits for.
struct Inbox {
    requests: Mutex<Vec<Request>>,
    /// The goroutine, while it waits.
    waiting: Mutex<Option<&'static G>>,
    /// Sysmon's reminder.
    due: AtomicBool,
}

static INBOX: Inbox =
    Inbox { requests: Mutex::new(Vec::new()), waiting: Mutex::new(None), due: AtomicBool::new(false) };

/// When the present generation began.
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);
/// How long it took to end the one before, without the wait for threads in the middle of an event: that is no work.
static TOOK_NS: AtomicU64 = AtomicU64::new(0);
/// A generation lasts at least so many times as long as it takes to end one, however many bytes it has: with a million goroutines
/// the census is long, and ending would be all that is done.
const SHARE: u64 = 30;

/// Wakes the advancer if it waits.
fn nudge() {
    let waiting = INBOX.waiting.lock().take();
    if let Some(g) = waiting {
        Caller::here().wake(crate::sync::waiter::Waiter::Goroutine(g));
    }
}

/// Hands a request over and waits for its answer.
fn ask<T>(request: impl FnOnce(Arc<Reply<T>>) -> Request) -> T {
    let reply = Reply::new();
    INBOX.requests.lock().push(request(reply.clone()));
    nudge();
    reply.wait()
}

/// What a subscriber wants recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) stacks: bool,
    pub(crate) all_calls: bool,
    pub(crate) only_labelled: bool,
    #[cfg(feature = "gc")]
    pub(crate) heap_objects: bool,
}

/// Adds a subscriber; returns when events are recorded for it, with what it wants. Answers its number.
pub(crate) fn attach(subscriber: Subscriber, wishes: Wishes) -> io::Result<u64> {
    ask(|reply| Request::Attach(subscriber, wishes, reply))
}

/// Takes a subscriber off; returns when it has got its last generation.
pub(crate) fn detach(number: u64) {
    ask(|reply| Request::Detach(number, reply));
}

/// Ends the present generation; returns when all subscribers have got it.
pub(crate) fn flush() {
    ask(Request::Flush);
}

/// Makes GOMAXPROCS `n`, and gives what it was. `at` is in the caller's frame.
pub(crate) fn set_gomaxprocs(n: usize, at: Option<At>) -> usize {
    ask(|reply| Request::Procs(n, at, reply))
}

/// Generations are to end at this many bytes at the latest: [`GENERATION_BYTES`], or less for a small flight recorder.
static BYTES_MAX: AtomicU64 = AtomicU64::new(GENERATION_BYTES);

/// Sysmon's look: reminds the advancer when the generation is old or large. `now` is CLOCK_MONOTONIC.
pub(crate) fn remind(now_ns: u64) {
    let r#gen = record::generation();
    // While the stream is behind, the generation grows; reminding would not help.
    if r#gen == 0 || !record::may_publish(r#gen + 1) {
        return;
    }
    let age_ns = now_ns.saturating_sub(BEGAN_NS.load(Ordering::Relaxed));
    let may_be_cut = age_ns >= TOOK_NS.load(Ordering::Relaxed).saturating_mul(SHARE);
    let is_large = record::fresh_bytes() >= BYTES_MAX.load(Ordering::Relaxed);
    if age_ns >= GENERATION_NS || is_large && may_be_cut {
        INBOX.due.store(true, Ordering::SeqCst);
        let waiting = INBOX.waiting.lock().take();
        if let Some(g) = waiting {
            crate::sched::park::ready_from_outside(crate::sched::sysmon::slot(), g);
        }
    }
}

/// The advancer's life.
pub(crate) fn main() {
    let mut stacks = StackWalker::default();
    let mut session = Session::default();
    loop {
        let request = {
            let mut requests = INBOX.requests.lock();
            if requests.is_empty() { None } else { Some(requests.remove(0)) }
        };
        match request {
            Some(Request::Attach(subscriber, wishes, reply)) => {
                reply.set(session.attach(subscriber, wishes, &mut stacks));
            }
            Some(Request::Detach(number, reply)) => session.detach(number, reply, &mut stacks),
            Some(Request::Flush(reply)) => match record::enabled() {
                true => {
                    wait_for_tables();
                    advance(End { then: vec![Box::new(move || reply.set(()))], ..End::default() }, &mut stacks);
                }
                false => reply.set(()),
            },
            Some(Request::Procs(n, at, done)) => done.set(resize(n, at)),
            None if INBOX.due.swap(false, Ordering::SeqCst) => {
                // Off by now; or the reader is behind, and the generation grows until it has caught up.
                if record::enabled() && record::may_publish(record::generation() + 1) {
                    advance(End::default(), &mut stacks);
                }
            }
            None => wait(),
        }
    }
}

/// Parks until there is something to do.
fn wait() {
    let inside = Inside::enter().expect("the advancer is a goroutine");
    let wait = Wait { reason: Fixed::System, kind: Kind::None, object: 0 };
    inside.park(wait, |_, g| {
        *INBOX.waiting.lock() = Some(g);
        // A request that came before nobody was there to be nudged for; so look once more, now that there is.
        let nothing = INBOX.requests.lock().is_empty() && !INBOX.due.load(Ordering::SeqCst);
        if nothing {
            return true;
        }
        // Whoever took the goroutine off the inbox readies it; if it is still there, it goes on by itself.
        INBOX.waiting.lock().take().is_none()
    });
}

/// What is remembered of a subscriber.
struct Subscribed {
    number: u64,
    /// At how many bytes a generation is to end for its sake.
    bytes_max: u64,
    wishes: Wishes,
}

/// Who gets what is recorded.
#[derive(Default)]
struct Session {
    subscribers: Vec<Subscribed>,
    /// Set when the reader of the last session is through (V6).
    ending: Option<Arc<Reply<()>>>,
}

/// So many generations a flight recorder is to have room for.
const RING_GENERATIONS: u64 = 16;

impl Session {
    fn attach(&mut self, subscriber: Subscriber, wishes: Wishes, stacks: &mut StackWalker) -> io::Result<u64> {
        let bytes_max = match &subscriber {
            Subscriber::Stream(_) => GENERATION_BYTES,
            Subscriber::Ring(ring) => (ring.max_bytes() as u64 / RING_GENERATIONS).clamp(1 << 16, GENERATION_BYTES),
        };
        if self.subscribers.is_empty() {
            if let Some(ending) = self.ending.take() {
                ending.wait();
            }
            self.record_wishes(Some(&wishes));
            begin(wishes.only_labelled)?;
        } else if emit::only_labelled() && !wishes.only_labelled {
            let what = "only goroutines with labels are being recorded: stop that, or ask for Options::only_labelled here, too";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        } else {
            wait_for_tables();
            self.record_wishes(Some(&wishes));
            advance(End::default(), stacks);
        }
        #[cfg(feature = "gc")]
        if wishes.heap_objects {
            tell_objects();
        }
        let number = record::attach(subscriber, record::generation());
        self.subscribers.push(Subscribed { number, bytes_max, wishes });
        self.set_wishes();
        Ok(number)
    }

    fn detach(&mut self, number: u64, reply: Arc<Reply<()>>, stacks: &mut StackWalker) {
        let before = self.subscribers.len();
        self.subscribers.retain(|s| s.number != number);
        if self.subscribers.len() == before {
            return reply.set(());
        }
        let last = self.subscribers.is_empty();
        let mut then: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(move || reply.set(()))];
        if last {
            let through = Reply::new();
            self.ending = Some(through.clone());
            then.push(Box::new(move || through.set(())));
        } else {
            wait_for_tables();
        }
        advance(End { detach: vec![number], then, last }, stacks);
        self.set_wishes();
    }

    /// From now on so much is recorded as all of them want together, and one who is about to be among them.
    fn record_wishes(&self, newcomer: Option<&Wishes>) {
        let any = |of: fn(&Wishes) -> bool| self.subscribers.iter().map(|s| &s.wishes).chain(newcomer).any(of);
        record::set_stacks(any(|w| w.stacks));
        emit::set_all_calls(any(|w| w.all_calls));
    }

    /// What all of them want together.
    fn set_wishes(&self) {
        self.record_wishes(None);
        #[cfg(feature = "gc")]
        if !self.subscribers.iter().any(|s| s.wishes.heap_objects) {
            crate::gc::objects::end();
        }
        let least = self.subscribers.iter().map(|s| s.bytes_max).min().unwrap_or(GENERATION_BYTES);
        BYTES_MAX.store(least, Ordering::Relaxed);
    }
}

/// Waits until the next generation may begin: the one before the present one is being put together.
fn wait_for_tables() {
    while !record::may_publish(record::generation() + 1) {
        crate::time::sleep(Duration::from_micros(200));
    }
}

fn begin(only_labelled: bool) -> io::Result<()> {
    let first = record::begin()?;
    // Both take a while the first time; a stopped world is no place for that.
    tracer::unwind::method();
    tracer::clock::ticks_per_second();
    #[cfg(feature = "gc")]
    let gc = crate::gc::Advancing::begin();
    let inside = Inside::enter().expect("the advancer is a goroutine");
    let stopped = stop_world(&inside);
    BEGAN_NS.store(mono_ns(), Ordering::Relaxed);
    emit::set_only_labelled(only_labelled);
    record::publish(first, std::hint::spin_loop);
    let m = inside.m();
    {
        let guard = m.slot.acquire();
        let mut w = guard.writer().expect("just published");
        emit::procs_change(&mut w, m, SCHED.gomaxprocs());
        emit::run_queues(&mut w);
        #[cfg(feature = "gc")]
        gc.tell(&mut w, m);
        emit::stw_begin(&mut w, m, Fixed::StartTrace, At::on(inside.g(), Regs::here()));
    }
    stopped.start(m);
    Ok(())
}

/// The objects of the collected heap are recorded from now on: those that exist are told, also to somebody who comes later than others.
#[cfg(feature = "gc")]
fn tell_objects() {
    let _gc = crate::gc::Advancing::begin();
    let inside = Inside::enter().expect("the advancer is a goroutine");
    let stopped = stop_world(&inside);
    let m = inside.m();
    if let Some(mut w) = m.slot.acquire().writer() {
        emit::stw_begin(&mut w, m, Fixed::StartTrace, At::on(inside.g(), Regs::here()));
    }
    crate::gc::objects::begin(m);
    stopped.start(m);
}

fn stop_world(inside: &Inside) -> Stopped {
    loop {
        match world::try_stop(inside, &OTHER_PAUSES) {
            Some(stopped) => return stopped,
            None => inside.yield_now(Fixed::Yield),
        }
    }
}

/// Makes GOMAXPROCS `n`. The advancer does it because it stops the world anyway, can say so in the trace (T8), and cannot be in the
/// middle of a census meanwhile, which looks at each P there is.
fn resize(n: usize, at: Option<At>) -> usize {
    #[cfg(feature = "gc")]
    let _gc = crate::gc::Advancing::begin();
    let inside = Inside::enter().expect("the advancer is a goroutine");
    let old = SCHED.gomaxprocs();
    if n == old {
        return old;
    }
    let at = at.unwrap_or_else(|| At::on(inside.g(), Regs::here()));
    let mut stopped = stop_world(&inside);
    let m = inside.m();
    if let Some(mut w) = m.slot.acquire().writer() {
        emit::stw_begin(&mut w, m, Fixed::Gomaxprocs, at);
    }
    resize::resize(&mut stopped, &inside, n);
    if let Some(mut w) = m.slot.acquire().writer() {
        emit::procs_change(&mut w, m, n);
    }
    stopped.start(m);
    old
}

/// Ends the present generation. The next one may begin, or the session ends with this one.
fn advance(end: End, stacks: &mut StackWalker) {
    let r#gen = record::generation();
    assert!(r#gen != 0, "a generation ends while tracing is off");
    let opened_at = record::opened_at();
    let began_ns = mono_ns();
    #[cfg(feature = "gc")]
    let gc = crate::gc::Advancing::begin();
    let inside = Inside::enter().expect("the advancer is a goroutine");
    name_ps(&inside, r#gen);
    let still = SLAB.hold_still();
    let noted = census::take(&inside, &still, r#gen, stacks);
    // The census gave others a turn now and then, and this goroutine may be elsewhere: name where it is now.
    name_ps(&inside, r#gen);
    let next = if end.last { 0 } else { r#gen + 1 };
    BEGAN_NS.store(mono_ns(), Ordering::Relaxed);
    let publishes_ns = mono_ns();
    record::publish(next, std::thread::yield_now);
    let waited_ns = mono_ns() - publishes_ns;
    let m = inside.m();
    if let Some(mut w) = m.slot.acquire().writer() {
        emit::procs_change(&mut w, m, SCHED.gomaxprocs());
        emit::run_queues(&mut w);
        #[cfg(feature = "gc")]
        gc.tell(&mut w, m);
    }
    let records = noted.untold(r#gen);
    // SAFETY: publish() has returned; there is one advancer.
    unsafe { record::close(r#gen, opened_at, noted.unnamed(r#gen), records, end) };
    drop(still);
    remember_took((mono_ns() - began_ns).saturating_sub(waited_ns));
}

/// An advance took so long. Of a few the shortest counts: the kernel may have let another thread run in the middle of one, for longer than
/// all of its work takes.
fn remember_took(ns: u64) {
    static LAST: Mutex<[u64; 4]> = Mutex::new([u64::MAX; 4]);
    let mut last = LAST.lock();
    last.rotate_right(1);
    last[0] = ns;
    TOOK_NS.store(last.iter().copied().min().unwrap_or(ns), Ordering::Relaxed);
}

/// Sees to it that every P, and what runs on it, was named in `r#gen` (V1).
fn name_ps(inside: &Inside, r#gen: u64) {
    for p in SCHED.away_ps() {
        // It is idle and stays so; should it come back, it starts clean (S3).
        p.trace.ready_next(r#gen);
    }
    for p in SCHED.ps() {
        let mut turns = 0u32;
        while !name_p(inside, p, r#gen) {
            turns += 1;
            if turns < 50 {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

/// Whether `p` and what runs on it has been named. Also names a running goroutine that nobody named.
pub(crate) fn name_p(inside: &Inside, p: &'static P, r#gen: u64) -> bool {
    let me = inside.m();
    let current_is_named = |m: &crate::sched::m::M| m.current().is_none_or(|g| g.trace.was_traced(r#gen));
    match p.m() {
        Some(m) if std::ptr::eq(m, me) => {
            if let Some(mut w) = me.slot.acquire().writer() {
                emit::context(&mut w, me);
            }
            true
        }
        Some(m) => {
            if p.trace.was_traced(r#gen) && current_is_named(m) {
                return true;
            }
            let Some(visit) = m.border.visit() else { return false };
            if !m.has_p(p) {
                return false;
            }
            let guard = me.slot.acquire();
            // SAFETY: the visit holds m at its border until it is dropped, after the writer.
            if let Some(mut w) = unsafe { guard.writer_for(&m.slot) } {
                emit::context(&mut w, m);
            }
            drop(guard);
            drop(visit);
            true
        }
        None => {
            if p.trace.was_traced(r#gen) {
                return true;
            }
            let inner = SCHED.inner.lock();
            if !p.idle.load(Ordering::Relaxed) {
                return false;
            }
            // Under the lock it stays idle. The guard's generation is `gen`: only this goroutine moves it.
            let guard = me.slot.acquire();
            if let Some(mut w) = guard.writer() {
                emit::proc_is_idle(&mut w, p);
            }
            drop(guard);
            drop(inner);
            true
        }
    }
}

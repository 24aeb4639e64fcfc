//! A goroutine's life between the scheduler's hands: first instruction, last instruction, and one turn on an M.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::coro;
use crate::prim::current;
use crate::sched::emit;
use crate::sched::g::{G, GList};
use crate::sched::m::{After, M};
use crate::sched::outside;
use crate::sched::p::P;
use crate::sched::park::{Inside, make_ready};
use crate::sched::wake::wake_searcher;
use crate::sched::{SCHED, locals, queue, wired};
use crate::stack::arena::ARENA;
use crate::stack::header::StackRef;
use crate::stack::{CLASSES, Class};

/// The whole life of a goroutine on its own stack. Entered and left inside the runtime.
pub(crate) fn main(g: &'static G) {
    Inside::resumed(g).leave_at_once();
    let task = g.task.take().expect("a goroutine that starts has a task");
    // SAFETY: taken, so once; outside; on the goroutine's stack. It catches panics.
    let block = unsafe { task.run(g) };
    // What a result that was dropped by the goroutine itself has made.
    locals::end(g);
    if g.locked.get() {
        wired::release(g);
    }
    let inside = Inside::enter().expect("still on the goroutine's stack");
    let m = inside.m();
    if let Some(block) = block {
        m.must_p().put_block(block);
    }
    if m.slot.is_on() {
        end_traced(m, g);
    } else {
        g.state.destroy();
    }
    m.set_current(None);
    m.after.set(Some(After::Destroy(g)));
    // The M stays inside: it is the scheduler's turn.
    std::mem::forget(inside);
}

/// Running -> Dead, with its event. Apart, as [`start_traced`] is.
#[inline(never)]
fn end_traced(m: &'static M, g: &'static G) {
    let guard = m.slot.acquire();
    if let Some(mut w) = guard.writer() {
        emit::go_destroy(&mut w, m);
    }
    g.state.destroy();
    m.stopped.set(guard.moment());
}

/// Goroutines that were to run for the first time when no stack could be had, by the class of stack they want.
static STACKLESS: [Mutex<GList>; CLASSES] = [const { Mutex::new(GList::new()) }; CLASSES];
/// How many those are.
static STACKLESS_LEN: AtomicUsize = AtomicUsize::new(0);

/// Runs a goroutine on `m` until it gives the M back. `fresh` begins a new time slice.
pub(crate) fn execute(m: &'static M, g: &'static G, fresh: bool) {
    let p = m.must_p();
    let is_plain = g.marks.is_clear();
    if !is_plain {
        p.counts.runs(g);
        if g.marks.is_wired() {
            return wired::give_back(m, g);
        }
    }
    let stack = match g.stack.get() {
        Some(s) => s,
        None => {
            let class = g.class.get();
            let Some(s) = p.take_stack(class).or_else(|| scrape_up(p, class)) else {
                return wait_for_stack(g);
            };
            s.header().g.set(Some(g));
            g.stack.set(Some(s));
            s
        }
    };
    g.set_m(m);
    if is_plain || !g.marks.is_system() {
        p.turns.store(p.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
    if fresh {
        m.begin_slice();
    }
    if m.slot.is_on() {
        start_traced(m, g);
    } else {
        g.state.start();
    }
    m.set_current(Some(g));
    // U1
    current::set(std::ptr::from_ref(g).expose_provenance());
    // SAFETY: this M owns the goroutine (Running) and with it its stack, which is suspended or new (C2).
    unsafe { coro::resume(stack) };
    current::set(0);
    let after = m.after.take().expect("a goroutine that switches says why");
    afterwards(m, after);
}

/// Runnable -> Running, with its event. Apart, since what it needs of registers would be paid for without a trace, too.
#[inline(never)]
fn start_traced(m: &'static M, g: &'static G) {
    let guard = m.slot.acquire();
    g.state.start();
    if let Some(mut w) = guard.writer() {
        guard.go_on(m.stopped.take()); // M4
        emit::go_start(&mut w, m, g);
    }
}

/// What is left to do when a goroutine has switched back. By now `m` may have no P ([`After::NoP`]).
// Inlined, so that what the goroutine has left is read where it lies.
#[inline(always)]
pub(crate) fn afterwards(m: &'static M, after: After) {
    match after {
        After::Park(c) => {
            // SAFETY: K2: the goroutine is suspended in the park that made the closure; called once.
            let published = unsafe { (c.call)(c.data, m, c.g) };
            if !published {
                // K3: nobody else knows of it.
                make_ready(m, c.g);
                m.must_p().put_next(c.g);
            }
        }
        After::Yield(g) => {
            let p = m.must_p();
            let more = p.has_own_work();
            p.put_back(g);
            // This M takes one of them; a P that went idle just now could take another.
            if more && SCHED.searchers.idle_ps() != 0 {
                m.stopped.take(); // M4
                wake_searcher();
            }
        }
        After::Preempt(g) => {
            m.stopped.take(); // M4
            queue::submit_global(g);
        }
        After::Destroy(g) => bury(m, g),
        After::NoP(g) => {
            m.stopped.take(); // M4
            outside::queue_up(m, g);
        }
    }
}

/// Takes back a dead goroutine's stack and slot.
fn bury(m: &'static M, g: &'static G) {
    let p = m.must_p();
    let stack = g.stack.take().expect("a goroutine that ran has a stack");
    stack.header().g.set(None);
    let class = stack.header().class;
    let wanted = stackless() != 0 || ARENA.is_exhausted();
    if wanted {
        m.stopped.take(); // M4
        ARENA.put(stack)
    } else {
        p.put_stack(stack)
    }
    // SAFETY: N2: the goroutine is dead and its slot on no list.
    unsafe {
        *g.name.get() = None;
        g.swap_labels(None);
    }
    g.voice_in.set(0);
    g.origin.set(None);
    p.free_g(g);
    if wanted {
        feed_stackless(class, 1);
    }
}

/// No stack can be made: collects the warm ones that lie in the caches of this P and of idle ones.
#[cold]
fn scrape_up(p: &P, class: Class) -> Option<StackRef> {
    p.drain_stacks();
    SCHED.drain_idle_ps();
    ARENA.take_quietly(class)
}

/// It stays Runnable until a stack comes back. Spawning asks the arena first, so the error is told there.
#[cold]
fn wait_for_stack(g: &'static G) {
    let class = g.class.get();
    {
        let mut list = STACKLESS[class.index()].lock();
        list.push_back(g);
        STACKLESS_LEN.fetch_add(1, Ordering::SeqCst);
    }
    // A stack that was given back before the list was seen to be longer is for it.
    if let Some(s) = ARENA.take_quietly(class) {
        ARENA.put(s);
        feed_stackless(class, 1);
    }
}

/// As many stacks of the class are free again: lets so many who wait for one try.
#[cold]
fn feed_stackless(class: Class, stacks: usize) {
    for _ in 0..stacks {
        let Some(g) = STACKLESS[class.index()].lock().pop_front() else { return };
        STACKLESS_LEN.fetch_sub(1, Ordering::SeqCst);
        queue::submit_global(g);
    }
}

/// `p` goes idle: the stacks it keeps are for those who wait for one. The caller holds the P (P2).
#[inline]
pub(crate) fn share_stacks(p: &P) {
    if stackless() != 0 {
        give_stacks(p);
    }
}

/// The stacks that `p` keeps are for everybody. The caller holds the P (P2).
pub(crate) fn give_stacks(p: &P) {
    feed_stackless(Class::DEFAULT, p.drain_stacks());
}

/// Goroutines that wait for a stack.
#[inline]
pub(crate) fn stackless() -> usize {
    STACKLESS_LEN.load(Ordering::Relaxed)
}

/// Whether the calling M may go on with goroutines: the world is not being stopped.
#[inline]
pub(crate) fn world_runs() -> bool {
    !SCHED.stopping.load(Ordering::Relaxed)
}

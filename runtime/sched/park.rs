//! Entering and leaving the runtime, blocking in it, and waking: [`Inside`], [`Caller`], park and ready.
//!
//! ```text
//!   enter -> Inside -> ... -> dropped: leave
//!                      park(wait, commit):  [guard: GoBlock, Running -> Waiting]  switch to g0  commit publishes
//!   ready(g):                               [guard: Waiting -> Runnable, GoUnblock]  queue  wake a searcher
//! ```
//!
//! - K1: `park` is the only way to block and `ready` the only way to wake. A goroutine that waits has exactly one who may
//!   ready it: whoever took it out of the list (or heap) that `commit` put it into, or that let others see it.
//! - K2: `commit` runs on the M's own stack, after the switch. So nobody can resume a stack that is still in use. The last
//!   thing it does is to publish; from then on its captured variables may be gone.
//! - K3: `commit` may answer false: the wait is over before it began. Then nobody else knows of the goroutine, and the M
//!   readies and resumes it itself.
//! - K4: no lock of the runtime is held when an [`Inside`] is made or dropped (B5): both may switch.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

#[cfg(feature = "gc")]
use tracer::record::Writer;
use tracer::record::{Fixed, Slot};
use tracer::unwind::Regs;
use tracer::wire::Ev;

use crate::prim::{chaos, tls};
use crate::sched::emit::{self, At};
use crate::sched::find::{nobody_else, wake_poller_for_timers};
use crate::sched::foreign::Foreign;
use crate::sched::g::{G, Kind, Place, Wait};
use crate::sched::m::{After, Commit, M};
use crate::sched::outside;
use crate::sched::timer::Limit;
use crate::sched::{forked, owner, queue, wired};
use crate::stack::header::current_g;
use crate::sync::race::TIME_UP;
use crate::sync::waiter::{Ending, Node, WaitList, Waiter};

/// When a goroutine that was readied runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// Next on this P: it and the waker hand something to each other, and the data are in the cache.
    Next,
    /// After those who queue already: there is no hurry.
    Last,
}

/// How a goroutine stops.
enum Stop {
    Park(Fixed),
    Yield(Fixed),
}

/// Evidence that the calling goroutine is inside the runtime. Dropping it leaves.
#[must_use]
pub(crate) struct Inside {
    g: &'static G,
    /// Bound to the goroutine's stack.
    _not_send: PhantomData<*mut ()>,
}

impl Inside {
    /// Enters; `None` when the caller is not a goroutine. The goroutine may be on another M afterwards.
    #[inline]
    pub(crate) fn enter() -> Option<Inside> {
        let g = current_g()?;
        let m = g.m();
        let asked = m.border.enter();
        if asked || g.state.is_syscall() {
            outside::come_back(g, asked);
        }
        Some(Inside { g, _not_send: PhantomData })
    }

    /// For a goroutine that was resumed by the scheduler: it is inside already.
    pub(crate) fn resumed(g: &'static G) -> Inside {
        Inside { g, _not_send: PhantomData }
    }

    #[inline]
    pub(crate) fn g(&self) -> &'static G {
        self.g
    }

    /// The M that runs the caller, until the next park or yield.
    #[inline]
    pub(crate) fn m(&self) -> &'static M {
        self.g.m()
    }

    /// Leaves without a look at the preemption flag.
    pub(crate) fn leave_at_once(self) {
        self.m().border.leave();
        std::mem::forget(self);
    }

    /// Blocks until somebody readies the goroutine (K1, K2).
    #[inline(never)]
    pub(crate) fn park<F>(&self, wait: Wait, commit: F)
    where
        F: FnOnce(&'static M, &'static G) -> bool,
    {
        let g = self.g;
        let m = self.m();
        let place = Place::at(Regs::here(), wait);
        g.stand_at(&place);
        owner::about_to_wait(g, wait.kind);
        let mut commit = ManuallyDrop::new(commit);
        m.after.set(Some(After::Park(Commit { g, call: call_commit::<F>, data: (&raw mut commit).cast() })));
        if m.slot.is_on() {
            self.stop_traced(m, place.regs, Stop::Park(wait.reason));
        } else {
            g.state.park();
        }
        m.set_current(None);
        chaos::window();
        // SAFETY: the caller runs on g's stack.
        unsafe { wired::switch(m, g) };
    }

    /// Gives others a turn, if there are any. While a trace is recorded it shows in any case.
    #[inline]
    pub(crate) fn offer_turn(&self) {
        if !nobody_else(self.m()) {
            self.yield_now(Fixed::Yield);
        } else if self.m().slot.is_on() {
            self.tell_turn(self.m());
        }
    }

    /// It has stopped and begins to run again, for the trace: there is nobody else whose turn it could be.
    #[inline(never)]
    fn tell_turn(&self, m: &'static M) {
        let g = self.g;
        let guard = m.slot.acquire();
        if let Some(mut w) = guard.writer() {
            emit::go_stop(&mut w, m, Fixed::Yield, At::on(g, Regs::here()));
            emit::go_start(&mut w, m, g);
        }
    }

    /// Gives others a turn; the goroutine stays runnable.
    #[inline(never)]
    pub(crate) fn yield_now(&self, reason: Fixed) {
        forked::end_child();
        let g = self.g;
        let m = self.m();
        let place = Place::here();
        g.stand_at(&place);
        m.after.set(Some(if reason == Fixed::Preempted { After::Preempt(g) } else { After::Yield(g) }));
        if m.slot.is_on() {
            self.stop_traced(m, place.regs, Stop::Yield(reason));
        } else {
            g.state.stop();
        }
        m.set_current(None);
        // SAFETY: the caller runs on g's stack.
        unsafe { wired::switch(m, g) };
    }

    /// Readies a goroutine, which takes its turn on the caller's P.
    #[inline]
    pub(crate) fn ready(&self, g: &'static G, turn: Turn) {
        let m = self.m();
        if m.slot.is_on() {
            self.ready_traced(m, g);
        } else {
            g.state.ready();
        }
        chaos::window();
        queue::submit(m, g, turn);
    }

    /// Apart, since what it needs of registers and of the stack would be paid for without a trace, too.
    #[inline(never)]
    fn ready_traced(&self, m: &'static M, g: &'static G) {
        let guard = m.slot.acquire();
        g.state.ready();
        if let Some(mut w) = guard.writer() {
            emit::go_unblock(&mut w, Some(m), g, At::on(self.g, Regs::here()));
        }
    }

    /// Running -> Waiting or Runnable, with its event. Apart for the same reason. `regs` are those of the caller's frame.
    #[inline(never)]
    fn stop_traced(&self, m: &'static M, regs: Regs, why: Stop) {
        let g = self.g;
        let guard = m.slot.acquire();
        if let Some(mut w) = guard.writer() {
            let (how, reason) = match why {
                Stop::Park(reason) => (Ev::GoBlock, reason),
                Stop::Yield(reason) => (Ev::GoStop, reason),
            };
            emit::leaves_m(&mut w, m, how, reason, At::on(g, regs));
        }
        match why {
            Stop::Park(_) => g.state.park(),
            Stop::Yield(_) => g.state.stop(),
        }
        m.stopped.set(guard.moment());
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let m = self.m();
        if m.preempt.load(Ordering::Relaxed) || chaos::one_in(32) {
            self.preempted();
        }
        self.m().border.leave();
    }
}

impl Inside {
    #[cold]
    fn preempted(&self) {
        // One that unwinds goes on being asked: by that the watchdog knows that it does not listen (WD2).
        if !tls::is_unwinding() {
            self.m().preempt.store(false, Ordering::Relaxed);
            self.yield_now(Fixed::Preempted);
        }
    }
}

/// # Safety
///
/// `data` is the `ManuallyDrop<F>` of a goroutine that is suspended in park(), and this is its only call.
unsafe fn call_commit<F>(data: *mut (), m: &'static M, g: &'static G) -> bool
where
    F: FnOnce(&'static M, &'static G) -> bool,
{
    // SAFETY: passed on to the caller. The closure is moved out first: once it publishes, its old place may be gone (K2).
    let commit = unsafe { ManuallyDrop::take(&mut *data.cast::<ManuallyDrop<F>>()) };
    chaos::window();
    commit(m, g)
}

/// Whoever calls into the runtime: a goroutine, which is inside as long as this lives, or a thread. Or the runtime itself, which
/// wakes and never waits.
// repr: with a tag of its own it takes one comparison to tell a goroutine, several times in each wait.
#[repr(u8)]
pub(crate) enum Caller {
    Goroutine(Inside),
    Thread(Visitor),
    /// An M with a P, on its own stack.
    Machine(&'static M),
    /// A thread of the runtime's without a P, by its place in the tracer.
    Monitor(&'static Slot),
}

/// A thread that is not the runtime's.
pub(crate) struct Visitor {
    thread: &'static Foreign,
    /// The thread's own place is gone (it is ending): this one is for the call only.
    temporary: bool,
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if self.temporary {
            self.thread.retire();
        }
    }
}

impl Caller {
    /// The caller's own.
    #[inline]
    pub(crate) fn here() -> Caller {
        match Inside::enter() {
            Some(inside) => Caller::Goroutine(inside),
            None => Caller::thread(),
        }
    }

    /// Of a thread that is not the runtime's.
    #[cold]
    pub(crate) fn thread() -> Caller {
        match tls::foreign() {
            Some(thread) => Caller::Thread(Visitor { thread, temporary: false }),
            None => Caller::Thread(Visitor { thread: Foreign::adopt(), temporary: true }),
        }
    }

    /// Records something that needs no P, from a thread that is not the runtime's.
    #[cfg(feature = "gc")]
    pub(crate) fn record(&self, event: impl FnOnce(&mut Writer<'_>)) {
        if let Caller::Thread(v) = self
            && let Some(mut w) = v.thread.slot.acquire().writer()
        {
            event(&mut w);
        }
    }

    /// Who is to be woken when the caller waits.
    #[inline]
    pub(crate) fn waiter(&self) -> Waiter {
        match self {
            Caller::Goroutine(inside) => Waiter::Goroutine(inside.g()),
            Caller::Thread(v) => Waiter::Thread(v.thread),
            Caller::Machine(_) | Caller::Monitor(_) => unreachable!("the runtime itself does not wait"),
        }
    }

    /// As [`Caller::wake_in`], by whoever calls, who is in the runtime for no more than that.
    #[inline]
    pub(crate) fn wake_from_here(waiter: Waiter, turn: Turn) {
        match Inside::enter() {
            Some(inside) => match waiter {
                Waiter::Goroutine(g) => inside.ready(g, turn),
                Waiter::Thread(t) => t.wake(),
            },
            None => Caller::thread().wake_in(waiter, turn),
        }
    }

    /// Ends the wait of a goroutine or thread whose node was taken off its list (K1).
    #[inline]
    pub(crate) fn wake(&self, waiter: Waiter) {
        self.wake_in(waiter, Turn::Next);
    }

    /// As [`Caller::wake`], with a say in when the goroutine runs.
    #[inline]
    pub(crate) fn wake_in(&self, waiter: Waiter, turn: Turn) {
        match (waiter, self) {
            (Waiter::Goroutine(g), Caller::Goroutine(inside)) => inside.ready(g, turn),
            (Waiter::Goroutine(g), Caller::Thread(v)) => ready_from_outside(&v.thread.slot, g),
            (Waiter::Goroutine(g), Caller::Machine(m)) => {
                make_ready(m, g);
                queue::submit(m, g, turn);
            }
            (Waiter::Goroutine(g), Caller::Monitor(slot)) => ready_from_outside(slot, g),
            (Waiter::Thread(t), _) => t.wake(),
        }
    }

    /// Waits on a node that `publish` makes visible to wakers; `publish` runs once, after the caller has let go of
    /// everything. The node's [`Node::wake`] ends the wait.
    #[inline]
    pub(crate) fn wait(&self, node: &Node, wait: Wait, publish: impl FnOnce()) {
        match self {
            Caller::Goroutine(inside) => inside.park(wait, |_, _| {
                publish();
                true
            }),
            Caller::Thread(v) => {
                publish();
                v.thread.sleep_until(|| node.is_woken());
            }
            Caller::Machine(_) | Caller::Monitor(_) => unreachable!("the runtime itself does not wait"),
        }
    }

    /// As [`Caller::wait`], unless `publish` answers that the wait is over before it began; then nobody knows of the node.
    pub(crate) fn wait_unless(&self, node: &Node, wait: Wait, publish: impl FnOnce() -> bool) {
        match self {
            // K3
            Caller::Goroutine(inside) => inside.park(wait, |_, _| !publish()),
            Caller::Thread(v) => {
                if !publish() {
                    v.thread.sleep_until(|| node.is_woken());
                }
            }
            Caller::Machine(_) | Caller::Monitor(_) => unreachable!("the runtime itself does not wait"),
        }
    }

    /// Waits in one list, until `until_ns` on CLOCK_MONOTONIC at most. The caller holds the list's lock; `enlist` puts the node
    /// on the list, `publish` lets go of the lock, and `leave` takes it again and the node off, if the time was up. Answers
    /// the node's outcome, or `None` if the time was up.
    #[inline(always)]
    pub(crate) fn wait_in(
        &self,
        until_ns: Option<u64>,
        wait: Wait,
        enlist: impl FnOnce(&Node),
        publish: impl FnOnce(),
        leave: impl FnOnce(&Node),
    ) -> Option<u32> {
        if until_ns.is_none() {
            let node = Node::new(self.waiter());
            enlist(&node);
            self.wait(&node, wait, publish);
            return Some(node.outcome.get());
        }
        let ending = Ending::new(self.waiter());
        let node = Node::of(&ending, 0);
        enlist(&node);
        if self.race(&ending, until_ns, wait, publish) == TIME_UP {
            // Z2
            leave(&node);
            return None;
        }
        Some(node.outcome.get())
    }

    /// Leaves the runtime without giving others a turn.
    pub(crate) fn leave_at_once(self) {
        if let Caller::Goroutine(inside) = self {
            inside.leave_at_once();
        }
    }

    /// Waits for an end that several could bring about: the nodes that `publish` makes visible (as in [`Caller::wait`]), and the time
    /// `until_ns` on CLOCK_MONOTONIC. Answers who has won. Before the nodes and the ending go, the caller MUST take the nodes off
    /// under the locks that `publish` lets go of (Z2).
    pub(crate) fn race(&self, ending: &Ending, until_ns: Option<u64>, wait: Wait, publish: impl FnOnce()) -> u32 {
        match self {
            Caller::Goroutine(inside) => match until_ns {
                None => inside.park(wait, |_, _| {
                    publish();
                    true
                }),
                Some(until_ns) => {
                    let limit = Limit::new(ending);
                    inside.park(wait, |m, _| {
                        // Before the publish, after which the frame may be gone. It is not gone before: should the time be up at
                        // once, the waiter has to pass the locks that the publish lets go of.
                        // SAFETY: T-3: cancelled below; the waiter is this goroutine.
                        unsafe { m.must_p().timers.add_limit(until_ns, &limit) };
                        publish();
                        wake_poller_for_timers();
                        true
                    });
                    if ending.race.winner() != Some(TIME_UP) {
                        limit.cancel();
                    }
                }
            },
            Caller::Thread(v) => {
                publish();
                if !v.thread.sleep_until_time(|| ending.is_woken(), until_ns) && !ending.race.win(TIME_UP) {
                    // Somebody has just won, and is about to say so.
                    v.thread.sleep_until(|| ending.is_woken());
                }
            }
            Caller::Machine(_) | Caller::Monitor(_) => unreachable!("the runtime itself does not wait"),
        }
        ending.race.winner().expect("a wait ends with a winner")
    }

    /// Waits in `list` unless `done` says, under the list's lock, that there is nothing to wait for.
    pub(crate) fn wait_until(&self, list: &WaitList, reason: Fixed, kind: Kind, done: impl Fn() -> bool) {
        self.wait_until_time(list, None, reason, kind, done);
    }

    /// As [`Caller::wait_until`], until `until_ns` on CLOCK_MONOTONIC at most; answers whether the wait ended before.
    pub(crate) fn wait_until_time(
        &self,
        list: &WaitList,
        until_ns: Option<u64>,
        reason: Fixed,
        kind: Kind,
        done: impl Fn() -> bool,
    ) -> bool {
        list.lock();
        // SAFETY: locked above; called once, on whichever path.
        let unlock = || unsafe { list.unlock() };
        if done() {
            unlock();
            return true;
        }
        let wait = Wait { reason, kind, object: std::ptr::from_ref(list) as usize };
        // SAFETY: the list is locked; the node stays in place until it is taken off, by whoever wakes it or by `leave`.
        let enlist = |node: &Node| unsafe { list.push(node) };
        self.wait_in(until_ns, wait, enlist, unlock, |node| list.remove(node)).is_some()
    }
}

/// Waiting -> Runnable with its event, by the M itself, on its own stack. The caller queues it.
pub(crate) fn make_ready(m: &M, g: &'static G) {
    let guard = m.slot.acquire_if_on();
    g.state.ready();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        emit::go_unblock(&mut w, Some(m), g, At::nowhere());
    }
}

/// Readies a goroutine from a thread without a P: it goes to the global queue.
pub(crate) fn ready_from_outside(slot: &Slot, g: &'static G) {
    make_ready_from_outside(slot, g);
    queue::submit_global(g);
}

/// As [`ready_from_outside`], of a goroutine that was due.
pub(crate) fn ready_due_from_outside(slot: &Slot, g: &'static G) {
    make_ready_from_outside(slot, g);
    queue::submit_global_due(g);
}

/// Waiting -> Runnable with its event, by a thread without a P. The caller queues it.
pub(crate) fn make_ready_from_outside(slot: &Slot, g: &'static G) {
    // The full gate: no stopped world holds this thread still.
    let guard = slot.acquire();
    g.state.ready();
    if let Some(mut w) = guard.writer() {
        emit::go_unblock(&mut w, None, g, At::nowhere());
    }
}

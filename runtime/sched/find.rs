//! The search for the next goroutine, and what an M does when there is none.
//!
//! The order, one step per line in [`find`]: every 504th time the new goroutine that has waited longest for any P (P6); every 61st time the global
//! queue, so that two goroutines that keep readying each other cannot starve it; due timers, every eighth time and when there is nothing else;
//! the next slot; the own queues, and those that were due (P5), which every eighth time come before the next slot; a share of the global queue; the
//! network; others' queues, in random order, four passes, next slots and timers in the last one; the same for a while, if nobody else searches, and soon
//! with what is left to others at first (P7). Then the P goes to the idle list, everything is looked at once more (I2), and the M sleeps.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use tracer::clock::mono_ns;
use tracer::record::{Fixed, Slot};

use crate::prim::chaos;
use crate::prim::say::say;
use crate::sched::SCHED;
use crate::sched::calls;
use crate::sched::emit;
use crate::sched::forked;
use crate::sched::g::{G, Kind, Wait};
use crate::sched::life::{self, world_runs};
use crate::sched::m::{M, Own};
use crate::sched::network::{self, Brought};
use crate::sched::p::{HeldP, P};
use crate::sched::park::{Caller, Inside, make_ready, ready_due_from_outside};
use crate::sched::timer::Due;
use crate::sched::wake::{learn, wake_claimed, wake_searcher};
use crate::sched::world;
use crate::time;

/// A goroutine to run, and whether it begins a new time slice.
pub(crate) type Found = (&'static G, bool);

/// How often the global queue comes first. A prime, so that it does not beat with the program's own period.
const GLOBAL_FIRST: u32 = 61;

/// How often the new one comes first that has waited longest for any P (P6). A multiple of 8, see [`find_next`].
const OLDEST_FIRST: u32 = 8 * 63;

/// How often an M with work thinks of the network. A multiple of 8, see [`find_next`].
const NETWORK_EVERY: u32 = 64;

/// How long a lone searcher goes on before its M sleeps: waking it again would cost more.
const SPIN_NS: u64 = 30_000;

/// For how long it leaves alone what a P would come to by itself (P7).
const SHY_NS: u64 = 5_000;

/// The next goroutine of this P, where [`find`] would do nothing else: most of the time.
#[inline]
pub(crate) fn find_next(m: &'static M) -> Option<Found> {
    let p = m.p()?;
    let tick = p.searches.get().wrapping_add(1);
    // SAFETY: as in find().
    let searches = unsafe { (*m.own.get()).searching.is_some() };
    if tick.is_multiple_of(8) || tick.is_multiple_of(GLOBAL_FIRST) || searches || !world_runs() || chaos::one_in(1) {
        return None;
    }
    let found = match p.take_next() {
        Some(g) => (g, false),
        None => (p.take_front()?, true),
    };
    p.searches.set(tick);
    Some(announce(m, found))
}

/// Whether nothing but the goroutine that runs on `m` could run on its P, as far as a glance tells: then it need not give up its turn.
#[inline]
pub(crate) fn nobody_else(m: &'static M) -> bool {
    let p = m.must_p();
    let tick = p.searches.get().wrapping_add(1);
    // Every eighth time the timers are looked at, too, and every so often the others' queues.
    if tick.is_multiple_of(8) || p.has_own_work() || SCHED.global.len() != 0 || !world_runs() || chaos::one_in(2) {
        return false;
    }
    p.searches.set(tick);
    true
}

/// Finds a goroutine, sleeping as long as there is none. On return `m` has a P.
pub(crate) fn find(m: &'static M) -> Found {
    // SAFETY: `own` is touched on the M's own stack only, and by one function at a time: nothing below calls find().
    let own = unsafe { &mut *m.own.get() };
    loop {
        if m.p().is_none() {
            sleep(m, own);
            calls::leave(m);
        }
        if !world_runs() {
            world::stop_here(m);
            if m.p().is_none() {
                // It was taken away. A searcher that has none ends its search, and looks once more before it sleeps (I2).
                if let Some(s) = own.searching.take() {
                    SCHED.searchers.give_up(s);
                }
                continue;
            }
        }
        if let Some(found) = find_once(m, own) {
            if let Some(s) = own.searching.take() {
                learn(true);
                if let Some(next) = SCHED.searchers.found(s) {
                    wake_claimed(next);
                }
            }
            return announce(m, found);
        }
        give_up(m, own);
    }
}

/// A goroutine that a thread without a P made is announced by the M that takes it.
#[inline]
fn announce(m: &'static M, found: Found) -> Found {
    if found.0.state.is_idle() {
        announce_foreign(m, found.0);
    }
    found
}

#[cold]
#[inline(never)]
fn announce_foreign(m: &'static M, g: &'static G) {
    let guard = m.slot.acquire_if_on();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        let o = g.origin.get().expect("a new goroutine has an origin");
        emit::go_create(&mut w, m, g, o.start, o.at, emit::At::nowhere());
    }
    g.state.create();
}

fn find_once(m: &'static M, own: &mut Own) -> Option<Found> {
    m.stopped.take(); // M4: more than a look at the queue, into which others may put something where they like.
    let p = m.must_p();
    let tick = p.searches.get().wrapping_add(1);
    p.searches.set(tick);
    if tick.is_multiple_of(OLDEST_FIRST)
        && let Some(g) = SCHED.global.pop_oldest()
    {
        return Some((g, true));
    }
    if tick.is_multiple_of(GLOBAL_FIRST)
        && let Some(g) = SCHED.global.pop()
    {
        return Some((g, true));
    }
    if let Some(g) = chosen(m, p, own) {
        return Some((g, true));
    }
    // Reading the clock costs as much as a switch: with work at hand, look at the timers every eighth time.
    if p.timers.next_ns() != u64::MAX && (tick.is_multiple_of(8) || !p.has_own_work()) {
        run_timers(m, p);
    }
    if tick.is_multiple_of(8) {
        run_timers_of_away_ps(m);
        SCHED.global.take_due(p, SCHED.gomaxprocs());
        if SCHED.global.new_len() != 0 {
            p.think_of_new();
        }
        // Not even those that hand something to each other for a whole slice are in the way of one that is due.
        if p.has_due()
            && let Some(g) = p.take_front()
        {
            return Some((g, true));
        }
    }
    if tick.is_multiple_of(NETWORK_EVERY) && network::is_used() {
        network::look_now_and_then(m);
    }
    if let Some(g) = p.take_next() {
        return Some((g, false));
    }
    if let Some(g) = p.take_front() {
        return Some((g, true));
    }
    if let Some(g) = SCHED.global.pop_batch(p, SCHED.gomaxprocs()) {
        if p.has_own_work() {
            wake_searcher();
        }
        return Some((g, true));
    }
    run_timers_of_away_ps(m);
    network::look(m);
    if let Some(g) = p.take_front() {
        return Some((g, true));
    }
    search(m, own).map(|g| (g, true))
}

/// Under chaos: some place or other to look at before all others.
#[inline(always)]
fn chosen(m: &'static M, p: &'static P, own: &mut Own) -> Option<&'static G> {
    match chaos::pick(8)? {
        0 => SCHED.global.pop(),
        1 => p.take_front(),
        2 if SCHED.gomaxprocs() > 1 => steal(m, own, chaos::one_in(2), chaos::one_in(2)),
        3 => SCHED.global.pop_batch(p, SCHED.gomaxprocs()),
        _ => None,
    }
}

/// The timers of Ps that are away are everybody's (X3).
#[inline]
fn run_timers_of_away_ps(m: &'static M) {
    for p in SCHED.away_ps() {
        if p.timers.next_ns() != u64::MAX {
            run_timers(m, p);
        }
    }
}

/// Looks at other Ps, for a while.
fn search(m: &'static M, own: &mut Own) -> Option<&'static G> {
    let ps = SCHED.ps();
    if ps.len() == 1 {
        return None;
    }
    if own.searching.is_none() {
        own.searching = Some(SCHED.searchers.join());
    }
    let mut began = 0;
    let mut in_earnest = false;
    loop {
        for pass in 0..4 {
            if let Some(g) = steal(m, own, pass == 3, in_earnest) {
                return Some(g);
            }
            if !world_runs() {
                return None;
            }
        }
        if let Some(g) = SCHED.global.pop() {
            return Some(g);
        }
        if network::look(m) {
            return m.must_p().take_front();
        }
        let now = mono_ns();
        if began == 0 {
            began = now;
        }
        let gives_up = now - began >= SPIN_NS || !SCHED.searchers.is_alone();
        if gives_up && in_earnest {
            return None;
        }
        // Nobody gives up before a look that leaves nothing to others (I2).
        in_earnest = gives_up || now - began >= SHY_NS;
        if gives_up {
            continue;
        }
        for _ in 0..32 {
            std::hint::spin_loop();
        }
    }
}

/// One pass over all other Ps. `last`: next slots and timers, too. `in_earnest`: also what a P would come to by itself (P7).
fn steal(m: &'static M, own: &mut Own, last: bool, in_earnest: bool) -> Option<&'static G> {
    let p = m.must_p();
    let ps = SCHED.ps();
    let start = own.rng.below(ps.len());
    for i in 0..ps.len() {
        let victim = &ps[(start + i) % ps.len()];
        if victim.id == p.id {
            continue;
        }
        if last && victim.timers.next_ns() != u64::MAX {
            // Its goroutines become ready here, where somebody has time for them.
            run_timers(m, victim);
            if let Some(g) = p.take_next().or_else(|| p.take_front()) {
                return Some(g);
            }
        }
        if (in_earnest || !victim.comes_to_its_only_one(last))
            && let Some((g, more)) = p.steal_from(victim)
        {
            record_steal(m, p, victim, more + 1);
            return Some(g);
        }
        if last && let Some(g) = P::steal_next(victim) {
            record_steal(m, p, victim, 1);
            return Some(g);
        }
    }
    None
}

fn record_steal(m: &'static M, thief: &P, victim: &P, count: usize) {
    thief.counts.steals.add(1);
    thief.counts.stolen.add(count as u64);
    if let Some(guard) = m.slot.acquire_if_on()
        && let Some(mut w) = guard.writer()
    {
        emit::steal(&mut w, thief, victim, count);
    }
}

/// Does what is due of `from`'s timers. Goroutines that become ready queue up on `m`'s P.
pub(crate) fn run_timers(m: &'static M, from: &P) {
    let now = mono_ns().saturating_sub(chaos::late_ns());
    if from.timers.next_ns() > now {
        return;
    }
    let mut due = Due::default();
    from.timers.take_due(now, &mut due);
    if due.is_several()
        && let Some(guard) = m.slot.acquire_if_on()
        && let Some(mut w) = guard.writer()
    {
        emit::timers(&mut w, from, &due);
    }
    let p = m.must_p();
    let many = due.gs.len() > 1 || p.has_own_work();
    while let Some(g) = due.gs.pop_front() {
        make_ready(m, g);
        p.put_due(g);
    }
    if many {
        wake_searcher();
    }
    if !due.alarms.is_empty() {
        let caller = Caller::Machine(m);
        for alarm in due.alarms {
            alarm.fire(&caller);
        }
    }
}

/// Does what has been due for long, because no M has come to it: by sysmon, which has no P.
pub(crate) fn run_timers_from_outside(slot: &'static Slot, now: u64) {
    let caller = Caller::Monitor(slot);
    let mut fired = false;
    for p in SCHED.all_ps() {
        let mut due = Due::default();
        p.timers.take_due(now, &mut due);
        if due.is_several()
            && let Some(mut w) = slot.acquire().writer()
        {
            emit::timers(&mut w, p, &due);
        }
        while let Some(g) = due.gs.pop_front() {
            ready_due_from_outside(slot, g);
        }
        for alarm in due.alarms {
            fired = true;
            alarm.fire(&caller);
        }
    }
    if fired {
        // A ticker may have been set again, while the M in the poller saw a heap without it (A3).
        time::announce(&caller);
    }
}

/// Nothing to do: the P goes to the idle list, and everything is looked at once more (I2).
fn give_up(m: &'static M, own: &mut Own) {
    if !world_runs() {
        // Keep the P: find() stops with it.
        return;
    }
    let searching = own.searching.take().unwrap_or_else(|| SCHED.searchers.join());
    learn(false);
    let p = stop_p(m);
    life::share_stacks(p.p());
    chaos::window();
    SCHED.put_idle_p(p);
    SCHED.searchers.give_up(searching);
    if (SCHED.has_work() || timer_is_due())
        && let Some(p) = SCHED.take_idle_p()
    {
        start_p(m, p);
        own.searching = Some(SCHED.searchers.join());
    }
}

/// Whether a timer of any P is due.
pub(crate) fn timer_is_due() -> bool {
    let next = SCHED.next_timer_ns();
    next != u64::MAX && next <= mono_ns()
}

/// Parts `m` from its P, with the event.
pub(crate) fn stop_p(m: &'static M) -> HeldP {
    let guard = m.slot.acquire_if_on();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        emit::proc_stop(&mut w, m);
    }
    let p = m.clear_p();
    drop(guard);
    p
}

/// Binds `m` to a P, with the event.
pub(crate) fn start_p(m: &'static M, p: HeldP) {
    let guard = m.slot.acquire_if_on();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        emit::proc_start(&mut w, p.p());
    }
    // What runs here next is not charged for the time in which nobody did.
    let slices = &p.p().slices;
    slices.store(slices.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    m.set_p(p);
}

/// Sleeps until somebody comes with a P, or, as the one in the poller, until a timer is due and a P is idle.
fn sleep(m: &'static M, own: &mut Own) {
    forked::end_child();
    // A timer was due and no P was idle: do not come back for it at once, the busy Ps see to it.
    let mut patience = Duration::ZERO;
    loop {
        chaos::window();
        let mut brought = Brought::default();
        let mut inner = SCHED.inner.lock();
        // Whoever could wake nobody (too_many) has left its P on the list, under this lock.
        if inner.has_idle_p() && world_runs() && SCHED.has_work() {
            drop(inner);
            if let Some(p) = SCHED.take_idle_p() {
                start_p(m, p);
                own.searching = Some(SCHED.searchers.join());
                return;
            }
            continue;
        }
        if inner.poller.occupied {
            if inner.poller.sleeper.is_none() && inner.poller.heir.is_none() {
                inner.poller.heir = Some(m);
            } else {
                inner.idle_ms.push(m);
            }
            drop(inner);
            calls::leave(m);
            wake_poller_for_timers();
            sleep_on_parker(m);
        } else {
            inner.poller.occupied = true;
            inner.poller.sleeper = Some(m);
            drop(inner);
            calls::leave(m);
            brought = sleep_in_poller(patience);
            leave_poller(m);
        }
        if let Some((p, searching)) = m.take_assigned() {
            start_p(m, p);
            brought.ready_here(m, true);
            if searching.is_none() {
                watch_poller();
            }
            own.searching = searching;
            return;
        }
        if !brought.is_empty() {
            if let Some(p) = SCHED.take_idle_p() {
                start_p(m, p);
                brought.ready_here(m, true);
                watch_poller();
                return;
            }
            // E1. Then back to sleep: the busy Ps see to it.
            brought.ready_anywhere(&m.slot, true);
        }
        // The seat became free; or a time-out, or a wake-up that was for the timers: look, if a P is free.
        if timer_is_due() {
            if let Some(p) = SCHED.take_idle_p() {
                start_p(m, p);
                own.searching = Some(SCHED.searchers.join());
                return;
            }
            patience = Duration::from_millis(1);
        } else {
            patience = Duration::ZERO;
        }
    }
}

/// The caller came out of the poller for work of its own: another one is to watch the timers of idle Ps, and the network.
fn watch_poller() {
    if SCHED.searchers.idle_ps() != 0 && !poller_is_watched() {
        wake_searcher();
    }
}

/// Sleeps until a P was assigned, or (as the heir) until the poller's seat is free.
fn sleep_on_parker(m: &'static M) {
    loop {
        {
            let inner = SCHED.inner.lock();
            let is_me = |x: &M| std::ptr::eq(x, m);
            if !inner.poller.heir.is_some_and(is_me) && !inner.idle_ms.iter().any(|x| is_me(x)) {
                return;
            }
        }
        m.parker.park();
    }
}

/// Gives up the poller's seat; whoever waits for it takes it.
fn leave_poller(m: &'static M) {
    chaos::window();
    let mut inner = SCHED.inner.lock();
    POLL_UNTIL.store(0, Ordering::SeqCst);
    inner.poller.occupied = false;
    if inner.poller.sleeper.is_some_and(|x| std::ptr::eq(x, m)) {
        inner.poller.sleeper = None;
    }
    if let Some(heir) = inner.poller.heir.take() {
        drop(inner);
        heir.parker.unpark();
    }
}

fn sleep_in_poller(patience: Duration) -> Brought {
    loop {
        let next = SCHED.next_timer_ns();
        let timeout = if next == u64::MAX {
            None
        } else {
            Some(Duration::from_nanos(next.saturating_sub(mono_ns())).max(patience))
        };
        chaos::window();
        POLL_UNTIL.store(next, Ordering::SeqCst);
        // ORDER: SeqCst; pairs with the fence in Searchers::give_up(): a timer that was added before its P went idle is
        // seen now, or its M sees POLL_UNTIL.
        fence(Ordering::SeqCst);
        if SCHED.next_timer_ns() < next {
            continue;
        }
        chaos::window();
        let mut brought = Brought::default();
        if let Err(e) = SCHED.poller().wait(timeout, |event| brought.event(event)) {
            // Out of kernel memory, most likely: go on, without sleeping too deeply.
            say(format_args!("gort: waiting for events failed: {e}"));
            std::thread::sleep(Duration::from_millis(1));
        }
        network::looked();
        return brought;
    }
}

/// Until when the M in the poller sleeps; 0 when none does. Written by whoever has the seat.
static POLL_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Whether there is somebody in the poller, or nothing to wait for there.
pub(crate) fn poller_is_watched() -> bool {
    poller_is_occupied() || SCHED.next_timer_ns() == u64::MAX && !network::is_used()
}

/// Whether there is somebody in the poller.
#[inline]
pub(crate) fn poller_is_occupied() -> bool {
    POLL_UNTIL.load(Ordering::SeqCst) != 0
}

/// There may be a timer that is due before the M in the poller wakes up: then it is woken to look again.
pub(crate) fn wake_poller_for_timers() {
    // ORDER: SeqCst; pairs with sleep_in_poller(): either it sees the timer, or this sees until when it sleeps.
    fence(Ordering::SeqCst);
    let next = SCHED.next_timer_ns();
    if next < POLL_UNTIL.load(Ordering::SeqCst) {
        SCHED.waker().wake();
    }
}

/// Suspends the calling goroutine until `when_ns` on CLOCK_MONOTONIC.
pub(crate) fn sleep_until(inside: &Inside, when_ns: u64) {
    let wait = Wait { reason: Fixed::Sleep, kind: Kind::None, object: 0 };
    inside.park(wait, move |m, g| {
        m.must_p().timers.add(when_ns, g);
        wake_poller_for_timers();
        true
    });
}

//! The network in the scheduler: the one poller, what its events ready, and who looks when.
//!
//! ```text
//!   an M that finds no work            looks in passing (find_once), then sleeps in the poller, if the seat is free
//!   an M with much work                looks in passing now and then, unless somebody sleeps in the poller
//!   sysmon                             looks if nobody has for 10 ms: all Ms are in plain code
//! ```
//!
//! - E1: an event is told once, so whoever looks readies all that it brings. A look with a P readies onto that P, one without a P
//!   onto a P that it finds idle, or else into the global queue: all at once.
//! - E2: as long as there are sockets and an M is idle, one is in the poller. The seat's protocol (see [`crate::sched::Seat`]) sees to
//!   it for Ms that go to sleep; whoever leaves the poller, or gives a P to the idle list without going to sleep, looks whether
//!   anybody is there ([`crate::sched::find::poller_is_watched`]).
//! - E5: they queue with those that were due (P5 in p.rs): what comes from outside does not wait behind all that the program has to do, and
//!   does not starve it.
//! - E4: between an event and the readying nobody sees that somebody waits. So who carries what an event brings is counted from before the
//!   slot is told until after the readying: for the deadlock report, which looks at the slots, then at this count, then at the queues.
//! - E3: a goroutine is readied by whoever took its node off the list of its end of the socket, under that list's lock (K1).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use netpoll::{Descriptor, Descriptors, Event, Notified, Poller, Slot};
use parking_lot::Mutex;
use tracer::clock::mono_ns;
use tracer::record;
use tracer::wire::ext::Record;

use crate::prim::chaos;
use crate::sched::SCHED;
use crate::sched::find::poller_is_occupied;
use crate::sched::g::GList;
use crate::sched::m::M;
use crate::sched::park::{make_ready, make_ready_from_outside};
use crate::sched::wake::wake_searcher;
use crate::sync::waiter::{WaitList, Waiter};

/// How long nobody may have looked before sysmon does.
const UNSEEN_NS: u64 = 10_000_000;
/// How often an M with work looks in passing, at most.
const PASSING_NS: u64 = 50_000;

/// All sockets of the process.
pub(crate) static SOCKETS: Descriptors<Socket> = Descriptors::new();

/// A place for a socket.
pub(crate) type Place = Descriptor<Socket>;

/// What the runtime keeps of a socket, beside the slots.
#[derive(Default)]
pub(crate) struct Socket {
    /// The descriptor. It stays this socket's until the last handle goes.
    pub(crate) fd: AtomicI32,
    /// Handles to it.
    pub(crate) handles: AtomicUsize,
    /// Somebody has closed it while there were handles left. Written before those who wait are woken.
    pub(crate) closed: AtomicBool,
    /// The user wants `WouldBlock` instead of a wait.
    pub(crate) nonblocking: AtomicBool,
    /// A short read has taken everything there was (see [`Slot::drained`]).
    pub(crate) drains: AtomicBool,
    pub(crate) read: End,
    pub(crate) write: End,
}

/// One direction.
pub(crate) struct End {
    pub(crate) waiters: WaitList,
    /// When all waits end, on CLOCK_MONOTONIC; `u64::MAX` for never. Written under the list's lock.
    pub(crate) deadline_ns: AtomicU64,
    /// How long a wait may take; `u64::MAX` for any time.
    pub(crate) limit_ns: AtomicU64,
    /// Not every change is told, so who waits tries again now and then.
    pub(crate) is_unreliable: AtomicBool,
}

impl Default for End {
    fn default() -> End {
        End {
            waiters: WaitList::new(),
            deadline_ns: AtomicU64::new(u64::MAX),
            limit_ns: AtomicU64::new(u64::MAX),
            is_unreliable: AtomicBool::new(false),
        }
    }
}

/// A waiter's outcome: there was an event, and it was the only one who waited. (0: no event, but something else has changed.)
pub(crate) const EVENT: u32 = 1;
/// There was an event, and others wait: it MUST wake the next when it is done, for there may be more than it takes.
pub(crate) const EVENT_AND_MORE: u32 = 2;

impl End {
    /// Takes the first who waits off the list, because of an event. `slot` is this end's.
    #[inline]
    pub(crate) fn take_first(&self, slot: &Slot) -> Option<Waiter> {
        let last = || {
            // Said by somebody who came after the event, and was woken by hand.
            if slot.is_waiting() {
                slot.end_wait();
            }
        };
        self.waiters.finish_first(|more| if more { EVENT_AND_MORE } else { EVENT }, last)
    }
}

/// The poller, made when it is first wanted.
pub(crate) fn poller() -> io::Result<&'static Poller> {
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(poller) = SCHED.poller_if_made() {
        return Ok(poller);
    }
    let _one = MAKING.lock();
    if SCHED.poller_if_made().is_none() {
        SCHED.set_poller(Poller::new()?);
    }
    Ok(SCHED.poller())
}

/// When somebody last looked, on CLOCK_MONOTONIC.
static LOOKED_NS: AtomicU64 = AtomicU64::new(0);

/// How many carry what events have brought (E4).
static CARRIERS: AtomicUsize = AtomicUsize::new(0);

/// Whether somebody waits for a socket, or is on the way from there to a queue (E4).
pub(crate) fn anybody_waits() -> bool {
    SOCKETS.any_waiting() || CARRIERS.load(Ordering::SeqCst) != 0
}

/// What a look has brought. To be readied.
#[derive(Default)]
pub(crate) struct Brought {
    /// They wait, and nobody else will ready them (E3).
    gs: GList,
    events: u64,
    /// Counted in [`CARRIERS`].
    carries: bool,
}

impl Drop for Brought {
    fn drop(&mut self) {
        debug_assert!(self.gs.is_empty());
        if self.carries {
            CARRIERS.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Brought {
    pub(crate) fn is_empty(&self) -> bool {
        self.gs.is_empty()
    }

    /// Takes what an event brings.
    #[inline]
    pub(crate) fn event(&mut self, event: Event) {
        let Some((d, sequence)) = SOCKETS.find(event.token) else { return };
        self.events += 1;
        if !self.carries {
            self.carries = true;
            CARRIERS.fetch_add(1, Ordering::SeqCst);
        }
        if event.readable {
            self.end(&d.read, &d.data.read, sequence, event.closing);
        }
        if event.writable {
            self.end(&d.write, &d.data.write, sequence, event.closing);
        }
    }

    #[inline]
    fn end(&mut self, slot: &Slot, end: &End, sequence: u32, closing: bool) {
        if slot.notify(sequence, closing) == Notified::Wake {
            chaos::window();
            match end.take_first(slot) {
                Some(Waiter::Goroutine(g)) => self.gs.push_back(g),
                Some(Waiter::Thread(t)) => t.wake(),
                // It has left meanwhile.
                None => {}
            }
        }
    }

    fn record(&self, slept: bool) -> Record {
        Record::Netpoll { events: self.events, goroutines: self.gs.len() as u64, slept: u64::from(slept) }
    }

    /// Readies them onto the P of `m`. Its own search comes next.
    pub(crate) fn ready_here(mut self, m: &'static M, slept: bool) {
        if self.gs.is_empty() {
            return;
        }
        if let Some(guard) = m.slot.acquire_if_on()
            && let Some(mut w) = guard.writer()
        {
            w.extension(self.record(slept));
        }
        let p = m.must_p();
        let more = self.gs.len() > 1 || p.has_own_work();
        while let Some(g) = self.gs.pop_front() {
            make_ready(m, g);
            p.put_due(g);
        }
        if more {
            wake_searcher();
        }
    }

    /// Readies them for whichever P comes first. By an M without a P, which has slept for them, or by sysmon.
    pub(crate) fn ready_anywhere(mut self, slot: &'static record::Slot, slept: bool) {
        if self.gs.is_empty() {
            return;
        }
        if let Some(mut w) = slot.acquire().writer() {
            w.extension(self.record(slept));
        }
        let mut ready = GList::new();
        while let Some(g) = self.gs.pop_front() {
            make_ready_from_outside(slot, g);
            ready.push_back(g);
        }
        SCHED.global.push_all_due(&mut ready);
        wake_searcher();
    }
}

/// Whether there is anything to look for.
#[inline]
pub(crate) fn is_used() -> bool {
    SOCKETS.used() != 0
}

/// Looks in passing and readies onto the P of `m`; answers whether that has brought anybody.
pub(crate) fn look(m: &'static M) -> bool {
    // Whoever sleeps there sees it first.
    if !is_used() || poller_is_occupied() {
        return false;
    }
    let brought = poll();
    let any = !brought.is_empty();
    brought.ready_here(m, false);
    any
}

/// As [`look`], by an M that has other work: not too often.
#[cold]
pub(crate) fn look_now_and_then(m: &'static M) {
    if mono_ns().saturating_sub(LOOKED_NS.load(Ordering::Relaxed)) >= PASSING_NS {
        look(m);
    }
}

/// For sysmon: looks if nobody has for long.
pub(crate) fn look_from_outside(slot: &'static record::Slot, now: u64) {
    if is_used() && !poller_is_occupied() && now.saturating_sub(LOOKED_NS.load(Ordering::Relaxed)) >= UNSEEN_NS {
        poll().ready_anywhere(slot, false);
    }
}

fn poll() -> Brought {
    looked();
    let mut brought = Brought::default();
    // An error would come again where somebody waits, and is told there.
    let _ = SCHED.poller().poll(|event| brought.event(event));
    brought
}

/// Somebody has just looked, or slept there.
pub(crate) fn looked() {
    LOOKED_NS.store(mono_ns(), Ordering::Relaxed);
}

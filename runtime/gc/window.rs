//! Windows (H1), and the phase that they lie in.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tracer::record::Writer;

use crate::sched::emit;
use crate::sched::m::M;
use crate::sched::park::{Caller, Inside};

/// Held for reading in the windows of threads that no stopped world holds still.
static WINDOWS: RwLock<()> = RwLock::new(());

/// Twice the number of the cycle, and one less while it marks. Written in a stopped world (H1).
static PHASE: AtomicU32 = AtomicU32::new(0);

/// Where the collector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase(u32);

impl Phase {
    /// In a window, or by the coordinator; else it may be another by the time it is used.
    #[inline]
    pub(super) fn now() -> Phase {
        Phase(PHASE.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn is_marking(self) -> bool {
        self.0 & 1 != 0
    }

    /// The number of the cycle that marks, or has marked last.
    #[inline]
    pub(super) fn cycle(self) -> u32 {
        self.0.wrapping_add(1) >> 1
    }

    /// Which bitmap has the marks of this cycle: those that are being made, or, in phase idle, those that tell what is taken.
    #[inline]
    pub(super) fn marks(self) -> usize {
        (self.cycle() & 1) as usize
    }

    /// Which bitmap tells what is taken in a block that was swept.
    #[inline]
    pub(super) fn taken(self) -> usize {
        self.marks() ^ (self.0 & 1) as usize
    }

    /// The cycle after which a block must have been swept to be allocated from.
    #[inline]
    pub(super) fn swept(self) -> u32 {
        self.cycle().wrapping_sub(self.0 & 1)
    }

    /// The next phase. In a stopped world, with [`exclude_threads`].
    pub(super) fn advance() -> Phase {
        let next = Phase(PHASE.load(Ordering::Relaxed).wrapping_add(1));
        PHASE.store(next.0, Ordering::Relaxed);
        next
    }
}

/// Evidence that the phase stays what it is.
#[must_use]
pub(super) enum Window {
    Goroutine(Inside),
    Thread { _windows: RwLockReadGuard<'static, ()> },
}

impl Window {
    /// Opens one. A goroutine may be on another M afterwards, and again when it is closed.
    #[inline]
    pub(super) fn open() -> Window {
        match Inside::enter() {
            Some(inside) => Window::Goroutine(inside),
            None => Window::of_thread(),
        }
    }

    #[cold]
    fn of_thread() -> Window {
        Window::Thread { _windows: WINDOWS.read() }
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        Phase::now()
    }

    /// Closes it without giving others a turn.
    pub(super) fn close_at_once(self) {
        if let Window::Goroutine(inside) = self {
            inside.leave_at_once();
        }
    }

    /// The M, of a goroutine.
    #[inline]
    pub(super) fn m(&self) -> Option<&'static M> {
        match self {
            Window::Goroutine(inside) => Some(inside.m()),
            Window::Thread { .. } => None,
        }
    }

    /// Records something, if a trace is on and the caller has a place in it.
    #[inline]
    pub(super) fn record(&self, event: impl FnOnce(&mut Writer<'_>, &'static M, &Inside)) {
        if let Window::Goroutine(inside) = self {
            let m = inside.m();
            if let Some(guard) = m.slot.acquire_if_on()
                && let Some(mut w) = guard.writer()
            {
                event(&mut w, m, inside);
            }
        }
    }

    /// Records something that needs no P, also from a thread.
    pub(super) fn record_anywhere(&self, event: impl FnOnce(&mut Writer<'_>)) {
        match self {
            Window::Goroutine(_) => self.record(|w, m, _| {
                emit::context(w, m);
                event(w);
            }),
            Window::Thread { .. } => Caller::thread().record(event),
        }
    }
}

/// Waits until no thread is in a window, and keeps them out. By whoever has stopped the world.
pub(super) fn exclude_threads() -> RwLockWriteGuard<'static, ()> {
    WINDOWS.write()
}

//! The string ids of a generation: fixed ones for reasons and kinds, then those that the program adds.
//!
//! Fixed strings have the same ids in every generation and are written into each, so that an event can name its reason
//! without a look-up.

use crate::wire::reason;

/// Defines a fixed string set: an enum whose discriminants are the ids.
macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident = $text:expr,)*) => {
        /// A string that is in every generation's table under the same id.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Fixed { $($(#[$doc])* $name,)* }

        impl Fixed {
            const ALL: &'static [Fixed] = &[$(Fixed::$name,)*];

            /// The text that the trace shows: Go's own where Go has the notion.
            pub fn text(self) -> &'static str {
                match self { $(Fixed::$name => $text,)* }
            }
        }
    };
}

fixed! {
    /// A goroutine yielded.
    Yield = reason::GOSCHED,
    /// A goroutine used up its time slice.
    Preempted = reason::PREEMPTED,
    /// Blocked in a channel's receive.
    ChanReceive = reason::CHAN_RECEIVE,
    /// Blocked in a channel's send.
    ChanSend = reason::CHAN_SEND,
    /// Blocked in a lock, a wait group, a join.
    Sync = reason::SYNC,
    /// Blocked in a sleep.
    Sleep = reason::SLEEP,
    /// A goroutine of the runtime's own waits for work.
    System = reason::SYSTEM,
    /// Blocked for ever.
    Forever = reason::FOREVER,
    /// The world is stopped to start a trace.
    StartTrace = reason::STW_START_TRACE,
    /// Blocked in a select.
    Select = reason::SELECT,
    /// Blocked on a condition variable.
    CondWait = reason::COND_WAIT,
    /// The world is stopped to change the number of processors.
    Gomaxprocs = reason::STW_GOMAXPROCS,
    /// Blocked until a socket is ready.
    Network = reason::NETWORK,
    /// Blocked until others have marked.
    GcMarkAssist = reason::GC_MARK_ASSIST,
    /// The background sweeper has nothing to sweep.
    GcSweeper = reason::GC_SWEEPER,
    /// Blocked until a GC cycle is over.
    GcEnd = reason::GC_END,
    /// The world is stopped to begin marking.
    GcSweepTermination = reason::STW_GC_SWEEP_TERM,
    /// The world is stopped to end marking.
    GcMarkTermination = reason::STW_GC_MARK_TERM,
}

impl Fixed {
    /// Its id in every generation.
    #[inline]
    pub fn id(self) -> u64 {
        self as u64 + 1
    }
}

/// Ids up to this are for fixed strings.
pub(crate) const FIXED_MAX: u64 = 63;

/// All fixed strings with their ids.
pub(crate) fn fixed() -> impl Iterator<Item = (u64, &'static str)> {
    Fixed::ALL.iter().map(|f| (f.id(), f.text()))
}

/// The wire id of entry `id` of the generation's own table. Entry 0 (the table is full) becomes the empty string, id 0.
#[inline]
pub(crate) fn dynamic_id(id: u32) -> u64 {
    if id == 0 { 0 } else { FIXED_MAX + u64::from(id) }
}

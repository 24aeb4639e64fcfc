//! The strings that say why: why a goroutine blocked or stopped, why the world was stopped, what a GC worker is.
//!
//! They are Go's own, because `go tool trace` compares them (W3). Where Go has no word for a thing, use the nearest of
//! these and say more in the goroutine's stack: an unknown reason works, but falls out of Go's groups.

/// Nothing better is known (`GoBlock`, `GoStop`).
pub const UNSPECIFIED: &str = "unspecified";

// GoBlock.

/// Nobody can ever wake it: a select without cases, a receive from nothing.
pub const FOREVER: &str = "forever";
/// Waits for a socket.
pub const NETWORK: &str = "network";
/// Waits for one of several channel operations.
pub const SELECT: &str = "select";
/// Waits on a condition variable.
pub const COND_WAIT: &str = "sync.(*Cond).Wait";
/// Waits for a mutex, a read-write lock, a wait group, a semaphore, a once.
pub const SYNC: &str = "sync";
/// Waits to send.
pub const CHAN_SEND: &str = "chan send";
/// Waits to receive.
pub const CHAN_RECEIVE: &str = "chan receive";
/// A mutator that owes mark work waits for some.
pub const GC_MARK_ASSIST: &str = "GC mark assist wait for work";
/// The background sweeper has nothing to sweep.
pub const GC_SWEEPER: &str = "GC background sweeper wait";
/// A goroutine of the runtime's own waits for its next duty.
pub const SYSTEM: &str = "system goroutine wait";
/// Preempted (`GoBlock` while the world stops, `GoStop` at the end of a time slice).
pub const PREEMPTED: &str = "preempted";
/// Waits for a debugger's call.
pub const DEBUG_CALL: &str = "wait for debug call";
/// Waits for the end of this GC cycle.
pub const GC_END: &str = "wait until GC ends";
/// Sleeps.
pub const SLEEP: &str = "sleep";
/// A weak pointer is turned into a strong one during marking.
pub const GC_WEAK_TO_STRONG: &str = "GC weak to strong wait";
/// Waits inside a test with simulated time.
pub const SYNCTEST: &str = "synctest";

// GoStop.

/// The goroutine offered its time slice.
pub const GOSCHED: &str = "runtime.Gosched";

// GoLabel: what a mark worker is.

/// A mark worker that keeps its P for the whole cycle.
pub const GC_DEDICATED: &str = "GC (dedicated)";
/// A mark worker that takes its share of a P's time.
pub const GC_FRACTIONAL: &str = "GC (fractional)";
/// A mark worker on a P that has nothing else to do.
pub const GC_IDLE: &str = "GC (idle)";

// STWBegin.

/// The world stops for a reason without a name.
pub const STW_UNKNOWN: &str = "unknown";
/// The world stops to end the mark phase.
pub const STW_GC_MARK_TERM: &str = "GC mark termination";
/// The world stops to end sweeping and begin marking.
pub const STW_GC_SWEEP_TERM: &str = "GC sweep termination";
/// The world stops for a dump of the heap.
pub const STW_HEAP_DUMP: &str = "write heap dump";
/// The world stops for a goroutine profile.
pub const STW_GOROUTINE_PROFILE: &str = "goroutine profile";
/// The world stops for the end of a goroutine profile.
pub const STW_GOROUTINE_PROFILE_CLEANUP: &str = "goroutine profile cleanup";
/// The world stops to dump every goroutine's stack.
pub const STW_ALL_STACKS: &str = "all goroutines stack trace";
/// The world stops to read the memory statistics.
pub const STW_MEM_STATS: &str = "read mem stats";
/// The world stops to run one call on every thread.
pub const STW_ALL_THREADS: &str = "AllThreadsSyscall";
/// The world stops to change the number of Ps.
pub const STW_GOMAXPROCS: &str = "GOMAXPROCS";
/// The world stops to begin a trace.
pub const STW_START_TRACE: &str = "start trace";
/// The world stops to end a trace.
pub const STW_STOP_TRACE: &str = "stop trace";

/// Every reason a goroutine can block with, in Go's order.
pub const BLOCK: [&str; 17] = [
    UNSPECIFIED,
    FOREVER,
    NETWORK,
    SELECT,
    COND_WAIT,
    SYNC,
    CHAN_SEND,
    CHAN_RECEIVE,
    GC_MARK_ASSIST,
    GC_SWEEPER,
    SYSTEM,
    PREEMPTED,
    DEBUG_CALL,
    GC_END,
    SLEEP,
    GC_WEAK_TO_STRONG,
    SYNCTEST,
];

/// Every reason a goroutine can stop with and stay runnable.
pub const STOP: [&str; 3] = [UNSPECIFIED, GOSCHED, PREEMPTED];

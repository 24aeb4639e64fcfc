//! "all goroutines are asleep": nothing runs, nothing will.
//!
//! - D1: reported only when all Ps are idle, nothing is runnable, no timer is set, nobody waits for a socket, and every thread of the process is
//!   accounted for: Ms that sleep, sysmon, the reporter and the keeper's threads while they sleep, the tracer's threads, the thread that sends signals while nobody listens to
//!   any, and threads that wait in a primitive of ours. Any other thread could still send, so then there is no report. Nor is there one while
//!   somebody listens to signals: anybody may send those.
//! - D2: it must look the same for [`SETTLE_NS`], with no goroutine of the program's resumed meanwhile: a thread that was woken counts as
//!   awake from the wake-up on, but a goroutine that hands over to a thread may be seen between the two.
//! - D4: the threads are counted between two looks at everything else, which must agree. A thread that sends and ends
//!   meanwhile shows in the second look; one that was born before its maker fell asleep shows in the count. The count is the kernel's own, which is of
//!   one moment. A list of the threads is not: it ends early when the thread ends that is just being listed, and then one that is
//!   ours and one that is not may make up for each other.
//! - D3: only while somebody waits in `rt::run`: a process that merely keeps goroutines parked in the background is not
//!   deadlocked.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracer::unwind::Regs;

use crate::prim::say::say;
use crate::sched::life::stackless;
use crate::sched::m::M;
use crate::sched::sysmon::all_idle;
use crate::sched::{SCHED, dump, foreign, network, quit, reporter, wired};
use crate::stack::arena::ARENA;

/// How long a state without progress is watched before it is called a deadlock.
const SETTLE_NS: u64 = 30_000_000;
/// How long until it is looked at again when it was none.
const AGAIN_NS: u64 = 150_000_000;

/// Callers that wait in `rt::run`.
pub(crate) static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Whether signals could still wake somebody.
pub(crate) static SIGNALS: Signals = Signals { listeners: AtomicUsize::new(0), threads: AtomicUsize::new(0) };

/// What is to be known of [`crate::signal`].
pub(crate) struct Signals {
    listeners: AtomicUsize,
    /// One, when it has been made. It sends nothing while nobody listens.
    threads: AtomicUsize,
}

impl Signals {
    /// So many listen. Set before the first signal can come, and when the last cannot any more.
    pub(crate) fn set_listeners(&self, n: usize) {
        self.listeners.store(n, Ordering::SeqCst);
    }

    /// The thread was started. Somebody listens.
    pub(crate) fn has_thread(&self) {
        self.threads.store(1, Ordering::SeqCst);
    }
}

/// Watches an idle scheduler.
pub(crate) struct Watch {
    /// Since when nothing has run, and the count of turns then.
    since: Option<(u64, u32)>,
    /// When it was last found to be no deadlock.
    checked: Option<u64>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { since: None, checked: None }
    }

    /// Not all Ps are idle.
    pub(crate) fn interrupted(&mut self) {
        // The tracer's advancer does not count: it runs once a second whatever the program does.
        let of_user = |m: &M| m.current().is_some_and(|g| !g.marks.is_system());
        if SCHED.ps().iter().any(|p| p.m().is_some_and(of_user)) {
            *self = Watch::new();
        }
    }

    /// Whether the idle state was looked at for long enough to know that it is no deadlock, for now.
    pub(crate) fn is_settled(&self) -> bool {
        self.checked.is_some()
    }

    /// All Ps are idle at `now`.
    pub(crate) fn look(&mut self, now: u64) {
        let turns = turns();
        let Some((since, _)) = self.since.filter(|s| s.1 == turns) else {
            *self = Watch { since: Some((now, turns)), checked: None };
            return;
        };
        // Again and again: the thread that could have sent may have ended meanwhile.
        let due = self.checked.map_or(since + SETTLE_NS, |c| c + AGAIN_NS);
        if now >= due {
            self.checked = Some(now);
            if is_deadlock(now - since) {
                report();
            }
        }
    }
}

/// D1, D3, D4.
fn is_deadlock(quiet_ns: u64) -> bool {
    if RUNS.load(Ordering::SeqCst) == 0 {
        return false;
    }
    if crate::trace::certain_after().is_none_or(|d| quiet_ns < d.as_nanos() as u64) {
        return false;
    }
    let Some(before) = Stillness::look() else { return false };
    // The tracer's threads, which wake nobody (see above). One that waits in a primitive of ours is among those already.
    let tracers = tracer::record::threads().into_iter().filter(|tid| !foreign::is_asleep(*tid)).count();
    let ours = before.ms + 1 + tracers + before.asleep + before.reporters + before.signal_threads;
    threads().is_some_and(|n| n == ours) && Stillness::look() == Some(before)
}

/// What must not change while the threads are counted.
#[derive(PartialEq, Eq)]
struct Stillness {
    /// Ms, all of them asleep.
    ms: usize,
    /// Other threads that wait in a primitive, and how often one was woken.
    asleep: usize,
    wakes: u64,
    /// How many of the reporter and the keeper's threads sleep: then they, too, wake nobody.
    reporters: usize,
    /// Whether there is the thread that sends signals, and nobody who listens to them.
    signal_threads: usize,
    /// Turns of goroutines so far.
    turns: u32,
}

impl Stillness {
    /// `None` if something runs or will run.
    fn look() -> Option<Stillness> {
        // Before the queues (E4 in network.rs).
        if network::anybody_waits() {
            return None;
        }
        let (asleep, wakes, turns) = (foreign::asleep(), foreign::wakes(), turns());
        let reporters = reporter::sleeping_threads() + crate::trace::sleeping_keepers();
        if SIGNALS.listeners.load(Ordering::SeqCst) != 0 {
            return None;
        }
        let signal_threads = SIGNALS.threads.load(Ordering::SeqCst);
        let ms = {
            let inner = SCHED.inner.lock();
            let seat = &inner.poller;
            let idle = inner.idle_ms.len() + usize::from(seat.sleeper.is_some()) + usize::from(seat.heir.is_some());
            if idle + wired::waiting() != inner.ms || !all_idle() {
                return None;
            }
            inner.ms
        };
        let nothing = !SCHED.has_work() && SCHED.next_timer_ns() == u64::MAX;
        nothing.then_some(Stillness { ms, asleep, wakes, reporters, signal_threads, turns })
    }
}

/// Turns of the program's goroutines so far.
fn turns() -> u32 {
    SCHED.all_ps().iter().fold(0u32, |n, p| n.wrapping_add(p.turns.load(Ordering::Relaxed)))
}

/// Threads of this process; `None` where nobody can tell, and then there is no report.
fn threads() -> Option<usize> {
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

fn report() -> ! {
    let mut text = String::from("fatal error: all goroutines are asleep - deadlock!\n");
    if stackless() != 0 {
        text.push_str(&format!("{} goroutines wait for a stack ({} are in use)\n", stackless(), ARENA.live()));
    }
    text.push('\n');
    text.push_str(&dump::all(Regs::default()).to_string());
    say(format_args!("{}", text.trim_end()));
    quit::finish(quit::EXIT_CODE)
}

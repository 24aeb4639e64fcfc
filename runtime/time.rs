//! Time for goroutines: sleeping, and channels on which the time arrives.
//!
//! ```text
//!   Timer, Ticker, after -> Alarm in a P's heap -> fires on an M -> a message in a channel with room for one
//! ```
//!
//! - A1: everything about a setting (armed, when, the heap's entry, the message in the channel) changes under the core's lock. So
//!   after [`Timer::stop`] no message of the old setting comes, and after [`Timer::reset`] none but the new one's.
//! - A2: an alarm that was taken out of the heap just before it was stopped or reset still fires; it finds that nothing is armed, or
//!   not yet due, and does nothing.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracer::clock::mono_ns;

use crate::chan::{Chan, Feeder, Receiver};
use crate::sched::park::{Caller, Inside};
use crate::sched::timer::{Alarm, OnTime, Timers};
use crate::sched::{SCHED, find, run, wake};

/// Suspends the calling goroutine (or thread) for at least `duration`. Zero yields.
///
/// ```
/// use std::time::{Duration, Instant};
/// let slept = rt::run(|| {
///     let began = Instant::now();
///     rt::time::sleep(Duration::from_millis(5));
///     began.elapsed()
/// });
/// assert!(slept >= Duration::from_millis(5));
/// ```
pub fn sleep(duration: Duration) {
    // Before the crossing, which may take a while.
    let until_ns = after_ns(duration);
    match Inside::enter() {
        Some(inside) => sleep_inside(&inside, until_ns, duration.is_zero()),
        None => std::thread::sleep(duration),
    }
}

fn sleep_inside(inside: &Inside, until_ns: u64, only_a_turn: bool) {
    if only_a_turn {
        inside.offer_turn();
    } else {
        find::sleep_until(inside, until_ns);
    }
}

/// Suspends the calling goroutine (or thread) until `deadline`. If that has passed, yields.
pub fn sleep_until(deadline: Instant) {
    sleep(deadline.saturating_duration_since(Instant::now()));
}

/// As [`sleep_until`], by CLOCK_MONOTONIC.
pub(crate) fn sleep_until_ns(ns: u64) {
    let now = mono_ns();
    match Inside::enter() {
        Some(inside) => sleep_inside(&inside, ns, ns <= now),
        None => std::thread::sleep(Duration::from_nanos(ns.saturating_sub(now))),
    }
}

/// So long from now, in nanoseconds on CLOCK_MONOTONIC. What cannot be reached is as good as never, but MUST NOT be mistaken for
/// "no timer".
pub(crate) fn after_ns(duration: Duration) -> u64 {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    mono_ns().saturating_add(ns).min(u64::MAX - 1)
}

/// A point in time on CLOCK_MONOTONIC.
pub(crate) fn at_ns(deadline: Instant) -> u64 {
    after_ns(deadline.saturating_duration_since(Instant::now()))
}

/// Sets an alarm, on the caller's P if it has one. The caller, which is in the runtime, lets go of its locks before it calls
/// [`announce`].
pub(crate) fn set_alarm(caller: &Caller, alarm: &Arc<Alarm>, when_ns: u64) {
    let timers: &'static Timers = match caller {
        Caller::Goroutine(inside) => &inside.m().must_p().timers,
        Caller::Machine(m) => &m.must_p().timers,
        Caller::Thread(_) | Caller::Monitor(_) => &SCHED.ps()[0].timers,
    };
    alarm.set(timers, when_ns);
}

/// An alarm was set: whoever sleeps until the next one looks again.
pub(crate) fn announce(caller: &Caller) {
    find::wake_poller_for_timers();
    if let Caller::Thread(_) | Caller::Monitor(_) = caller
        && !find::poller_is_watched()
    {
        wake::wake_searcher();
    }
}

/// The caller, who is about to set an alarm: somebody must be there to see it fire.
pub(crate) fn alarm_setter() -> Caller {
    let caller = Caller::here();
    if let Caller::Thread(_) = caller {
        run::start_default();
    }
    caller
}

/// What a timer and its alarm share.
struct Core {
    setting: Mutex<Setting>,
    chan: Weak<Chan<Instant>>,
}

#[derive(Clone, Copy)]
struct Setting {
    /// When it is to fire; `None`: not armed.
    when_ns: Option<u64>,
    /// 0: once.
    period_ns: u64,
}

/// The core, as the alarm's duty.
struct Duty(Arc<Core>);

impl OnTime for Duty {
    fn fire(&self, alarm: &Arc<Alarm>, caller: &Caller) {
        let Some(chan) = self.0.chan.upgrade() else { return };
        let waiter = {
            let mut setting = self.0.setting.lock();
            let now = mono_ns();
            // A2
            let Some(when) = setting.when_ns.filter(|when| *when <= now) else { return };
            setting.when_ns = None;
            // Ticks that were missed are left out.
            if let Some(missed) = (now - when).checked_div(setting.period_ns) {
                let next = when.saturating_add(setting.period_ns.saturating_mul(missed + 1)).min(u64::MAX - 1);
                setting.when_ns = Some(next);
                // A2: a reset may have put it in again.
                alarm.cancel();
                set_alarm(caller, alarm, next);
            }
            chan.offer(Instant::now())
        };
        if let Some(w) = waiter {
            caller.wake(w);
        }
    }
}

/// A channel on which the time arrives.
struct TimeChannel {
    receiver: Receiver<Instant>,
    handle: Arc<Handle>,
}

/// A setting with its alarm.
struct Handle {
    core: Arc<Core>,
    alarm: Arc<Alarm>,
}

impl Feeder for Handle {
    fn abandoned(&self) {
        self.set(None, 0);
    }
}

impl Handle {
    /// Changes the setting; answers whether it was armed. A message of the old setting is taken back (A1).
    fn set(&self, when_ns: Option<u64>, period_ns: u64) -> bool {
        // B5: cross first, lock second.
        let caller = alarm_setter();
        let mut setting = self.core.setting.lock();
        let was_armed = setting.when_ns.is_some();
        *setting = Setting { when_ns, period_ns };
        self.alarm.cancel();
        if let Some(chan) = self.core.chan.upgrade() {
            chan.locked(|c| c.queue.clear());
        }
        if let Some(when_ns) = when_ns {
            set_alarm(&caller, &self.alarm, when_ns);
        }
        drop(setting);
        if when_ns.is_some() {
            announce(&caller);
        }
        was_armed
    }
}

impl TimeChannel {
    fn new(when_ns: u64, period_ns: u64) -> TimeChannel {
        let chan = Chan::new(1);
        let setting = Mutex::new(Setting { when_ns: None, period_ns: 0 });
        let core = Arc::new(Core { setting, chan: Arc::downgrade(&chan) });
        let alarm = Alarm::new(Duty(core.clone()));
        let handle = Arc::new(Handle { core, alarm });
        // No cycle: the core knows the channel weakly.
        let feeder: Arc<dyn Feeder> = handle.clone();
        assert!(chan.feeder.set(feeder).is_ok(), "a new channel has no feeder");
        let receiver = Receiver::of(chan);
        handle.set(Some(when_ns), period_ns);
        TimeChannel { receiver, handle }
    }
}

/// A channel that receives the time once, after `duration`.
///
/// Dropping the receiver gives everything back, also before the time has come. In a loop that waits for other things
/// too, `default(duration)` in [`select!`](crate::select!) does the same for less.
///
/// ```
/// use std::time::Duration;
/// let (tx, rx) = rt::chan::bounded::<()>(0);
/// let timeout = rt::time::after(Duration::from_millis(5));
/// rt::select! {
///     recv(rx) -> _ => unreachable!(),
///     recv(timeout) -> _ => {}
/// }
/// # drop(tx);
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    // The feeder in the channel stops it when the receiver is dropped.
    TimeChannel::new(after_ns(duration), 0).receiver
}

/// Something that happens once, later: a message in [`receiver`](Timer::receiver) with the time at which it fired. Go's
/// `time.Timer`.
///
/// Dropping the timer stops it.
///
/// ```
/// use std::time::Duration;
/// use rt::time::Timer;
///
/// let timer = Timer::new(Duration::from_secs(3600));
/// assert!(timer.reset(Duration::from_millis(1)));
/// timer.receiver().recv().unwrap();
/// assert!(!timer.stop());
/// ```
pub struct Timer {
    channel: TimeChannel,
}

impl Timer {
    /// A timer that fires after `duration`.
    pub fn new(duration: Duration) -> Timer {
        Timer { channel: TimeChannel::new(after_ns(duration), 0) }
    }

    /// A timer that fires at `deadline`.
    pub fn at(deadline: Instant) -> Timer {
        Timer { channel: TimeChannel::new(at_ns(deadline), 0) }
    }

    /// Where it fires.
    pub fn receiver(&self) -> &Receiver<Instant> {
        &self.channel.receiver
    }

    /// Stops the timer; answers whether it had not fired yet. Afterwards no message comes, and none is left in the channel.
    pub fn stop(&self) -> bool {
        self.channel.handle.set(None, 0)
    }

    /// Lets the timer fire after `duration` from now, and not when it would have; answers whether it had not fired yet. A
    /// message that nobody has received is taken back.
    pub fn reset(&self, duration: Duration) -> bool {
        self.channel.handle.set(Some(after_ns(duration)), 0)
    }

    /// As [`Timer::reset`], with a point in time.
    pub fn reset_at(&self, deadline: Instant) -> bool {
        self.channel.handle.set(Some(at_ns(deadline)), 0)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let armed = self.channel.handle.core.setting.lock().when_ns.is_some();
        f.debug_struct("Timer").field("armed", &armed).finish_non_exhaustive()
    }
}

/// Something that happens again and again: a message in [`receiver`](Ticker::receiver) every period. Go's `time.Ticker`.
///
/// A receiver that is late misses ticks: the channel holds one. Dropping the ticker stops it.
///
/// ```
/// use std::time::Duration;
///
/// let ticker = rt::time::Ticker::new(Duration::from_millis(1));
/// for _ in 0..3 {
///     ticker.receiver().recv().unwrap();
/// }
/// ```
pub struct Ticker {
    channel: TimeChannel,
}

impl Ticker {
    /// A ticker whose first tick comes after one period.
    ///
    /// # Panics
    ///
    /// If the period is zero.
    #[track_caller]
    pub fn new(period: Duration) -> Ticker {
        Ticker { channel: TimeChannel::new(after_ns(period), period_ns(period)) }
    }

    /// Where it ticks.
    pub fn receiver(&self) -> &Receiver<Instant> {
        &self.channel.receiver
    }

    /// Stops the ticker. No tick comes afterwards, and none is left in the channel. The channel stays open.
    pub fn stop(&self) {
        self.channel.handle.set(None, 0);
    }

    /// Lets it tick with another period, the first time after one period from now.
    ///
    /// # Panics
    ///
    /// If the period is zero.
    #[track_caller]
    pub fn reset(&self, period: Duration) {
        self.channel.handle.set(Some(after_ns(period)), period_ns(period));
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Ticker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let setting = *self.channel.handle.core.setting.lock();
        f.debug_struct("Ticker")
            .field("period", &Duration::from_nanos(setting.period_ns))
            .field("armed", &setting.when_ns.is_some())
            .finish_non_exhaustive()
    }
}

#[track_caller]
fn period_ns(period: Duration) -> u64 {
    assert!(!period.is_zero(), "a ticker's period is more than zero");
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

//! Precise time-outs: a timerfd in the poll set, where there is one.
//!
//! It also serves whole milliseconds, which mio would not round: a thread's waits have a slack of 50 us, a timerfd has
//! none, and arming it costs 0.3 us. (Measured: late by 35 us, which is the wake-up of the thread, against 90.)
//!
//! The timer is armed anew for each wait that needs it, never read and never disarmed: it is registered edge-triggered,
//! and arming it resets its count. So an expiry that nobody collected can at worst end one wait early, and the waiter
//! looks at the clock (N4).

use std::io;
use std::time::Duration;

/// Says how a wait of `timeout` is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The timer ends the wait: poll without a time-out.
    Armed,
    /// Hand the time-out to mio.
    Mio,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use super::*;
    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use std::os::fd::{AsRawFd, OwnedFd};

    /// The timerfd, or none where the kernel refused it.
    #[derive(Debug)]
    pub(crate) struct Timer(Option<OwnedFd>);

    impl Timer {
        /// Makes the timer and puts it into the poll set. A kernel without timerfd leaves mio's rounding.
        pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let Ok(fd) = timerfd_create(TimerfdClockId::Monotonic, flags) else { return Ok(Timer(None)) };
            registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Timer(Some(fd)))
        }

        /// Arms the timer, if there is one and something to wait for.
        pub(crate) fn arm(&self, timeout: Duration) -> Arm {
            let Some(fd) = &self.0 else { return Arm::Mio };
            // Zero would disarm it.
            if timeout.is_zero() {
                return Arm::Mio;
            }
            let Ok(value) = Timespec::try_from(timeout) else { return Arm::Mio };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            match timerfd_settime(fd, TimerfdTimerFlags::empty(), &once) {
                Ok(_) => Arm::Armed,
                Err(_) => Arm::Mio,
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use super::*;
    use mio::{Registry, Token};

    /// No timer here: time-outs are mio's.
    #[derive(Debug)]
    pub(crate) struct Timer;

    impl Timer {
        /// Nothing to put into the poll set.
        pub(crate) fn new(_registry: &Registry, _token: Token) -> io::Result<Timer> {
            Ok(Timer)
        }

        /// Always mio's.
        pub(crate) fn arm(&self, _timeout: Duration) -> Arm {
            Arm::Mio
        }
    }
}

pub(crate) use imp::Timer;

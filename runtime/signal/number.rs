//! Which signal.

use std::fmt;

/// A signal of the operating system, by its number.
///
/// ```
/// use rt::signal::Signal;
///
/// assert_eq!(Signal::TERMINATE.to_string(), "SIGTERM");
/// assert_eq!(Signal::from_raw(2), Some(Signal::INTERRUPT));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

/// Numbers are below this, whatever the system.
pub(super) const NUMBERS: usize = 128;

macro_rules! signals {
    ($($(#[$doc:meta])* $name:ident = $raw:ident;)+) => {
        impl Signal {
            $($(#[$doc])* pub const $name: Signal = Signal(libc::$raw as u8);)+

            /// The system's name for it, such as `SIGTERM`; `None` for those that have only a number.
            pub const fn name(self) -> Option<&'static str> {
                match self.as_raw() {
                    $(libc::$raw => Some(stringify!($raw)),)+
                    _ => None,
                }
            }
        }
    };
}

signals! {
    /// The terminal is gone; to many servers: read your configuration again. Ends the process by default.
    HANGUP = SIGHUP;
    /// Ctrl-C. Ends the process by default.
    INTERRUPT = SIGINT;
    /// Ctrl-\. By default the runtime writes what all goroutines do, and ends the process with code 2: see `RT_SIGQUIT`.
    QUIT = SIGQUIT;
    /// An instruction that does not exist.
    ILLEGAL_INSTRUCTION = SIGILL;
    /// A debugger's breakpoint.
    TRAP = SIGTRAP;
    /// `abort`.
    ABORT = SIGABRT;
    /// An address without memory behind it.
    BUS_ERROR = SIGBUS;
    /// A division of integers that has no result.
    ARITHMETIC = SIGFPE;
    /// Ends the process. Cannot be caught.
    KILL = SIGKILL;
    /// What the program likes. Ends the process by default.
    USR1 = SIGUSR1;
    /// An address that is not the program's.
    SEGMENT_VIOLATION = SIGSEGV;
    /// What the program likes. Ends the process by default.
    USR2 = SIGUSR2;
    /// Nobody reads what is written. Ignored in Rust programs, where the write gives an error.
    PIPE = SIGPIPE;
    /// A timer of the system's. Ends the process by default.
    ALARM = SIGALRM;
    /// Please end: `kill`, and service managers. Ends the process by default.
    TERMINATE = SIGTERM;
    /// A child has ended or stopped. Ignored by default.
    CHILD = SIGCHLD;
    /// Go on after a stop.
    CONTINUE = SIGCONT;
    /// Stops the process. Cannot be caught.
    STOP = SIGSTOP;
    /// Ctrl-Z. Stops the process by default.
    TERMINAL_STOP = SIGTSTP;
    /// A process in the background reads from its terminal. Stops the process by default.
    TERMINAL_INPUT = SIGTTIN;
    /// A process in the background writes to its terminal. Stops the process by default.
    TERMINAL_OUTPUT = SIGTTOU;
    /// Data out of line on a socket. The runtime uses it.
    URGENT = SIGURG;
    /// Too much processor time. Ends the process by default.
    CPU_LIMIT = SIGXCPU;
    /// A file has grown too large. Ends the process by default.
    FILE_SIZE_LIMIT = SIGXFSZ;
    /// A timer of processor time. Ends the process by default.
    VIRTUAL_ALARM = SIGVTALRM;
    /// A timer for profiles. Ends the process by default.
    PROFILE = SIGPROF;
    /// The terminal has got another size. Ignored by default.
    WINDOW_CHANGE = SIGWINCH;
    /// A descriptor is ready, for whoever asked for it. Ends the process by default.
    IO = SIGIO;
    /// A system call that does not exist.
    BAD_SYSTEM_CALL = SIGSYS;
}

impl Signal {
    /// The signal of this number, if a signal can have it. Whether this system has it shows when it is used.
    pub const fn from_raw(number: i32) -> Option<Signal> {
        if number >= 1 && number < NUMBERS as i32 { Some(Signal(number as u8)) } else { None }
    }

    /// Its number.
    pub const fn as_raw(self) -> i32 {
        self.0 as i32
    }

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Why the program cannot have it, if it cannot.
    pub(super) fn refusal(self) -> Option<&'static str> {
        match self {
            Signal::KILL | Signal::STOP => Some("the system lets nobody catch or ignore it"),
            Signal::SEGMENT_VIOLATION | Signal::BUS_ERROR | Signal::ARITHMETIC | Signal::ILLEGAL_INSTRUCTION => {
                Some("it is a fault of the running instruction, which cannot wait for a goroutine to see to it")
            }
            Signal::URGENT => Some("the runtime uses it to ask goroutines where they are"),
            _ => None,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of signals.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Set(pub(super) u128);

impl Set {
    pub(super) const EMPTY: Set = Set(0);

    pub(super) fn of(signals: &[Signal]) -> Set {
        Set(signals.iter().fold(0, |set, s| set | 1 << s.index()))
    }

    pub(super) fn has(self, signal: Signal) -> bool {
        self.0 >> signal.index() & 1 != 0
    }

    pub(super) fn and(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(super) fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// From the lowest number on.
    pub(super) fn iter(self) -> impl Iterator<Item = Signal> {
        (1..NUMBERS as i32).filter_map(Signal::from_raw).filter(move |s| self.has(*s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(Signal::from_raw(0), None);
        assert_eq!(Signal::from_raw(-1), None);
        assert_eq!(Signal::from_raw(128), None);
        assert_eq!(Signal::from_raw(64).unwrap().to_string(), "signal 64");
        assert_eq!(Signal::from_raw(libc::SIGWINCH).unwrap(), Signal::WINDOW_CHANGE);
        assert_eq!(format!("{:?} [{:>8}]", Signal::USR1, Signal::USR2), "SIGUSR1 [ SIGUSR2]");
        for raw in 1..128 {
            assert_eq!(Signal::from_raw(raw).unwrap().as_raw(), raw);
        }
    }

    #[test]
    fn sets() {
        let last = Signal::from_raw(127).unwrap();
        let set = Set::of(&[last, Signal::TERMINATE, Signal::HANGUP]);
        assert!(set.iter().eq([Signal::HANGUP, Signal::TERMINATE, last]));
        assert!(set.without(Set::of(&[Signal::TERMINATE, Signal::USR1])).iter().eq([Signal::HANGUP, last]));
        assert!(Set::EMPTY.is_empty() && set.without(set).is_empty() && set.and(Set::EMPTY) == set);
    }
}

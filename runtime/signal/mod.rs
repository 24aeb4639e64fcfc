//! Signals of the operating system, as messages in channels.
//!
//! ```
//! use rt::signal::{self, Signal};
//!
//! rt::run(|| {
//!     let signals = signal::notify(&[Signal::INTERRUPT, Signal::TERMINATE])?;
//!     # signal::raise(Signal::TERMINATE)?;
//!     // ... start what the program does ...
//!     let which = signals.recv().unwrap();
//!     println!("{which}: closing down");
//!     // From here on the signals have their old meaning: a second Ctrl-C ends the process.
//!     drop(signals);
//!     Ok::<(), std::io::Error>(())
//! }).unwrap();
//! ```
//!
//! The semantics are those of Go's `os/signal`, with a handle in the place of its `Stop`:
//!
//! - **Nobody waits for a receiver.** A signal for which a channel has no room is dropped, for that channel. [`notify`] gives each
//!   call a channel of its own, with room for 16; what must not be missed because another signal comes often gets a channel of its
//!   own.
//! - **Signals are not counted.** The system keeps one of each kind until it is seen to, and so does this module: a thousand of SIGUSR1
//!   in a moment may come out as one.
//! - **While somebody listens** the signal has no other effect, but for handlers that the program or a library had installed before: they
//!   go on being called. When the last [handle](Notify) is gone, the signal does what it did before. One that came in the
//!   moment between is not lost: it is sent again.
//! - **Everyone who listens gets it,** goroutines and threads, in as many channels as there are.
//! - **A child process** starts with the default meaning of what is listened to here, and ignores what is [ignored](ignore) here.
//!
//! # Which ones
//!
//! SIGKILL and SIGSTOP cannot be caught. SIGSEGV, SIGBUS, SIGFPE and SIGILL are faults of the running code, and the runtime reports
//! stack overflows through the first two; SIGURG is the runtime's. [`notify`], [`ignore`] and [`reset`] refuse those.
//!
//! SIGQUIT is taken by the runtime when it starts, unless it has another meaning by then: it writes what all goroutines do, and ends the
//! process with code 2 (`RT_SIGQUIT`). While a program listens to it or ignores it that does not happen; afterwards it does
//! again.
//!
//! # Deadlocks
//!
//! While somebody listens, a signal may still come, and a program in which all goroutines wait is not reported as deadlocked.
//!
//! How it works: `signal/registry.rs`.

mod bell;
mod handler;
mod number;
mod registry;

use std::fmt;
use std::io::{self, Error, ErrorKind};
use std::ops::Deref;

pub use number::Signal;

use crate::chan::{self, Receiver, Sender};
use number::Set;
use registry::{Listener, REGISTRY, Target};

/// Messages that the channel of [`notify`] holds.
const CAPACITY: usize = 16;

/// The signals as a set, if the program can have them all.
fn allowed(signals: &[Signal]) -> io::Result<Set> {
    for s in signals {
        if let Some(why) = s.refusal() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{s}: {why}: leave it out")));
        }
    }
    Ok(Set::of(signals))
}

/// Listens to signals: each one that comes to the process is received from the channel that this gives.
///
/// The channel has room for 16. If nobody makes room, what comes is dropped.
///
/// # Errors
///
/// If one of the signals cannot be had (see [above](self#which-ones)), the system has no such signal, none is named, or no thread could be
/// started. Then nothing has changed.
///
/// ```
/// use std::time::Duration;
/// use rt::signal::{self, Signal};
///
/// rt::run(|| {
///     let hangups = signal::notify(&[Signal::HANGUP]).unwrap();
///     let tick = rt::time::after(Duration::from_millis(1));
///     rt::select! {
///         recv(hangups) -> _ => println!("reading the configuration again"),
///         recv(tick) -> _ => println!("nothing came"),
///     }
/// });
/// ```
pub fn notify(signals: &[Signal]) -> io::Result<Signals> {
    let (sender, receiver) = chan::bounded(CAPACITY);
    Ok(Signals { notify: notify_to(signals, sender)?, receiver })
}

/// Listens to signals by a channel of the caller's own, for as long as the handle lives.
///
/// Nobody waits for room in it: with a capacity of 0 a signal reaches only who waits for it at that moment. Closing the channel is no
/// end: only dropping the handle gives the signals their old meaning back.
///
/// # Errors
///
/// As [`notify`].
pub fn notify_to(signals: &[Signal], sender: Sender<Signal>) -> io::Result<Notify> {
    listen(signals, Target::Channel(sender))
}

/// A [`hook`], until this is dropped.
pub(crate) type Hooked = Notify;

/// Has something short done for each signal, by the thread that sends them. It wakes nobody of the program's, so the deadlock report does not
/// count it as somebody who listens.
pub(crate) fn hook(signal: Signal, hook: impl Fn() + Send + 'static) -> io::Result<Hooked> {
    listen(&[signal], Target::Hook(Box::new(hook)))
}

fn listen(signals: &[Signal], target: Target) -> io::Result<Notify> {
    let set = allowed(signals)?;
    if set.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "no signal to listen to: name at least one"));
    }
    let mut registry = REGISTRY.lock();
    let id = registry.next_id;
    registry.next_id += 1;
    // SG3
    registry.listeners.push(Listener { id, signals: set, target });
    let ignored = registry.ignored;
    registry.ignored = ignored.without(set);
    let listens =
        registry.settle(Set::EMPTY).and_then(|()| registry.start_thread()).and_then(|()| registry.settle(set));
    if let Err(e) = listens {
        let listener = registry.listeners.pop();
        registry.ignored = ignored;
        let _ = registry.settle(set);
        // The sender's drop may wake somebody.
        drop(registry);
        drop(listener);
        return Err(e);
    }
    Ok(Notify { id })
}

/// Ignores signals, from now on: also those that somebody listens to, who does not get them any more.
///
/// Programs that this one runs ignore them, too.
///
/// # Errors
///
/// If one of them cannot be had (see [above](self#which-ones)): then nothing has changed. If the system has no such signal.
pub fn ignore(signals: &[Signal]) -> io::Result<()> {
    let set = allowed(signals)?;
    let mut registry = REGISTRY.lock();
    registry.listeners.iter_mut().for_each(|l| l.signals = l.signals.without(set));
    registry.ignored = registry.ignored.and(set);
    registry.settle(set)
}

/// Gives signals the meaning that they had before [`notify`] and [`ignore`]. Who listens to them does not get them any more.
///
/// # Errors
///
/// As [`ignore`].
pub fn reset(signals: &[Signal]) -> io::Result<()> {
    let set = allowed(signals)?;
    let mut registry = REGISTRY.lock();
    registry.listeners.iter_mut().for_each(|l| l.signals = l.signals.without(set));
    registry.ignored = registry.ignored.without(set);
    registry.settle(set)
}

/// Whether a signal is ignored now, by [`ignore`], by whoever started the process (as `nohup` does), or by anybody else.
pub fn is_ignored(signal: Signal) -> bool {
    handler::is_ignored(signal)
}

/// Sends a signal to this process, to whichever thread the system chooses.
///
/// # Errors
///
/// If the system has no such signal.
pub fn raise(signal: Signal) -> io::Result<()> {
    handler::send_to_self(signal)
}

/// Somebody listens to signals, until this is dropped: see [`notify_to`].
///
/// When the drop returns, nothing is sent any more.
#[must_use = "dropping it ends what it stands for"]
pub struct Notify {
    id: u64,
}

impl Notify {
    /// Ends it. So does dropping it.
    pub fn stop(self) {}
}

impl Drop for Notify {
    fn drop(&mut self) {
        let mut registry = REGISTRY.lock();
        let at = registry.listeners.iter().position(|l| l.id == self.id).expect("a handle has its entry");
        let listener = registry.listeners.remove(at);
        // A disposition that was changed once can be changed back.
        let _ = registry.settle(listener.signals);
        // The sender's drop may wake somebody (SG2).
        drop(registry);
        drop(listener);
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registry = REGISTRY.lock();
        let signals = registry.listeners.iter().find(|l| l.id == self.id).map_or(Set::EMPTY, |l| l.signals);
        drop(registry);
        f.debug_tuple("Notify").field(&signals.iter().collect::<Vec<_>>()).finish()
    }
}

/// Signals that are listened to, and the channel they come through: see [`notify`]. Used as the [`Receiver`] that it is.
///
/// Clones of the receiver get what the channel holds when this is dropped, and nothing more.
#[must_use = "dropping it ends what it stands for"]
#[derive(Debug)]
pub struct Signals {
    notify: Notify,
    receiver: Receiver<Signal>,
}

impl Signals {
    /// Ends it. So does dropping it.
    pub fn stop(self) {
        self.notify.stop();
    }
}

impl Deref for Signals {
    type Target = Receiver<Signal>;

    fn deref(&self) -> &Receiver<Signal> {
        &self.receiver
    }
}

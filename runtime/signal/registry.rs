//! Who listens to which signals, and the thread that sends them.
//!
//! The handler sets a bit and wakes a thread, which is made by the first [`notify`](super::notify) and sends what came. Neither
//! sysmon nor the reporter could do it: the one must not wait for a lock that senders hold, the other may be in the program's logger
//! for as long as that likes.
//!
//! - SG1: the thread sends while it holds the registry's lock. So when a handle's drop has taken it off the list, nothing is sent
//!   for it any more; and without anything on the list the thread wakes nobody, as the deadlock report presumes.
//! - SG2: nobody crosses into the runtime with that lock but this thread, which is no goroutine and does not move. A `try_send`
//!   waits for no one but the holder of the channel's short lock, and nobody who has that wants the registry's.
//! - SG3: a listener is on the list, and counted for the deadlock report, before the handler is installed.

use std::io::{self, Error};

use parking_lot::Mutex;

use super::handler::{self, BELL, Disposition, Want};
use super::number::{Set, Signal};
use crate::chan::Sender;
use crate::sched::deadlock::SIGNALS;

/// Who listens to what.
pub(super) struct Registry {
    pub(super) listeners: Vec<Listener>,
    pub(super) ignored: Set,
    /// Those that were ever touched.
    dispositions: Vec<(Signal, Disposition)>,
    /// The thread was started.
    has_thread: bool,
    pub(super) next_id: u64,
}

/// Somebody who listens.
pub(super) struct Listener {
    pub(super) id: u64,
    pub(super) signals: Set,
    pub(super) target: Target,
}

/// What is done for who listens.
pub(super) enum Target {
    Channel(Sender<Signal>),
    /// Something of the runtime's own, which is short and wakes nobody of the program's.
    Hook(Box<dyn Fn() + Send>),
}

/// The only one: dispositions are the process's.
pub(super) static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    listeners: Vec::new(),
    ignored: Set::EMPTY,
    dispositions: Vec::new(),
    has_thread: false,
    next_id: 0,
});

impl Registry {
    fn disposition(&mut self, signal: Signal) -> &mut Disposition {
        let at = self.dispositions.iter().position(|(s, _)| *s == signal).unwrap_or_else(|| {
            self.dispositions.push((signal, Disposition::new(signal)));
            self.dispositions.len() - 1
        });
        &mut self.dispositions[at].1
    }

    /// Makes the dispositions of `signals` what they are to be now, and counts listeners. The first error; the other signals are
    /// seen to all the same.
    pub(super) fn settle(&mut self, signals: Set) -> io::Result<()> {
        let could_wake = |l: &&Listener| !l.signals.is_empty() && matches!(l.target, Target::Channel(_));
        SIGNALS.set_listeners(self.listeners.iter().filter(could_wake).count());
        let mut result = Ok(());
        for signal in signals.iter() {
            let want = match () {
                () if self.listeners.iter().any(|l| l.signals.has(signal)) => Want::Handled,
                () if self.ignored.has(signal) => Want::Ignored,
                () => Want::Original,
            };
            let changed = self.disposition(signal).change(want);
            result = result.and(changed.map_err(|e| Error::new(e.kind(), format!("{signal}: {e}"))));
        }
        result
    }

    pub(super) fn start_thread(&mut self) -> io::Result<()> {
        if !self.has_thread {
            BELL.open()?;
            std::thread::Builder::new().name("gort-signal".into()).spawn(deliver)?;
            self.has_thread = true;
            SIGNALS.has_thread();
        }
        Ok(())
    }

    /// Sends what came.
    fn send(&mut self) {
        for signal in handler::take_pending().iter() {
            let mut wanted = false;
            for listener in self.listeners.iter().filter(|l| l.signals.has(signal)) {
                wanted = true;
                match &listener.target {
                    // Full or closed: dropped.
                    Target::Channel(sender) => drop(sender.try_send(signal)),
                    Target::Hook(hook) => hook(),
                }
            }
            // It came before its last listener went, who did not see it. Only if it does not come back to our handler.
            if !wanted && self.disposition(signal).is(Want::Original) && handler::is_default(signal) {
                let _ = handler::send_to_self(signal);
            }
        }
    }
}

/// The life of the thread.
fn deliver() {
    loop {
        BELL.wait();
        // SG1, SG2
        REGISTRY.lock().send();
    }
}

//! What a signal handler wakes a thread with.
//!
//! On Linux a futex word: no descriptor that a program could close by mistake, and nothing that a child inherits. Elsewhere a
//! pipe, since nothing else that wakes may be used in a handler; its unsafe code sets a flag of a descriptor and writes a byte.

#[cfg(target_os = "linux")]
pub(super) use word::Bell;

#[cfg(not(target_os = "linux"))]
pub(super) use pipe::Bell;

#[cfg(target_os = "linux")]
mod word {
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::prim::parker::{futex_wait, futex_wake};

    /// Rings until somebody has come.
    pub(in crate::signal) struct Bell(AtomicU32);

    impl Bell {
        pub(in crate::signal) const fn new() -> Bell {
            Bell(AtomicU32::new(0))
        }

        /// Makes it ready to be rung.
        pub(in crate::signal) fn open(&self) -> std::io::Result<()> {
            Ok(())
        }

        /// Async-signal-safe.
        pub(in crate::signal) fn ring(&self) {
            // ORDER: Release; pairs with the Acquire in wait(): whoever comes sees what it was rung for.
            if self.0.swap(1, Ordering::Release) == 0 {
                futex_wake(&self.0, 1);
            }
        }

        /// Waits until it rings. For one thread.
        pub(in crate::signal) fn wait(&self) {
            while self.0.swap(0, Ordering::Acquire) == 0 {
                futex_wait(&self.0, 0, None);
            }
        }
    }
}

/// Compiled for the tests, too, which run where the other one is used.
#[cfg(any(test, not(target_os = "linux")))]
mod pipe {
    use std::io::{self, Read};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::time::Duration;

    /// Rings until somebody has come.
    pub(in crate::signal) struct Bell {
        reader: OnceLock<io::PipeReader>,
        writer: AtomicI32,
    }

    impl Bell {
        pub(in crate::signal) const fn new() -> Bell {
            Bell { reader: OnceLock::new(), writer: AtomicI32::new(-1) }
        }

        /// Makes it ready to be rung. Called by one thread at a time.
        pub(in crate::signal) fn open(&self) -> io::Result<()> {
            if self.reader.get().is_some() {
                return Ok(());
            }
            let (reader, writer) = io::pipe()?;
            // SAFETY: the descriptor is open; these commands take and give integers.
            unsafe {
                let flags = libc::fcntl(writer.as_raw_fd(), libc::F_GETFL);
                if flags < 0 || libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            self.writer.store(writer.into_raw_fd(), Ordering::Release);
            let _ = self.reader.set(reader);
            Ok(())
        }

        /// Async-signal-safe.
        pub(in crate::signal) fn ring(&self) {
            // A pipe that is full rings already. SAFETY: one byte that lives; if the program has closed the descriptor the call fails.
            unsafe { libc::write(self.writer.load(Ordering::Acquire), [1u8].as_ptr().cast(), 1) };
        }

        /// Waits until it rings. For one thread.
        pub(in crate::signal) fn wait(&self) {
            let mut bytes = [0; 64];
            let mut reader = self.reader.get().expect("open was called");
            match reader.read(&mut bytes) {
                Ok(n) if n != 0 => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The program has closed a descriptor that is not its own. Then the thread looks now and then.
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Each ring is followed by a look: none is lost.
    macro_rules! stress {
        ($name:ident, $bell:ty) => {
            #[test]
            fn $name() {
                const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };
                let bell = Arc::new(<$bell>::new());
                bell.open().unwrap();
                bell.open().unwrap();
                let (rung, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
                let waiter = {
                    let (bell, rung, seen) = (bell.clone(), rung.clone(), seen.clone());
                    std::thread::spawn(move || {
                        while seen.load(Ordering::SeqCst) < ROUNDS {
                            bell.wait();
                            seen.store(rung.load(Ordering::SeqCst), Ordering::SeqCst);
                        }
                    })
                };
                for round in 1..=ROUNDS {
                    rung.store(round, Ordering::SeqCst);
                    bell.ring();
                    if round % 3 == 0 {
                        while seen.load(Ordering::SeqCst) < round {
                            std::thread::yield_now();
                        }
                    }
                }
                waiter.join().unwrap();
            }
        };
    }

    #[cfg(target_os = "linux")]
    stress!(stress_of_words, super::word::Bell);
    stress!(stress_of_pipes, super::pipe::Bell);
}

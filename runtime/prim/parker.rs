//! Puts an OS thread to sleep until it is woken, at most once per wake-up.
//!
//! `unpark` before `park` makes the park return at once; several unparks count as one. On Linux this is a futex word; on
//! other systems a mutex and a condition variable.
//!
//! - The waker MUST NOT need the parker after the wake-up it gave was seen, except that its memory stays mapped: a
//!   parker lives in an M or a thread's slot, and neither is ever freed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::prim::chaos;

const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

/// One thread's place to sleep.
#[derive(Debug)]
pub(crate) struct Parker {
    state: AtomicU32,
    #[cfg(not(target_os = "linux"))]
    fallback: (parking_lot::Mutex<()>, parking_lot::Condvar),
}

impl Parker {
    pub(crate) const fn new() -> Parker {
        Parker {
            state: AtomicU32::new(EMPTY),
            #[cfg(not(target_os = "linux"))]
            fallback: (parking_lot::Mutex::new(()), parking_lot::Condvar::new()),
        }
    }

    /// Sleeps until woken.
    pub(crate) fn park(&self) {
        self.park_inner(None);
    }

    /// Sleeps until woken or for `timeout`, whichever comes first; answers whether it was woken.
    pub(crate) fn park_timeout(&self, timeout: Duration) -> bool {
        self.park_inner(Some(timeout))
    }

    fn park_inner(&self, timeout: Option<Duration>) -> bool {
        chaos::window();
        // ORDER: Acquire on taking a notification; pairs with the Release in unpark(): what the waker did is visible.
        if self.state.compare_exchange(NOTIFIED, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
        if self.state.compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire).is_err() {
            self.state.swap(EMPTY, Ordering::Acquire);
            return true;
        }
        let until = timeout.map(|t| std::time::Instant::now() + t);
        loop {
            let left = until.map(|u| u.saturating_duration_since(std::time::Instant::now()));
            if left != Some(Duration::ZERO) {
                self.wait(PARKED, left);
            }
            if self.state.compare_exchange(NOTIFIED, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
            if left == Some(Duration::ZERO) {
                // Leave; a wake-up that comes at this very moment counts.
                return self.state.swap(EMPTY, Ordering::Acquire) == NOTIFIED;
            }
        }
    }

    /// Wakes the thread, or lets its next park return at once.
    pub(crate) fn unpark(&self) {
        chaos::window();
        // ORDER: Release; pairs with the Acquire in park().
        if self.state.swap(NOTIFIED, Ordering::Release) == PARKED {
            self.wake();
        }
    }

    #[cfg(target_os = "linux")]
    fn wait(&self, while_equal: u32, timeout: Option<Duration>) {
        futex_wait(&self.state, while_equal, timeout);
    }

    #[cfg(target_os = "linux")]
    fn wake(&self) {
        futex_wake(&self.state, 1);
    }

    #[cfg(not(target_os = "linux"))]
    fn wait(&self, while_equal: u32, timeout: Option<Duration>) {
        let mut held = self.fallback.0.lock();
        if self.state.load(Ordering::Acquire) == while_equal {
            match timeout {
                None => self.fallback.1.wait(&mut held),
                Some(t) => {
                    self.fallback.1.wait_for(&mut held, t);
                }
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn wake(&self) {
        drop(self.fallback.0.lock());
        self.fallback.1.notify_one();
    }
}

/// Sleeps while `*word == while_equal`, at most for `timeout`; may return early.
#[cfg(target_os = "linux")]
pub(crate) fn futex_wait(word: &AtomicU32, while_equal: u32, timeout: Option<Duration>) {
    if chaos::one_in(8) {
        return;
    }
    let ts = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let ts_ptr = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is a live, aligned u32; the time is null or a live timespec. Errors (woken, changed, timed out,
    // interrupted) all mean "look again", which every caller does.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, while_equal, ts_ptr);
    }
}

/// Wakes up to `n` threads that sleep on `word`.
#[cfg(target_os = "linux")]
pub(crate) fn futex_wake(word: &AtomicU32, n: i32) {
    // SAFETY: FUTEX_WAKE only uses the address as a key; the word is live.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn unpark_before_park_is_kept() {
        let p = Parker::new();
        p.unpark();
        p.unpark();
        p.park();
        let t = Instant::now();
        assert!(!p.park_timeout(Duration::from_millis(20)), "two unparks before a park must count as one");
        assert!(t.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn stress_ping_pong() {
        let a = Arc::new((Parker::new(), Parker::new()));
        let b = a.clone();
        let n = 20_000;
        let t = std::thread::spawn(move || {
            for _ in 0..n {
                b.0.park();
                b.1.unpark();
            }
        });
        for _ in 0..n {
            a.0.unpark();
            a.1.park();
        }
        t.join().unwrap();
    }
}

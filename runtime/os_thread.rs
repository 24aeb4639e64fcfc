//! Staying on a thread, for code that the thread means something to.

use std::fmt;
use std::marker::PhantomData;

use crate::sched::g::G;
use crate::sched::wired;
use crate::stack::header::current_g;

/// Keeps the calling goroutine on the OS thread that it is on, until the guard is dropped: Go's `runtime.LockOSThread`.
///
/// For what is tied to a thread: libraries that keep their state in thread-locals, OpenGL contexts, CPU affinity,
/// namespaces, std's guards. The goroutine may do all it could do before; when it waits, its thread waits with it and runs nobody
/// else. So each of its switches costs two of the kernel's. Such threads come on top of
/// [`Config::max_threads`](crate::Config::max_threads) while they wait.
///
/// Guards count: the goroutine is free when the last one is dropped. Goroutines that it makes are not locked. The thread
/// is one of the runtime's (also in the function given to [`run`](crate::run)); other goroutines ran on it before and will
/// run on it afterwards, so leave it as you found it. That is so even if a guard was leaked and the goroutine has ended.
///
/// On a thread that is no goroutine, the guard does nothing: the caller is its own thread.
///
/// ```
/// rt::run(|| {
///     let guard = rt::lock_os_thread();
///     let before = std::thread::current().id();
///     rt::time::sleep(std::time::Duration::from_millis(1));
///     assert_eq!(std::thread::current().id(), before);
///     drop(guard);
/// });
/// ```
///
/// The guard stays with its goroutine:
///
/// ```compile_fail,E0277
/// let guard = rt::lock_os_thread();
/// rt::go(move || drop(guard));
/// ```
pub fn lock_os_thread() -> OsThreadGuard {
    let owner = current_g().map(|g| {
        wired::lock(g);
        (g, g.id())
    });
    OsThreadGuard { owner, _not_send: PhantomData }
}

/// Evidence of [`lock_os_thread`]; frees the goroutine when it is dropped.
#[must_use = "the goroutine is locked to its thread only as long as the guard lives"]
pub struct OsThreadGuard {
    /// The goroutine and its id.
    owner: Option<(&'static G, u64)>,
    _not_send: PhantomData<*mut ()>,
}

impl Drop for OsThreadGuard {
    fn drop(&mut self) {
        let Some((owner, id)) = self.owner else { return };
        // It may have come into other hands on the same thread, by way of a thread-local. Then it counts as leaked: its
        // goroutine's count is that goroutine's business alone (N4).
        if let Some(g) = current_g()
            && std::ptr::eq(g, owner)
            && g.id() == id
        {
            wired::unlock(g);
        }
    }
}

impl fmt::Debug for OsThreadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OsThreadGuard").field("goroutine", &self.owner.map(|o| o.1)).finish()
    }
}

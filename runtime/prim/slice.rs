//! How long the kernel lets a thread run before it looks for another one.
//!
//! From Linux 6.12 on a thread may ask for a time slice of its own, and one that wakes up with a shorter slice takes the processor from one
//! with a longer slice at once, instead of after some milliseconds. It does not get less of it for that, in the long run. Older
//! kernels take the wish and ignore it; elsewhere there is none.

/// A slice that gives way to whoever has the kernel's own, of a few milliseconds: the longest there is.
pub(crate) const LONG_NS: u64 = 100_000_000;
/// The kernel's own.
pub(crate) const DEFAULT: u64 = 0;

/// Wishes a slice for the thread `tid` of this process. Threads with a real-time policy are left alone.
pub(crate) fn set(tid: u64, ns: u64) {
    #[cfg(target_os = "linux")]
    // SAFETY: the kernel writes to, and reads from, a live struct of the size it is told; a thread that is gone is an error.
    unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        let tid = tid as libc::pid_t;
        if libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) != 0
            || attr.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.size = size;
        attr.sched_runtime = ns;
        libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (tid, ns);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_taken_and_taken_back() {
        let tid = tracer::record::thread_id();
        let runtime = || {
            // SAFETY: as in set().
            unsafe {
                let mut attr: libc::sched_attr = std::mem::zeroed();
                let size = size_of::<libc::sched_attr>() as libc::c_uint;
                assert_eq!(libc::syscall(libc::SYS_sched_getattr, tid as libc::pid_t, &raw mut attr, size, 0), 0);
                attr.sched_runtime
            }
        };
        let before = runtime();
        set(tid, LONG_NS);
        // Older kernels ignore it.
        let long = runtime();
        assert!(long == LONG_NS || long == before, "{long}");
        set(tid, DEFAULT);
        assert_eq!(runtime(), before);
        // Nobody there.
        set(1 << 30, LONG_NS);
    }
}

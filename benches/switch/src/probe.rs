//! What the process takes of the machine, and what it asks of it. The only unsafe code of the bench: a few calls to the
//! system.

use std::os::fd::AsRawFd;
use std::time::Duration;

/// Processor time of all threads of this process, so far.
pub fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    assert_eq!(failed, 0, "no clock of processor time");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Resident pages.
    pub resident: u64,
    /// Page tables.
    pub tables: u64,
}

impl Memory {
    /// All told.
    pub fn all(self) -> u64 {
        self.resident + self.tables
    }
}

/// What this process has now.
pub fn memory() -> Memory {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let bytes = |key| kib(&status, key).expect("Linux tells") * 1024;
    Memory { resident: bytes("VmRSS:"), tables: bytes("VmPTE:") }
}

/// The most resident memory that this process has ever had, in bytes.
pub fn memory_at_most() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    kib(&status, "VmHWM:").expect("Linux tells") * 1024
}

fn kib(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Keeps this process to the first so many of its processors: what GOMAXPROCS is to goroutines, for threads.
pub fn confine(procs: usize) {
    // SAFETY: a set of processors is plain bits, of which none is a valid value.
    let (mut all, mut some): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a set of the size that is said.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&all), &mut all) };
    assert_eq!(failed, 0, "cannot ask for the processors");
    let cpus = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: below CPU_SETSIZE.
    for cpu in cpus.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) }).take(procs) {
        // SAFETY: as above.
        unsafe { libc::CPU_SET(cpu, &mut some) };
    }
    // SAFETY: `some` is a set of the size that is said.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&some), &some) };
    assert_eq!(failed, 0, "cannot choose processors");
}

/// Lets this process and its children have so many files open at once; the error says what to type.
pub fn allow_files(count: u64) -> Result<(), String> {
    let limit = file_limit();
    // Above the hard limit only with the privilege to raise that.
    let most = count.max(limit.rlim_max);
    if limit.rlim_cur >= count || set_file_limit(libc::rlimit { rlim_cur: most, rlim_max: most }) {
        return Ok(());
    }
    let hard = limit.rlim_max;
    Err(format!(
        "it takes {count} open files, and the hard limit is {hard}; for this shell: sudo prlimit --pid $$ --nofile={count}"
    ))
}

/// Lets them have as many as they may; how many that is.
pub fn allow_most_files() -> u64 {
    let hard = file_limit().rlim_max;
    // That is always allowed.
    set_file_limit(libc::rlimit { rlim_cur: hard, rlim_max: hard });
    hard
}

fn file_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is an rlimit to write to.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(failed, 0, "no limit of open files");
    limit
}

fn set_file_limit(limit: libc::rlimit) -> bool {
    // SAFETY: `limit` is an rlimit to read.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
}

/// Lets the end of a connection be abrupt: closing it sends a reset, and leaves no port in TIME_WAIT for a minute.
pub fn reset_on_close(socket: &impl AsRawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of_val(&linger) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the descriptor is borrowed and open; `linger` is what this option reads, of the size that is said.
    let failed = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size) };
    assert_eq!(failed, 0, "cannot set SO_LINGER: {}", std::io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_status() {
        assert_eq!(kib("VmPeak:\t 9 kB\nVmRSS:\t     123 kB\n", "VmRSS:"), Some(123));
        assert_eq!(kib("VmRSS:\n", "VmPTE:"), None);
        assert!(memory().resident > 0);
    }

    #[test]
    fn work_takes_processor_time() {
        let before = cpu_time();
        let sum: u64 = (0..5_000_000_u64).map(std::hint::black_box).sum();
        assert!(cpu_time() > before, "{sum}");
    }

    #[test]
    fn more_files_than_there_can_be_are_refused() {
        assert_eq!(allow_files(3), Ok(()));
        let why = allow_files(1 << 40).unwrap_err();
        assert!(why.contains("prlimit --pid $$ --nofile=1099511627776"), "{why}");
    }

    #[test]
    fn a_reset_is_seen_by_the_peer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        reset_on_close(&client);
        drop(client);
        let error = std::io::Read::read(&mut server, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

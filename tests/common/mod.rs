//! What the tests share: a place to trace into, and the judge.
#![allow(dead_code)]

pub mod alone;
#[cfg(unix)]
pub mod sockets;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracer::read::validate::validate;
use tracer::read::{Error, Event, Reader};
use tracer::wire::Ev;

/// A trace in memory.
#[derive(Clone, Default)]
pub struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Write for Buffer {
    fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(b);
        Ok(b.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Accepts a trace, or fails the test and says where the file is.
pub fn judge(what: &str, trace: &[u8]) {
    let verdict = match Reader::new(trace) {
        Err(e) => Err(e.to_string()),
        Ok(mut reader) => match validate(&mut reader) {
            (_, Some(e)) => Err(e.to_string()),
            (f, None) if f.total != 0 => Err(format!("{} findings, the first: {:?}", f.total, f.first)),
            _ => Ok(()),
        },
    };
    if let Err(why) = verdict {
        let name = format!("bad/bad-{}-{}.trace", what.replace([' ', '/'], "-"), std::process::id());
        let path = keep(&name, trace);
        panic!("{what}: the trace is refused: {why}\n(kept as {})", path.display());
    }
}

/// Leaves a trace in cargo's folder for files of tests, where `cargo xtask conformance` finds those of good ones for Go's reader.
pub fn keep(name: &str, trace: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, trace).unwrap();
    path
}

/// All events of a good trace, with the tables of their generation.
pub fn events(trace: &[u8], mut each: impl FnMut(&Event, &tracer::read::Tables)) {
    let mut reader = Reader::new(trace).expect("a good header");
    while let Some(e) = reader.next() {
        let e: Result<Event, Error> = e;
        let e = e.expect("a good event");
        each(&e, reader.tables());
    }
}

/// How many events of a kind there are.
pub fn count(trace: &[u8], kind: Ev) -> usize {
    let mut n = 0;
    events(trace, |e, _| n += usize::from(e.kind == kind));
    n
}

/// Runs `body` in the runtime while it is traced, and judges the trace, which it gives back.
///
/// Tests of one process take turns, since only one trace can run; what others do meanwhile is in the trace too.
pub fn traced<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> (T, Vec<u8>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = HangGuard::new(what);
    // The trace of a body that panicked.
    let _ = rt::trace::stop();
    let buffer = Buffer::default();
    let out = buffer.clone();
    let value = rt::run(move || {
        rt::trace::start(out).expect("tracing starts");
        let value = body();
        rt::trace::stop().expect("tracing stops");
        value
    });
    let trace = buffer.take();
    judge(what, &trace);
    (value, trace)
}

/// A small random generator for tests; the seed is printed so that a failure can be repeated.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A seed: `RT_SEED`, or one from the clock, printed.
pub fn seed() -> u64 {
    let seed = std::env::var("RT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    println!("RT_SEED={seed}");
    seed
}

/// Seconds after which a test or a child counts as hung. Nothing here takes a tenth of it.
const HANG_SECONDS: u32 = 100;

/// Ends the process, with a word about what hung, unless it is dropped in time.
pub struct HangGuard(Option<std::sync::mpsc::Sender<()>>);

impl HangGuard {
    pub fn new(what: &str) -> HangGuard {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let what = what.to_owned();
        std::thread::spawn(move || {
            if rx.recv_timeout(Duration::from_secs(HANG_SECONDS.into()))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                eprintln!("{what}: no end after {HANG_SECONDS} s: it hangs");
                std::process::abort();
            }
        });
        HangGuard(Some(tx))
    }
}

impl Drop for HangGuard {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// A number of rounds: `release`, or `debug` where unoptimised code would take too long.
pub const fn scaled(release: usize, debug: usize) -> usize {
    if cfg!(debug_assertions) { debug } else { release }
}

/// Gives others a turn until `happened`. A thing that never happens ends the test.
#[track_caller]
pub fn wait_for(what: &str, happened: impl Fn() -> bool) {
    let began = Instant::now();
    let mut turns = 0;
    while !happened() {
        turns += 1;
        if turns < 100 {
            rt::yield_now();
        } else {
            rt::time::sleep(Duration::from_millis(1));
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: it never happened");
    }
}

/// Keeps the processor busy without a word to the runtime.
pub fn busy(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// The kernel's id of the calling thread.
pub fn gettid() -> u64 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

/// A line of `/proc/self/status`, in KiB.
pub fn memory_kib(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')).expect("a line of that name");
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What a panic said.
pub fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(s), _) => s,
        (_, Some(s)) => s,
        _ => "(not a text)",
    }
}

/// Somebody who can use the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Goroutine,
    Thread,
}

/// What [`Actor::start`] started.
pub enum Started<T> {
    Goroutine(rt::JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl Actor {
    pub const BOTH: [Actor; 2] = [Actor::Goroutine, Actor::Thread];

    /// A goroutine for even numbers, a thread for odd ones.
    pub fn mixed(i: usize) -> Actor {
        Actor::BOTH[i % 2]
    }

    pub fn start<T: Send + 'static>(self, f: impl FnOnce() -> T + Send + 'static) -> Started<T> {
        match self {
            Actor::Goroutine => Started::Goroutine(rt::go(f)),
            Actor::Thread => Started::Thread(std::thread::spawn(f)),
        }
    }
}

impl<T> Started<T> {
    /// Its value; its panic goes on in the caller.
    pub fn join(self) -> T {
        let result = match self {
            Started::Goroutine(h) => h.join(),
            Started::Thread(h) => rt::blocking(|| h.join()),
        };
        result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

/// Ends a child that hangs, by SIGALRM.
fn with_alarm(c: &mut Command) -> &mut Command {
    // SAFETY: alarm is async-signal-safe. It outlives the exec.
    unsafe {
        c.pre_exec(|| {
            libc::alarm(HANG_SECONDS);
            Ok(())
        })
    }
}

/// Runs one test of the calling binary again in a process of its own, with an environment of its own. Its output is
/// shown if it fails.
pub fn in_child(test: &str, env: &[(&str, &str)]) -> Output {
    let mut c = Command::new(std::env::current_exe().unwrap());
    with_alarm(&mut c);
    c.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("RT_TEST_CHILD", test);
    for (k, v) in env {
        c.env(k, v);
    }
    c.output().unwrap()
}

/// Whether the calling process was made by [`in_child`] for `test`.
pub fn is_child(test: &str) -> bool {
    std::env::var("RT_TEST_CHILD").is_ok_and(|t| t == test)
}

/// [`in_child`], which must succeed.
pub fn child_passes(test: &str, env: &[(&str, &str)]) {
    let out = in_child(test, env);
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{test} with {env:?}: {}\n{stdout}\n{stderr}", out.status);
    print!("{stdout}");
}

/// The runtime's configurations that a test should hold under.
pub const CONFIGURATIONS: [&[(&str, &str)]; 3] =
    [&[("GOMAXPROCS", "1")], &[("GOMAXPROCS", "2")], &[("GOMAXPROCS", "8"), ("RT_BORDER", "fence")]];

/// Runs the body of the calling test, whose name this is, once under each of [`CONFIGURATIONS`], in children.
pub fn everywhere(test: &str, body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    for env in CONFIGURATIONS {
        child_passes(test, env);
    }
}

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Fails, with everything that was said.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr)
    }

    #[track_caller]
    pub fn expect(&self, what: &str, yes: bool) -> &Ended {
        if !yes {
            self.fail(&format!("wanted: {what}"));
        }
        self
    }

    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Ended {
        self.expect(&format!("exit code {code}"), self.status.code() == Some(code))
    }

    #[track_caller]
    pub fn expect_signal(&self, signal: i32) -> &Ended {
        self.expect(&format!("death by signal {signal}"), self.status.signal() == Some(signal))
    }

    /// Everything in `texts` was said on stderr.
    #[track_caller]
    pub fn expect_stderr(&self, texts: &[&str]) -> &Ended {
        for text in texts {
            self.expect(&format!("{text:?} on stderr"), self.stderr.contains(text));
        }
        self
    }

    #[track_caller]
    pub fn expect_no_stderr(&self, text: &str) -> &Ended {
        self.expect(&format!("no {text:?} on stderr"), !self.stderr.contains(text))
    }
}

/// Declares functions of the calling test binary as programs: [`program`] runs one as the `main` of a process that has no
/// other thread. (libtest's own main thread waits while a test runs, and could send, for all that the runtime knows.)
#[macro_export]
macro_rules! programs {
    ($($name:ident),+ $(,)?) => {
        /// Called by the loader before `main`.
        #[used]
        #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
        #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
        static PROGRAMS: extern "C" fn() = {
            extern "C" fn begin() {
                $crate::common::run_program(&[$((stringify!($name), $name as fn())),+]);
            }
            begin
        };
    };
}

/// Does not return if this process is to be one of the programs.
pub fn run_program(programs: &[(&str, fn())]) {
    let Ok(name) = std::env::var("RT_TEST_PROGRAM") else { return };
    let Some((_, main)) = programs.iter().find(|(n, _)| *n == name) else { return };
    let code = match std::panic::catch_unwind(main) {
        Ok(()) => 0,
        Err(_) => 101,
    };
    std::process::exit(code);
}

/// Runs a program of the calling binary (see [`programs`]) to its end.
pub fn program(name: &str, env: &[(&str, &str)]) -> Ended {
    let mut c = Command::new(std::env::current_exe().unwrap());
    with_alarm(&mut c).env("RT_TEST_PROGRAM", name).env_remove("RT_TRACE").env_remove("RUST_BACKTRACE");
    for (k, v) in env {
        c.env(k, v);
    }
    let Output { status, stdout, stderr } = c.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status, stdout: text(stdout), stderr: text(stderr) }
}

/// A path for a file of this test run, which does not exist yet.
pub fn scratch_file(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("scratch");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

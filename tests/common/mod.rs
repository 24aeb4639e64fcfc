//! What the tests share: a place to trace into, and the judge.
#![allow(dead_code)]

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

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
        let name = format!("bad-{}-{}.trace", what.replace([' ', '/'], "-"), std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bad").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, trace).unwrap();
        panic!("{what}: the trace is refused: {why}\n(kept as {})", path.display());
    }
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
pub fn traced<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> (T, Vec<u8>) {
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

/// Runs one test of the calling binary again in a process of its own, with an environment of its own. Its output is
/// shown if it fails.
pub fn in_child(test: &str, env: &[(&str, &str)]) -> std::process::Output {
    let mut c = std::process::Command::new(std::env::current_exe().unwrap());
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

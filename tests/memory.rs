//! Memory: what goroutines cost, that it is given back after they have ended, and that what was given back is as good as new.

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Ended, Rng, child_passes, in_child, is_child, memory_kib, program, scaled, seed, traced, wait_for};

programs!(a_million_come_and_go, ten_thousand_wait);

/// How often memory is given back, for a test that does not want to wait.
const OFTEN: (&str, &str) = ("RT_TRIM_MS", "5");
/// With each kind of guard.
const GUARDS: [&[(&str, &str)]; 2] = [&[], &[("RT_STACK_GUARD", "mprotect")]];

/// Whether a guard costs no mapping, so that there can be a million stacks.
fn many_stacks() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 13)
}

/// Goroutines that wait on a channel, and what they wait for.
struct Waiting {
    gate: rt::chan::Sender<()>,
    all: Vec<rt::JoinHandle<usize>>,
}

impl Waiting {
    fn new(n: usize) -> Waiting {
        let (gate, opened) = rt::chan::bounded::<()>(1);
        let here = Arc::new(AtomicUsize::new(0));
        let all = (0..n)
            .map(|i| {
                let (opened, here) = (opened.clone(), here.clone());
                rt::go(move || {
                    here.fetch_add(1, SeqCst);
                    assert!(opened.recv().is_err(), "nobody sends");
                    i
                })
            })
            .collect();
        wait_for("all are there", || here.load(SeqCst) == n);
        Waiting { gate, all }
    }

    /// Lets all end, and checks that each has done what it was to do.
    fn end(self) {
        drop(self.gate);
        for (i, g) in self.all.into_iter().enumerate() {
            assert_eq!(g.join().unwrap(), i);
        }
    }
}

fn cold_stacks() -> u64 {
    rt::metrics::get("/gort/stacks/cold:stacks").unwrap().as_u64().unwrap()
}

// What they cost, and for how long.

fn a_million_come_and_go() {
    // Chaos takes its time with each.
    let many = if cfg!(rt_chaos) { 20_000 } else { scaled(1_000_000, 100_000) };
    let n = if many_stacks() { many } else { 20_000 };
    let of = |line: &str| memory_kib(line) as i64;
    rt::run(move || {
        // What the first goroutines make stays, and some stacks do for a while.
        Waiting::new(1_000).end();
        let (before, tables) = (of("VmRSS"), of("VmPTE"));
        for round in 1..=2 {
            let began = Instant::now();
            let waiting = Waiting::new(n);
            let (resident, tables) = (of("VmRSS") - before, of("VmPTE") - tables);
            let each = (resident + tables) * 1024 / n as i64;
            println!(
                "{n} wait after {:.1?}: {each} bytes each, {} of them resident",
                began.elapsed(),
                resident * 1024 / n as i64
            );
            assert!(each > 4096, "a stack is a page at least");
            let began = Instant::now();
            waiting.end();
            println!("  they end within {:.1?}", began.elapsed());
            let (ended, enough) = (Instant::now(), before + before / 5);
            while of("VmRSS") > enough {
                rt::time::sleep(Duration::from_millis(50));
                let now = of("VmRSS");
                assert!(
                    ended.elapsed() < Duration::from_secs(60),
                    "round {round}: {now} KiB are left; it was {before}"
                );
            }
            let cold = cold_stacks();
            println!("  {before} KiB before, {} KiB {:.1?} after, {cold} cold stacks", of("VmRSS"), ended.elapsed());
        }
    });
}

#[test]
fn memory_is_given_back() {
    let ended = program("a_million_come_and_go", &[]);
    println!("{}", ended.stdout);
    ended.expect_code(0);
}

// What was given back is used again.

/// Goroutines that end, until their stacks have given their memory back: so many of them, at least.
fn make_cold(n: usize) {
    Waiting::new(n).end();
    // Each P and each class keep a few.
    wait_for("stacks are cold", || cold_stacks() as usize >= n - 500);
}

/// The address below which the guard of the calling goroutine's stack, of the default size, begins.
#[inline(never)]
fn edge() -> usize {
    let local = 0u8;
    (std::ptr::from_ref(black_box(&local)).addr() & !((256 << 10) - 1)) + (16 << 10)
}

/// Whether the kernel can read there.
fn is_readable(address: usize) -> bool {
    let mut byte = 0u8;
    // SAFETY: the kernel writes to the live byte, and checks the other address, whatever it is.
    let n = unsafe {
        let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let from = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: 1 };
        libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0)
    };
    assert!(n == 1 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT));
    n == 1
}

/// Uses a good part of a stack.
#[inline(never)]
fn deep(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    if depth == 0 { frame[15] } else { deep(depth - 1) + black_box(frame)[0] }
}

#[test]
fn cold_stacks_are_as_good_as_new() {
    const TEST: &str = "cold_stacks_are_as_good_as_new";
    const N: usize = 5000;
    if !is_child(TEST) {
        for guard in GUARDS {
            child_passes(TEST, &[guard, &[OFTEN]].concat());
        }
        return;
    }
    traced(TEST, || {
        for _ in 0..3 {
            make_cold(N);
            let all: Vec<_> = (0..N)
                .map(|_| {
                    rt::go(|| {
                        let edge = edge();
                        assert!(is_readable(edge) && !is_readable(edge - 1) && !is_readable(edge - (16 << 10)));
                        rt::yield_now();
                        deep(200)
                    })
                })
                .collect();
            assert!(all.into_iter().all(|g| g.join().unwrap() == 200 * 201 / 2));
        }
    });
}

/// The report of an overflow is that of any other stack (see tests/overflow.rs).
#[test]
fn cold_stacks_overflow_as_any() {
    const TEST: &str = "cold_stacks_overflow_as_any";
    #[inline(never)]
    fn recurses_without_end(depth: u64) -> u64 {
        if black_box(depth) == u64::MAX { 0 } else { recurses_without_end(depth + 1) + black_box(1) }
    }
    if is_child(TEST) {
        rt::run(|| {
            make_cold(3000);
            // Whatever is warm is in use, but for a few that a P may keep: so the next is a cold one, most of the time.
            let before = cold_stacks();
            let waiting = Waiting::new(1000);
            assert!(cold_stacks() < before - 100, "{before} were cold");
            let diver = rt::Builder::new().name("deep diver").spawn(|| recurses_without_end(0));
            let _ = diver.unwrap().join();
            waiting.end();
        });
        return;
    }
    for guard in GUARDS {
        let out = in_child(TEST, &[guard, &[OFTEN]].concat());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let ended = Ended { status: out.status, stdout: text(out.stdout), stderr: text(out.stderr) };
        ended.expect_signal(libc::SIGSEGV);
        ended.expect_stderr(&["\"deep diver\" has used up its stack of 262144 bytes", "recurses_without_end"]);
    }
}

/// Bursts and trims take turns, and meet.
#[test]
fn stress_bursts_and_trims() {
    const TEST: &str = "stress_bursts_and_trims";
    if !is_child(TEST) {
        for procs in ["1", "2", "8"] {
            for border in ["membarrier", "fence"] {
                child_passes(TEST, &[("RT_TRIM_MS", "0"), ("GOMAXPROCS", procs), ("RT_BORDER", border)]);
            }
        }
        return;
    }
    let mut rng = Rng::new(seed());
    traced(TEST, move || {
        // Many at the same time, so that there are more stacks than are kept warm. (Short lives share a few.)
        let (open, gate) = rt::chan::bounded::<()>(0);
        let begun = Arc::new(AtomicUsize::new(0));
        let crowd: Vec<_> = (0..3_000)
            .map(|_| {
                let (gate, begun) = (gate.clone(), begun.clone());
                rt::go(move || {
                    begun.fetch_add(1, SeqCst);
                    gate.recv().is_err()
                })
            })
            .collect();
        wait_for("all have begun", || begun.load(SeqCst) == crowd.len());
        drop(open);
        assert!(crowd.into_iter().all(|g| g.join().unwrap()));
        let mut went_cold = 0;
        for round in 0..scaled(60, 20) {
            let n = 1 + rng.below(4000) as usize;
            let bytes = [64 << 10, 256 << 10, 1 << 20][rng.below(3) as usize];
            let cold = cold_stacks();
            let all: Vec<_> = (0..n)
                .map(|i| {
                    let life = move || {
                        if i % 7 == 0 {
                            rt::yield_now();
                        }
                        deep(i as u64 % 30)
                    };
                    rt::Builder::new().stack_size(bytes).spawn(life).unwrap()
                })
                .collect();
            for (i, g) in all.into_iter().enumerate() {
                let depth = i as u64 % 30;
                assert_eq!(g.join().unwrap(), depth * (depth + 1) / 2, "round {round}");
            }
            match rng.below(3) {
                0 => rt::time::sleep(Duration::from_millis(rng.below(20))),
                1 => rt::yield_now(),
                _ => {}
            }
            went_cold += cold_stacks().saturating_sub(cold);
        }
        println!("{went_cold} stacks went cold meanwhile");
        // With nobody there to use them they do so in any case.
        while cold_stacks() == 0 {
            rt::time::sleep(Duration::from_millis(1));
        }
    });
}

// What it costs to wait.

/// How often the thread of this name went to sleep.
fn sleeps(thread: &str) -> u64 {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
            let value = |line: &str| status.lines().find_map(|l| Some(l.strip_prefix(line)?.trim().to_owned()));
            (value("Name:")? == thread).then(|| value("voluntary_ctxt_switches:").unwrap().parse::<u64>().unwrap())
        })
        .sum()
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is live.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) }, 0);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn ten_thousand_wait() {
    let waiting = rt::run(|| Waiting::new(10_000));
    std::thread::sleep(Duration::from_secs(1));
    let (cpu, before, began) = (cpu_time(), sleeps("gort-sysmon"), Instant::now());
    std::thread::sleep(Duration::from_secs(4));
    let (cpu, n, took) = (cpu_time() - cpu, sleeps("gort-sysmon") - before, began.elapsed());
    println!("10,000 wait: {:.3} % of a processor, {n} looks", 100.0 * cpu.as_secs_f64() / took.as_secs_f64());
    // Five in a second, and a few hundred before them if something kept it up.
    assert!((n as u128) < 400 + took.as_millis() / 100, "{n} looks within {took:?}");
    assert_ne!(n, 0);
    // It comes round when there is something to see.
    waiting.end();
}

#[test]
fn waiting_costs_next_to_nothing() {
    let ended = program("ten_thousand_wait", &[]);
    println!("{}", ended.stdout);
    ended.expect_code(0);
}

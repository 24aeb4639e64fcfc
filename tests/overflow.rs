//! Stack overflow: a goroutine that uses up its stack ends the process as a thread would, by SIGSEGV, after a report. Other
//! faults are left to whoever was there before.
//!
//! Each test dies in a child, which learns from its environment what it is to die of.

mod common;

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use common::{Ended, in_child, is_child, scratch_file, wait_for};
use tracer::read::validate::Validator;
use tracer::read::{Reader, Rule};
use tracer::wire::Ev;

/// The size of the stack of the goroutine that dies, for the child.
const STACK: &str = "OVERFLOW_STACK";
/// A file that the child writes.
const FILE: &str = "OVERFLOW_FILE";

const REPORT: &str = "fatal error: stack overflow\n";
const NAME: &str = "deep diver";

const SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

/// With each kind of guard.
const GUARDS: [&[(&str, &str)]; 2] = [&[], &[("RT_STACK_GUARD", "mprotect")]];

/// How a child ended that ran the test of this name.
fn ended(test: &str, env: &[(&str, &str)]) -> Ended {
    let out = in_child(test, env);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: out.status, stdout: text(out.stdout), stderr: text(out.stderr) }
}

/// Runs `f` on a goroutine with a name and the stack that the parent wants.
fn dive<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let bytes = std::env::var(STACK).map_or(64 << 10, |s| s.parse().unwrap());
    rt::run(move || rt::Builder::new().name(NAME).stack_size(bytes).spawn(f).unwrap().join().unwrap())
}

/// The report of an overflow, and the usual end.
#[track_caller]
fn expect_overflow(ended: &Ended, stack_bytes: usize, functions: &[&str]) {
    ended.expect_signal(libc::SIGSEGV);
    ended.expect_stderr(&[REPORT]).expect_stderr(functions);
    ended.expect("one report", ended.stderr.matches(REPORT).count() == 1);
    let said = format!("{NAME:?} has used up its stack of {stack_bytes} bytes");
    let line = ended.stderr.lines().find(|l| l.contains(&said));
    let Some(line) = line else { ended.fail(&said) };
    let id = line.strip_prefix("goroutine ").and_then(|l| l.split(' ').next()?.parse::<u64>().ok());
    ended.expect("the goroutine's number", id.is_some_and(|id| id > 0));
}

#[inline(never)]
fn recurses_without_end(depth: u64) -> u64 {
    let mine = black_box([depth; 5]);
    if black_box(depth) == u64::MAX {
        return 0;
    }
    // Not the last thing it does: no jump instead of a call.
    recurses_without_end(depth + 1).wrapping_add(black_box(mine)[2])
}

#[test]
fn overflow_is_reported() {
    const TEST: &str = "overflow_is_reported";
    if is_child(TEST) {
        let _ = dive(|| recurses_without_end(0));
        return;
    }
    for guard in GUARDS {
        for bytes in SIZES {
            let size = bytes.to_string();
            let env = [guard, &[(STACK, &size)]].concat();
            let ended = ended(TEST, &env);
            // The function, with its file.
            expect_overflow(&ended, bytes, &["overflow::recurses_without_end", "tests/overflow.rs:"]);
        }
    }
    // A size between two classes gets the next.
    expect_overflow(&ended(TEST, &[(STACK, "70000")]), 256 << 10, &["overflow::recurses_without_end"]);
    expect_overflow(&ended(TEST, &[(STACK, "1")]), 64 << 10, &["overflow::recurses_without_end"]);
}

/// The goroutine of `rt::run` has a name and a stack like any other.
#[test]
fn overflow_of_main() {
    const TEST: &str = "overflow_of_main";
    if is_child(TEST) {
        let _ = rt::run(|| recurses_without_end(0));
        return;
    }
    let ended = ended(TEST, &[]);
    ended.expect_signal(libc::SIGSEGV);
    ended.expect_stderr(&[REPORT, "\"main\" has used up its stack of 262144 bytes", "recurses_without_end"]);
}

// The edge.

/// Whether the byte can be read. The kernel looks, so that nobody dies of it.
fn is_readable(address: usize, pipe: (i32, i32)) -> bool {
    let mut byte = 0u8;
    // SAFETY: a bad address makes write fail; the read takes out what the write put in.
    unsafe {
        let wrote = libc::write(pipe.1, address as *const libc::c_void, 1) == 1;
        if wrote {
            assert_eq!(libc::read(pipe.0, (&raw mut byte).cast(), 1), 1);
        }
        wrote
    }
}

/// The lowest byte of the calling goroutine's stack that can be used.
fn edge() -> usize {
    const PAGE: usize = 4096;
    let mut pipe = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let mut page = std::ptr::from_ref(&pipe).addr() & !(PAGE - 1);
    while is_readable(page - 1, (pipe[0], pipe[1])) {
        page -= PAGE;
    }
    page
}

/// Writes to every word of the stack down to `to`, the last one at `to` itself, and comes back.
#[inline(never)]
fn fills_down_to(to: usize) {
    assert!(to.is_multiple_of(16));
    // SAFETY: below the stack pointer nothing is alive, and it is put back. What lies beyond the stack is the guard's business.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "mov {saved}, rsp",
            "2:",
            "cmp rsp, {to}",
            "jbe 3f",
            "push {to}",
            "jmp 2b",
            "3:",
            "mov rsp, {saved}",
            saved = out(reg) _,
            to = in(reg) to,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "mov {saved}, sp",
            "and {here}, {saved}, #-16",
            "2:",
            "cmp {here}, {to}",
            "b.ls 3f",
            "str {to}, [{here}, #-16]!",
            "mov sp, {here}",
            "b 2b",
            "3:",
            "mov sp, {saved}",
            saved = out(reg) _,
            here = out(reg) _,
            to = in(reg) to,
        );
    }
}

#[test]
fn overflow_by_a_few_bytes() {
    const TEST: &str = "overflow_by_a_few_bytes";
    const BEYOND: &str = "OVERFLOW_BEYOND";
    if is_child(TEST) {
        let beyond: usize = std::env::var(BEYOND).unwrap().parse().unwrap();
        let used = dive(move || {
            let here = std::ptr::from_ref(&beyond).addr();
            let edge = edge();
            fills_down_to(edge - beyond);
            here - edge
        });
        println!("used {used} bytes");
        return;
    }
    for guard in GUARDS {
        for bytes in SIZES {
            let size = bytes.to_string();
            let with = |beyond| [guard, &[(STACK, &size), (BEYOND, beyond)]].concat();
            // To the last byte it is the goroutine's.
            let fine = ended(TEST, &with("0"));
            fine.expect_code(0).expect_no_stderr(REPORT);
            let used = fine.stdout.lines().find_map(|l| l.rsplit_once("used ")?.1.strip_suffix(" bytes"));
            let used: usize = used.unwrap_or_else(|| fine.fail("no word about the size")).parse().unwrap();
            fine.expect("most of the stack can be used", used > bytes / 2 && used < bytes);
            expect_overflow(&ended(TEST, &with("16")), bytes, &["overflow::fills_down_to"]);
        }
    }
}

/// A frame that is larger than the guard does not jump over it.
#[test]
fn overflow_by_a_large_frame() {
    const TEST: &str = "overflow_by_a_large_frame";
    #[inline(never)]
    fn wants_much(n: u8) -> u8 {
        let mut much = [n; 3 << 20];
        black_box(&mut much)[usize::from(n) * 1000]
    }
    if is_child(TEST) {
        println!("{}", dive(|| wants_much(black_box(3))));
        return;
    }
    for bytes in SIZES {
        let ended = ended(TEST, &[(STACK, &bytes.to_string())]);
        expect_overflow(&ended, bytes, &["overflow::overflow_by_a_large_frame::wants_much"]);
    }
    let fine = ended(TEST, &[(STACK, &(8 << 20).to_string())]);
    fine.expect_code(0);
}

/// It is often the first instruction of a function that touches the guard. The report begins with that function, not with its
/// neighbour in memory.
#[cfg(target_arch = "x86_64")]
#[test]
fn overflow_at_the_first_instruction() {
    const TEST: &str = "overflow_at_the_first_instruction";
    #[unsafe(naked)]
    extern "C" fn pushes_first() {
        // Sixteen bytes a level: so it is always the same of the two that meets the guard.
        std::arch::naked_asm!(
            ".cfi_startproc",
            "push rax",
            ".cfi_adjust_cfa_offset 8",
            "call {again}",
            "pop rax",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            again = sym pushes_first,
        )
    }
    if is_child(TEST) {
        // SAFETY: it does not come back; what it does to the stack is what the test is about. The odd eight bytes let it be the
        // push, and not the call, that meets the guard.
        dive(|| unsafe {
            std::arch::asm!("sub rsp, 8", "call {f}", "add rsp, 8", f = sym pushes_first, clobber_abi("C"))
        });
        return;
    }
    let ended = ended(TEST, &[]);
    let function = "overflow::overflow_at_the_first_instruction::pushes_first";
    expect_overflow(&ended, 64 << 10, &[function]);
    let first = ended.stderr.split("\n\n").nth(2).and_then(|stack| stack.lines().next());
    ended.expect(&format!("{function} first, not {first:?}"), first == Some(function));
}

// Wherever the goroutine is when it happens.

/// In a blocking call the goroutine may have no P.
#[test]
fn overflow_in_a_blocking_call() {
    const TEST: &str = "overflow_in_a_blocking_call";
    if is_child(TEST) {
        let _ = dive(|| {
            let others = Arc::new(AtomicUsize::new(0));
            let ticks = others.clone();
            rt::go(move || {
                loop {
                    rt::time::sleep(Duration::from_millis(1));
                    ticks.fetch_add(1, SeqCst);
                }
            });
            rt::blocking(|| {
                // Somebody else has the P by now.
                while others.load(SeqCst) < 3 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                recurses_without_end(0)
            })
        });
        return;
    }
    let ended = ended(TEST, &[("GOMAXPROCS", "1")]);
    expect_overflow(&ended, 64 << 10, &["overflow::recurses_without_end"]);
}

/// Where calls of the runtime are the deepest, it is most likely inside when the stack ends, on its way to a queue or
/// into the trace.
#[test]
fn overflow_inside_the_runtime() {
    const TEST: &str = "overflow_inside_the_runtime";
    const TRACED: &str = "OVERFLOW_TRACED";
    const WHAT: &str = "OVERFLOW_WHAT";
    #[inline(never)]
    fn calls_and_recurses(call: fn(), depth: u64) -> u64 {
        call();
        if black_box(depth) == u64::MAX { 0 } else { calls_and_recurses(call, depth + 1) + black_box(1) }
    }
    const CALLS: [(&str, fn()); 4] = [
        ("yields", rt::yield_now),
        ("spawns", || drop(rt::go(|| ()))),
        ("joins", || rt::go(|| ()).join().unwrap()),
        ("blocks", || rt::blocking(|| ())),
    ];
    if is_child(TEST) {
        let what = std::env::var(WHAT).unwrap();
        let call = CALLS.iter().find(|(name, _)| *name == what).unwrap().1;
        if std::env::var_os(TRACED).is_some() {
            rt::trace::start(std::io::sink()).unwrap();
        }
        let _ = dive(move || calls_and_recurses(call, 0));
        return;
    }
    for (what, _) in CALLS {
        for traced in [&[][..], &[(TRACED, "1")]] {
            let ended = ended(TEST, &[&[(WHAT, what)], traced].concat());
            expect_overflow(&ended, 64 << 10, &["calls_and_recurses"]);
        }
    }
}

/// Many at once: one report is made, whole, and everybody ends.
#[test]
fn overflow_of_many_at_once() {
    const TEST: &str = "overflow_of_many_at_once";
    if is_child(TEST) {
        let _ = rt::run(|| {
            let ready = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..4)
                .map(|_| {
                    let ready = ready.clone();
                    let builder = rt::Builder::new().name(NAME).stack_size(64 << 10);
                    let life = move || {
                        ready.fetch_add(1, SeqCst);
                        while ready.load(SeqCst) < 4 {
                            std::hint::spin_loop();
                        }
                        recurses_without_end(0)
                    };
                    builder.spawn(life).unwrap()
                })
                .collect();
            all.into_iter().map(|h| h.join().unwrap()).sum::<u64>()
        });
        return;
    }
    let ended = ended(TEST, &[("GOMAXPROCS", "4")]);
    expect_overflow(&ended, 64 << 10, &["overflow::recurses_without_end"]);
}

/// The goroutine holds what the report needs: then there is a shorter one.
#[test]
fn overflow_while_nobody_can_print() {
    const TEST: &str = "overflow_while_nobody_can_print";
    if is_child(TEST) {
        let _ = dive(|| {
            let _held = std::io::stderr().lock();
            recurses_without_end(0)
        });
        return;
    }
    let ended = ended(TEST, &[]);
    ended.expect_signal(libc::SIGSEGV);
    ended.expect_stderr(&[REPORT, " has used up its stack of 65536 bytes", "\n\t0x"]);
}

// The trace of a process that ends so.

/// Writes into a file, and tells how many generations are whole.
struct Out {
    file: File,
    whole: Arc<AtomicUsize>,
    /// After the first generation: stops in the middle of the next, says so, and never comes back.
    stuck: Option<mpsc::Sender<()>>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.whole.load(SeqCst) == 0 || self.stuck.is_none() {
            return self.file.write(bytes);
        }
        self.file.write_all(&bytes[..bytes.len() / 2])?;
        self.file.flush()?;
        self.stuck.take();
        loop {
            std::thread::park();
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.whole.fetch_add(1, SeqCst);
        self.file.flush()
    }
}

/// The child's part: a trace, a generation of it in the file, and the end.
fn die_traced(path: &Path, in_the_middle: bool) {
    let (tx, rx) = mpsc::channel();
    let whole = Arc::new(AtomicUsize::new(0));
    let out = Out { file: File::create(path).unwrap(), whole: whole.clone(), stuck: in_the_middle.then_some(tx) };
    let _ = dive(move || {
        rt::trace::start(out).unwrap();
        let heartbeat = rt::Builder::new().name("heartbeat").spawn(|| {
            loop {
                rt::time::sleep(Duration::from_millis(10));
            }
        });
        drop(heartbeat);
        wait_for("a whole generation", || whole.load(SeqCst) > 0);
        // Disconnected when the writer is stuck; at once if it is not to be.
        assert!(rt::blocking(|| rx.recv()).is_err());
        recurses_without_end(0)
    });
}

/// Reads what the dead process has left. Answers the whole generations, and how the reading ended.
fn read_what_is_left(path: &Path) -> (u64, Option<Rule>) {
    let mut reader = Reader::new(File::open(path).unwrap()).expect("a header");
    let mut validator = Validator::default();
    let (mut events, mut heartbeats, mut cut) = (0, 0, None);
    let mut generations = Vec::new();
    while let Some(event) = reader.next() {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                cut = Some(e.broken().unwrap_or_else(|| panic!("{e}")).rule);
                assert!(reader.next().is_none());
                break;
            }
        };
        events += 1;
        let is_heartbeat = event.kind == Ev::GoLabel && event.text(reader.tables()).as_deref() == Some("heartbeat");
        heartbeats += u64::from(is_heartbeat);
        let number = reader.generation().number;
        if generations.last() != Some(&number) {
            generations.push(number);
        }
        validator.event(&event, reader.tables());
    }
    let findings = validator.finish();
    assert_eq!(findings.total, 0, "{:?}", findings.first);
    assert!(heartbeats > 0 && events > 100, "{events} events, {heartbeats} heartbeats");
    (generations.len() as u64, cut)
}

#[test]
fn overflow_leaves_a_readable_trace() {
    const TEST: &str = "overflow_leaves_a_readable_trace";
    if is_child(TEST) {
        return die_traced(&PathBuf::from(std::env::var_os(FILE).unwrap()), false);
    }
    let path = scratch_file("overflow.trace");
    let ended = ended(TEST, &[(FILE, path.to_str().unwrap())]);
    expect_overflow(&ended, 64 << 10, &["overflow::recurses_without_end"]);
    let (generations, cut) = read_what_is_left(&path);
    assert!(generations >= 1);
    assert!(matches!(cut, None | Some(Rule::GenerationCut | Rule::BatchCut)), "{cut:?}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn overflow_leaves_a_cut_trace() {
    const TEST: &str = "overflow_leaves_a_cut_trace";
    if is_child(TEST) {
        return die_traced(&PathBuf::from(std::env::var_os(FILE).unwrap()), true);
    }
    let path = scratch_file("overflow-cut.trace");
    let ended = ended(TEST, &[(FILE, path.to_str().unwrap())]);
    expect_overflow(&ended, 64 << 10, &["overflow::recurses_without_end"]);
    let (generations, cut) = read_what_is_left(&path);
    assert_eq!(generations, 1);
    assert!(matches!(cut, Some(Rule::GenerationCut | Rule::BatchCut)), "{cut:?}");
    std::fs::remove_file(path).unwrap();
}

// Faults that are none of ours.

/// A thread's own stack is std's business, also when the runtime has put its handler before std's.
#[test]
fn threads_overflow_as_ever() {
    const TEST: &str = "threads_overflow_as_ever";
    if is_child(TEST) {
        rt::run(|| rt::go(rt::yield_now).join().unwrap());
        let thread = std::thread::Builder::new().name("plain".into()).stack_size(64 << 10);
        let _ = thread.spawn(|| recurses_without_end(0)).unwrap().join();
        return;
    }
    let ended = ended(TEST, &[]);
    ended.expect_signal(libc::SIGABRT);
    ended.expect_stderr(&["thread 'plain'", "has overflowed its stack"]);
    ended.expect_no_stderr("has used up its stack").expect_no_stderr(REPORT);
}

#[test]
fn other_faults_are_not_overflows() {
    const TEST: &str = "other_faults_are_not_overflows";
    const WHERE: &str = "OVERFLOW_WHERE";
    const PLACES: [&str; 5] = ["near null", "not canonical", "a page without rights", "read only", "another's guard"];

    /// An address that cannot be written to.
    fn address(place: &str) -> usize {
        static CONSTANT: [u8; 4096] = [7; 4096];
        match place {
            "near null" => 8,
            "not canonical" => 0xdead_0000_0000_0000,
            "read only" => CONSTANT.as_ptr().addr() + 2048,
            "a page without rights" => {
                let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: a new mapping touches nothing of ours.
                let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, kind, -1, 0) };
                assert_ne!(page, libc::MAP_FAILED);
                page.addr()
            }
            "another's guard" => {
                // It waits on its own stack, below whose edge the guard begins.
                let (tx, rx) = mpsc::channel();
                rt::go(move || {
                    tx.send(edge() - 64).unwrap();
                    rt::time::sleep(Duration::from_secs(1000));
                });
                rt::blocking(|| rx.recv()).unwrap()
            }
            other => panic!("{other}?"),
        }
    }

    #[inline(never)]
    fn writes_to(address: usize) {
        // SAFETY: none: this is the fault of the test.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(1) };
    }

    if is_child(TEST) {
        let place = std::env::var(WHERE).unwrap();
        dive(move || {
            let address = address(&place);
            println!("writing");
            writes_to(address);
            println!("written");
        });
        return;
    }
    for guard in GUARDS {
        for place in PLACES {
            let ended = ended(TEST, &[guard, &[(WHERE, place)]].concat());
            ended.expect("the place is reached", ended.stdout.contains("writing"));
            ended.expect("nothing is written", !ended.stdout.contains("written"));
            ended.expect_signal(libc::SIGSEGV);
            ended.expect_no_stderr("overflow").expect_no_stderr("used up");
        }
    }
}

/// A handler that the program has installed before the runtime started still gets the faults that are not overflows.
#[test]
fn a_handler_from_before_is_asked() {
    const TEST: &str = "a_handler_from_before_is_asked";
    static ASKED: AtomicBool = AtomicBool::new(false);
    extern "C" fn answers(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        const WORD: &[u8] = b"the handler from before\n";
        assert!(!ASKED.swap(true, SeqCst));
        // SAFETY: the kernel gives a valid siginfo; write and _exit are async-signal-safe.
        unsafe {
            let code = if (*info).si_addr().addr() == 16 { 77 } else { 78 };
            libc::write(2, WORD.as_ptr().cast(), WORD.len());
            libc::_exit(code);
        }
    }
    if is_child(TEST) {
        // SAFETY: a zeroed sigaction is one without flags; the handler above does what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = answers as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
        }
        let overflow = std::env::var_os(STACK).is_some();
        let _ = dive(move || {
            if overflow {
                return recurses_without_end(0);
            }
            // SAFETY: none: this is the fault of the test.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(16).write_volatile(1) };
            0
        });
        return;
    }
    ended(TEST, &[]).expect_code(77).expect_stderr(&["the handler from before"]).expect_no_stderr(REPORT);
    let overflow = ended(TEST, &[(STACK, "65536")]);
    expect_overflow(&overflow, 64 << 10, &["overflow::recurses_without_end"]);
    overflow.expect_no_stderr("the handler from before");
}

//! What every goroutine is doing: asked while the world runs, from everywhere, and by SIGQUIT.

mod common;

use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Rng, everywhere, judge, program, scaled, scratch_file, seed, traced, wait_for};
use rt::chan::bounded;
use rt::debug::{Dump, Goroutine, Holder, State};
use rt::sync::{Mutex, RwLock, WaitGroup};
use tracer::wire::reason;

programs! {
    all_processors_stuck,
    quits,
    quits_when_stuck,
    quits_and_goes_on,
    own_quit_handler,
    own_urg_handler,
    urg_handler_that_comes_later,
    urg_is_blocked,
}

/// Those who only wait.
const MANY: usize = scaled(10_000, 2_000);

/// What goroutines of a test share.
#[derive(Clone, Default)]
struct Field {
    begun: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Field {
    fn begin(&self) {
        self.begun.fetch_add(1, SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn start(&self, name: &str, life: fn(&Field)) -> rt::JoinHandle<()> {
        let field = self.clone();
        rt::Builder::new().name(name).spawn(move || life(&field)).unwrap()
    }

    /// Waits, on a thread or a goroutine, until so many have begun.
    fn wait_for(&self, begun: usize) {
        wait_for("they begin", || self.begun.load(SeqCst) >= begun);
    }
}

// Their names are looked for in stacks, so no call is the last thing that they do.

/// Never calls into the runtime.
#[inline(never)]
fn spins(field: &Field) {
    field.begin();
    while !field.is_over() {
        std::hint::spin_loop();
    }
    black_box(field);
}

/// Blocks its thread without a word.
#[inline(never)]
fn naps(field: &Field) {
    field.begin();
    while !field.is_over() {
        std::thread::sleep(Duration::from_millis(20));
    }
    black_box(field);
}

/// Blocks its thread and says so.
#[inline(never)]
fn calls(field: &Field) {
    rt::blocking(|| {
        field.begin();
        while !field.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    black_box(field);
}

#[inline(never)]
fn receives(rx: &rt::chan::Receiver<u32>) {
    let _ = rx.recv();
    black_box(rx);
}

#[track_caller]
fn named<'d>(dump: &'d Dump, name: &str) -> &'d Goroutine {
    let of: Vec<_> = dump.goroutines().iter().filter(|g| g.name.as_deref() == Some(name)).collect();
    assert_eq!(of.len(), 1, "{name}:\n{dump}");
    of[0]
}

fn is_in(g: &Goroutine, function: &str) -> bool {
    let name = format!("dump::{function}");
    g.stack.iter().any(|f| *f.func == *name)
}

/// A dump in which every thread that was asked has answered. On a machine that is short of processors one may come too
/// late; but then it was waited for.
fn answered_dump() -> Dump {
    loop {
        let began = Instant::now();
        let dump = rt::debug::goroutines();
        if began.elapsed() < Duration::from_millis(1900) || !dump.to_string().contains("stack unavailable") {
            return dump;
        }
        println!("a thread got no processor for two seconds");
    }
}

/// What must be seen of the field's goroutines, whoever looks.
#[track_caller]
fn check_field(dump: &Dump) {
    for (name, state, why, function) in [
        ("spinner 0", State::Running, "running", "spins"),
        ("spinner 1", State::Running, "running", "spins"),
        ("napper 0", State::Running, "running", "naps"),
        ("napper 1", State::Running, "running", "naps"),
        ("caller 0", State::Blocking, "syscall", "calls"),
        ("caller 1", State::Blocking, "syscall", "calls"),
    ] {
        let g = named(dump, name);
        assert_eq!((g.state, g.reason), (state, why), "{name}:\n{dump}");
        assert!(is_in(g, function), "{name} is not in {function}:\n{dump}");
        let creator = g.creator.as_ref().unwrap();
        assert_eq!(creator.id, Some(named(dump, "main").id));
        assert!(creator.location.file().ends_with("tests/dump.rs"));
    }
    let waits: Vec<_> = dump.goroutines().iter().filter(|g| is_in(g, "receives")).collect();
    assert_eq!(waits.len(), MANY, "{dump}");
    assert!(waits.iter().all(|g| g.state == State::Waiting && g.reason == reason::CHAN_RECEIVE));
    let object = waits[0].object.unwrap();
    assert_eq!(object.kind, "channel");
    assert!(waits.iter().all(|g| g.object == Some(object) && g.holder.is_none()));
    let text = dump.to_string();
    assert!(text.contains(&format!("{MANY} goroutines [chan receive, ")), "{text}");
    assert!(text.contains(&format!(", on channel at {:#x}]:\n", object.address)), "{text}");
    assert!(text.contains("\ngoroutines "), "{text}");
    assert!(text.len() < 100_000, "equal stacks share an entry: {text}");
}

#[test]
fn while_the_world_runs() {
    everywhere("while_the_world_runs", || {
        traced("dump while the world runs", || {
            let field = Field::default();
            let (tx, rx) = bounded(0);
            let group = WaitGroup::new();
            for _ in 0..MANY {
                let rx = rx.clone();
                group.go(move || receives(&rx));
            }
            let mut others = Vec::new();
            for i in 0..2 {
                others.push(field.start(&format!("spinner {i}"), spins));
                others.push(field.start(&format!("napper {i}"), naps));
                others.push(field.start(&format!("caller {i}"), calls));
            }
            field.wait_for(6);
            wait_for("everybody waits", || {
                rt::debug::goroutines().goroutines().iter().filter(|g| g.object.is_some()).count() >= MANY
            });
            // Long enough for the callers' and nappers' processors to be taken, and for times to be told.
            rt::time::sleep(Duration::from_millis(50));
            let dump = answered_dump();
            check_field(&dump);
            let main = named(&dump, "main");
            assert_eq!(main.state, State::Running);
            assert!(main.stack.iter().any(|f| f.func.starts_with("dump::while_the_world_runs")), "{dump}");
            let longest = dump.goroutines().iter().filter(|g| is_in(g, "receives")).filter_map(|g| g.since).max();
            assert!(longest.unwrap() >= Duration::from_millis(50), "{longest:?}");
            // From threads, two at once, one of them beside a goroutine that looks, too.
            let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(answered_dump)).collect();
            check_field(&answered_dump());
            for t in threads {
                let dump = rt::blocking(|| t.join()).unwrap();
                check_field(&dump);
                assert!(matches!(named(&dump, "main").state, State::Blocking | State::Running | State::Runnable));
            }
            field.over.store(true, SeqCst);
            drop(tx);
            others.into_iter().for_each(|o| o.join().unwrap());
            group.wait();
        });
    });
}

/// More hogs than processors, and no threads to hand the processors to.
fn all_processors_stuck() {
    let field = Field::default();
    let out = field.clone();
    let looks = std::thread::spawn(move || {
        while field.begun.load(SeqCst) < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        let dump = answered_dump();
        field.over.store(true, SeqCst);
        let hogs: Vec<_> =
            dump.goroutines().iter().filter(|g| g.name.as_deref().is_some_and(|n| n.starts_with("hog"))).collect();
        assert_eq!(hogs.len(), 4, "{dump}");
        let run = hogs.iter().filter(|g| g.state == State::Running).count();
        assert!(run >= 2, "{dump}");
        for g in hogs {
            match g.state {
                State::Running => assert!(is_in(g, "spins"), "{dump}"),
                state => assert!(state == State::Runnable && g.stack.is_empty(), "{dump}"),
            }
        }
    });
    rt::Config::new().gomaxprocs(2).max_threads(3).run(move || {
        let hogs: Vec<_> = (0..4).map(|i| out.start(&format!("hog {i}"), spins)).collect();
        hogs.into_iter().for_each(|h| h.join().unwrap());
    });
    looks.join().unwrap();
}

#[test]
fn when_every_processor_is_stuck() {
    program("all_processors_stuck", &[]).expect_code(0);
}

/// Dumps in a loop beside everything that moves.
#[test]
fn stress_dumps_in_a_storm() {
    everywhere("stress_dumps_in_a_storm", || {
        let seed = seed();
        let (dumps, _) = traced("dumps in a storm", move || {
            let over = Arc::new(AtomicBool::new(false));
            let group = WaitGroup::new();
            let locks: Arc<[Mutex<u64>; 3]> = Arc::default();
            for i in 0..20 {
                let (over, locks) = (over.clone(), locks.clone());
                group.go(move || {
                    let mut rng = Rng::new(seed ^ i);
                    while !over.load(SeqCst) {
                        match rng.below(6) {
                            0 => {
                                let name = format!("child {}", rng.below(9));
                                let n = rt::Builder::new().name(name).spawn(|| 1).unwrap().join().unwrap();
                                assert_eq!(n, 1);
                            }
                            1 => {
                                let (tx, rx) = bounded(0);
                                rt::go(move || tx.send(1));
                                assert_eq!(rx.recv(), Ok(1));
                            }
                            2 => rt::time::sleep(Duration::from_micros(rng.below(500))),
                            3 => rt::blocking(|| std::thread::sleep(Duration::from_micros(rng.below(300)))),
                            4 => common::busy(Duration::from_micros(rng.below(100))),
                            _ => {
                                *locks[rng.below(3) as usize].lock() += 1;
                                rt::yield_now();
                            }
                        }
                    }
                });
            }
            let asks = |over: Arc<AtomicBool>| {
                move || {
                    let mut dumps = 0;
                    while !over.load(SeqCst) {
                        let dump = rt::debug::goroutines();
                        assert!(dump.goroutines().windows(2).all(|w| w[0].id < w[1].id), "{dump}");
                        assert!(dump.cycles().is_empty(), "{dump}");
                        assert!(dump.goroutines().len() >= 20 || over.load(SeqCst), "{dump}");
                        dumps += 1;
                    }
                    dumps
                }
            };
            let thread = std::thread::spawn(asks(over.clone()));
            let goroutine = rt::go(asks(over.clone()));
            rt::time::sleep(Duration::from_millis(700));
            over.store(true, SeqCst);
            let dumps = [goroutine.join().unwrap(), rt::blocking(|| thread.join()).unwrap()];
            group.wait();
            dumps
        });
        println!("dumps: {dumps:?}");
        assert!(dumps.iter().all(|&n| n > 0));
    });
}

/// The signal that asks a thread does not touch `errno`.
#[test]
fn errno_is_kept() {
    traced("errno", || {
        let field = Field::default();
        let spinner = field.clone();
        let checks = rt::go(move || {
            // SAFETY: the thread's own errno; nothing here calls the runtime or C, so it stays the same thread.
            unsafe {
                *libc::__errno_location() = 77;
                spinner.begin();
                while !spinner.is_over() {
                    std::hint::spin_loop();
                }
                *libc::__errno_location()
            }
        });
        field.wait_for(1);
        for _ in 0..20 {
            rt::debug::goroutines();
        }
        field.over.store(true, SeqCst);
        assert_eq!(checks.join().unwrap(), 77);
    });
}

// Who holds what.

#[inline(never)]
fn locks(lock: &Mutex<u32>) {
    *lock.lock() += 1;
    black_box(lock);
}

#[test]
fn holders_are_named() {
    traced("holders", || {
        let lock = Arc::new(Mutex::new(0));
        let start = |name: &str| {
            let lock = lock.clone();
            rt::Builder::new().name(name).spawn(move || locks(&lock)).unwrap()
        };
        let waits = |name: &'static str| {
            wait_for("it waits", || named(&rt::debug::goroutines(), name).object.is_some());
            rt::debug::goroutines()
        };
        // A goroutine.
        let held = lock.lock();
        let handle = start("waiter");
        let dump = waits("waiter");
        let (main, waiter) = (named(&dump, "main"), named(&dump, "waiter"));
        assert_eq!(waiter.holder, Some(Holder::Goroutine(main.id)), "{dump}");
        assert_eq!((waiter.object.unwrap().kind, waiter.reason), ("mutex", reason::SYNC));
        let text = dump.to_string();
        let says = format!(
            "waits for the mutex at {:#x}, held by goroutine {} \"main\"\n",
            waiter.object.unwrap().address,
            main.id
        );
        assert!(text.contains(&says), "{says}{text}");
        drop(held);
        handle.join().unwrap();
        // A thread.
        let (has_it, asked) = bounded(0);
        let (go_on, may_go_on) = bounded::<()>(0);
        let of_thread = lock.clone();
        let thread = std::thread::spawn(move || {
            let _held = of_thread.lock();
            has_it.send(common::gettid()).unwrap();
            let _ = may_go_on.recv();
        });
        let tid = asked.recv().unwrap();
        let handle = start("waiter");
        let dump = waits("waiter");
        assert_eq!(named(&dump, "waiter").holder, Some(Holder::Thread(tid)), "{dump}");
        assert!(dump.to_string().contains(&format!("held by thread {tid}\n")), "{dump}");
        drop(go_on);
        handle.join().unwrap();
        rt::blocking(|| thread.join()).unwrap();
        // One that is gone.
        let leaks = lock.clone();
        rt::go(move || std::mem::forget(leaks.lock())).join().unwrap();
        // Whoever has its slot and its stack now is not accused.
        let others: Vec<_> = (0..50).map(|_| rt::go(|| rt::time::sleep(Duration::from_millis(300)))).collect();
        let handle = start("waiter");
        let dump = waits("waiter");
        assert_eq!(named(&dump, "waiter").holder, Some(Holder::Ended), "{dump}");
        others.into_iter().for_each(|o| o.join().unwrap());
        drop(handle);
    });
}

/// The writer of a read-write lock is named, also while it waits for readers; these are not.
#[test]
fn writers_are_named() {
    traced("writers", || {
        let lock = Arc::new(RwLock::new(0));
        let start = |name: &str, f: fn(&RwLock<u32>)| {
            let lock = lock.clone();
            rt::Builder::new().name(name).spawn(move || f(&lock)).unwrap()
        };
        let waits = |name: &'static str| {
            wait_for("it waits", || named(&rt::debug::goroutines(), name).object.is_some());
        };
        let read = |lock: &RwLock<u32>| assert!(*lock.read() < 3);
        let write = |lock: &RwLock<u32>| *lock.write() += 1;
        let writing = lock.write();
        let reader = start("reader", read);
        waits("reader");
        let dump = rt::debug::goroutines();
        let holder = Some(Holder::Goroutine(named(&dump, "main").id));
        assert_eq!(named(&dump, "reader").holder, holder, "{dump}");
        drop(writing);
        reader.join().unwrap();
        let reading = lock.read();
        let writers = ["first writer", "second writer"].map(|name| {
            let writer = start(name, write);
            waits(name);
            writer
        });
        let reader = start("reader", read);
        waits("reader");
        let dump = rt::debug::goroutines();
        let first = named(&dump, "first writer");
        assert_eq!((first.holder, first.object.unwrap().kind), (None, "read-write lock"), "{dump}");
        for name in ["second writer", "reader"] {
            assert_eq!(named(&dump, name).holder, Some(Holder::Goroutine(first.id)), "{dump}");
            assert_eq!(named(&dump, name).object, first.object, "{dump}");
        }
        assert!(dump.cycles().is_empty(), "{dump}");
        drop(reading);
        for handle in writers.into_iter().chain([reader]) {
            handle.join().unwrap();
        }
        // Nobody holds it for writing any more.
        assert_eq!(*lock.read(), 2);
        // Two writers that lock two locks in different order.
        let locks: Arc<[RwLock<()>; 2]> = Arc::default();
        for i in 0..2 {
            let locks = locks.clone();
            let crossed = move || {
                let _first = locks[i].write();
                rt::time::sleep(Duration::from_millis(20));
                let _second = locks[1 - i].write();
            };
            drop(rt::Builder::new().name(["this one", "that one"][i]).spawn(crossed).unwrap());
        }
        wait_for("the cycle is seen", || rt::debug::goroutines().cycles().len() == 1);
    });
}

/// Whoever is handed a lock is its holder.
#[test]
fn a_handed_lock_names_its_new_holder() {
    traced("handed locks", || {
        for _ in 0..scaled(20, 5) {
            let lock = Arc::new(Mutex::new(()));
            let (tx, has_it) = bounded(2);
            let (let_go, may_let_go) = bounded::<()>(0);
            let mut held = Some(lock.lock());
            for name in ["one", "another"] {
                let (lock, tx, may_let_go) = (lock.clone(), tx.clone(), may_let_go.clone());
                let life = move || {
                    let _held = lock.lock();
                    tx.send(name).unwrap();
                    let _ = may_let_go.recv();
                };
                rt::Builder::new().name(name).spawn(life).unwrap();
            }
            // They are woken, and come too late; so in the end one is handed the lock.
            for _ in 0..4 {
                common::busy(Duration::from_millis(3));
                drop(held.take());
                held = lock.try_lock();
                rt::time::sleep(Duration::from_micros(100));
            }
            drop(held);
            let first = has_it.recv().unwrap();
            let second = if first == "one" { "another" } else { "one" };
            wait_for("the other one waits", || named(&rt::debug::goroutines(), second).holder.is_some());
            let dump = rt::debug::goroutines();
            assert_eq!(named(&dump, second).holder, Some(Holder::Goroutine(named(&dump, first).id)), "{dump}");
            drop(let_go);
            assert_eq!(has_it.recv(), Ok(second));
            wait_for("both end", || Arc::strong_count(&lock) == 1);
        }
    });
}

#[test]
fn a_cycle_is_found_and_only_that() {
    traced("a cycle", || {
        let locks: Arc<[Mutex<()>; 3]> = Arc::default();
        let (tx, rx) = bounded::<usize>(3);
        let barrier = WaitGroup::new();
        barrier.add(3);
        for i in 0..3 {
            let (locks, tx, barrier) = (locks.clone(), tx.clone(), barrier.clone());
            let life = move || {
                let _mine = locks[i].lock();
                tx.send(i).unwrap();
                barrier.done();
                barrier.wait();
                let _next = locks[(i + 1) % 3].lock();
            };
            rt::Builder::new().name(format!("link {i}")).spawn(life).unwrap();
        }
        barrier.wait();
        drop(rx);
        // Somebody who waits for the cycle, and is not in it.
        rt::Builder::new().name("tail").spawn(move || drop(locks[0].lock())).unwrap();
        wait_for("they wait", || {
            let dump = rt::debug::goroutines();
            dump.cycles().len() == 1 && named(&dump, "tail").holder.is_some()
        });
        let dump = rt::debug::goroutines();
        let ids: Vec<u64> = (0..3).map(|i| named(&dump, &format!("link {i}")).id).collect();
        let cycle = &dump.cycles()[0];
        let at = cycle.iter().position(|&id| id == ids[0]).unwrap();
        let turned: Vec<u64> = (0..3).map(|i| cycle[(at + i) % 3]).collect();
        assert_eq!(turned, ids, "{dump}");
        assert_eq!(cycle.iter().min(), cycle.first());
        let text = dump.to_string();
        assert!(text.starts_with("deadlock by lock order: goroutine "), "{text}");
        assert_eq!(text.matches("deadlock").count(), 1, "{text}");
    });
}

// Signals.

fn raise(signal: i32) {
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// A thread sends SIGQUIT while the main goroutine waits and others do other things.
fn quits() {
    let field = Field::default();
    let theirs = field.clone();
    std::thread::spawn(move || {
        while theirs.begun.load(SeqCst) < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(30));
        raise(libc::SIGQUIT);
    });
    rt::run(move || {
        let others = [field.start("spinner", spins), field.start("napper", naps), field.start("caller", calls)];
        others.into_iter().for_each(|o| o.join().unwrap());
    });
    println!("ended by itself");
}

#[test]
fn sigquit_dumps_and_exits() {
    for env in common::CONFIGURATIONS {
        let path = scratch_file("sigquit.trace");
        let ended = program("quits", &[env, &[("RT_TRACE", path.to_str().unwrap())]].concat());
        ended.expect_code(2).expect("it did not end by itself", ended.stdout.is_empty());
        let texts = ["SIGQUIT: 4 goroutines\n\n", "goroutine 1 \"main\" [sync, ", ", on goroutine's end at 0x"];
        ended.expect_stderr(&texts).expect_stderr(&["\"spinner\" [running", "dump::spins\n\t"]);
        ended.expect_stderr(&["\"napper\" [running", "dump::naps\n\t", "\"caller\" [syscall, ", "dump::calls\n\t"]);
        judge("the trace of a SIGQUIT", &std::fs::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
}

fn quits_when_stuck() {
    let field = Field::default();
    let theirs = field.clone();
    std::thread::spawn(move || {
        while theirs.begun.load(SeqCst) < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        raise(libc::SIGQUIT);
    });
    rt::Config::new().gomaxprocs(2).max_threads(3).run(move || {
        let hogs: Vec<_> = (0..4).map(|i| field.start(&format!("hog {i}"), spins)).collect();
        hogs.into_iter().for_each(|h| h.join().unwrap());
    });
}

#[test]
fn sigquit_when_every_processor_is_stuck() {
    let ended = program("quits_when_stuck", &[]);
    ended.expect_code(2).expect_stderr(&["SIGQUIT: 5 goroutines\n\n", "dump::spins\n\t", "\"hog 3\""]);
}

/// What comes to stderr goes to a file, which tells when the dump is there.
fn quits_and_goes_on() {
    let path = std::env::var_os("DUMP_STDERR").unwrap();
    let file = std::fs::File::create(&path).unwrap();
    // SAFETY: both are open; nothing is written to stderr meanwhile.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
    rt::run(|| {
        raise(libc::SIGQUIT);
        wait_for("the dump is there", move || {
            let text = std::fs::read_to_string(&path).unwrap();
            text.contains("SIGQUIT: 1 goroutines\n\ngoroutine 1 \"main\" [") && text.contains("created by a thread")
        });
    });
    println!("went on");
}

#[test]
fn sigquit_may_go_on() {
    let path = scratch_file("sigquit.stderr");
    let run = |what| program("quits_and_goes_on", &[("RT_SIGQUIT", what), ("DUMP_STDERR", path.to_str().unwrap())]);
    let said = || std::fs::read_to_string(&path).unwrap();
    let ended = run("continue");
    ended.expect_code(0).expect("it went on", ended.stdout.contains("went on"));
    run("off").expect_signal(libc::SIGQUIT);
    assert!(!said().contains("goroutine"), "{}", said());
    run("never").expect_code(101);
    assert!(said().contains("RT_SIGQUIT=never: want exit, continue or off"), "{}", said());
    std::fs::remove_file(&path).unwrap();
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counts(_: i32) {
    SIGNALS.fetch_add(1, SeqCst);
}

extern "C" fn counts_with_info(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives it.
    assert_eq!(unsafe { (*info).si_signo }, signal);
    SIGNALS.fetch_add(1, SeqCst);
}

fn install(signal: i32, handler: usize, flags: i32) {
    // SAFETY: the structs live; the handlers above only count.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn own_quit_handler() {
    let ignores = std::env::var_os("DUMP_IGNORES").is_some();
    install(libc::SIGQUIT, if ignores { libc::SIG_IGN } else { counts as *const () as usize }, 0);
    rt::run(move || {
        raise(libc::SIGQUIT);
        if !ignores {
            wait_for("the signal", || SIGNALS.load(SeqCst) == 1);
        }
        rt::time::sleep(Duration::from_millis(100));
    });
    println!("went on");
}

#[test]
fn a_programs_own_sigquit_is_left_alone() {
    for env in [&[][..], &[("DUMP_IGNORES", "1")]] {
        let ended = program("own_quit_handler", env);
        ended.expect_code(0).expect_no_stderr("goroutine").expect("it went on", ended.stdout.contains("went on"));
    }
}

/// A goroutine that spins, and a look at it.
fn spinner_seen(field: &Field, expect_stack: bool) -> Vec<String> {
    let dump = if expect_stack { answered_dump() } else { rt::debug::goroutines() };
    let g = named(&dump, "spinner");
    assert_eq!(g.state, State::Running);
    assert!(field.begun.load(SeqCst) > 0);
    g.stack.iter().map(|f| f.func.to_string()).collect()
}

fn own_urg_handler() {
    let with_info = std::env::var_os("DUMP_INFO").is_some();
    let (handler, flags) = if with_info {
        (counts_with_info as *const () as usize, libc::SA_SIGINFO)
    } else {
        (counts as *const () as usize, 0)
    };
    install(libc::SIGURG, handler, flags);
    rt::run(|| {
        let field = Field::default();
        let spinner = field.start("spinner", spins);
        field.wait_for(1);
        for n in 0..3 {
            assert!(spinner_seen(&field, true).iter().any(|f| f == "dump::spins"));
            assert_eq!(SIGNALS.load(SeqCst), n, "the handler gets the program's own signals only");
            raise(libc::SIGURG);
            wait_for("the signal", || SIGNALS.load(SeqCst) == n + 1);
        }
        field.over.store(true, SeqCst);
        spinner.join().unwrap();
    });
}

#[test]
fn a_programs_own_sigurg_is_passed_on() {
    program("own_urg_handler", &[]).expect_code(0);
    program("own_urg_handler", &[("DUMP_INFO", "1")]).expect_code(0);
}

fn urg_handler_that_comes_later() {
    rt::run(|| {
        let field = Field::default();
        let spinner = field.start("spinner", spins);
        field.wait_for(1);
        assert!(!spinner_seen(&field, true).is_empty());
        install(libc::SIGURG, counts as *const () as usize, 0);
        assert!(spinner_seen(&field, false).is_empty(), "nobody can be asked any more");
        assert!(rt::debug::goroutines().to_string().contains("stack unavailable"));
        assert_eq!(SIGNALS.load(SeqCst), 0);
        field.over.store(true, SeqCst);
        spinner.join().unwrap();
    });
}

fn urg_is_blocked() {
    #[inline(never)]
    fn blocks(field: &Field) {
        // SAFETY: the set lives; the mask is the thread's, which this goroutine keeps until the end.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGURG);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            spins(field);
            // What is pending comes now, late, and finds nothing to answer.
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        }
    }
    rt::run(|| {
        let field = Field::default();
        let spinner = field.start("spinner", blocks);
        field.wait_for(1);
        assert!(spinner_seen(&field, false).is_empty(), "it cannot answer");
        let other = Field::default();
        let another = other.start("another", spins);
        other.wait_for(1);
        assert!(is_in(named(&rt::debug::goroutines(), "another"), "spins"), "another one is asked all the same");
        field.over.store(true, SeqCst);
        spinner.join().unwrap();
        assert!(is_in(named(&answered_dump(), "another"), "spins"));
        other.over.store(true, SeqCst);
        another.join().unwrap();
    });
}

#[test]
fn a_thread_that_cannot_be_asked_is_named_without_a_stack() {
    program("urg_handler_that_comes_later", &[]).expect_code(0);
    program("urg_is_blocked", &[]).expect_code(0);
}

/// Who waits on a channel is shown with who used it last.
#[test]
fn channels_know_their_last_peers() {
    traced("dump peers", || {
        let (tx, rx) = rt::chan::bounded::<u32>(1);
        let sender = rt::Builder::new().name("one who sent").spawn(move || {
            tx.send(1).unwrap();
            tx
        });
        let tx = sender.unwrap().join().unwrap();
        let waiter = rt::Builder::new().name("one who waits").spawn(move || {
            rx.recv().unwrap();
            rx.recv().is_err()
        });
        let waiter = waiter.unwrap();
        let found = wait_for_dump(|dump| {
            let g = dump.goroutines().iter().find(|g| g.name.as_deref() == Some("one who waits"))?;
            (g.reason == "chan receive" && g.peers.is_some()).then(|| (g.id, g.peers.unwrap()))
        });
        assert_eq!(found.1.receiver, rt::debug::Holder::Goroutine(found.0));
        assert_eq!(found.1.sender, rt::debug::Holder::Ended);
        let text = rt::debug::goroutines().to_string();
        let line = format!(
            "last sent on by a goroutine that has ended, received from by goroutine {} \"one who waits\"",
            found.0
        );
        assert!(text.contains(&line), "{line} is not in\n{text}");
        drop(tx);
        assert!(waiter.join().unwrap());
    });
}

/// Dumps until one shows what is looked for.
fn wait_for_dump<T>(mut look: impl FnMut(&rt::debug::Dump) -> Option<T>) -> T {
    loop {
        if let Some(found) = look(&rt::debug::goroutines()) {
            return found;
        }
        rt::time::sleep(std::time::Duration::from_millis(1));
    }
}

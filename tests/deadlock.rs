//! "All goroutines are asleep": when nobody can ever go on the process says who waits for what, and ends with code 2. As long
//! as somebody could, it says nothing.
//!
//! Everything here is a program of its own (see [`common::program`]): a process in which every thread is accounted for.

mod common;

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{CONFIGURATIONS, Ended, Rng, events, judge, program, scaled, scratch_file, seed};
use rt::chan::{Receiver, Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use tracer::read::Reader;
use tracer::wire::{Ev, reason};

const REPORT: &str = "fatal error: all goroutines are asleep - deadlock!\n";

/// Long enough for several looks at an idle scheduler.
const PAUSE: Duration = Duration::from_millis(300);

programs! {
    all_asleep,
    a_thread_sends_later,
    a_thread_sends_again_and_again,
    threads_send_and_end,
    threads_hand_over,
    a_blocking_call_sends_later,
    plain_code_sends_later,
    a_sleeper_sends_later,
    an_unwinder_sends_later,
    a_thread_sends_to_an_unwinder,
    no_run,
    a_thread_ends_and_sends_nothing,
    threads_wait_too,
    one_waits_while_it_unwinds,
    a_slow_writer,
    a_writer_that_sends,
    traced_by_itself,
    woken_and_asleep_again,
    locks_in_a_ring,
    joins_who_waits_for_it,
    many_wait_alike,
}

#[track_caller]
fn expect_no_report(ended: &Ended) {
    ended.expect_no_stderr("deadlock").expect_no_stderr("goroutine ").expect_code(0);
}

/// Says on stdout where the caller's caller is about to wait: in the next line.
#[track_caller]
fn waits_below(name: &str) {
    println!("{name} waits at {}", std::panic::Location::caller().line() + 1);
}

#[track_caller]
fn start(name: &str, life: impl FnOnce() + Send + 'static) {
    rt::Builder::new().name(name).spawn(life).unwrap();
}

// Somebody waits in each way there is. Their names are looked for in stacks, so no call is the last thing that they do.

#[inline(never)]
fn receives(name: &str, rx: &Receiver<u32>) {
    waits_below(name);
    let _ = rx.recv();
    black_box(rx);
}

#[inline(never)]
fn sends(name: &str, tx: &Sender<u32>) {
    waits_below(name);
    let _ = tx.send(1);
    black_box(tx);
}

#[inline(never)]
fn locks(name: &str, lock: &Mutex<u32>) {
    waits_below(name);
    drop(lock.lock());
    black_box(lock);
}

#[inline(never)]
fn waits_for_group(name: &str, group: &WaitGroup) {
    waits_below(name);
    group.wait();
    black_box(group);
}

#[inline(never)]
fn joins(name: &str, other: rt::JoinHandle<()>) {
    waits_below(name);
    let _ = other.join();
    black_box(name);
}

fn all_asleep() {
    rt::run(|| {
        // Kept in the main goroutine, so that nothing is closed.
        let first = bounded(0);
        let second = bounded(0);
        let lock = Arc::new(Mutex::new(0));
        let _held = lock.lock();
        let group = WaitGroup::new();
        group.add(1);
        for name in ["receiver 1", "receiver 2"] {
            let rx = first.1.clone();
            start(name, move || receives(name, &rx));
        }
        let tx = second.0.clone();
        start("sender", move || sends("sender", &tx));
        for name in ["locker 1", "locker 2"] {
            let lock = lock.clone();
            start(name, move || locks(name, &lock));
        }
        let others = group.clone();
        start("grouper", move || waits_for_group("grouper", &others));
        // One without a name, for whom another waits.
        let rx = first.1.clone();
        let nameless = rt::go(move || receives("nameless", &rx));
        start("joiner", move || joins("joiner", nameless));
        // A blocking call that uses the runtime is over.
        let rx = first.1.clone();
        start("caller", move || rt::blocking(|| receives("caller", &rx)));
        waits_for_group("main", &group);
    });
}

/// What the report says of a goroutine.
#[derive(Debug)]
struct Dumped<'a> {
    id: u64,
    name: Option<&'a str>,
    reason: &'a str,
    /// Kind and address.
    object: Option<(&'a str, u64)>,
    text: &'a str,
}

impl<'a> Dumped<'a> {
    fn parse(text: &'a str) -> Option<Dumped<'a>> {
        let (id, rest) = text.strip_prefix("goroutine ")?.split_once(' ')?;
        let (name, rest) = match rest.strip_prefix('"') {
            Some(rest) => rest.split_once("\" ").map(|(name, rest)| (Some(name), rest))?,
            None => (None, rest),
        };
        let state = rest.strip_prefix('[')?.split_once("]:\n")?.0;
        let (state, object) = match state.split_once(", on ") {
            Some((state, on)) => {
                let (kind, address) = on.split_once(" at 0x")?;
                (state, Some((kind, u64::from_str_radix(address, 16).ok()?)))
            }
            None => (state, None),
        };
        // "sync, 31 ms": everybody here has stopped somewhere, at some time.
        let (reason, since) = state.rsplit_once(", ")?;
        let number = since.strip_suffix(" ms").or_else(|| since.strip_suffix(" s"))?;
        number.parse::<f64>().ok()?;
        Some(Dumped { id: id.parse().ok()?, name, reason, object, text })
    }
}

/// All goroutines of a report.
fn dumped(ended: &Ended) -> Vec<Dumped<'_>> {
    let Some((_, report)) = ended.stderr.split_once(REPORT) else { ended.fail("no report") };
    let parts = report.split("\n\n").map(str::trim_start).filter(|t| !t.is_empty() && !t.starts_with("deadlock"));
    parts.map(|text| Dumped::parse(text).unwrap_or_else(|| ended.fail(&format!("{text:?} says nothing")))).collect()
}

#[track_caller]
fn find<'d>(ended: &Ended, all: &'d [Dumped<'d>], name: &str) -> &'d Dumped<'d> {
    let of: Vec<_> = all.iter().filter(|d| d.name == (name != "nameless").then_some(name)).collect();
    match of[..] {
        [one] => one,
        _ => ended.fail(&format!("{name:?} is there {} times", of.len())),
    }
}

/// The line where the program said that somebody would wait.
fn line_of(ended: &Ended, name: &str) -> u32 {
    let said = format!("{name} waits at ");
    let line = ended.stdout.lines().find_map(|l| l.strip_prefix(&said));
    line.unwrap_or_else(|| ended.fail(&said)).parse().unwrap()
}

#[test]
fn all_are_asleep() {
    const EXPECTED: [(&str, &str, &str, &str); 10] = [
        ("main", reason::SYNC, "wait group", "waits_for_group"),
        ("receiver 1", reason::CHAN_RECEIVE, "channel", "receives"),
        ("receiver 2", reason::CHAN_RECEIVE, "channel", "receives"),
        ("nameless", reason::CHAN_RECEIVE, "channel", "receives"),
        ("caller", reason::CHAN_RECEIVE, "channel", "receives"),
        ("sender", reason::CHAN_SEND, "channel", "sends"),
        ("locker 1", reason::SYNC, "mutex", "locks"),
        ("locker 2", reason::SYNC, "mutex", "locks"),
        ("grouper", reason::SYNC, "wait group", "waits_for_group"),
        ("joiner", reason::SYNC, "goroutine's end", "joins"),
    ];
    for env in CONFIGURATIONS {
        let ended = program("all_asleep", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        ended.expect("one report", ended.stderr.matches(REPORT).count() == 1);
        let all = dumped(&ended);
        ended.expect("nobody else", all.len() == EXPECTED.len());
        let mut ids: Vec<u64> = all.iter().map(|d| d.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ended.expect("a number for each", ids.len() == all.len() && !ids.contains(&0));
        for (name, why, kind, function) in EXPECTED {
            let one = find(&ended, &all, name);
            ended.expect(&format!("{name}: {why}, on {kind}"), one.reason == why);
            ended.expect(&format!("{name}: on {kind}"), one.object.is_some_and(|o| o.0 == kind && o.1 != 0));
            let place = format!("deadlock::{function}\n\t");
            let Some((_, rest)) = one.text.split_once(&place) else { ended.fail(&format!("{name}: {place:?}")) };
            let at = format!("tests/deadlock.rs:{}", line_of(&ended, name));
            ended.expect(&format!("{name} at {at}"), rest.lines().next().is_some_and(|l| l.ends_with(&at)));
            let by = match name {
                "main" => "created by a thread".into(),
                _ => format!("created by goroutine {}", find(&ended, &all, "main").id),
            };
            ended.expect(&format!("{name}: {by}"), one.text.contains(&by));
        }
        // Who waits for the same thing names the same thing.
        let object = |name| find(&ended, &all, name).object;
        let same =
            [("receiver 1", "receiver 2"), ("receiver 1", "nameless"), ("locker 1", "locker 2"), ("main", "grouper")];
        for (a, b) in same {
            ended.expect(&format!("{a} and {b} wait for the same"), object(a) == object(b));
        }
        for (a, b) in [("receiver 1", "sender"), ("main", "joiner"), ("locker 1", "main")] {
            ended.expect(&format!("{a} and {b} do not wait for the same"), object(a) != object(b));
        }
    }
}

/// Each holds a lock that the next one wants, and one waits for the first.
fn locks_in_a_ring() {
    rt::run(|| {
        let ring: Arc<[Mutex<u32>; 3]> = Arc::default();
        let all = WaitGroup::new();
        all.add(3);
        for (i, name) in ["first", "second", "third"].into_iter().enumerate() {
            let (ring, all) = (ring.clone(), all.clone());
            start(name, move || {
                let mine = ring[i].lock();
                all.done();
                all.wait();
                locks(name, &ring[(i + 1) % 3]);
                drop(mine);
            });
        }
        all.wait();
        locks("main", &ring[0]);
    });
}

#[test]
fn a_ring_of_locks_is_named() {
    for env in CONFIGURATIONS {
        let ended = program("locks_in_a_ring", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        let all = dumped(&ended);
        ended.expect("four goroutines", all.len() == 4);
        let who = |name: &str| format!("goroutine {} {name:?}", find(&ended, &all, name).id);
        // Beginning with the lowest number, which is the one that began first.
        let ids = ["first", "second", "third"].map(|name| find(&ended, &all, name).id);
        let ring = ["first", "second", "third"].map(who);
        let low = (0..3).min_by_key(|&i| ids[i]).unwrap();
        let [a, b, c] = [0, 1, 2].map(|i| &ring[(low + i) % 3]);
        let says = format!("deadlock by lock order: {a} -> {b} -> {c} -> goroutine {}\n\n", ids[low]);
        ended.expect_stderr(&[&says]);
        ended.expect("once", ended.stderr.matches("deadlock by lock order").count() == 1);
        // Each says who holds what it waits for, and how it goes on from there.
        for (name, holder, then) in [("main", 0, 1), ("first", 1, 2), ("second", 2, 0), ("third", 0, 1)] {
            let one = find(&ended, &all, name);
            let (_, at) = one.object.unwrap();
            let says =
                format!("waits for the mutex at {at:#x}, held by {}, which waits for the mutex at 0x", ring[holder]);
            ended.expect(&says, one.text.contains(&says));
            ended.expect("and so on", one.text.contains(&format!(", held by {}", ring[then])));
        }
    }
}

/// The main goroutine waits for the end of another one, which wants the main goroutine's lock.
fn joins_who_waits_for_it() {
    rt::run(|| {
        let lock = Arc::new(Mutex::new(0));
        let held = lock.lock();
        let wants = lock.clone();
        let other = rt::Builder::new().name("other").spawn(move || locks("other", &wants)).unwrap();
        joins("main", other);
        drop(held);
    });
}

#[test]
fn a_ring_with_a_join_is_named() {
    for env in CONFIGURATIONS {
        let ended = program("joins_who_waits_for_it", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        let all = dumped(&ended);
        let other = find(&ended, &all, "other").id;
        let ring = format!("deadlock: goroutine 1 \"main\" -> goroutine {other} \"other\" -> goroutine 1\n");
        let chain = format!("waits for the end of goroutine {other} \"other\", which waits for the mutex at 0x");
        ended.expect_stderr(&[&ring, &chain]);
    }
}

const ALIKE: usize = 1_000;

fn many_wait_alike() {
    rt::run(|| {
        let (tx, rx) = bounded(0);
        for _ in 0..ALIKE {
            let rx = rx.clone();
            rt::go(move || receives("one of many", &rx));
        }
        receives("main", &rx);
        drop(tx);
    });
}

/// Goroutines that stand in the same place for the same reason share an entry.
#[test]
fn many_are_told_together() {
    let ended = program("many_wait_alike", &[]);
    ended.expect_code(2).expect_stderr(&[
        REPORT,
        &format!("{ALIKE} goroutines [chan receive, "),
        "deadlock::receives\n\t",
    ]);
    ended.expect("two entries", ended.stderr.matches("deadlock::receives").count() == 2);
}

// Somebody could still go on.

fn a_thread_sends_later() {
    let (tx, rx) = bounded(0);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(PAUSE);
        tx.send(7).unwrap();
    });
    assert_eq!(rt::run(move || rx.recv()), Ok(7));
    thread.join().unwrap();
}

/// With pauses that are longer than it takes to make sure, and shorter.
fn a_thread_sends_again_and_again() {
    let (tx, rx) = bounded(0);
    let thread = std::thread::spawn(move || {
        for i in 0..40 {
            std::thread::sleep(Duration::from_millis([1, 40, 5, 25, 33][i % 5]));
            tx.send(i).unwrap();
        }
    });
    assert_eq!(rt::run(move || rx.iter().collect::<Vec<_>>()), (0..40).collect::<Vec<_>>());
    thread.join().unwrap();
}

/// Many threads that sleep in a primitive: so counting threads takes long.
fn sleepers(rx: &Receiver<u32>) -> Vec<std::thread::JoinHandle<()>> {
    let sleeper = |_| {
        let rx = rx.clone();
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(move || assert!(rx.recv().is_err())).unwrap()
    };
    (0..1500).map(sleeper).collect()
}

/// Until somebody looks at an idle scheduler for the first time, or nearly.
fn until_a_look(rng: &mut Rng) -> Duration {
    Duration::from_micros(30_000 + rng.below(8_000))
}

/// Threads that send as the last thing they do, just when somebody looks: who counts threads must not miss both the thread,
/// which is gone by then, and the goroutine that it has woken.
fn threads_send_and_end() {
    let mut rng = Rng::new(seed());
    let (never, rx) = bounded::<u32>(0);
    let sleepers = sleepers(&rx);
    rt::run(move || {
        for i in 0..scaled(300, 100) {
            let (tx, rx) = bounded(0);
            let pause = until_a_look(&mut rng);
            std::thread::spawn(move || {
                std::thread::sleep(pause);
                tx.send(i).unwrap();
            });
            assert_eq!(rx.recv(), Ok(i));
        }
    });
    drop(never);
    sleepers.into_iter().for_each(|t| t.join().unwrap());
}

/// Threads that leave it to another to send, and go to sleep for ever: who counts threads must not miss the new one, and take the
/// old one for one that sleeps.
fn threads_hand_over() {
    struct Relay {
        turns: usize,
        tx: Sender<usize>,
        never: Receiver<u32>,
        rng: Rng,
    }
    impl Relay {
        fn run(mut self, turn: usize) {
            std::thread::sleep(Duration::from_millis(5));
            self.tx.send(turn).unwrap();
            std::thread::sleep(until_a_look(&mut self.rng));
            let never = self.never.clone();
            if turn + 1 < self.turns {
                std::thread::spawn(move || self.run(turn + 1));
            }
            let _ = never.recv();
        }
    }
    let (never_tx, never) = bounded::<u32>(0);
    let sleepers = sleepers(&never);
    let (tx, rx) = bounded(0);
    let turns = scaled(200, 60);
    let relay = Relay { turns, tx, never, rng: Rng::new(seed()) };
    std::thread::spawn(move || relay.run(0));
    assert_eq!(rt::run(move || rx.iter().take(turns).sum::<usize>()), turns * (turns - 1) / 2);
    drop(never_tx);
    sleepers.into_iter().for_each(|t| t.join().unwrap());
}

fn a_blocking_call_sends_later() {
    let got = rt::run(|| {
        let (tx, rx) = bounded(0);
        rt::go(move || {
            rt::blocking(|| std::thread::sleep(PAUSE));
            tx.send(7).unwrap();
        });
        rx.recv()
    });
    assert_eq!(got, Ok(7));
}

fn plain_code_sends_later() {
    let got = rt::run(|| {
        let (tx, rx) = bounded(0);
        rt::go(move || {
            std::thread::sleep(PAUSE);
            tx.send(7).unwrap();
        });
        rx.recv()
    });
    assert_eq!(got, Ok(7));
}

fn a_sleeper_sends_later() {
    let got = rt::run(|| {
        let (tx, rx) = bounded(0);
        rt::go(move || {
            rt::time::sleep(PAUSE);
            tx.send(7).unwrap();
        });
        rx.recv()
    });
    assert_eq!(got, Ok(7));
}

/// Does something when it is dropped.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A goroutine that unwinds, and does `last` meanwhile.
fn unwinds(last: impl FnMut() + Send + 'static) -> rt::JoinHandle<()> {
    rt::go(move || {
        let _last = Last(last);
        resume_unwind(Box::new("on purpose"));
    })
}

/// While it unwinds it keeps its thread, also while it sleeps.
fn an_unwinder_sends_later() {
    let got = rt::run(|| {
        let (tx, rx) = bounded(0);
        let unwinds = unwinds(move || {
            rt::time::sleep(PAUSE);
            rt::blocking(|| std::thread::sleep(PAUSE));
            tx.send(7).unwrap();
        });
        let got = rx.recv();
        assert!(unwinds.join().is_err());
        got
    });
    assert_eq!(got, Ok(7));
}

fn a_thread_sends_to_an_unwinder() {
    let (tx, rx) = bounded(0);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(PAUSE);
        tx.send(7).unwrap();
    });
    rt::run(move || {
        let unwinds = unwinds(move || assert_eq!(rx.recv(), Ok(7)));
        assert!(unwinds.join().is_err());
    });
    thread.join().unwrap();
}

/// Goroutines hand something to and fro with long pauses, and then one of them ends and takes what the other waits for with it.
fn woken_and_asleep_again() {
    let turns = Arc::new(AtomicUsize::new(0));
    let seen = turns.clone();
    rt::run(move || {
        let (tx, rx) = bounded::<u32>(0);
        let never = bounded::<u32>(0);
        start("receiver", move || {
            for _ in rx.iter() {
                seen.fetch_add(1, SeqCst);
            }
            println!("receiver has had {}", seen.load(SeqCst));
            let _ = never.1.recv();
        });
        for i in 0..6 {
            rt::time::sleep(Duration::from_millis(40));
            tx.send(i).unwrap();
        }
        drop(tx);
        let group = WaitGroup::new();
        group.add(1);
        group.wait();
    });
}

#[test]
fn somebody_could_go_on() {
    let programs = [
        "a_thread_sends_later",
        "a_thread_sends_again_and_again",
        "a_blocking_call_sends_later",
        "plain_code_sends_later",
        "a_sleeper_sends_later",
        "an_unwinder_sends_later",
        "a_thread_sends_to_an_unwinder",
    ];
    // Side by side, since they wait most of the time.
    std::thread::scope(|scope| {
        for env in CONFIGURATIONS {
            scope.spawn(move || programs.iter().for_each(|name| expect_no_report(&program(name, env))));
        }
    });
}

#[test]
fn stress_threads_that_send_and_end() {
    expect_no_report(&program("threads_send_and_end", &[]));
}

#[test]
fn stress_threads_that_hand_over() {
    expect_no_report(&program("threads_hand_over", &[]));
}

#[test]
fn asleep_in_the_end() {
    for env in CONFIGURATIONS {
        let ended = program("woken_and_asleep_again", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        ended.expect("first the work was done", ended.stdout.contains("receiver has had 6"));
        let all = dumped(&ended);
        ended.expect("two wait", all.len() == 2);
        ended.expect("on a channel", find(&ended, &all, "receiver").reason == reason::CHAN_RECEIVE);
    }
}

/// A thread that waits for a goroutine which waits for ever; but nothing was said of a main goroutine.
fn no_run() {
    let (tx, rx) = bounded::<u32>(0);
    let waits = rt::go(move || rx.recv());
    println!("waiting");
    // SAFETY: alarm touches no memory. It ends this process, which does nothing else for long enough.
    unsafe { libc::alarm(1) };
    let _ = waits.join();
    drop(tx);
}

#[test]
fn no_report_without_run() {
    let ended = program("no_run", &[]);
    ended.expect("it waits", ended.stdout.contains("waiting"));
    ended.expect_signal(libc::SIGALRM).expect_no_stderr("deadlock");
}

// Threads of the program's own.

/// While it lives it could send.
fn a_thread_ends_and_sends_nothing() {
    let (tx, rx) = bounded::<u32>(0);
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(500));
        println!("the thread ends");
    });
    rt::run(move || {
        let _ = rx.recv();
    });
    drop(tx);
}

#[test]
fn asleep_after_a_thread_has_ended() {
    for env in CONFIGURATIONS {
        let ended = program("a_thread_ends_and_sends_nothing", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        ended.expect("not before the thread ended", ended.stdout.contains("the thread ends"));
        let all = dumped(&ended);
        ended.expect("main waits", all.len() == 1 && find(&ended, &all, "main").reason == reason::CHAN_RECEIVE);
    }
}

/// Threads that wait in a primitive wake nobody.
fn threads_wait_too() {
    let (tx, rx) = bounded::<u32>(0);
    let group = WaitGroup::new();
    group.add(1);
    let lock = Arc::new(Mutex::new(0));
    let held = lock.lock();
    let waits: [Box<dyn FnOnce() + Send>; 4] = [
        Box::new({
            let rx = rx.clone();
            move || assert!(rx.recv().is_err())
        }),
        Box::new({
            let group = group.clone();
            move || group.wait()
        }),
        Box::new({
            let lock = lock.clone();
            move || drop(lock.lock())
        }),
        Box::new({
            let rx = rx.clone();
            move || drop(rt::go(move || rx.recv()).join())
        }),
    ];
    let threads: Vec<_> = waits.into_iter().map(std::thread::spawn).collect();
    rt::run(move || {
        let _ = rx.recv();
    });
    drop(held);
    drop(tx);
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn asleep_with_threads() {
    for env in CONFIGURATIONS {
        let ended = program("threads_wait_too", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        let all = dumped(&ended);
        ended.expect("two goroutines", all.len() == 2);
        find(&ended, &all, "main");
        ended.expect("one is a thread's", find(&ended, &all, "nameless").text.contains("created by a thread"));
    }
}

/// A goroutine that waits while it unwinds keeps its thread, and sleeps like any other.
fn one_waits_while_it_unwinds() {
    rt::run(|| {
        // SAFETY: alarm touches no memory. Ten times as long as a report takes, and then it is late for one.
        unsafe { libc::alarm(10) };
        let (tx, rx) = bounded::<u32>(0);
        let waits = rx.clone();
        start("unwinds", move || {
            let _last = Last(|| assert!(waits.recv().is_err()));
            resume_unwind(Box::new("on purpose"));
        });
        let _ = rx.recv();
        drop(tx);
    });
}

#[test]
fn asleep_while_it_unwinds() {
    for env in CONFIGURATIONS {
        let ended = program("one_waits_while_it_unwinds", env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        let all = dumped(&ended);
        ended.expect("it waits", find(&ended, &all, "unwinds").reason == reason::CHAN_RECEIVE);
    }
}

// Traces.

/// A writer that takes its time.
struct Slow(usize);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(500));
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        println!("written {}", self.0);
    }
}

fn a_slow_writer() {
    let stats = rt::run(|| {
        rt::trace::start(Slow(0)).unwrap();
        rt::go(rt::yield_now).join().unwrap();
        rt::trace::stop()
    });
    println!("written {}", stats.unwrap().bytes);
}

#[test]
fn the_end_of_a_trace_is_waited_for() {
    let ended = program("a_slow_writer", &[]);
    expect_no_report(&ended);
    let said: Vec<&str> = ended.stdout.lines().filter(|l| l.starts_with("written ")).collect();
    ended.expect("all is written", said.len() == 2 && said[0] == said[1]);
}

/// What it gets goes to a goroutine.
struct Sends(Sender<Vec<u8>>);

impl Write for Sends {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The main goroutine waits for the first of the trace; the tracer's thread will send it.
fn a_writer_that_sends() {
    let trace = rt::run(|| {
        let (tx, rx) = rt::chan::unbounded();
        rt::trace::start(Sends(tx)).unwrap();
        let first = rx.recv().unwrap();
        rt::trace::stop().unwrap();
        rx.iter().fold(first, |trace, more| [trace, more].concat())
    });
    judge("a writer that sends", &trace);
    println!("{} bytes", trace.len());
}

/// A writer is the program's own code, and may wake somebody.
#[test]
fn a_writer_could_send() {
    let ended = program("a_writer_that_sends", &[]);
    expect_no_report(&ended);
    ended.expect("a trace", ended.stdout.contains(" bytes"));
}

/// The trace of a program that ended asleep: whole, good, and with everybody's last words.
fn check_trace_of_the_sleepers(path: &Path) {
    let trace = std::fs::read(path).unwrap();
    judge("the trace of a deadlock", &trace);
    let mut reader = Reader::new(&trace[..]).unwrap();
    assert!(reader.by_ref().all(|e| e.is_ok()));
    assert_eq!(reader.unfinished_bytes(), 0);
    let mut blocks = Vec::new();
    events(&trace, |event, tables| {
        if event.kind == Ev::GoBlock {
            let stack: Vec<String> = tables.stack(event.stack()).map(|f| f.func.into_owned()).collect();
            blocks.push((event.text(tables).unwrap().into_owned(), stack));
        }
    });
    for (function, why) in [("receives", reason::CHAN_RECEIVE), ("sends", reason::CHAN_SEND), ("locks", reason::SYNC)] {
        let name = format!("deadlock::{function}");
        let found = blocks.iter().any(|(reason, stack)| reason == why && stack.contains(&name));
        assert!(found, "nobody blocks in {function} with {why:?}: {blocks:?}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_trace_of_a_deadlock_is_whole() {
    for env in CONFIGURATIONS {
        let path = scratch_file("deadlock.trace");
        let ended = program("all_asleep", &[env, &[("RT_TRACE", path.to_str().unwrap())]].concat());
        ended.expect_code(2).expect_stderr(&[REPORT]);
        ended.expect("the same report as without", dumped(&ended).len() == 10);
        check_trace_of_the_sleepers(&path);
    }
}

/// As `all_asleep`, with a trace that the program has started itself.
fn traced_by_itself() {
    let file = File::create(std::env::var_os("DEADLOCK_TRACE").unwrap()).unwrap();
    match std::env::var("DEADLOCK_WRITER").as_deref() {
        Ok("buffered") => rt::trace::start(BufWriter::new(file)).unwrap(),
        _ => rt::trace::start(file).unwrap(),
    }
    all_asleep();
}

/// A file wakes nobody.
#[test]
fn a_trace_of_the_programs_own_is_whole_too() {
    for writer in ["plain", "buffered"] {
        let path = scratch_file("deadlock-own.trace");
        let env = [("DEADLOCK_TRACE", path.to_str().unwrap()), ("DEADLOCK_WRITER", writer)];
        let ended = program("traced_by_itself", &env);
        ended.expect_code(2).expect_stderr(&[REPORT]);
        check_trace_of_the_sleepers(&path);
    }
}

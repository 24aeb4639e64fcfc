//! `rt::signal`: signals come through channels while somebody listens, and mean what they meant before when nobody does.
//!
//! A process has one disposition for each signal, so everything here is a program of its own (see [`common::program`]).

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{Actor, Ended, HangGuard, Rng, judge, message, program, scaled, scratch_file, seed, wait_for};
use rt::chan::{RecvError, TryRecvError, bounded};
use rt::io::{BufRead, BufReader, ErrorKind};
use rt::signal::{self, Signal};

programs! {
    receives,
    refuses,
    two_receivers,
    drops_what_is_too_much,
    a_channel_of_its_own,
    stop_brings_back_the_default,
    one_of_two_stops,
    stops_while_signals_come,
    ignores,
    resets,
    keeps_other_handlers,
    another_on_top,
    children_start_afresh,
    listens_to_sigquit,
    listens_to_sigquit_no_more,
    listens_before_the_start,
    without_a_runtime,
    waits_for_a_signal_only,
    asleep_after_the_last_signal,
    asleep_after_a_reset,
    a_thread_stops_listening,
    storm,
}

/// Runs a program with one P, with several, and with the other border; checks its trace.
fn everywhere(name: &str, check: impl Fn(&Ended)) {
    let _guard = HangGuard::new(name);
    for env in common::CONFIGURATIONS {
        let trace = scratch_file(&format!("signal-{name}.trace"));
        let mut env = env.to_vec();
        env.push(("RT_TRACE", trace.to_str().unwrap()));
        let ended = program(name, &env);
        check(&ended);
        if ended.status.code().is_some() {
            judge(name, &std::fs::read(&trace).unwrap());
        }
        let _ = std::fs::remove_file(&trace);
    }
}

fn passes(ended: &Ended) {
    ended.expect_code(0);
}

fn receives() {
    rt::run(|| {
        let signals = signal::notify(&[Signal::USR1, Signal::TERMINATE]).unwrap();
        assert_eq!(format!("{signals:?}").matches("[SIGUSR1, SIGTERM]").count(), 1, "{signals:?}");
        assert_eq!(signals.try_recv(), Err(TryRecvError::Empty));
        for round in 0..20 {
            let which = [Signal::USR1, Signal::TERMINATE][round % 2];
            signal::raise(which).unwrap();
            assert_eq!(signals.recv(), Ok(which));
        }
        // Somebody who waits already, on a goroutine and on a thread.
        for actor in Actor::BOTH {
            let waiter = signals.clone();
            let waiting = actor.start(move || waiter.recv());
            rt::time::sleep(Duration::from_millis(3));
            signal::raise(Signal::USR1).unwrap();
            assert_eq!(waiting.join(), Ok(Signal::USR1));
        }
        // As one of several.
        let late = rt::time::after(Duration::from_secs(60));
        signal::raise(Signal::TERMINATE).unwrap();
        rt::select! {
            recv(signals) -> which => assert_eq!(which, Ok(Signal::TERMINATE)),
            recv(late) -> _ => panic!("nothing came"),
        }
        // A signal that another process sends.
        let kill = format!("kill -USR1 {}", std::process::id());
        assert!(rt::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert_eq!(signals.recv(), Ok(Signal::USR1));
        // The receiver's clones outlive it, and learn of the end.
        let rest = signals.clone();
        signals.stop();
        assert_eq!(rest.recv(), Err(RecvError));
    });
}

#[test]
fn smoke() {
    everywhere("receives", passes);
}

fn refuses() {
    rt::run(|| {
        let refused = [
            Signal::KILL,
            Signal::STOP,
            Signal::SEGMENT_VIOLATION,
            Signal::BUS_ERROR,
            Signal::ARITHMETIC,
            Signal::ILLEGAL_INSTRUCTION,
            Signal::URGENT,
        ];
        for s in refused {
            let results = [
                signal::notify(&[Signal::USR1, s]).map(drop),
                signal::notify_to(&[s], bounded(1).0).map(drop),
                signal::ignore(&[Signal::USR1, s]),
                signal::reset(&[s]),
            ];
            for result in results {
                let e = result.unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidInput);
                assert!(e.to_string().starts_with(s.name().unwrap()), "{e}");
            }
        }
        assert!(!signal::is_ignored(Signal::USR1));
        assert_eq!(signal::notify(&[]).unwrap_err().kind(), ErrorKind::InvalidInput);
        // One that the system does not have, after one that it has: all or nothing.
        let none = Signal::from_raw(100).unwrap();
        let (tx, rx) = bounded(1);
        let e = signal::notify_to(&[Signal::USR2, none], tx).unwrap_err();
        assert!(e.to_string().starts_with("signal 100: "), "{e}");
        assert_eq!(rx.recv(), Err(RecvError), "its sender is gone");
        println!("USR2 kills again");
        signal::raise(Signal::USR2).unwrap();
        rt::time::sleep(Duration::from_secs(60));
    });
}

#[test]
fn bad_use() {
    everywhere("refuses", |ended| {
        ended.expect("what it says last", ended.stdout == "USR2 kills again\n").expect_signal(libc::SIGUSR2);
    });
}

fn two_receivers() {
    rt::run(|| {
        let one = signal::notify(&[Signal::USR1, Signal::USR2]).unwrap();
        let two = signal::notify(&[Signal::USR2, Signal::HANGUP]).unwrap();
        signal::raise(Signal::USR2).unwrap();
        assert_eq!((one.recv(), two.recv()), (Ok(Signal::USR2), Ok(Signal::USR2)));
        signal::raise(Signal::HANGUP).unwrap();
        assert_eq!(two.recv(), Ok(Signal::HANGUP));
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(one.recv(), Ok(Signal::USR1));
        assert_eq!((one.len(), two.len()), (0, 0));
    });
}

#[test]
fn everyone_gets_it() {
    everywhere("two_receivers", passes);
}

fn drops_what_is_too_much() {
    rt::run(|| {
        let (full, full_rx) = bounded(2);
        let (closed, closed_rx) = bounded(2);
        let _full = signal::notify_to(&[Signal::USR1], full).unwrap();
        let _nobody = signal::notify_to(&[Signal::USR1], bounded(0).0).unwrap();
        let _closed = signal::notify_to(&[Signal::USR1], closed).unwrap();
        closed_rx.close();
        let all = signal::notify(&[Signal::USR1]).unwrap();
        for _ in 0..10 {
            signal::raise(Signal::USR1).unwrap();
            // That this one gets it shows that nobody waits for the others' room.
            assert_eq!(all.recv(), Ok(Signal::USR1));
        }
        assert_eq!(full_rx.try_iter().count(), 2);
        // There is room again.
        signal::raise(Signal::USR1).unwrap();
        assert_eq!((all.recv(), full_rx.recv()), (Ok(Signal::USR1), Ok(Signal::USR1)));
        // Its own channel, too, holds so many.
        for there in 1..=16 {
            signal::raise(Signal::USR1).unwrap();
            wait_for("one more", || all.len() == there);
        }
        let after = signal::notify(&[Signal::USR1]).unwrap();
        for _ in 0..5 {
            signal::raise(Signal::USR1).unwrap();
            assert_eq!(after.recv(), Ok(Signal::USR1));
            assert_eq!(all.len(), 16);
        }
    });
}

#[test]
fn nobody_waits_for_room() {
    everywhere("drops_what_is_too_much", passes);
}

fn a_channel_of_its_own() {
    rt::run(|| {
        let (tx, rx) = bounded(4);
        let listens = signal::notify_to(&[Signal::USR1], tx.clone()).unwrap();
        let listens_too = signal::notify_to(&[Signal::USR2], tx).unwrap();
        assert_eq!(format!("{listens:?} {listens_too:?}"), "Notify([SIGUSR1]) Notify([SIGUSR2])");
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(rx.recv(), Ok(Signal::USR1));
        listens.stop();
        signal::raise(Signal::USR2).unwrap();
        assert_eq!(rx.recv(), Ok(Signal::USR2));
        drop(listens_too);
        assert_eq!(rx.recv(), Err(RecvError), "the last sender is gone");
    });
}

#[test]
fn by_a_channel_of_its_own() {
    everywhere("a_channel_of_its_own", passes);
}

/// It must not come to the end of this.
fn is_killed() {
    println!("still here");
    signal::raise(Signal::TERMINATE).unwrap();
    rt::time::sleep(Duration::from_secs(60));
    println!("survived");
}

fn stop_brings_back_the_default() {
    rt::run(|| {
        for _ in 0..10 {
            let signals = signal::notify(&[Signal::TERMINATE]).unwrap();
            signal::raise(Signal::TERMINATE).unwrap();
            assert_eq!(signals.recv(), Ok(Signal::TERMINATE));
        }
        is_killed();
    });
}

fn one_of_two_stops() {
    rt::run(|| {
        let one = signal::notify(&[Signal::TERMINATE]).unwrap();
        let two = signal::notify(&[Signal::TERMINATE]).unwrap();
        drop(one);
        signal::raise(Signal::TERMINATE).unwrap();
        assert_eq!(two.recv(), Ok(Signal::TERMINATE));
        drop(two);
        is_killed();
    });
}

/// A signal at any moment is either received or has its old effect, which is the process's end.
fn stops_while_signals_come() {
    let mut rng = Rng::new(seed());
    rt::run(move || {
        let signals = signal::notify(&[Signal::TERMINATE]).unwrap();
        let raiser = {
            let spins = rng.below(3000);
            std::thread::spawn(move || {
                (0..spins).for_each(|_| std::hint::spin_loop());
                signal::raise(Signal::TERMINATE).unwrap();
            })
        };
        let spins = rng.below(3000);
        (0..spins).for_each(|_| std::hint::spin_loop());
        let rest = signals.clone();
        drop(signals);
        rt::blocking(|| raiser.join()).unwrap();
        if rest.recv().is_ok() {
            return println!("received");
        }
        rt::time::sleep(Duration::from_secs(60));
    });
}

#[test]
fn old_meaning_comes_back() {
    for name in ["stop_brings_back_the_default", "one_of_two_stops"] {
        everywhere(name, |ended| {
            ended.expect("what it says last", ended.stdout == "still here\n").expect_signal(libc::SIGTERM);
        });
    }
}

#[test]
fn none_is_lost_when_the_last_one_stops() {
    let _guard = HangGuard::new("stops while signals come");
    for _ in 0..scaled(100, 40) {
        let ended = program("stops_while_signals_come", &[]);
        let killed = std::os::unix::process::ExitStatusExt::signal(&ended.status) == Some(libc::SIGTERM);
        let received = ended.stdout.contains("received");
        ended.expect("received, or killed", killed || received);
    }
}

fn ignores() {
    rt::run(|| {
        let both = signal::notify(&[Signal::TERMINATE, Signal::USR1]).unwrap();
        signal::ignore(&[Signal::TERMINATE]).unwrap();
        assert!(signal::is_ignored(Signal::TERMINATE) && !signal::is_ignored(Signal::USR1));
        signal::raise(Signal::TERMINATE).unwrap();
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(both.recv(), Ok(Signal::USR1));
        // A child is born with it.
        let child = rt::process::Command::new("sh").args(["-c", "kill -TERM $$; echo alive"]).output().unwrap();
        assert_eq!(child.stdout, b"alive\n");
        // To listen ends it, and to listen no more does not bring it back.
        let again = signal::notify(&[Signal::TERMINATE]).unwrap();
        assert!(!signal::is_ignored(Signal::TERMINATE));
        signal::raise(Signal::TERMINATE).unwrap();
        assert_eq!(again.recv(), Ok(Signal::TERMINATE));
        assert!(both.is_empty());
        drop((again, both));
        is_killed();
    });
}

fn resets() {
    rt::run(|| {
        let both = signal::notify(&[Signal::TERMINATE, Signal::CHILD]).unwrap();
        signal::ignore(&[Signal::USR1, Signal::USR2]).unwrap();
        signal::reset(&[Signal::TERMINATE, Signal::USR1, Signal::HANGUP]).unwrap();
        assert!(!signal::is_ignored(Signal::USR1) && signal::is_ignored(Signal::USR2));
        assert_eq!(format!("{both:?}").matches("[SIGCHLD]").count(), 1);
        assert!(rt::process::Command::new("true").status().unwrap().success());
        assert_eq!(both.recv(), Ok(Signal::CHILD));
        is_killed();
    });
}

#[test]
fn ignore_and_reset() {
    for name in ["ignores", "resets"] {
        everywhere(name, |ended| {
            ended.expect("what it says last", ended.stdout == "still here\n").expect_signal(libc::SIGTERM);
        });
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);

extern "C" fn plain(signal: libc::c_int) {
    LAST.store(signal, SeqCst);
    CALLS.fetch_add(1, SeqCst);
}

extern "C" fn with_info(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's.
    let pid = unsafe { (*info).si_pid() };
    assert_eq!(pid, std::process::id() as i32);
    plain(signal);
}

/// What another library does.
fn install(signal: Signal, function: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: zeros are a sigaction; the functions are async-signal-safe and of the kind that the flags tell.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = function;
        action.sa_flags = flags | libc::SA_RESTART | libc::SA_ONSTACK;
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal.as_raw(), &action, &mut old), 0);
        old
    }
}

fn keeps_other_handlers() {
    install(Signal::USR1, plain as *const () as usize, 0);
    install(Signal::USR2, with_info as *const () as usize, libc::SA_SIGINFO);
    rt::run(|| {
        let mut calls = 0;
        for which in [Signal::USR1, Signal::USR2, Signal::USR1] {
            let signals = signal::notify(&[which]).unwrap();
            signal::raise(which).unwrap();
            assert_eq!(signals.recv(), Ok(which));
            calls += 1;
            wait_for("the other handler", || CALLS.load(SeqCst) == calls && LAST.load(SeqCst) == which.as_raw());
            drop(signals);
            // And without us.
            signal::raise(which).unwrap();
            calls += 1;
            wait_for("the other handler alone", || CALLS.load(SeqCst) == calls);
            signal::ignore(&[which]).unwrap();
            signal::raise(which).unwrap();
            signal::reset(&[which]).unwrap();
            signal::raise(which).unwrap();
            calls += 1;
            wait_for("the other handler after a reset", || CALLS.load(SeqCst) == calls);
        }
    });
}

/// The handler that was there before [`on_top`].
static UNDER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_top(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    CALLS.fetch_add(1, SeqCst);
    assert!(CALLS.load(SeqCst) < 1000, "they call each other");
    let under = UNDER.load(SeqCst);
    if under > 1 {
        // SAFETY: it was installed with SA_SIGINFO.
        let under: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(under) };
        under(signal, info, context);
    }
}

/// A library installs a handler over ours, calls ours from it, and goes away, while programs listen and stop.
fn another_on_top() {
    rt::run(|| {
        let mut calls = 0;
        let mut comes = |signals: &signal::Signals, above: bool| {
            signal::raise(Signal::USR1).unwrap();
            assert_eq!(signals.recv(), Ok(Signal::USR1));
            calls += usize::from(above);
            wait_for("the one on top", || CALLS.load(SeqCst) == calls);
        };
        let first = signal::notify(&[Signal::USR1]).unwrap();
        comes(&first, false);
        let ours = install(Signal::USR1, on_top as *const () as usize, libc::SA_SIGINFO);
        UNDER.store(ours.sa_sigaction, SeqCst);
        comes(&first, true);
        // It is left alone, and is not covered by a second one of ours.
        drop(first);
        let second = signal::notify(&[Signal::USR1]).unwrap();
        comes(&second, true);
        signal::ignore(&[Signal::USR1]).unwrap();
        signal::raise(Signal::USR1).unwrap();
        let third = signal::notify(&[Signal::USR1]).unwrap();
        comes(&third, true);
        assert!(second.is_empty());
        signal::ignore(&[Signal::USR1]).unwrap();
        signal::reset(&[Signal::USR1]).unwrap();
        let fourth = signal::notify(&[Signal::USR1]).unwrap();
        comes(&fourth, true);
        drop(fourth);
        // It puts back what it found: ours, with nobody to listen, and then with somebody.
        install(Signal::USR1, ours.sa_sigaction, libc::SA_SIGINFO);
        let fifth = signal::notify(&[Signal::USR1]).unwrap();
        comes(&fifth, false);
        drop(fifth);
        println!("still here");
        signal::raise(Signal::USR1).unwrap();
        rt::time::sleep(Duration::from_secs(60));
    });
}

#[test]
fn beside_other_handlers() {
    everywhere("keeps_other_handlers", passes);
    everywhere("another_on_top", |ended| {
        ended.expect("what it says last", ended.stdout == "still here\n").expect_signal(libc::SIGUSR1);
    });
}

fn children_start_afresh() {
    rt::run(|| {
        let signals = signal::notify(&[Signal::TERMINATE]).unwrap();
        let killed = rt::process::Command::new("sh").args(["-c", "kill -TERM $$; echo alive"]).output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(libc::SIGTERM));
        assert!(killed.stdout.is_empty() && signals.is_empty());
    });
}

#[test]
fn children() {
    everywhere("children_start_afresh", passes);
}

fn listens_to_sigquit() {
    rt::run(|| {
        let signals = signal::notify(&[Signal::QUIT]).unwrap();
        for _ in 0..3 {
            signal::raise(Signal::QUIT).unwrap();
            assert_eq!(signals.recv(), Ok(Signal::QUIT));
        }
        signal::ignore(&[Signal::QUIT]).unwrap();
        signal::raise(Signal::QUIT).unwrap();
        rt::time::sleep(Duration::from_millis(30));
    });
}

fn listens_to_sigquit_no_more() {
    rt::run(|| {
        drop(signal::notify(&[Signal::QUIT]).unwrap());
        signal::raise(Signal::QUIT).unwrap();
        rt::time::sleep(Duration::from_secs(60));
    });
}

#[test]
fn sigquit() {
    everywhere("listens_to_sigquit", |ended| {
        ended.expect_code(0).expect_no_stderr("SIGQUIT");
    });
    everywhere("listens_to_sigquit_no_more", |ended| {
        ended.expect_code(2).expect_stderr(&["SIGQUIT: ", "main"]);
    });
}

fn listens_before_the_start() {
    let signals = signal::notify(&[Signal::USR1]).unwrap();
    signal::raise(Signal::USR1).unwrap();
    rt::Config::new().gomaxprocs(3).run(move || {
        assert_eq!(signals.recv(), Ok(Signal::USR1));
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(signals.recv(), Ok(Signal::USR1));
    });
}

fn without_a_runtime() {
    let signals = signal::notify(&[Signal::USR1]).unwrap();
    let raiser = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(5));
        signal::raise(Signal::USR1).unwrap();
    });
    assert_eq!(signals.recv(), Ok(Signal::USR1));
    raiser.join().unwrap();
}

#[test]
fn threads_only() {
    program("listens_before_the_start", &[]).expect_code(0);
    program("without_a_runtime", &[]).expect_code(0);
}

const REPORT: &str = "all goroutines are asleep - deadlock!";

fn waits_for_a_signal_only() {
    rt::run(|| {
        let signals = signal::notify(&[Signal::USR1]).unwrap();
        println!("ready");
        assert_eq!(signals.recv(), Ok(Signal::USR1));
    });
}

fn spawn(name: &str) -> Child {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.env("RT_TEST_PROGRAM", name).env_remove("RT_TRACE").process_group(0);
    c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A program in which everybody waits for a signal is not deadlocked, however long it takes.
#[test]
fn waiting_for_a_signal_is_no_deadlock() {
    let _guard = HangGuard::new("waiting for a signal");
    let mut child = spawn("waits_for_a_signal_only");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // Several looks of the detector.
    std::thread::sleep(Duration::from_millis(700));
    // SAFETY: integers; the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) };
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success() && !said.contains("goroutine"), "{}: {said}", out.status);
}

fn sleeps_for_ever() {
    let (_tx, rx) = bounded::<()>(0);
    println!("asleep");
    rx.recv().unwrap();
}

fn asleep_after_the_last_signal() {
    rt::run(|| {
        let one = signal::notify(&[Signal::USR1]).unwrap();
        let two = signal::notify(&[Signal::USR2]).unwrap();
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(one.recv(), Ok(Signal::USR1));
        drop((one, two));
        sleeps_for_ever();
    });
}

fn asleep_after_a_reset() {
    rt::run(|| {
        let _one = signal::notify(&[Signal::USR1, Signal::USR2]).unwrap();
        signal::reset(&[Signal::USR1]).unwrap();
        signal::ignore(&[Signal::USR2]).unwrap();
        sleeps_for_ever();
    });
}

/// The last one who listens is a thread, while all goroutines have been asleep for a while.
fn a_thread_stops_listening() {
    rt::run(|| {
        let signals = signal::notify(&[Signal::USR1]).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            signal::raise(Signal::USR1).unwrap();
            signals.recv().unwrap();
        });
        sleeps_for_ever();
    });
}

/// When nobody listens any more a deadlock is one.
#[test]
fn deadlock_afterwards() {
    for name in ["asleep_after_the_last_signal", "asleep_after_a_reset", "a_thread_stops_listening"] {
        everywhere(name, |ended| {
            ended.expect_code(2).expect_stderr(&[REPORT]).expect("that it fell asleep", ended.stdout == "asleep\n");
        });
    }
}

/// Goroutines and threads listen, raise and stop, all at once. Each gets what it listens to, and nothing else.
fn storm() {
    const ACTORS: usize = 8;
    let kinds = [Signal::USR1, Signal::USR2, Signal::WINDOW_CHANGE, Signal::CHILD, Signal::from_raw(40).unwrap()];
    let seed = seed();
    rt::run(move || {
        // Nobody is killed, whoever stops.
        let _keep = signal::notify_to(&kinds, bounded(0).0).unwrap();
        let all: Vec<_> = (0..ACTORS)
            .map(|i| {
                let mut rng = Rng::new(seed.wrapping_add(i as u64));
                Actor::mixed(i).start(move || {
                    for _ in 0..scaled(200, 60) {
                        let (one, two) = (kinds[rng.below(5) as usize], kinds[rng.below(5) as usize]);
                        let signals = signal::notify(&[one, two]).unwrap();
                        signal::raise(one).unwrap();
                        // Others raise what this listens to, too: it may be full of that.
                        loop {
                            match signals.recv_timeout(Duration::from_millis(100)) {
                                Ok(got) if got == one => break,
                                Ok(got) => assert_eq!(got, two, "instead of {one}"),
                                Err(_) => signal::raise(one).unwrap(),
                            }
                        }
                        if rng.below(4) == 0 {
                            rt::yield_now();
                        }
                        if rng.below(8) == 0 {
                            assert!(!format!("{signals:?}").is_empty());
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|a| a.join());
    });
}

#[test]
fn stress() {
    everywhere("storm", passes);
}

/// A panic while somebody listens ends that, as any drop does.
#[test]
fn unwinding_stops() {
    let panicked = rt::run(|| {
        rt::go(|| {
            let _signals = signal::notify(&[Signal::from_raw(41).unwrap()]).unwrap();
            panic!("on purpose");
        })
        .join()
    });
    assert_eq!(message(&*panicked.unwrap_err()), "on purpose");
}

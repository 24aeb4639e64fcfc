//! Nobody keeps the only processor for ever: not an endless loop, not a goroutine that crosses the border all the time, not two
//! that keep waking each other, not one that blocks its thread.
//!
//! Everything runs with GOMAXPROCS=1. "Others go on" means: they did so many things after the hog had begun and before it was
//! released, and it is not released earlier. So a hog that cannot be stopped hangs, and no time is measured.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{busy, child_passes, gettid, is_child, scaled, scratch_file, traced};
use rt::chan::{bounded, unbounded};
use rt::sync::Mutex;
use tracer::read::{Event, Reader};
use tracer::wire::ext::{Cause, Record};
use tracer::wire::{Ev, reason};

/// So much the others do beside a hog.
const TICKS: usize = scaled(60, 25);

/// A sleep that a ticker makes again and again.
const TICK: Duration = Duration::from_millis(1);

/// Runs a test's body in a process with one P.
fn with_one_p(test: &str, body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    child_passes(test, &[("GOMAXPROCS", "1")]);
}

// The play.

/// What hogs and others share.
#[derive(Clone, Default)]
struct Field {
    /// Hogs that have begun.
    begun: Arc<AtomicUsize>,
    /// What the others did.
    ticks: Arc<AtomicUsize>,
    released: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Field {
    fn released(&self) -> bool {
        self.released.load(SeqCst)
    }

    /// A hog says that it has begun, and on which thread.
    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst);
        gettid()
    }

    fn hog<T: Send + 'static>(&self, name: &str, life: impl FnOnce(&Field) -> T + Send + 'static) -> rt::JoinHandle<T> {
        let field = self.clone();
        let whole_life = move || {
            let out = life(&field);
            // It crosses once more before it counts as ended: that it came back is in the trace.
            drop(rt::go(|| ()));
            out
        };
        rt::Builder::new().name(name).spawn(whole_life).unwrap()
    }

    /// One who ticks, until all is over.
    fn ticker(&self, name: &str, wait: impl Fn() + Send + 'static) -> rt::JoinHandle<()> {
        self.hog(name, move |field| {
            while !field.over.load(SeqCst) {
                wait();
                field.ticks.fetch_add(1, SeqCst);
            }
        })
    }

    /// Waits until the hogs have begun and the others have done their share since, and releases the hogs.
    fn play(&self, hogs: usize, share: usize) {
        let begun = self.begun.clone();
        wait_sleeping(move || begun.load(SeqCst) == hogs);
        let (ticks, before) = (self.ticks.clone(), self.ticks.load(SeqCst));
        wait_sleeping(move || ticks.load(SeqCst) >= before + share);
        assert!(!self.released());
        self.released.store(true, SeqCst);
    }
}

impl Field {
    /// As [`Field::play`], in a blocking call: no timer of its own comes between the others.
    fn watch(&self, hogs: usize, share: usize) {
        rt::blocking(|| {
            let until = |happened: &dyn Fn() -> bool| {
                while !happened() {
                    std::thread::sleep(TICK);
                }
            };
            until(&|| self.begun.load(SeqCst) == hogs);
            let before = self.ticks.load(SeqCst);
            until(&|| self.ticks.load(SeqCst) >= before + share);
            assert!(!self.released());
            self.released.store(true, SeqCst);
        });
    }
}

/// Sleeps until it happened. No yields: they would be more to do for others than the test wants.
fn wait_sleeping(happened: impl Fn() -> bool) {
    while !happened() {
        rt::time::sleep(TICK);
    }
}

/// Tickers beside hogs. Answers what the hogs did and the trace.
fn beside<T: Send + 'static>(
    what: &str,
    hogs: impl FnOnce(&Field) -> Vec<rt::JoinHandle<T>> + Send + 'static,
) -> (Vec<T>, Told) {
    let (out, trace) = traced(what, move || {
        let field = Field::default();
        let tickers: Vec<_> = (0..3).map(|i| field.ticker(&format!("ticker {i}"), || rt::time::sleep(TICK))).collect();
        let hogs = hogs(&field);
        field.play(hogs.len(), TICKS);
        let out = hogs.into_iter().map(|h| h.join().unwrap()).collect();
        field.over.store(true, SeqCst);
        tickers.into_iter().for_each(|t| t.join().unwrap());
        out
    });
    (out, Told::read(&trace))
}

// What the trace tells.

#[derive(Clone, Debug)]
struct Seen {
    time: i64,
    m: u64,
    kind: Ev,
    text: String,
    /// Of a call's begin.
    stack: Vec<String>,
}

#[derive(Debug, Default)]
struct Told {
    /// What happened to a goroutine, by its name.
    of: HashMap<String, Vec<Seen>>,
    /// Time, cause, the M that had it.
    hand_offs: Vec<(i64, Cause, u64)>,
    /// Time, the M that had the P.
    steals: Vec<(i64, u64)>,
    /// Time, the M that takes the P.
    starts: Vec<(i64, u64)>,
}

impl Told {
    fn read(trace: &[u8]) -> Told {
        let mut told = Told::default();
        let mut names: HashMap<i64, String> = HashMap::new();
        let mut of: HashMap<i64, Vec<Seen>> = HashMap::new();
        let mut reader = Reader::new(trace).expect("a header");
        let mut last = 0;
        while let Some(event) = reader.next() {
            let event: Event = event.expect("a good event");
            let tables = reader.tables().clone();
            let number = reader.generation().number;
            if number != last {
                last = number;
                for record in tables.ext_records() {
                    let record = record.expect("a good record");
                    if let Some(Record::HandOff { p, cause, from_m }) = record.record {
                        assert_eq!(p, 0);
                        told.hand_offs.push((record.time, cause, from_m));
                    }
                }
            }
            match event.kind {
                Ev::ProcSteal => told.steals.push((event.time, event.args[2])),
                Ev::ProcStart => told.starts.push((event.time, event.m as u64)),
                Ev::GoLabel => drop(names.insert(event.g, event.text(&tables).expect("a label").into_owned())),
                _ => {}
            }
            let g = match event.kind {
                Ev::GoStart => event.args[0] as i64,
                Ev::GoStop | Ev::GoBlock | Ev::GoDestroy => event.g,
                Ev::GoSyscallBegin | Ev::GoSyscallEnd | Ev::GoSyscallEndBlocked => event.g,
                _ => continue,
            };
            let text = event.text(&tables).unwrap_or_default().into_owned();
            let stack = match event.kind {
                Ev::GoSyscallBegin => tables.stack(event.stack()).map(|f| f.func.into_owned()).collect(),
                _ => Vec::new(),
            };
            of.entry(g).or_default().push(Seen { time: event.time, m: event.m as u64, kind: event.kind, text, stack });
        }
        for (g, name) in names {
            let before = told.of.insert(name.clone(), of.remove(&g).expect("it was named in an event"));
            assert!(before.is_none(), "two are called {name}");
        }
        told
    }

    #[track_caller]
    fn all(&self, name: &str, kind: Ev) -> Vec<&Seen> {
        self.of.get(name).expect("a goroutine of that name").iter().filter(|s| s.kind == kind).collect()
    }

    /// Why it stopped, as often as it did.
    #[track_caller]
    fn stops(&self, name: &str) -> Vec<&str> {
        self.all(name, Ev::GoStop).into_iter().map(|s| s.text.as_str()).collect()
    }

    /// The same until it comes back from its first hand-off; what happens to it then is another matter.
    #[track_caller]
    fn stops_until_back(&self, name: &str) -> Vec<&str> {
        let until = self.all(name, Ev::GoSyscallEndBlocked).first().map_or(i64::MAX, |s| s.time);
        self.all(name, Ev::GoStop).into_iter().filter(|s| s.time < until).map(|s| s.text.as_str()).collect()
    }

    /// The whole of the first hand-off that `name` suffered, on its thread `tid`: its call begins on that M, the P is
    /// stolen from there and goes to another M, and the goroutine comes back blocked.
    #[track_caller]
    fn first_hand_off(&self, name: &str, tid: u64, cause: Cause) -> &Seen {
        let begin = *self.all(name, Ev::GoSyscallBegin).first().unwrap_or_else(|| panic!("{name}: no GoSyscallBegin"));
        assert_eq!(begin.m, tid, "{name}: its call begins on another M");
        let steal = self.steals.iter().find(|(time, m)| *m == tid && *time > begin.time);
        let steal = steal.unwrap_or_else(|| panic!("{name}: nobody steals its P: {:?}", self.steals));
        let start = self.starts.iter().find(|(time, _)| *time > steal.0);
        let start = start.unwrap_or_else(|| panic!("{name}: nobody takes its P: {:?}", self.starts));
        assert_ne!(start.1, tid, "{name}: its own M takes the P");
        let back =
            *self.all(name, Ev::GoSyscallEndBlocked).first().unwrap_or_else(|| panic!("{name}: never came back"));
        assert_eq!(back.m, tid, "{name}: comes back on another M");
        assert!(start.0 < back.time, "{name}: it was back before others had its P");
        // All that is said at one moment has one time, and the reader moves events apart by a nanosecond each.
        let record = self.hand_offs.iter().find(|(time, _, m)| *m == tid && *time > begin.time - 1000);
        let record = record.unwrap_or_else(|| {
            panic!("{name}: no record of the hand-off after {begin:?}, stolen {steal:?}: {:?}", self.hand_offs)
        });
        assert_eq!(record.1, cause, "{name}");
        // It runs again, after that.
        assert!(self.all(name, Ev::GoStart).last().expect("it starts").time > back.time);
        begin
    }
}

// Goroutines that say nothing to the runtime.

#[test]
fn no_starvation_by_an_endless_loop() {
    with_one_p("no_starvation_by_an_endless_loop", || {
        let (tids, told) = beside("an endless loop", |field| {
            vec![field.hog("hog", |field| {
                let tid = field.begin();
                while !field.released() {
                    std::hint::spin_loop();
                }
                tid
            })]
        });
        let begin = told.first_hand_off("hog", tids[0], Cause::OutsideTooLong);
        assert!(begin.stack.is_empty(), "where it was, nobody can know: {begin:?}");
        // It was outside all the time, so that happened once, and nobody could ask it to stop.
        assert_eq!(told.all("hog", Ev::GoSyscallBegin).len(), 1);
        assert_eq!(told.all("hog", Ev::GoSyscallEndBlocked).len(), 1);
        assert_eq!(told.stops_until_back("hog"), [""; 0]);
        assert_eq!(told.hand_offs.iter().filter(|(_, _, m)| *m == tids[0]).count(), 1);
    });
}

/// As many as one likes: each gets a thread, and the others go on.
#[test]
fn no_starvation_by_eight_endless_loops() {
    with_one_p("no_starvation_by_eight_endless_loops", || {
        let (tids, told) = beside("eight endless loops", |field| {
            let hog = |i| {
                field.hog(&format!("hog {i}"), |field| {
                    let tid = field.begin();
                    while !field.released() {
                        std::hint::spin_loop();
                    }
                    tid
                })
            };
            (0..8).map(hog).collect()
        });
        for (i, tid) in tids.iter().enumerate() {
            // The last one to begin may have been released before its time was up.
            if !told.all(&format!("hog {i}"), Ev::GoSyscallBegin).is_empty() {
                told.first_hand_off(&format!("hog {i}"), *tid, Cause::OutsideTooLong);
            }
        }
        assert!(told.hand_offs.iter().filter(|(_, _, m)| tids.contains(m)).count() >= 7, "{:?}", told.hand_offs);
    });
}

#[test]
fn no_starvation_by_a_thread_that_sleeps() {
    with_one_p("no_starvation_by_a_thread_that_sleeps", || {
        let (tids, told) = beside("std's sleep", |field| {
            vec![field.hog("hog", |field| {
                let tid = field.begin();
                while !field.released() {
                    std::thread::sleep(TICK);
                }
                tid
            })]
        });
        told.first_hand_off("hog", tids[0], Cause::OutsideTooLong);
    });
}

#[test]
fn no_starvation_by_a_blocking_call() {
    #[inline(never)]
    fn calls_out(field: &Field) -> u64 {
        let tid = rt::blocking(|| {
            let tid = field.begin();
            while !field.released() {
                std::thread::sleep(TICK);
            }
            tid
        });
        // The call is not the last thing it does: no jump.
        std::hint::black_box(tid)
    }
    with_one_p("no_starvation_by_a_blocking_call", || {
        let (tids, told) = beside("a blocking call", |field| vec![field.hog("hog", calls_out)]);
        let begin = told.first_hand_off("hog", tids[0], Cause::BlockingCall);
        assert!(begin.stack.iter().any(|f| f.contains("calls_out")), "{begin:?}");
        assert_eq!(told.all("hog", Ev::GoSyscallBegin).len(), 1);
    });
}

/// A P is taken only if somebody waits for it.
#[test]
#[cfg_attr(rt_chaos, ignore = "Ps are taken for no reason")]
fn nobody_waits_and_nothing_is_taken() {
    with_one_p("nobody_waits_and_nothing_is_taken", || {
        let (tid, trace) = traced("a loop that nobody minds", || {
            let alone = rt::Builder::new().name("alone").spawn(|| {
                let tid = gettid();
                busy(Duration::from_millis(150));
                tid
            });
            alone.unwrap().join().unwrap()
        });
        let told = Told::read(&trace);
        let from_it: Vec<_> = told.hand_offs.iter().filter(|(_, _, m)| *m == tid).collect();
        assert!(from_it.is_empty(), "{from_it:?}");
        assert!(told.all("alone", Ev::GoSyscallBegin).is_empty());
        assert_eq!(told.stops("alone"), [""; 0]);
        assert_eq!(told.all("alone", Ev::GoDestroy).len(), 1);
    });
}

// Goroutines that talk all the time.

/// How a hog has to let go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// What it calls does not enter the runtime, so its P is taken.
    Taken,
    /// It gives way itself.
    Yields,
    /// It enters all the time, so it is asked to stop; unless the system has stopped its thread just when it was outside, or
    /// it waits now and then.
    Stopped,
}

/// Runs a goroutine that talks, beside tickers. Answers how often it was preempted.
fn check_talker(what: &str, way: Way, talk: impl Fn() + Send + 'static) -> usize {
    let (tids, told) = beside(what, |field| {
        vec![field.hog("hog", move |field| {
            let tid = field.begin();
            while !field.released() {
                talk();
            }
            tid
        })]
    });
    let stops = if way == Way::Taken { told.stops_until_back("hog") } else { told.stops("hog") };
    let preempted = stops.iter().filter(|s| **s == reason::PREEMPTED).count();
    let yielded = stops.iter().filter(|s| **s == reason::GOSCHED).count();
    let taken = told.all("hog", Ev::GoSyscallEndBlocked).len();
    let blocked = told.all("hog", Ev::GoBlock).len();
    println!("{what}: preempted {preempted} times, taken {taken}, yielded {yielded}, blocked {blocked}");
    assert_eq!(preempted + yielded, stops.len(), "{what}: {stops:?}");
    if way == Way::Taken {
        told.first_hand_off("hog", tids[0], Cause::OutsideTooLong);
    }
    let as_wanted = match way {
        Way::Taken => taken == 1 && stops.is_empty(),
        Way::Yields => yielded > 0 && blocked == 0,
        Way::Stopped => preempted + taken + blocked > 0 && yielded == 0,
    };
    assert!(as_wanted, "{what}: wanted {way:?}: preempted {preempted}, taken {taken}, yielded {yielded}");
    preempted
}

#[test]
fn no_starvation_by_fast_paths() {
    with_one_p("no_starvation_by_fast_paths", || {
        let (tx, rx) = bounded::<u32>(1);
        check_talker("try_recv of nothing", Way::Taken, move || assert!(rx.try_recv().is_err()));
        drop(tx);

        let (tx, rx) = bounded(1);
        tx.try_send(0).unwrap();
        check_talker("try_send without room", Way::Taken, move || assert!(tx.try_send(1).is_err()));
        drop(rx);

        let (tx, rx) = unbounded::<u32>();
        tx.close();
        check_talker("a closed channel", Way::Taken, move || {
            assert!(rx.try_recv().is_err() && rx.recv().is_err());
            assert!(tx.try_send(1).is_err() && tx.send(1).is_err());
        });

        let (tx, rx) = bounded(4);
        check_talker("a channel with room", Way::Taken, move || {
            tx.send(1).unwrap();
            assert_eq!(rx.recv(), Ok(1));
        });

        let lock = Mutex::new(0u64);
        check_talker("a free lock", Way::Taken, move || *lock.lock() += 1);
    });
}

#[test]
fn no_starvation_by_crossings() {
    with_one_p("no_starvation_by_crossings", || {
        check_talker("yields", Way::Yields, rt::yield_now);
        check_talker("empty sleeps", Way::Yields, || rt::time::sleep(Duration::ZERO));
        let short_calls = || check_talker("short blocking calls", Way::Stopped, || rt::blocking(|| ()));
        assert!((0..20).any(|_| short_calls() > 0), "never preempted");

        // Each wake-up of a thread is a crossing; while none waits, the message finds no taker and there is none.
        let (tx, rx) = bounded::<u32>(0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let rx = rx.clone();
                std::thread::spawn(move || rx.iter().count())
            })
            .collect();
        // Both are there.
        (0..2).for_each(|_| tx.send(0).unwrap());
        let messages = Arc::new(AtomicUsize::new(2));
        let (sender, sent) = (tx.clone(), messages.clone());
        check_talker("messages for threads", Way::Stopped, move || {
            sent.fetch_add(usize::from(sender.try_send(1).is_ok()), SeqCst);
        });
        tx.close();
        let received: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(received, messages.load(SeqCst));

        // A lock that threads want too: crossings on both ways, and waits.
        let lock = Arc::new(Mutex::new(0usize));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (lock, stop) = (lock.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut turns = 0;
                while !stop.load(SeqCst) {
                    *lock.lock() += 1;
                    turns += 1;
                }
                turns
            })
        };
        let turns = Arc::new(AtomicUsize::new(0));
        let (mine, taken) = (lock.clone(), turns.clone());
        check_talker("a lock that a thread wants", Way::Stopped, move || {
            *mine.lock() += 1;
            taken.fetch_add(1, SeqCst);
        });
        stop.store(true, SeqCst);
        assert_eq!(thread.join().unwrap() + turns.load(SeqCst), *lock.lock());
    });
}

/// Two who hammer one channel, one from each end; both lose the P and go on with it all the same.
#[test]
fn no_starvation_on_a_contended_channel() {
    with_one_p("no_starvation_on_a_contended_channel", || {
        for capacity in [1, 64] {
            let what = format!("a contended channel of {capacity}");
            let (counts, told) = beside(&what, move |field| {
                let (tx, rx) = bounded::<u64>(capacity);
                let sender = field.hog("sender", move |field| {
                    field.begin();
                    let mut sent = 0;
                    while !field.released() {
                        sent += u64::from(tx.try_send(sent).is_ok());
                    }
                    sent
                });
                let receiver = field.hog("receiver", move |field| {
                    field.begin();
                    let mut next = 0;
                    while !field.released() {
                        if let Ok(i) = rx.try_recv() {
                            assert_eq!(i, next, "out of order");
                            next += 1;
                        }
                    }
                    next + rx.iter().inspect(|_| ()).count() as u64
                });
                vec![sender, receiver]
            });
            assert_eq!(counts[0], counts[1], "sent and received");
            for name in ["sender", "receiver"] {
                assert!(!told.all(name, Ev::GoSyscallEndBlocked).is_empty(), "{name} did not lose the P");
                assert_eq!(told.stops_until_back(name), [""; 0], "{name}");
            }
        }
    });
}

// Two who keep each other busy.

/// A goroutine that is readied is next, and goes on with the time slice of whoever readied it. When that is over, the pair
/// is stopped.
#[test]
fn no_starvation_by_ping_pong() {
    /// What the third one does meanwhile, and how often: one who yields gets many turns until one of the pair has the next.
    type Third = (&'static str, fn(), usize);
    const THIRDS: [Third; 2] = [("yields", rt::yield_now, 150), ("sleeps", || rt::time::sleep(TICK), 6)];
    with_one_p("no_starvation_by_ping_pong", || {
        for (what, third, share) in THIRDS {
            let (rounds, trace) = traced(&format!("ping-pong and one who {what}"), move || {
                let field = Field::default();
                let (ping_tx, ping_rx) = bounded::<u64>(0);
                let (pong_tx, pong_rx) = bounded::<u64>(0);
                let ping = field.hog("ping", move |field| {
                    field.begin();
                    let mut rounds = 0;
                    while !field.released() {
                        ping_tx.send(rounds).unwrap();
                        assert_eq!(pong_rx.recv(), Ok(rounds));
                        rounds += 1;
                    }
                    rounds
                });
                let pong = field.hog("pong", move |field| {
                    field.begin();
                    ping_rx.iter().inspect(|i| pong_tx.send(*i).unwrap()).count() as u64
                });
                let third = field.ticker("third", third);
                field.watch(2, share);
                let rounds = (ping.join().unwrap(), pong.join().unwrap());
                field.over.store(true, SeqCst);
                third.join().unwrap();
                rounds
            });
            assert_eq!(rounds.0, rounds.1);
            let told = Told::read(&trace);
            let stops: Vec<&str> = ["ping", "pong"].iter().flat_map(|name| told.stops(name)).collect();
            println!("{what}: {} rounds, the pair was stopped {} times", rounds.0, stops.len());
            assert!(stops.iter().all(|s| *s == reason::PREEMPTED), "{what}: {stops:?}");
            // One who sleeps is next when its time has come, and needs nobody to be stopped for it.
            assert!(!stops.is_empty() || what == "sleeps", "{what}: the pair was never stopped");
            let blocks = told.all("ping", Ev::GoBlock);
            let on_channels = |s: &&Seen| [reason::CHAN_SEND, reason::CHAN_RECEIVE].contains(&s.text.as_str());
            assert!(blocks.iter().all(on_channels));
        }
    });
}

// Coming back.

/// Many block their threads, are let go at once, and queue up for the one P.
#[test]
fn stampede_of_those_who_come_back() {
    with_one_p("stampede_of_those_who_come_back", || {
        let hogs = scaled(20, 12);
        let (tids, trace) = traced("all come back at once", move || {
            let field = Field::default();
            let call = |field: &Field| {
                rt::blocking(|| {
                    let tid = field.begin();
                    while !field.released() {
                        std::thread::sleep(TICK);
                    }
                    tid
                })
            };
            let all: Vec<_> = (0..hogs).map(|i| field.hog(&format!("hog {i}"), call)).collect();
            wait_sleeping(|| field.begun.load(SeqCst) == hogs);
            field.released.store(true, SeqCst);
            all.into_iter().map(|h| h.join().unwrap()).collect::<Vec<u64>>()
        });
        let threads: HashSet<u64> = tids.iter().copied().collect();
        assert_eq!(threads.len(), hogs, "each blocked a thread of its own");
        let told = Told::read(&trace);
        let mut handed_on = 0;
        for (i, tid) in tids.iter().enumerate() {
            let name = format!("hog {i}");
            // The last one to block may have been let go before its P was taken.
            if !told.all(&name, Ev::GoSyscallEndBlocked).is_empty() {
                told.first_hand_off(&name, *tid, Cause::BlockingCall);
                handed_on += 1;
            }
        }
        assert!(handed_on >= hogs - 1, "{handed_on} of {hogs}");
    });
}

/// Threads are not made without end. With the last one gone nobody can go on, which is said once; when one comes back, all
/// do.
#[test]
fn the_last_thread() {
    const MAX: usize = 4;
    with_one_p("the_last_thread", || {
        rt::Config::new().max_threads(MAX).run(|| ());
        let said = SaidOnStderr::new("the_last_thread");
        let field = Field::default();
        // A goroutine could not: there is no thread for it.
        let release = {
            let (said, field) = (said.clone(), field.clone());
            std::thread::spawn(move || {
                while !said.text().contains("gort: no more threads") {
                    std::thread::sleep(TICK);
                }
                assert_eq!(field.begun.load(SeqCst), MAX);
                field.released.store(true, SeqCst);
            })
        };
        let (tids, trace) = traced("the last thread", move || {
            let spins = |field: &Field| {
                let tid = field.begin();
                while !field.released() {
                    std::hint::spin_loop();
                }
                tid
            };
            // Twice as many as can be outside at once.
            let hogs: Vec<_> = (0..MAX * 2).map(|i| field.hog(&format!("hog {i}"), spins)).collect();
            let ticker = field.ticker("ticker", || rt::time::sleep(TICK));
            let tids: Vec<u64> = hogs.into_iter().map(|h| h.join().unwrap()).collect();
            let before = field.ticks.load(SeqCst);
            wait_sleeping(|| field.ticks.load(SeqCst) >= before + TICKS);
            field.over.store(true, SeqCst);
            ticker.join().unwrap();
            tids
        });
        release.join().unwrap();
        let threads: HashSet<u64> = tids.iter().copied().collect();
        assert!(threads.len() <= MAX, "{threads:?}");
        let line = format!("gort: no more threads: {MAX} exist and max_threads is {MAX}");
        assert_eq!(said.text().matches(&line).count(), 1, "{}", said.text());
        let told = Told::read(&trace);
        assert_eq!(told.steals.len(), told.hand_offs.len());
        assert!(told.steals.len() >= MAX);
        std::fs::remove_file(said.0).unwrap();
    });
}

/// What the process writes to stderr from now on.
#[derive(Clone)]
struct SaidOnStderr(std::path::PathBuf);

impl SaidOnStderr {
    fn new(name: &str) -> SaidOnStderr {
        let path = scratch_file(name);
        let file = std::fs::File::create(&path).unwrap();
        // SAFETY: both are open; what stderr was before is closed.
        assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), 2) }, 2);
        SaidOnStderr(path)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

/// The time slice that the calling thread wishes for, in nanoseconds; or sets it.
#[cfg(target_os = "linux")]
fn wished_slice(set: Option<u64>) -> u64 {
    // SAFETY: the kernel writes to, and reads from, a live struct of the size it is told.
    unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0), 0);
        if let Some(ns) = set {
            (attr.size, attr.sched_runtime) = (size, ns);
            assert_eq!(libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0), 0);
        }
        attr.sched_runtime
    }
}

/// A loop that has lost its processor gives way to those that have one, until it comes back.
#[cfg(target_os = "linux")]
#[test]
fn without_a_processor_it_gives_way() {
    const LONG_NS: u64 = 100_000_000;
    with_one_p("without_a_processor_it_gives_way", || {
        let usual = wished_slice(None);
        wished_slice(Some(LONG_NS));
        if wished_slice(None) != LONG_NS {
            println!("NOT TESTED: this kernel (before Linux 6.12) has no time slices to be wished for");
            return;
        }
        wished_slice(Some(0));
        traced("gives_way", move || {
            let hog = rt::go(move || {
                while wished_slice(None) != LONG_NS {
                    std::hint::spin_loop();
                }
                // Into the runtime, and so back to a processor.
                rt::yield_now();
                wished_slice(None) == usual
            });
            // Somebody wants the processor all the while.
            while !hog.is_finished() {
                rt::time::sleep(TICK);
            }
            assert!(hog.join().unwrap(), "the wish was not taken back");
        });
    });
}

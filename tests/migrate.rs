//! Goroutines migrate: after any call that can wait they may be on another thread, and nothing of theirs may change by it.
//!
//! Every goroutine here keeps things that only it knows (variables, arrays, boxes, counted references, guards), lets go of its
//! thread in some way, and looks whether they are still what they were. Each test goes on until goroutines have been seen to
//! change threads, so it proves something.
//!
//! `cargo test --profile lto --test migrate` runs it with everything inlined into everything, where a thread-local address
//! that is kept across a switch shows. That is also why a place in a thread is asked for in a function of its own.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::Duration;

use common::{Rng, child_passes, gettid, is_child, message, program, scaled, seed, traced};
use rt::chan::{Receiver, Sender, bounded, unbounded};
use rt::sync::{Mutex, WaitGroup};

programs!(ten_thousand_print);

const ENVIRONMENTS: [&[(&str, &str)]; 3] =
    [&[("GOMAXPROCS", "2")], &[("GOMAXPROCS", "2"), ("RT_BORDER", "fence")], &[("GOMAXPROCS", "8")]];

/// Runs the body of a test once per environment, each in a process of its own.
fn everywhere(test: &str, body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    for env in ENVIRONMENTS {
        child_passes(test, env);
    }
}

/// Where the caller runs: the kernel's word and std's, which must be about the same thread.
#[inline(never)]
fn place() -> ThreadId {
    static KNOWN: std::sync::Mutex<Option<HashMap<u64, ThreadId>>> = std::sync::Mutex::new(None);
    let (tid, id) = (gettid(), std::thread::current().id());
    let mut known = KNOWN.lock().unwrap();
    // The runtime's threads do not end, so no number is used twice.
    let of_tid = *known.get_or_insert_default().entry(tid).or_insert(id);
    assert_eq!(of_tid, id, "std takes thread {tid} for another");
    id
}

// Ways to let go of the thread.

#[derive(Clone, Copy, Debug, PartialEq)]
enum Switch {
    Yield,
    Sleep,
    Blocking,
    Send,
    Receive,
    Lock,
    Group,
    Join,
    /// Plain code that takes so long that the P may be gone, and then a call that does not wait.
    Away,
}

const SWITCHES: [Switch; 9] = [
    Switch::Yield,
    Switch::Sleep,
    Switch::Blocking,
    Switch::Send,
    Switch::Receive,
    Switch::Lock,
    Switch::Group,
    Switch::Join,
    Switch::Away,
];

/// How often a switch ended on another thread than it began.
#[derive(Default)]
struct Migrations([AtomicUsize; SWITCHES.len()]);

impl Migrations {
    fn count(&self, switch: Switch) {
        self.0[switch as usize].fetch_add(1, SeqCst);
    }

    fn of_each(&self) -> Vec<(Switch, usize)> {
        SWITCHES.iter().map(|s| (*s, self.0[*s as usize].load(SeqCst))).collect()
    }

    fn all_seen(&self) -> bool {
        self.of_each().iter().all(|(_, n)| *n > 0)
    }
}

/// A goroutine's partners in its switches.
struct Kit {
    rng: Rng,
    ask: Sender<u64>,
    answer: Receiver<u64>,
    /// Asked and not yet answered.
    asked: Option<u64>,
    lock: Arc<Mutex<u64>>,
    /// How often it has locked.
    locked: u64,
}

impl Kit {
    /// With a partner that answers: it takes a number and gives the next.
    fn new(seed: u64, lock: Arc<Mutex<u64>>) -> Kit {
        let (ask, questions) = bounded(0);
        let (answers, answer) = bounded(0);
        rt::go(move || questions.iter().for_each(|q: u64| answers.send(q.wrapping_add(1)).unwrap()));
        Kit { rng: Rng::new(seed), ask, answer, asked: None, lock, locked: 0 }
    }

    /// One of those that are possible now, at random.
    fn choose(&mut self) -> Switch {
        match (SWITCHES[self.rng.below(SWITCHES.len() as u64) as usize], self.asked) {
            (Switch::Send, Some(_)) => Switch::Receive,
            (Switch::Receive, None) => Switch::Send,
            (switch, _) => switch,
        }
    }

    #[inline(always)]
    fn switch(&mut self, switch: Switch) {
        match switch {
            Switch::Yield => rt::yield_now(),
            Switch::Sleep => rt::time::sleep(Duration::from_micros(self.rng.below(200))),
            Switch::Blocking => {
                let value = self.rng.next();
                let time = Duration::from_micros(self.rng.below(300));
                let back = rt::blocking(|| {
                    std::thread::sleep(time);
                    black_box(value)
                });
                assert_eq!(back, value);
            }
            Switch::Send => {
                let q = self.rng.next();
                self.ask.send(q).unwrap();
                self.asked = Some(q);
            }
            Switch::Receive => {
                let q = self.asked.take().expect("asked");
                assert_eq!(self.answer.recv(), Ok(q.wrapping_add(1)));
            }
            Switch::Lock => {
                let mut guard = self.lock.lock();
                let before = *guard;
                if self.rng.below(2) == 0 {
                    rt::yield_now();
                }
                assert_eq!(*guard, before, "somebody else had the lock meanwhile");
                *guard = before + 1;
                self.locked += 1;
            }
            Switch::Group => {
                let (group, sum) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
                for i in 1..=3 {
                    let sum = sum.clone();
                    group.go(move || {
                        rt::yield_now();
                        sum.fetch_add(i, SeqCst);
                    });
                }
                group.wait();
                assert_eq!(sum.load(SeqCst), 6);
            }
            Switch::Join => {
                let value = self.rng.next();
                let result = rt::go(move || {
                    rt::yield_now();
                    [value; 40]
                });
                assert_eq!(result.join().unwrap(), [value; 40]);
            }
            Switch::Away => {
                let long = self.rng.below(8) == 0;
                std::thread::sleep(Duration::from_micros(if long { 12_000 } else { 50 }));
                drop(rt::go(|| ()));
            }
        }
    }
}

// What a goroutine keeps.

fn mix(seed: u64, i: u64) -> u64 {
    (seed ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
}

/// Keeps variables of many kinds while `f` runs, and looks whether they are still there.
#[inline(always)]
fn keeping<R>(seed: u64, f: impl FnOnce() -> R) -> R {
    // Nobody but this goroutine knows them: the compiler cannot make them anew afterwards.
    let [a, b, c, d] = [1, 2, 3, 4].map(|i| black_box(mix(seed, i)));
    let (x, y) = (black_box(mix(seed, 5) as f64).sqrt(), black_box(mix(seed, 6) as f32));
    let wide = black_box(u128::from(mix(seed, 7)) << 64 | u128::from(mix(seed, 8)));
    let array: [u64; 32] = std::array::from_fn(|i| black_box(mix(seed, 100 + i as u64)));
    let boxed: Box<[u64]> = (0..50).map(|i| mix(seed, 200 + i)).collect();
    let text = format!("goroutine's own {seed:#x}");
    let r = f();
    let seed = black_box(seed);
    assert_eq!([a, b, c, d], [1, 2, 3, 4].map(|i| mix(seed, i)));
    assert_eq!((x, y), ((mix(seed, 5) as f64).sqrt(), mix(seed, 6) as f32));
    assert_eq!((wide >> 64, wide as u64), (u128::from(mix(seed, 7)), mix(seed, 8)));
    assert!(array.iter().enumerate().all(|(i, v)| *v == mix(seed, 100 + i as u64)), "{array:?}");
    assert!(boxed.iter().enumerate().all(|(i, v)| *v == mix(seed, 200 + i as u64)), "{boxed:?}");
    assert_eq!(text, format!("goroutine's own {seed:#x}"));
    r
}

/// A switch with things to keep; answers whether it ended on another thread.
#[inline(always)]
fn keeping_over(kit: &mut Kit, switch: Switch, migrations: &Migrations) -> bool {
    let seed = kit.rng.next();
    let before = place();
    keeping(seed, || kit.switch(switch));
    let migrated = place() != before;
    if migrated {
        migrations.count(switch);
    }
    migrated
}

/// Runs `n` goroutines at a time, again and again, until `enough`. Answers the rounds.
fn rounds_until(enough: impl Fn() -> bool, n: usize, life: impl Fn(u64) -> Life) -> usize {
    let mut rounds = 0;
    while rounds == 0 || !enough() {
        let all: Vec<_> = (0..n).map(|i| rt::go(life((rounds * n + i) as u64))).collect();
        all.into_iter().for_each(|h| h.join().unwrap_or_else(|payload| resume_unwind(payload)));
        rounds += 1;
    }
    rounds
}

type Life = Box<dyn FnOnce() + Send>;

#[test]
fn stress_every_switch() {
    everywhere("stress_every_switch", || {
        let seed = seed();
        traced("every switch", move || {
            let migrations = Arc::new(Migrations::default());
            let (lock, locked) = (Arc::new(Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
            let life = |i| -> Life {
                let (migrations, lock, locked) = (migrations.clone(), lock.clone(), locked.clone());
                Box::new(move || {
                    let mut kit = Kit::new(seed ^ i, lock);
                    // Not Send, and need not be: it stays on this goroutine's stack, wherever that runs.
                    let counted = Rc::new(Cell::new(0u64));
                    let borrowed = RefCell::new(Vec::new());
                    for turn in 0..scaled(600, 150) as u64 {
                        let (another, mut list) = (counted.clone(), borrowed.borrow_mut());
                        let switch = kit.choose();
                        keeping_over(&mut kit, switch, &migrations);
                        list.push(turn);
                        assert_eq!((Rc::strong_count(&another), another.get()), (2, turn));
                        another.set(turn + 1);
                    }
                    if kit.asked.is_some() {
                        kit.switch(Switch::Receive);
                    }
                    assert!(borrowed.take().into_iter().eq(0..counted.get()));
                    locked.fetch_add(kit.locked as usize, SeqCst);
                })
            };
            let rounds = rounds_until(|| migrations.all_seen(), 24, life);
            assert_eq!(*lock.lock() as usize, locked.load(SeqCst));
            println!("{rounds} rounds, migrated in {:?}", migrations.of_each());
        });
    });
}

/// Every frame of a deep stack is still what it was when the recursion comes back, through another thread at each level.
#[test]
fn stress_deep_stacks() {
    #[inline(never)]
    fn down(kit: &mut Kit, depth: u64, migrations: &Migrations) -> u64 {
        let seed = kit.rng.next();
        keeping(seed, || {
            let switch = kit.choose();
            keeping_over(kit, switch, migrations);
            if depth == 0 { 1 } else { down(kit, depth - 1, migrations) + 1 }
        })
    }
    everywhere("stress_deep_stacks", || {
        let seed = seed();
        traced("deep stacks", move || {
            let migrations = Arc::new(Migrations::default());
            let lock = Arc::new(Mutex::new(0));
            let life = |i| -> Life {
                let (migrations, lock) = (migrations.clone(), lock.clone());
                Box::new(move || {
                    let mut kit = Kit::new(seed ^ i, lock);
                    assert_eq!(down(&mut kit, 20, &migrations), 21);
                    if kit.asked.is_some() {
                        kit.switch(Switch::Receive);
                    }
                })
            };
            let migrated = || migrations.of_each().iter().map(|(_, n)| n).sum::<usize>();
            let rounds = rounds_until(|| migrated() >= 500, 24, life);
            println!("{rounds} rounds, {} migrations", migrated());
        });
    });
}

/// A guard belongs to the goroutine: it may be taken on one thread and dropped on another.
#[test]
fn stress_guards() {
    /// Two numbers that are equal whenever the lock is free.
    #[derive(Default)]
    struct Pair(Cell<u64>, Cell<u64>);

    everywhere("stress_guards", || {
        let seed = seed();
        traced("guards", move || {
            let pairs: Arc<[Mutex<Pair>; 6]> = Arc::default();
            let (lock, migrations) = (Arc::new(Mutex::new(0)), Arc::new(Migrations::default()));
            let (carried, sections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let life = |i| -> Life {
                let (pairs, lock, migrations) = (pairs.clone(), lock.clone(), migrations.clone());
                let (carried, sections) = (carried.clone(), sections.clone());
                Box::new(move || {
                    let mut kit = Kit::new(seed ^ i, lock);
                    for _ in 0..scaled(150, 40) {
                        let guard = pairs[kit.rng.below(6) as usize].lock();
                        let taken_on = place();
                        let before = guard.0.get();
                        guard.0.set(before + 1);
                        // The kit's own lock comes after all these, so nobody waits in a ring.
                        let switch = kit.choose();
                        keeping_over(&mut kit, switch, &migrations);
                        assert_eq!((guard.0.get(), guard.1.get()), (before + 1, before), "somebody else was inside");
                        guard.1.set(before + 1);
                        carried.fetch_add(usize::from(place() != taken_on), SeqCst);
                        drop(guard);
                        sections.fetch_add(1, SeqCst);
                    }
                    if kit.asked.is_some() {
                        kit.switch(Switch::Receive);
                    }
                })
            };
            let rounds = rounds_until(|| carried.load(SeqCst) >= 50, 16, life);
            let total: u64 = pairs.iter().map(|p| p.lock().0.get()).sum();
            assert_eq!(total as usize, sections.load(SeqCst));
            println!("{rounds} rounds, {} guards were dropped on another thread", carried.load(SeqCst));
        });
    });
}

/// What goes from hand to hand, with its own check.
struct Parcel {
    number: u64,
    content: Box<[u64]>,
    notes: Vec<String>,
    /// Where it was made or last handed on.
    seen: ThreadId,
}

impl Parcel {
    fn new(seed: u64, number: u64) -> Box<Parcel> {
        let content = (0..20).map(|i| mix(seed ^ number, i)).collect();
        Box::new(Parcel { number, content, notes: Vec::new(), seen: place() })
    }

    fn check(&self, seed: u64, stages: usize) {
        let fine = |(i, v): (usize, &u64)| *v == mix(seed ^ self.number, i as u64).wrapping_add(stages as u64);
        assert!(self.content.iter().enumerate().all(fine), "parcel {} after {stages} stages", self.number);
        assert!(self.notes.iter().enumerate().all(|(i, n)| *n == format!("stage {i} of {}", self.number)));
        assert_eq!(self.notes.len(), stages);
    }
}

/// Boxes are made, changed, and dropped on different threads, and results come back whole.
#[test]
fn pipeline_of_boxes_and_results() {
    const STAGES: usize = 5;
    everywhere("pipeline_of_boxes_and_results", || {
        let seed = seed();
        traced("boxes and results", move || {
            let (moved, lock) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(0)));
            let migrations = Arc::new(Migrations::default());
            let mut rounds = 0;
            while rounds == 0 || moved.load(SeqCst) < 200 || migrations.0.iter().all(|n| n.load(SeqCst) == 0) {
                rounds += 1;
                let parcels = scaled(1000, 200) as u64;
                let (first, mut rx) = unbounded::<Box<Parcel>>();
                let mut workers = Vec::new();
                for stage in 0..STAGES {
                    let (tx, next) = bounded(stage % 3);
                    for worker in 0..2 {
                        let (rx, tx, moved) = (rx.clone(), tx.clone(), moved.clone());
                        let (lock, migrations) = (lock.clone(), migrations.clone());
                        workers.push(rt::go(move || {
                            let mut kit = Kit::new(seed ^ (stage * 10 + worker) as u64, lock);
                            let mut done = Vec::new();
                            for mut parcel in rx.iter() {
                                parcel.check(seed, stage);
                                let switch = kit.choose();
                                keeping_over(&mut kit, switch, &migrations);
                                parcel.content.iter_mut().for_each(|v| *v = v.wrapping_add(1));
                                parcel.notes.push(format!("stage {stage} of {}", parcel.number));
                                let here = place();
                                moved.fetch_add(usize::from(parcel.seen != here), SeqCst);
                                parcel.seen = here;
                                done.push(parcel.number);
                                tx.send(parcel).unwrap();
                            }
                            if kit.asked.is_some() {
                                kit.switch(Switch::Receive);
                            }
                            done
                        }));
                    }
                    rx = next;
                }
                (0..parcels).for_each(|i| first.send(Parcel::new(seed, i)).unwrap());
                drop(first);
                let mut arrived: Vec<u64> = rx.iter().inspect(|p| p.check(seed, STAGES)).map(|p| p.number).collect();
                arrived.sort_unstable();
                assert!(arrived.into_iter().eq(0..parcels));
                // Each stage's two workers have done everything between them.
                let results: Vec<Vec<u64>> = workers.into_iter().map(|w| w.join().unwrap()).collect();
                for pair in results.chunks(2) {
                    let mut both = pair.concat();
                    both.sort_unstable();
                    assert!(both.into_iter().eq(0..parcels));
                }
            }
            println!("{rounds} rounds, {} hand-overs between threads", moved.load(SeqCst));
        });
    });
}

/// A panic that began on another thread than its catch unwinds the goroutine's own frames, and leaves both threads clean.
#[test]
fn stress_panics() {
    /// Counts itself, in order.
    struct Local<'a>(u64, &'a RefCell<Vec<u64>>);
    impl Drop for Local<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            self.1.borrow_mut().push(self.0);
        }
    }

    #[inline(never)]
    fn fails(kit: &mut Kit, depth: u64, dropped: &RefCell<Vec<u64>>, migrations: &Migrations) {
        let _local = Local(depth, dropped);
        let switch = kit.choose();
        keeping_over(kit, switch, migrations);
        if depth == 0 {
            resume_unwind(Box::new(String::from("at the bottom")));
        }
        fails(kit, depth - 1, dropped, migrations);
    }

    everywhere("stress_panics", || {
        let seed = seed();
        traced("panics", move || {
            let (lock, migrations) = (Arc::new(Mutex::new(0)), Arc::new(Migrations::default()));
            let elsewhere = Arc::new(AtomicUsize::new(0));
            let life = |i| -> Life {
                let (lock, migrations, elsewhere) = (lock.clone(), migrations.clone(), elsewhere.clone());
                Box::new(move || {
                    let mut kit = Kit::new(seed ^ i, lock);
                    for _ in 0..scaled(100, 30) {
                        let dropped = RefCell::new(Vec::new());
                        let began_on = place();
                        let caught = catch_unwind(AssertUnwindSafe(|| fails(&mut kit, 4, &dropped, &migrations)));
                        assert_eq!(message(&*caught.unwrap_err()), "at the bottom");
                        assert_eq!(dropped.take(), [0, 1, 2, 3, 4]);
                        assert!(!std::thread::panicking());
                        elsewhere.fetch_add(usize::from(place() != began_on), SeqCst);
                    }
                    if kit.asked.is_some() {
                        kit.switch(Switch::Receive);
                    }
                })
            };
            let rounds = rounds_until(|| elsewhere.load(SeqCst) >= 50, 16, life);
            println!("{rounds} rounds, {} panics were caught on another thread", elsewhere.load(SeqCst));
        });
    });
}

/// What is on the calling thread, which is asked for anew each time.
#[inline(never)]
fn count_on_thread() -> u64 {
    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
        static LOG: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    COUNT.set(COUNT.get() + 1);
    LOG.with_borrow_mut(|log| {
        log.push(COUNT.get());
        assert_eq!(log.len() as u64, COUNT.get(), "the thread-locals of two threads");
    });
    COUNT.get()
}

/// std's own thread-locals (its output, thread handles, hashers) and the program's, before and after everything that waits.
fn ten_thousand_print() {
    const N: usize = 10_000;
    rt::goroutine_local! {
        static OWN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }
    let (_, trace) = traced("ten thousand print", || {
        let (tx, rx) = bounded::<usize>(8);
        let calls = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..N)
            .map(|i| {
                let (rx, calls) = (rx.clone(), calls.clone());
                rt::go(move || {
                    OWN.with_borrow_mut(|own| {
                        own.push(i);
                        println!("{i} begins");
                        place();
                        count_on_thread();
                        rt::yield_now();
                        println!("{i} goes on");
                        count_on_thread();
                        let got = rx.recv().unwrap();
                        count_on_thread();
                        let map: HashMap<usize, usize> = HashMap::from([(i, got)]);
                        println!("{i} ends with {}", map[&i]);
                        place();
                        calls.fetch_add(3, SeqCst);
                        own.push(i);
                        assert_eq!(*own, [i, i]);
                    });
                })
            })
            .collect();
        (0..N).for_each(|i| tx.send(i).unwrap());
        all.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(calls.load(SeqCst), 3 * N);
    });
    assert!(!trace.is_empty());
}

#[test]
fn ten_thousand_goroutines_print() {
    for border in ["membarrier", "fence"] {
        let ended = program("ten_thousand_print", &[("GOMAXPROCS", "8"), ("RT_BORDER", border)]);
        ended.expect_code(0);
        let mut got: Vec<usize> =
            ended.stdout.lines().filter_map(|l| l.split_once(" ends with ")?.1.parse().ok()).collect();
        got.sort_unstable();
        ended.expect("each line once", got.into_iter().eq(0..10_000) && ended.stdout.lines().count() == 30_000);
    }
}

//! Generations: about once a second the trace begins anew, and whoever reads on from there must find everybody, also those of
//! whom nothing has been heard since before the trace began.
//!
//! Whether a goroutine waits already, only a trace can tell. So before the trace that is looked at there are short ones, until
//! one of them shows everybody where they should be.

mod common;

use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Buffer, HangGuard, child_passes, gettid, is_child, judge, wait_for};
use rt::chan::{Receiver, Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use tracer::clock::mono_ns;
use tracer::read::{ClockSnapshot, Event, Reader, State, Tables, Transition};
use tracer::wire::{Ev, GoStatus, reason, varint};

/// Generations that have to be over before the trace is stopped, in the next one.
const WHOLE: usize = 3;

/// A sleep that does not end in this test.
const LONG: Duration = Duration::from_secs(10_000);

// Where they wait. The names are looked for in the stacks, so the call is not the last thing that they do: it would be a
// jump.

#[inline(never)]
fn waits_to_receive(rx: &Receiver<u32>) {
    let _ = rx.recv();
    black_box(rx);
}

#[inline(never)]
fn waits_to_send(tx: &Sender<u32>) {
    let _ = tx.send(1);
    black_box(tx);
}

#[inline(never)]
fn waits_for_the_lock(lock: &Mutex<u32>) {
    *lock.lock() += 1;
    black_box(lock);
}

#[inline(never)]
fn waits_for_the_group(group: &WaitGroup) {
    group.wait();
    black_box(group);
}

#[inline(never)]
fn sleeps_long() {
    rt::time::sleep(black_box(LONG));
    black_box(LONG);
}

#[inline(never)]
fn calls_out(tid: &AtomicU64, until: &mpsc::Receiver<()>) {
    rt::blocking(|| {
        tid.store(gettid(), SeqCst);
        let _ = until.recv();
    });
    black_box(tid);
}

/// Says nothing to the runtime until it is released, and then says where it is.
#[inline(never)]
fn spins(tid: &AtomicU64, released: &AtomicBool) {
    tid.store(gettid(), SeqCst);
    while !released.load(SeqCst) {
        std::hint::spin_loop();
    }
    rt::yield_now();
    black_box(released);
}

const WAITERS: [&str; 5] =
    ["waits_to_receive", "waits_to_send", "waits_for_the_lock", "waits_for_the_group", "sleeps_long"];

/// What everybody waits for, and the ends by which they are let go.
struct Stage {
    channel: (Sender<u32>, Receiver<u32>),
    full: (Sender<u32>, Receiver<u32>),
    lock: Arc<Mutex<u32>>,
    group: WaitGroup,
    tid: Arc<AtomicU64>,
    spinner_tid: Arc<AtomicU64>,
    call_ends: Option<mpsc::Sender<()>>,
    released: Arc<AtomicBool>,
}

impl Stage {
    /// A stage on which nothing can go on.
    fn new() -> Stage {
        let group = WaitGroup::new();
        group.add(1);
        Stage {
            channel: bounded(0),
            full: bounded(0),
            lock: Arc::new(Mutex::new(0)),
            group,
            tid: Arc::default(),
            spinner_tid: Arc::default(),
            call_ends: None,
            released: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Starts one goroutine per way to wait; with `prefix` they have names.
    fn waiters(&self, prefix: Option<&str>) {
        let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let builder = rt::Builder::new();
            let builder = match prefix {
                Some(p) => builder.name(format!("{p} {name}")),
                None => builder,
            };
            builder.spawn(body).unwrap();
        };
        let (rx, tx, lock, group) =
            (self.channel.1.clone(), self.full.0.clone(), self.lock.clone(), self.group.clone());
        start("receive", Box::new(move || waits_to_receive(&rx)));
        start("send", Box::new(move || waits_to_send(&tx)));
        start("lock", Box::new(move || waits_for_the_lock(&lock)));
        start("group", Box::new(move || waits_for_the_group(&group)));
        start("sleep", Box::new(sleeps_long));
    }

    fn caller(&mut self) {
        let (tx, rx) = mpsc::channel();
        self.call_ends = Some(tx);
        let tid = self.tid.clone();
        rt::go(move || calls_out(&tid, &rx));
    }

    fn spinner(&self) -> rt::JoinHandle<()> {
        let (tid, released) = (self.spinner_tid.clone(), self.released.clone());
        rt::go(move || spins(&tid, &released))
    }

    /// Everybody but the spinner, who is released by its flag.
    fn let_go(&mut self) {
        self.channel.0.close();
        self.full.0.close();
        self.group.done();
        self.call_ends = None;
    }
}

/// A trace in memory that tells how many generations of it are whole.
#[derive(Clone, Default)]
struct Out {
    buffer: Buffer,
    whole: Arc<AtomicUsize>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.write(bytes)
    }

    /// Called once per generation, after its last byte.
    fn flush(&mut self) -> std::io::Result<()> {
        self.whole.fetch_add(1, SeqCst);
        Ok(())
    }
}

// What a generation says.

/// The first word about a goroutine in a generation.
#[derive(Clone, Debug)]
struct Word {
    kind: Ev,
    status: Option<GoStatus>,
    m: u64,
    stack: Vec<String>,
}

/// A goroutine got to run (or back from a call that kept its P), or was seen running, and the label that came with that.
#[derive(Clone, Debug)]
struct Run {
    g: i64,
    kind: Ev,
    label: Option<String>,
}

#[derive(Debug, Default)]
struct Generation {
    number: u64,
    frequency: u64,
    snapshot: Option<ClockSnapshot>,
    procs: Vec<u64>,
    words: HashMap<i64, Word>,
    runs: Vec<Run>,
    /// Reason, who, and where.
    blocks: Vec<(String, i64, Vec<String>)>,
    /// Who yielded, and where.
    stops: Vec<(i64, Vec<String>)>,
    spans: (i64, i64),
}

fn functions(tables: &Tables, stack: u64) -> Vec<String> {
    tables.stack(stack).map(|f| f.func.into_owned()).collect()
}

fn names(stack: &[String], function: &str) -> bool {
    stack.iter().any(|f| f.contains(&format!("generations::{function}")))
}

/// The frequency in the bytes of a generation, and that there is one only.
fn frequency(generation: &[u8]) -> u64 {
    let mut found = Vec::new();
    let mut pos = 0;
    while pos < generation.len() && generation[pos] != Ev::EndOfGeneration as u8 {
        assert_eq!(generation[pos], Ev::EventBatch as u8, "a batch at {pos}");
        pos += 1;
        let mut number = || varint::read(generation, &mut pos).expect("a number");
        let [_generation, _m, _time, bytes] = [number(), number(), number(), number()];
        let batch = &generation[pos..][..bytes as usize];
        pos += bytes as usize;
        if batch[0] == Ev::Sync as u8 {
            assert_eq!(batch[1], Ev::Frequency as u8);
            found.push(varint::read(batch, &mut 2).expect("a frequency"));
        }
    }
    assert_eq!(found.len(), 1, "one frequency per generation: {found:?}");
    found[0]
}

/// Everything the test wants to know, one per generation.
fn read(trace: &[u8]) -> Vec<Generation> {
    let mut reader = Reader::new(trace).expect("a header");
    let mut all: Vec<Generation> = Vec::new();
    while let Some(event) = reader.next() {
        let event: Event = event.expect("a good event");
        let tables = reader.tables().clone();
        let info = *reader.generation();
        if all.last().is_none_or(|g| g.number != info.number) {
            let bytes = &trace[info.offset as usize..][..info.bytes as usize];
            all.push(Generation {
                number: info.number,
                frequency: frequency(bytes),
                snapshot: tables.clock_snapshot(),
                spans: (event.time, event.time),
                ..Generation::default()
            });
        }
        let now = all.last_mut().expect("just pushed");
        now.spans.1 = event.time;
        note(now, &event, &tables);
    }
    all
}

fn note(now: &mut Generation, event: &Event, tables: &Tables) {
    let stack = || functions(tables, event.stack());
    let is_status = matches!(event.kind, Ev::GoStatus | Ev::GoStatusStack);
    if let Some(Transition::G { id, to, .. }) = event.transition() {
        now.words.entry(id).or_insert_with(|| Word {
            kind: event.kind,
            status: is_status.then(|| GoStatus::from_u8(event.args[2] as u8).expect("a status")),
            m: event.args[1],
            stack: stack(),
        });
        if to == State::Running {
            now.runs.push(Run { g: id, kind: event.kind, label: None });
        }
    }
    let text = || event.text(tables).expect("a text").into_owned();
    match event.kind {
        Ev::ProcsChange => now.procs.push(event.args[0]),
        Ev::GoBlock => now.blocks.push((text(), event.g, stack())),
        Ev::GoStop => now.stops.push((event.g, stack())),
        Ev::GoLabel => {
            let run = now.runs.iter_mut().rev().find(|r| r.g == event.g).expect("a label is for one that runs");
            run.label = Some(text());
        }
        _ => {}
    }
}

/// The one goroutine of whom a generation says first that it stands in `function`.
#[track_caller]
fn who_stands_in<'g>(generation: &'g Generation, function: &str) -> (i64, &'g Word) {
    let there: Vec<_> = generation.words.iter().filter(|(_, word)| names(&word.stack, function)).collect();
    assert_eq!(there.len(), 1, "generation {}: in {function}: {there:?}", generation.number);
    (*there[0].0, there[0].1)
}

/// A short trace shows everybody where they wait.
fn all_wait() -> bool {
    let buffer = Buffer::default();
    rt::trace::start(buffer.clone()).unwrap();
    rt::trace::stop().unwrap();
    let trace = buffer.take();
    judge("a short trace", &trace);
    let generations = read(&trace);
    let words = || generations.iter().flat_map(|g| g.words.values());
    let stands = |function, status| {
        words().any(|w| w.status == Some(status) && names(&w.stack, function) && w.kind == Ev::GoStatusStack)
    };
    WAITERS.iter().all(|f| stands(f, GoStatus::Waiting)) && stands("calls_out", GoStatus::Syscall)
}

/// The whole play; its trace, and the threads of the goroutine that calls out and of the spinner.
fn play() -> (Vec<u8>, [u64; 2]) {
    let mut stage = Stage::new();
    let guard_lock = stage.lock.clone();
    let guard = guard_lock.lock();
    stage.waiters(None);
    stage.caller();
    let spinner = stage.spinner();
    wait_for("all wait", all_wait);

    let out = Out::default();
    rt::trace::start(out.clone()).unwrap();
    // Those who begin to wait now, and two who run all the time, with names.
    stage.waiters(Some("late"));
    let ticks = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = bounded(0);
    let ticker = {
        let (ticks, over) = (ticks.clone(), stage.released.clone());
        rt::Builder::new().name("ticker").spawn(move || {
            while !over.load(SeqCst) {
                rt::time::sleep(Duration::from_millis(20));
                tx.send(ticks.fetch_add(1, SeqCst)).unwrap();
            }
        })
    };
    let counter = rt::Builder::new().name("counter").spawn(move || rx.iter().count());
    let whole = |n: usize| out.whole.load(SeqCst) >= n;
    for n in 1..=WHOLE {
        wait_for("the end of a generation", || whole(n));
    }
    let before = ticks.load(SeqCst);
    wait_for("somebody runs in the last generation", || ticks.load(SeqCst) > before + 2);
    // The spinner's last word is part of the trace; the others wait to its end.
    stage.released.store(true, SeqCst);
    ticker.unwrap().join().unwrap();
    assert_eq!(counter.unwrap().join().unwrap(), ticks.load(SeqCst));
    spinner.join().unwrap();
    let stats = rt::trace::stop().unwrap();
    stage.let_go();
    drop(guard);
    assert_eq!(stats.entries_lost, 0);
    assert_eq!(stats.generations as usize, out.whole.load(SeqCst));
    (out.buffer.take(), [&stage.tid, &stage.spinner_tid].map(|tid| tid.load(SeqCst)))
}

fn check_clocks(generations: &[Generation], began_ns: u64, ended_ns: u64) {
    let snapshots: Vec<ClockSnapshot> = generations.iter().map(|g| g.snapshot.expect("a clock snapshot")).collect();
    for (s, g) in snapshots.iter().zip(generations) {
        assert_eq!(g.frequency, generations[0].frequency, "generation {} has a frequency of its own", g.number);
        assert!((began_ns..=ended_ns).contains(&s.mono_ns), "{s:?} not in {began_ns}..={ended_ns}");
        // Taken when the generation was closed, so after its first event.
        assert!(s.trace_ns >= g.spans.0, "{s:?} {:?}", g.spans);
        assert!(s.wall_nsec < 1_000_000_000);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((wall.saturating_sub(1000)..=wall + 1).contains(&s.wall_sec), "{s:?} and it is {wall}");
    }
    for pair in snapshots.windows(2) {
        assert!(pair[0].trace_ns < pair[1].trace_ns && pair[0].mono_ns < pair[1].mono_ns, "{pair:?}");
    }
    for pair in generations.windows(2) {
        assert!(pair[0].number < pair[1].number);
        assert!(pair[0].spans.1 < pair[1].spans.0, "generations overlap");
    }
}

fn check_everybody(generations: &[Generation], [tid, spinner_tid]: [u64; 2]) {
    let first = &generations[0];
    for function in WAITERS {
        let (g, _) = who_stands_in(first, function);
        for generation in generations {
            let at = format!("generation {}: {function}", generation.number);
            // The late ones are created in the first generation; from then on there are two.
            let word = generation.words.get(&g).unwrap_or_else(|| panic!("{at}: nothing of goroutine {g}"));
            assert_eq!((word.kind, word.status), (Ev::GoStatusStack, Some(GoStatus::Waiting)), "{at}: {word:?}");
            assert!(names(&word.stack, function), "{at}: {word:?}");
        }
    }
    let (outside, _) = who_stands_in(first, "calls_out");
    for generation in generations {
        let word = &generation.words[&outside];
        assert_eq!((word.kind, word.status), (Ev::GoStatusStack, Some(GoStatus::Syscall)), "{word:?}");
        assert_eq!(word.m, tid, "the M is not the thread's: {word:?}");
        assert!(names(&word.stack, "calls_out"), "{word:?}");
    }
    let last = generations.last().unwrap();
    let spinner = last.stops.iter().find(|(_, stack)| names(stack, "spins")).expect("the spinner's last word").0;
    for generation in generations {
        let word = generation.words.get(&spinner).expect("a word about the spinner");
        assert!(matches!(word.status, Some(GoStatus::Running | GoStatus::Syscall)), "{word:?}");
        assert_eq!(word.m, spinner_tid, "the spinner has not changed its thread: {word:?}");
    }
}

/// Whoever begins to wait while the trace runs says why, in Go's words, and where.
fn check_reasons(generations: &[Generation]) {
    let blocks = || generations.iter().flat_map(|g| &g.blocks);
    let pairs =
        WAITERS.iter().zip([reason::CHAN_RECEIVE, reason::CHAN_SEND, reason::SYNC, reason::SYNC, reason::SLEEP]);
    for (function, wanted) in pairs {
        let mut of: Vec<_> = blocks().filter(|(_, _, stack)| names(stack, function)).collect();
        assert!(!of.is_empty(), "nobody blocked in {function}");
        of.retain(|(reason, ..)| reason != wanted);
        assert!(of.is_empty(), "in {function}, not {wanted:?}: {of:?}");
    }
    assert_eq!(
        [reason::CHAN_RECEIVE, reason::CHAN_SEND, reason::SYNC, reason::SLEEP],
        ["chan receive", "chan send", "sync", "sleep"]
    );
}

/// Who is called what, as far as labels tell.
fn labelled(generations: &[Generation]) -> HashMap<i64, String> {
    let mut labels = HashMap::new();
    for run in generations.iter().flat_map(|g| &g.runs) {
        if let Some(label) = &run.label {
            let before = labels.insert(run.g, label.clone());
            assert!(before.is_none_or(|b| b == *label), "goroutine {} has two names", run.g);
        }
    }
    labels
}

/// The first run of a named goroutine in a generation, be it a start or one that goes on, has its label.
fn check_labels(generations: &[Generation]) {
    let labels = labelled(generations);
    let mut names: Vec<&str> = labels.values().map(String::as_str).collect();
    names.sort_unstable();
    for wanted in ["counter", "late group", "late lock", "late receive", "late send", "late sleep", "main", "ticker"] {
        assert_eq!(names.iter().filter(|n| **n == wanted).count(), 1, "{wanted} in {names:?}");
    }
    for generation in generations {
        for (g, name) in &labels {
            let first = generation.runs.iter().find(|r| r.g == *g);
            if let Some(run) = first {
                assert_eq!(run.label.as_ref(), Some(name), "generation {}: goroutine {g} {run:?}", generation.number);
            }
        }
        for everywhere in ["ticker", "counter"] {
            let runs = generation.runs.iter().any(|r| r.label.as_deref() == Some(everywhere));
            assert!(runs, "generation {}: {everywhere} does not run", generation.number);
        }
    }
}

fn check_all() {
    let _guard = HangGuard::new("everybody in every generation");
    let began_ns = mono_ns();
    let (trace, tids) = rt::run(play);
    judge("generations", &trace);
    let generations = read(&trace);
    assert!(generations.len() > WHOLE, "{} generations", generations.len());
    for generation in &generations {
        let procs = rt::gomaxprocs() as u64;
        assert_eq!(generation.procs, [procs], "generation {}", generation.number);
    }
    check_clocks(&generations, began_ns, mono_ns());
    check_everybody(&generations, tids);
    check_reasons(&generations);
    check_labels(&generations);
    println!("{} generations, {} bytes", generations.len(), trace.len());
}

#[test]
fn everybody_in_every_generation() {
    if is_child("everybody_in_every_generation") {
        return check_all();
    }
    child_passes("everybody_in_every_generation", &[("GOMAXPROCS", "4")]);
}

#[test]
fn everybody_in_every_generation_fence() {
    if is_child("everybody_in_every_generation_fence") {
        return check_all();
    }
    child_passes("everybody_in_every_generation_fence", &[("GOMAXPROCS", "4"), ("RT_BORDER", "fence")]);
}

#[test]
fn everybody_in_every_generation_one_p() {
    if is_child("everybody_in_every_generation_one_p") {
        return check_all();
    }
    child_passes("everybody_in_every_generation_one_p", &[("GOMAXPROCS", "1")]);
}

/// A trace of three generations, beside which `cast` plays; it is told how many generations are whole, and when all is over.
fn three_generations(
    what: &str,
    cast: impl FnOnce(&Arc<AtomicUsize>, &Arc<AtomicBool>) + Send + 'static,
) -> Vec<Generation> {
    let _guard = HangGuard::new(what);
    let trace = rt::run(|| {
        let out = Out::default();
        rt::trace::start(out.clone()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        cast(&out.whole, &over);
        // Without a timer, since somebody would be wanted for it: those who play are to keep their Ps.
        rt::blocking(|| until_whole(&out.whole, 2));
        over.store(true, SeqCst);
        rt::trace::stop().unwrap();
        out.buffer.take()
    });
    judge(what, &trace);
    read(&trace)
}

fn until_whole(whole: &AtomicUsize, n: usize) {
    while whole.load(SeqCst) < n {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whoever is called `name` is called so in every generation in which they run.
fn check_named_wherever_they_run(generations: &[Generation], name: &str) {
    let labels = labelled(generations);
    let of: Vec<i64> = labels.iter().filter(|(_, n)| *n == name).map(|(g, _)| *g).collect();
    assert!(!of.is_empty(), "nobody is called {name}");
    for generation in generations {
        for run in of.iter().filter_map(|g| generation.runs.iter().find(|r| r.g == *g)) {
            let (number, kind) = (generation.number, run.kind.name());
            println!("generation {number}: goroutine {} runs with {kind}", run.g);
            assert_eq!(run.label.as_deref(), Some(name), "generation {number}: {kind} and no label");
        }
    }
}

/// Who runs on across the border of two generations starts in none of those that follow; a reader that begins there knows
/// the name all the same.
#[test]
fn whoever_runs_on_is_labelled_again() {
    const NAME: &str = "whoever_runs_on_is_labelled_again";
    if !is_child(NAME) {
        return child_passes(NAME, &[("GOMAXPROCS", "4")]);
    }
    let generations = three_generations(NAME, |_, over| {
        let over = over.clone();
        rt::Builder::new().name("spinner").spawn(move || spins(&AtomicU64::new(0), &over)).unwrap();
    });
    check_named_wherever_they_run(&generations, "spinner");
}

/// The same for one who goes into a blocking call in one generation and comes back, with the P still there, in the next.
#[test]
fn whoever_comes_back_is_labelled_again() {
    const NAME: &str = "whoever_comes_back_is_labelled_again";
    if !is_child(NAME) {
        return child_passes(NAME, &[("GOMAXPROCS", "8")]);
    }
    let generations = three_generations(NAME, |whole, over| {
        for _ in 0..3 {
            let (whole, over) = (whole.clone(), over.clone());
            let caller = move || {
                rt::blocking(|| until_whole(&whole, 1));
                rt::blocking(|| until_whole(&whole, 2));
                spins(&AtomicU64::new(0), &over);
            };
            rt::Builder::new().name("caller").spawn(caller).unwrap();
        }
    });
    check_named_wherever_they_run(&generations, "caller");
}

//! Traces built by hand: what a test wants to say about a trace, and nothing else.
//!
//! A [`Gen`] that nobody touches is a valid generation. Every event is 10 ns after the one before.
#![allow(dead_code)] // Each test takes what it needs.

pub mod busy;

use tracer::read::{Error, Event, Input, Reader, Rule};
use tracer::wire::{Ev, GoStatus, HEADER, NO_M, ProcStatus, ext, varint};

pub const RUNNABLE: u64 = GoStatus::Runnable as u64;
pub const RUNNING: u64 = GoStatus::Running as u64;
pub const SYSCALL: u64 = GoStatus::Syscall as u64;
pub const WAITING: u64 = GoStatus::Waiting as u64;
pub const P_RUNNING: u64 = ProcStatus::Running as u64;
pub const P_IDLE: u64 = ProcStatus::Idle as u64;
pub const P_SYSCALL: u64 = ProcStatus::Syscall as u64;
pub const P_ABANDONED: u64 = ProcStatus::SyscallAbandoned as u64;

/// The strings that every generation has: ids 1 to 3.
pub const STRINGS: [&str; 3] = ["one", "two", "three"];

/// A trace in the making.
pub struct Trace(pub Vec<u8>);

impl Trace {
    pub fn new() -> Trace {
        Trace(HEADER.to_vec())
    }

    pub fn version(header: &[u8; 16]) -> Trace {
        Trace(header.to_vec())
    }

    /// Adds a generation.
    pub fn generation(mut self, number: u64, build: impl FnOnce(&mut Gen)) -> Trace {
        let mut generation = Gen::new(number);
        build(&mut generation);
        self.0.extend_from_slice(&generation.bytes());
        self
    }

    /// Adds bytes as they are.
    pub fn raw(mut self, bytes: &[u8]) -> Trace {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A generation in the making. Batches are in the order in which they were begun.
pub struct Gen {
    pub number: u64,
    batches: Vec<(u64, u64, Vec<u8>)>,
    pub strings: Vec<(u64, Vec<u8>)>,
    /// Id, and for each frame PC, function, file, line.
    pub stacks: Vec<(u64, Vec<[u64; 4]>)>,
    /// Time, M, P, G, stack.
    pub samples: Vec<[u64; 5]>,
    /// The batches that hold the clocks.
    pub sync: Vec<Vec<u8>>,
    /// What stands after all batches.
    pub end: Vec<u8>,
}

/// The events of one M.
pub struct Batch<'a>(&'a mut Vec<u8>);

impl Gen {
    fn new(number: u64) -> Gen {
        let mut sync = vec![Ev::Sync as u8];
        sync.extend(frequency(1_000_000_000));
        sync.extend(snapshot());
        Gen {
            number,
            batches: Vec::new(),
            strings: STRINGS.iter().zip(1..).map(|(s, id)| (id, s.as_bytes().to_vec())).collect(),
            stacks: vec![(1, vec![[0x10, 1, 2, 7]])],
            samples: Vec::new(),
            sync: vec![sync],
            end: vec![Ev::EndOfGeneration as u8],
        }
    }

    /// A new batch of this M, whose events begin at `time`.
    pub fn batch(&mut self, m: u64, time: u64) -> Batch<'_> {
        self.batches.push((m, time, Vec::new()));
        Batch(&mut self.batches.last_mut().expect("just pushed").2)
    }

    /// A batch at a time that all batches of this M so far are before.
    pub fn m(&mut self, m: u64) -> Batch<'_> {
        let base = self.number * 1_000_000 + self.batches.len() as u64 * 1_000;
        self.batch(m, base)
    }

    /// M `m` with P `m` and goroutine `m` + 100, all running.
    pub fn running(&mut self, m: u64) -> Batch<'_> {
        self.m(m).ev(Ev::ProcStatus, &[m, P_RUNNING]).ev(Ev::GoStatus, &[m + 100, m, RUNNING])
    }

    /// A string, and its id.
    pub fn string(&mut self, text: &str) -> u64 {
        let id = self.strings.len() as u64 + 1;
        self.strings.push((id, text.as_bytes().to_vec()));
        id
    }

    /// A stack of functions in the file "app.rs", innermost first, at lines that are told by their place; and its id.
    pub fn stack(&mut self, funcs: &[&str]) -> u64 {
        let file = self.string("app.rs");
        let frames = funcs.iter().map(|func| self.string(func)).map(|func| [func << 8, func, file, func]).collect();
        let id = self.stacks.len() as u64 + 1;
        self.stacks.push((id, frames));
        id
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (m, time, data) in &self.batches {
            put_batch(&mut out, self.number, *m, *time, data);
        }
        for sync in &self.sync {
            put_batch(&mut out, self.number, NO_M, self.number * 1_000_000, sync);
        }
        let mut table = |first: Ev, entries: Vec<Vec<u8>>| {
            if !entries.is_empty() {
                let data = [vec![first as u8], entries.concat()].concat();
                put_batch(&mut out, self.number, NO_M, self.number * 1_000_000, &data);
            }
        };
        table(Ev::CpuSamples, self.samples.iter().map(|args| event(Ev::CpuSample, args)).collect());
        let stack = |(id, frames): &(u64, Vec<[u64; 4]>)| {
            let args: Vec<u64> =
                [*id, frames.len() as u64].into_iter().chain(frames.iter().flatten().copied()).collect();
            event(Ev::Stack, &args)
        };
        table(Ev::Stacks, self.stacks.iter().map(stack).collect());
        let string =
            |(id, text): &(u64, Vec<u8>)| [event(Ev::String, &[*id, text.len() as u64]), text.clone()].concat();
        table(Ev::Strings, self.strings.iter().map(string).collect());
        out.extend_from_slice(&self.end);
        out
    }
}

impl Batch<'_> {
    /// The next event, 10 ns later.
    pub fn ev(self, kind: Ev, args: &[u64]) -> Self {
        self.after(10, kind, args)
    }

    /// The next event, so many ns later.
    pub fn after(self, dt: u64, kind: Ev, args: &[u64]) -> Self {
        assert_eq!(args.len() + 1, kind.spec().args.len(), "{}", kind.name());
        self.0.push(kind as u8);
        varint::put(self.0, dt);
        for &arg in args {
            varint::put(self.0, arg);
        }
        self
    }

    /// The next event if `yes`.
    pub fn ev_if(self, yes: bool, kind: Ev, args: &[u64]) -> Self {
        if yes { self.ev(kind, args) } else { self }
    }

    /// No more events: for closures that return nothing.
    pub fn done(self) {}

    /// Bytes as they are.
    pub fn raw(self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

pub fn event(kind: Ev, args: &[u64]) -> Vec<u8> {
    let mut out = vec![kind as u8];
    for &arg in args {
        varint::put(&mut out, arg);
    }
    out
}

pub fn frequency(units_per_second: u64) -> Vec<u8> {
    event(Ev::Frequency, &[units_per_second])
}

pub fn snapshot() -> Vec<u8> {
    event(Ev::ClockSnapshot, &[5, 77, 1_700_000_000, 9])
}

pub fn put_batch(out: &mut Vec<u8>, generation: u64, m: u64, time: u64, data: &[u8]) {
    out.extend(event(Ev::EventBatch, &[generation, m, time, data.len() as u64]));
    out.extend_from_slice(data);
}

/// The events of a trace, and how it ended.
pub fn read(trace: &[u8]) -> (Vec<Event>, Option<Error>) {
    match Reader::new(trace) {
        Ok(mut reader) => rest(&mut reader),
        Err(error) => (Vec::new(), Some(error)),
    }
}

/// The events that a reader has still to give, and how the trace ended.
pub fn rest<R: Input>(reader: &mut Reader<R>) -> (Vec<Event>, Option<Error>) {
    let mut events = Vec::new();
    for event in reader {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// The rule that a trace breaks, if it breaks one.
pub fn broken_rule(trace: &[u8]) -> Option<Rule> {
    read(trace).1.map(|error| error.broken().unwrap_or_else(|| panic!("{error}")).rule)
}

/// Pseudo-random numbers that are the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A trace of two generations with something of everything in it.
pub fn rich() -> Vec<u8> {
    let first = |g: &mut Gen| {
        let chan = g.string("chan receive");
        let stw = g.string("GOMAXPROCS");
        let name = g.string("request");
        let wait = g.stack(&["rt::chan::recv", "app::worker"]);
        let spawn = g.stack(&["app::worker"]);
        g.running(0)
            .ev(Ev::ProcsChange, &[2, 0])
            .ev(Ev::GoCreate, &[7, spawn, 1])
            .ev(Ev::GoCreateBlocked, &[8, spawn, 1])
            .ev(Ev::UserTaskBegin, &[1, 0, name, 1])
            .ev(Ev::UserRegionBegin, &[1, name, 1])
            .ev(Ev::UserLog, &[1, 1, 2, 0])
            .ev(Ev::GoLabel, &[name])
            .ev(Ev::StwBegin, &[stw, 1])
            .ev(Ev::StwEnd, &[])
            .ev(Ev::GcBegin, &[1, 1])
            .ev(Ev::GcMarkAssistBegin, &[1])
            .ev(Ev::GcMarkAssistEnd, &[])
            .ev(Ev::HeapAlloc, &[1 << 20])
            .ev(Ev::HeapGoal, &[1 << 21])
            .ev(Ev::GoSyscallBegin, &[1, wait])
            .ev(Ev::GoSyscallEndBlocked, &[])
            .ev(Ev::ProcStart, &[1, 2]);
        g.m(1)
            .ev(Ev::ProcStatus, &[1, P_RUNNING])
            .ev(Ev::ProcSteal, &[0, 2, 0])
            .ev(Ev::GoStart, &[7, 1])
            .ev(Ev::GoBlock, &[chan, wait])
            .ev(Ev::GcSweepBegin, &[0])
            .ev(Ev::GcSweepEnd, &[100, 50])
            .ev(Ev::ProcStop, &[])
            .ev(Ev::ProcStart, &[0, 3])
            .ev(Ev::ProcStop, &[]);
        g.m(2)
            .ev(Ev::GoUnblock, &[7, 2, 0])
            .ev(Ev::ProcStart, &[1, 1])
            .ev(Ev::GoStart, &[7, 3])
            .ev(Ev::GoSwitch, &[8, 1])
            .ev(Ev::GcEnd, &[2])
            .ev(Ev::GoDestroy, &[])
            .ev(Ev::GoStart, &[100, 1])
            .ev(Ev::GoStop, &[2, 1])
            .ev(Ev::ProcStop, &[]);
        g.samples.push([1_000_100, 0, 0, 100, 1]);
        let mut ext = ext::Writer::new();
        ext.push(1_000_200, ext::Record::Steal { thief_p: 1, victim_p: 0, count: 3 });
        ext.push(1_000_300, ext::Record::HandOff { p: 0, cause: ext::Cause::BlockingCall, from_m: 0 });
        g.strings.extend(ext.entries().zip(0..).map(|(entry, n)| (ext::id(n), entry.to_vec())));
    };
    let second = |g: &mut Gen| {
        let sleep = g.string("sleep");
        let name = g.string("request");
        let wait = g.stack(&["rt::time::sleep", "app::worker"]);
        g.m(0)
            .ev(Ev::ProcStatus, &[1, P_RUNNING])
            .ev(Ev::ProcStatus, &[0, P_IDLE])
            .ev(Ev::GoStatus, &[100, 0, RUNNABLE])
            .ev(Ev::GoStart, &[100, 1])
            .ev(Ev::UserTaskEnd, &[1, 0])
            .ev(Ev::UserRegionEnd, &[1, name, 0])
            .ev(Ev::GoBlock, &[sleep, wait]);
        g.m(NO_M).ev(Ev::GoStatusStack, &[7, NO_M, WAITING, wait]);
    };
    Trace::new().generation(1, first).generation(2, second).0
}

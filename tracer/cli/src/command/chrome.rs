//! A timeline in the trace event format of Chrome, which Perfetto reads, too.
//!
//! Process 1 has a track for each P: a slice is a goroutine that runs, or a blocking call that has kept its P. Process 2
//! has a track for each goroutine that has regions. Process 3 is the world: GC cycles, stops, the heap, how many
//! goroutines run and wait. Tasks are asynchronous events. Slices are written when they end, so memory holds what is
//! open.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use serde_json::{Value, json};
use tracer::analyze::Names;
use tracer::read::{Event, NONE, State, Tables, Transition};
use tracer::wire::Ev;

use crate::Failure;

const PS: i64 = 1;
const GOROUTINES: i64 = 2;
const WORLD: i64 = 3;

/// Tracks of the world.
const GC: i64 = 1;
const STOPS: i64 = 2;

/// A count of goroutines is written so often at most, in ns.
const COUNTS_NS: i64 = 100_000;

/// What is on a P's track.
struct Slice {
    begin: i64,
    name: String,
    call: bool,
}

/// Writes a timeline.
pub(crate) struct Chrome<'w, W: Write> {
    to: &'w mut W,
    first: bool,
    start: Option<i64>,
    last: i64,
    names: Names,
    slices: HashMap<i64, Slice>,
    regions: HashMap<i64, Vec<(i64, String)>>,
    stops: HashMap<i64, (i64, String)>,
    gc: Option<i64>,
    states: HashMap<i64, State>,
    /// Running, runnable, blocked, in calls.
    counts: [i64; 4],
    counted: i64,
    named: [HashSet<i64>; 2],
}

impl<'w, W: Write> Chrome<'w, W> {
    pub fn begin(to: &'w mut W) -> Result<Chrome<'w, W>, Failure> {
        write!(to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut chrome = Chrome {
            to,
            first: true,
            start: None,
            last: 0,
            names: Names::default(),
            slices: HashMap::new(),
            regions: HashMap::new(),
            stops: HashMap::new(),
            gc: None,
            states: HashMap::new(),
            counts: [0; 4],
            counted: 0,
            named: [HashSet::new(), HashSet::new()],
        };
        for (pid, name) in [(PS, "Ps"), (GOROUTINES, "goroutines with regions"), (WORLD, "world")] {
            chrome.meta("process_name", pid, 0, name)?;
        }
        chrome.meta("thread_name", WORLD, GC, "GC")?;
        chrome.meta("thread_name", WORLD, STOPS, "stopped world")?;
        Ok(chrome)
    }

    fn put(&mut self, value: &Value) -> io::Result<()> {
        self.to.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        Ok(serde_json::to_writer(&mut *self.to, value)?)
    }

    fn meta(&mut self, what: &str, pid: i64, tid: i64, name: &str) -> io::Result<()> {
        self.put(&json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}))
    }

    /// Since the first event, in us.
    fn us(&self, time: i64) -> f64 {
        time.saturating_sub(self.start.unwrap_or(time)) as f64 / 1e3
    }

    fn slice(&mut self, (pid, tid): (i64, i64), name: &str, begin: i64, end: i64, args: Value) -> io::Result<()> {
        let (ts, dur) = (self.us(begin), end.saturating_sub(begin).max(0) as f64 / 1e3);
        self.put(&json!({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}))
    }

    fn name_track(&mut self, (pid, tid): (i64, i64), name: impl FnOnce() -> String) -> io::Result<()> {
        let named = &mut self.named[usize::from(pid == GOROUTINES)];
        if named.insert(tid) {
            let name = name();
            self.meta("thread_name", pid, tid, &name)?;
        }
        Ok(())
    }

    fn who(&self, g: i64) -> String {
        match self.names.get(g) {
            Some(name) => format!("{name} G{g}"),
            None => format!("G{g}"),
        }
    }

    pub fn event(&mut self, event: &Event, tables: &Tables) -> Result<(), Failure> {
        if event.kind != Ev::Sync {
            self.start.get_or_insert(event.time);
            self.last = event.time;
            // Before the names forget one that ends here.
            self.on_p(event, tables)?;
            self.world(event, tables)?;
            self.user(event, tables)?;
            self.count(event)?;
        }
        self.names.event(event, tables);
        Ok(())
    }

    fn on_p(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        let (now, p) = (event.time, event.p);
        let begins = match event.kind {
            Ev::GoStart => Some((event.args[0] as i64, false)),
            Ev::GoSyscallBegin => Some((event.g, true)),
            Ev::GoSyscallEnd => Some((event.g, false)),
            Ev::GoStatus | Ev::GoStatusStack if event.args[1] as i64 == event.m => match event.transition() {
                Some(Transition::G { id, from, to }) if from != to && to == State::Running => Some((id, false)),
                Some(Transition::G { id, from, to }) if from != to && to == State::Syscall => Some((id, true)),
                _ => None,
            },
            _ => None,
        };
        let ends = matches!(
            event.kind,
            Ev::GoBlock
                | Ev::GoStop
                | Ev::GoDestroy
                | Ev::GoSwitch
                | Ev::GoSwitchDestroy
                | Ev::GoSyscallEndBlocked
                | Ev::ProcStop
        );
        if begins.is_some() || ends {
            let reason = event.text(tables);
            self.end_slice(p, now, event, tables, reason.as_deref())?;
        }
        if event.kind == Ev::ProcSteal {
            self.end_slice(event.args[0] as i64, now, event, tables, Some("its P was taken"))?;
        }
        if let Some((g, call)) = begins.filter(|_| p != NONE) {
            self.name_track((PS, p), || format!("P {p}"))?;
            let name = if call { format!("syscall of {}", self.who(g)) } else { self.who(g) };
            self.slices.insert(p, Slice { begin: now, name, call });
        }
        Ok(())
    }

    fn end_slice(&mut self, p: i64, now: i64, event: &Event, tables: &Tables, why: Option<&str>) -> io::Result<()> {
        let Some(Slice { begin, name, call }) = self.slices.remove(&p) else { return Ok(()) };
        let mut args = json!({"event": event.kind.name()});
        if let Some(why) = why {
            args["reason"] = why.into();
        }
        let stack: Vec<Value> = (tables.stack(event.stack()))
            .map(|frame| format!("{} {}:{}", frame.func, frame.file, frame.line).into())
            .collect();
        if !stack.is_empty() && !call {
            args["stack"] = stack.into();
        }
        self.slice((PS, p), &name, begin, now, args)
    }

    fn world(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        let now = event.time;
        match event.kind {
            Ev::GcBegin => self.gc = Some(now),
            Ev::GcActive => drop(self.gc.get_or_insert(self.start.unwrap_or(now))),
            Ev::GcEnd => {
                if let Some(begin) = self.gc.take() {
                    self.slice((WORLD, GC), "mark", begin, now, json!({}))?;
                }
            }
            Ev::StwBegin => {
                let reason = event.text(tables).unwrap_or_default().into_owned();
                self.stops.insert(event.g, (now, reason));
            }
            Ev::StwEnd => {
                if let Some((begin, reason)) = self.stops.remove(&event.g) {
                    self.slice((WORLD, STOPS), &reason, begin, now, json!({}))?;
                }
            }
            Ev::HeapAlloc | Ev::HeapGoal => {
                let name = if event.kind == Ev::HeapAlloc { "heap" } else { "heap goal" };
                let ts = self.us(now);
                self.put(&json!({"ph": "C", "name": name, "pid": WORLD, "ts": ts, "args": {"bytes": event.args[0]}}))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn user(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        let (now, g, task) = (event.time, event.g, event.args[0]);
        let ts = self.us(now);
        match event.kind {
            Ev::UserTaskBegin | Ev::UserTaskEnd => {
                let ph = if event.kind == Ev::UserTaskBegin { "b" } else { "e" };
                let name = event.text(tables).unwrap_or_default();
                self.put(
                    &json!({"ph": ph, "cat": "task", "id": task, "name": name, "pid": GOROUTINES, "tid": g, "ts": ts}),
                )?;
            }
            Ev::UserLog => {
                let text = |id| tables.string(id).unwrap_or_default();
                let name = format!("{}: {}", text(event.args[1]), text(event.args[2]));
                self.put(&json!({"ph": "i", "s": "t", "name": name, "pid": GOROUTINES, "tid": g, "ts": ts, "args": {"task": task}}))?;
            }
            Ev::UserRegionBegin => {
                let name = event.text(tables).unwrap_or_default().into_owned();
                let who = self.who(g);
                self.name_track((GOROUTINES, g), || who)?;
                self.regions.entry(g).or_default().push((now, name));
            }
            Ev::UserRegionEnd => {
                if let Some((begin, name)) = self.regions.get_mut(&g).and_then(Vec::pop) {
                    self.slice((GOROUTINES, g), &name, begin, now, json!({"task": task}))?;
                }
            }
            Ev::GoDestroy => drop(self.regions.remove(&g)),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, event: &Event) -> io::Result<()> {
        let Some(Transition::G { id, to, .. }) = event.transition() else { return Ok(()) };
        let place = |state: State| match state {
            State::Running => Some(0),
            State::Runnable => Some(1),
            State::Waiting => Some(2),
            State::Syscall => Some(3),
            _ => None,
        };
        let before = if to == State::NotExist { self.states.remove(&id) } else { self.states.insert(id, to) };
        if before == Some(to) {
            return Ok(());
        }
        before.and_then(place).into_iter().for_each(|at| self.counts[at] -= 1);
        place(to).into_iter().for_each(|at| self.counts[at] += 1);
        if event.time.saturating_sub(self.counted) < COUNTS_NS {
            return Ok(());
        }
        self.counted = event.time;
        let ts = self.us(event.time);
        let [running, runnable, blocked, calls] = self.counts;
        let args = json!({"running": running, "runnable": runnable, "blocked": blocked, "in calls": calls});
        self.put(&json!({"ph": "C", "name": "goroutines", "pid": WORLD, "ts": ts, "args": args}))
    }

    /// The trace is broken behind the last event: what is open ends there.
    pub fn gap(&mut self) -> Result<(), Failure> {
        self.close()?;
        self.names.gap();
        self.stops.clear();
        self.states.clear();
        self.counts = [0; 4];
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let end = self.last;
        let mut slices: Vec<(i64, Slice)> = self.slices.drain().collect();
        slices.sort_by_key(|(p, _)| *p);
        for (p, Slice { begin, name, .. }) in slices {
            self.slice((PS, p), &name, begin, end, json!({"open": true}))?;
        }
        let mut regions: Vec<(i64, Vec<(i64, String)>)> = self.regions.drain().collect();
        regions.sort_by_key(|(g, _)| *g);
        for (g, open) in regions {
            for (begin, name) in open {
                self.slice((GOROUTINES, g), &name, begin, end, json!({"open": true}))?;
            }
        }
        if let Some(begin) = self.gc.take() {
            self.slice((WORLD, GC), "mark", begin, end, json!({"open": true}))?;
        }
        Ok(())
    }

    /// Closes what is open, and the list.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.close()?;
        writeln!(self.to, "\n]}}")?;
        Ok(())
    }
}

//! The analysis of traces whose every nanosecond is known.
#![cfg(feature = "read")]

mod common;

use common::*;
use tracer::analyze::{Summary, summarize};
use tracer::read::Reader;
use tracer::wire::{Ev, NO_M, ext, reason};

fn summary(trace: &Trace) -> Summary {
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    let (summary, error) = summarize(&mut reader);
    assert!(error.is_none(), "{}", error.unwrap());
    summary
}

/// G 1 (main, started before the trace) makes G 7, which waits on a channel twice; the second wait never ends.
fn waiting() -> Trace {
    let first = |g: &mut Gen| {
        let recv = g.string(reason::CHAN_RECEIVE);
        let label = g.string("the reader");
        let spawn = g.stack(&["app::reader"]);
        let wait =
            g.stack(&["rt::park", "<rt::chan::Receiver<T>>::recv", "app::read_one", "app::reader", "std::thread::run"]);
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(0, Ev::ProcsChange, &[1, 0]).after(100, Ev::GoCreate, &[7, spawn, 0]); // 1,100
        let m = m.after(400, Ev::GoStop, &[2, 0]).after(100, Ev::GoStart, &[7, 1]); // 1,500, 1,600
        let m = m.after(50, Ev::GoLabel, &[label]).after(50, Ev::GoBlock, &[recv, wait]); // 1,650, 1,700
        let m = m.after(100, Ev::GoStart, &[1, 1]).after(1_000, Ev::GoUnblock, &[7, 2, 0]); // 1,800, 2,800
        let m = m.after(200, Ev::GoStop, &[2, 0]).after(0, Ev::GoStart, &[7, 3]); // 3,000
        let m = m.after(500, Ev::GoBlock, &[recv, wait]).after(100, Ev::GoStart, &[1, 2]); // 3,500, 3,600
        m.after(400, Ev::GoSyscallBegin, &[1, 0]).after(1_000, Ev::GoSyscallEnd, &[]); // 4,000, 5,000
    };
    let second = |g: &mut Gen| {
        let m = g.batch(0, 6_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        m.after(0, Ev::GoStatus, &[7, NO_M, WAITING]).after(4_000, Ev::HeapAlloc, &[5]); // 10,000
    };
    Trace::new().generation(1, first).generation(2, second)
}

#[test]
fn waits_by_reason_place_and_length() {
    let s = summary(&waiting());
    let stat = s.waits_for(reason::CHAN_RECEIVE).stat();
    assert_eq!((stat.count, stat.open, stat.total, stat.max), (2, 1, 1_100 + 6_500, 6_500));
    assert_eq!(s.waits.by_reason.len(), 1);

    let [site] = &s.waits.by_site[..] else { panic!("{:?}", s.waits.by_site) };
    assert_eq!((&*site.func, &*site.file, site.stat.count), ("app::read_one", "app.rs", 2));

    let [open, ended] = &s.waits.longest[..] else { panic!("{:?}", s.waits.longest) };
    assert_eq!((open.g, open.begin, open.ns, open.open), (7, 3_500, 6_500, true));
    assert_eq!((ended.begin, ended.ns, ended.open), (1_700, 1_100, false));
    assert_eq!((open.name.as_deref(), open.label.as_deref()), (Some("app::reader"), Some("the reader")));
    assert_eq!(open.stack.frames.len(), 5);
    assert_eq!(open.stack.site().map(|f| &*f.func), Some("app::read_one"));
}

#[test]
fn time_is_split_without_a_rest() {
    let s = summary(&waiting());
    // The Sync took 1,000, so the first event is given the next.
    assert_eq!((s.start, s.end, s.duration()), (1_001, 10_000, 8_999));
    let group = |name: &str| s.goroutines.groups.iter().find(|g| &*g.name == name).expect("the group").clone();
    let reader = group("app::reader").spent();
    // Created at 1,100.
    assert_eq!((reader.running, reader.runnable, reader.blocked, reader.syscall), (100 + 499, 500 + 201, 7_600, 0));
    let main = group("").spent();
    assert_eq!(main.running + main.runnable + main.blocked + main.syscall, 8_999);
    assert_eq!(main.syscall, 1_000);
    assert_eq!((s.syscalls().count(), s.syscalls().total()), (1, 1_000));
    let gs = &s.goroutines;
    assert_eq!((gs.seen, gs.created, gs.ended, gs.alive(), gs.peak), (2, 1, 0, 2, 2));
}

#[test]
fn latency_is_from_runnable_to_running() {
    let s = summary(&waiting());
    // G 7 from 1,100 to 1,600 and 2,800 to 3,001; G 1 from 1,500 to 1,800 and 3,000 to 3,600.
    assert_eq!(s.latency.all.count(), 4);
    assert_eq!(s.latency.all.total(), 500 + 201 + 300 + 600);
    assert_eq!(s.latency.all.max(), 600);
}

#[test]
fn events_and_generations_are_counted() {
    let trace = waiting();
    let s = summary(&trace);
    assert_eq!(s.generations.len(), 2);
    let [first, second] = [&s.generations[0], &s.generations[1]];
    assert_eq!((first.info.number, second.info.number), (1, 2));
    assert_eq!(second.events, 4);
    assert_eq!(first.events + second.events, s.events());
    assert_eq!(s.bytes() as usize, trace.0.len() - 16);
    assert_eq!((s.count(Ev::GoStart), s.count(Ev::GoBlock), s.count(Ev::Sync)), (4, 2, 3));
    assert_eq!((s.world.ps, s.world.ms, s.world.gomaxprocs, s.world.ps_in_use), (1, 1, Some(1), 8_999));
}

#[test]
fn what_began_before_the_trace() {
    let trace = Trace::new().generation(1, |g| {
        let wait = g.stack(&["rt::park", "app::main"]);
        let duty = g.stack(&["rt::park", "rt::sysmon"]);
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]);
        let m = m.after(0, Ev::GoStatusStack, &[1, NO_M, WAITING, wait]).after(
            0,
            Ev::GoStatusStack,
            &[2, NO_M, WAITING, duty],
        );
        m.after(500, Ev::GoUnblock, &[1, 1, 0]).after(500, Ev::GoUnblock, &[2, 1, 0]);
    });
    let s = summary(&trace);
    let (reason, stat) = &s.waits.by_reason[0];
    assert_eq!((&**reason, stat.count(), stat.max()), ("(began before the trace)", 2, 999));
    // The runtime's own goroutine is not listed.
    let [wait] = &s.waits.longest[..] else { panic!("{:?}", s.waits.longest) };
    assert_eq!((wait.g, wait.ns, wait.stack.site().map(|f| &*f.func)), (1, 499, Some("app::main")));
}

#[test]
fn stops_gc_and_extension_records() {
    let trace = Trace::new().generation(1, |g| {
        let stop = g.string(reason::STW_GOMAXPROCS);
        let reason_id = stop;
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(10, Ev::StwBegin, &[stop, 0]).after(300, Ev::StwEnd, &[]).after(10, Ev::GcBegin, &[1, 0]);
        let m =
            m.after(10, Ev::GcMarkAssistBegin, &[0]).after(70, Ev::GcMarkAssistEnd, &[]).after(500, Ev::GcEnd, &[2]);
        m.after(10, Ev::HeapAlloc, &[4096]);
        let mut writer = ext::Writer::new();
        for count in 1..=3 {
            writer.push(1_000, ext::Record::Steal { thief_p: 1, victim_p: 0, count });
        }
        writer.push(1_500, ext::Record::HandOff { p: 0, cause: ext::Cause::OutsideTooLong, from_m: 0 });
        writer.push(1_600, ext::Record::Stall { g: 1, for_ns: 100, m: 0 });
        writer.push(1_700, ext::Record::LockCycle { g: 1, holder: 1, object: 9 });
        writer.push(1_800, ext::Record::Netpoll { events: 4, goroutines: 3, slept: 1 });
        writer.push(1_800, ext::Record::Name { g: 1, name: reason_id });
        writer.push(1_800, ext::Record::Timers { p: 0, goroutines: 4, alarms: 1 });
        writer.push(1_800, ext::Record::RunQueue { p: 0, len: 7 });
        writer.push(1_800, ext::Record::RunQueue { p: ext::GLOBAL_QUEUE, len: 1_234 });
        writer.push(1_800, ext::Record::RunQueue { p: 1, len: 2 });
        writer.push(1_800, ext::Record::Lost { bytes: 99 });
        let unknown = [&ext::MAGIC[..], &[1, 1, 5], &[99, 1, 5], &[2, 200]].concat();
        g.strings.extend(writer.entries().map(<[u8]>::to_vec).chain([unknown]).zip(0..).map(|(e, n)| (ext::id(n), e)));
    });
    let s = summary(&trace);
    let (reason, stat) = &s.world.stops[0];
    assert_eq!((&**reason, stat.count(), stat.total()), ("GOMAXPROCS", 1, 300));
    assert_eq!((s.world.gc.count(), s.world.gc.total()), (1, 580));
    assert_eq!((s.world.assists.count(), s.world.assists.total()), (1, 70));
    assert_eq!(s.world.heap_alloc, Some(4096));
    assert_eq!((s.ext.steals, s.ext.stolen, s.ext.handed_off(), s.ext.unknown, s.ext.malformed), (3, 6, 1, 1, 1));
    assert_eq!(s.ext.hand_offs[&ext::Cause::OutsideTooLong], 1);
    assert_eq!((s.ext.polls, s.ext.polled), (1, 3));
    assert_eq!((s.ext.names, s.ext.timer_batches, s.ext.timers), (1, 1, 5));
    assert_eq!((s.ext.queue_looks, s.ext.longest_queue, s.ext.longest_global_queue), (3, 7, 1_234));
    assert_eq!(s.ext.lost_bytes, 99);
    let text = s.to_string();
    for words in ["timers: 5 were due with others, at 1 looks", "seen for one P, 1,234 in", "LOST: 99 B of events"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert_eq!((s.ext.stalls.count, s.ext.stalls.total, s.ext.in_lock_cycles), (1, 100, 1));
}

#[test]
fn the_report_says_it_in_words() {
    let text = summary(&waiting()).to_string();
    println!("{text}");
    for words in [
        "go 1.26: 9.00 us in 2 generations",
        "2 seen, 1 created",
        "chan receive",
        "app::read_one (app.rs:",
        "G 7 app::reader [the reader]: chan receive, still waiting at the end",
        "from runnable to running, 4 times",
        "blocking calls: 1, 1.00 us in all",
    ] {
        assert!(text.contains(words), "{words}");
    }
    assert!(text.lines().all(|line| line.trim_end() == line));
}

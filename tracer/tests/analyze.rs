//! The analysis of traces whose every nanosecond is known.
#![cfg(feature = "read")]

mod common;

use common::*;
use tracer::analyze::{Builder, Summary, summarize};
use tracer::read::Reader;
use tracer::read::salvage::Salvage;
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

/// Two Ps; P 1 is idle from 2,000 to 5,000. G 7 is made at 1,100, runs at 3,100.
#[test]
fn a_wait_tells_whether_a_p_was_idle() {
    let trace = Trace::new().generation(1, |g| {
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(50, Ev::ProcsChange, &[2, 0]).after(50, Ev::GoCreate, &[7, 0, 0]); // 1,050, 1,100
        let m = m.after(1_900, Ev::GoStop, &[2, 0]).after(100, Ev::GoStart, &[7, 1]); // 3,000, 3,100
        m.after(900, Ev::GoDestroy, &[]).after(500, Ev::GoStart, &[1, 1]).after(1_500, Ev::HeapAlloc, &[1]); // 4,000, 4,500, 6,000
        let m = g.batch(1, 1_020).after(0, Ev::ProcStatus, &[1, P_RUNNING]);
        m.after(980, Ev::ProcStop, &[]).after(3_000, Ev::ProcStart, &[1, 1]); // 2,000, 5,000
    });
    let s = summary(&trace);
    // G 7 from 1,100 to 3,100, G 1 from 3,000 to 4,500; a P is idle from 2,000 on, for both from 3,000 to 3,100.
    assert_eq!((s.latency.all.count(), s.latency.all.total()), (2, 2_000 + 1_500));
    assert_eq!((s.latency.idle, s.latency.stopped, s.latency.busy()), (1_050 + 1_450, 0, 1_000));
    let [first, second] = &s.latency.longest[..] else { panic!("{:?}", s.latency.longest) };
    assert_eq!((first.g, first.begin, first.ns, first.idle), (7, 1_100, 2_000, 1_050));
    assert_eq!((second.g, second.ns, second.idle), (1, 1_500, 1_450));
    // Somebody is runnable from 1,100 to 4,500.
    assert_eq!((s.procs.runnable, s.procs.idle_while_runnable, s.procs.lost), (3_400, 2_500, 2_500));
    let [p0, p1] = &s.procs.each[..] else { panic!("{:?}", s.procs.each) };
    assert_eq!((p0.running, p0.held, p0.idle, p0.starts), (1_999 + 900 + 1_500, 100 + 500, 0, 2));
    assert_eq!((p1.running, p1.held, p1.idle), (0, 999 + 1_000, 3_000));
    assert_eq!(s.procs.all().idle, 3_000);
}

/// A queue of four on two Ps, of which one is idle: half of the wait is the idle one's.
#[test]
fn idle_ps_could_have_taken_their_part_of_a_long_queue() {
    let trace = Trace::new().generation(1, |g| {
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(0, Ev::ProcStatus, &[1, P_IDLE]).after(10, Ev::ProcsChange, &[2, 0]);
        let m = (2..6).fold(m, |m, id| m.after(1, Ev::GoCreate, &[id, 0, 0])); // 1,011 to 1,014
        let m = m.after(986, Ev::GoDestroy, &[]).after(14, Ev::GoStart, &[5, 1]); // 2,000, 2,014
        m.after(1, Ev::HeapAlloc, &[1]).done();
    });
    let s = summary(&trace);
    let [wait] = &s.latency.longest[..] else { panic!("{:?}", s.latency.longest) };
    assert_eq!((wait.g, wait.ns, wait.idle), (5, 1_000, 500));
    assert_eq!(s.procs.lost, 2_015 - 1_011);
}

#[test]
fn a_p_beyond_gomaxprocs_is_not_idle() {
    let trace = Trace::new().generation(1, |g| {
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(0, Ev::ProcStatus, &[1, P_IDLE]).after(100, Ev::ProcsChange, &[1, 0]); // 1,100
        m.after(900, Ev::HeapAlloc, &[1]);
    });
    let s = summary(&trace);
    assert_eq!(s.procs.all().idle, 99);
}

#[test]
fn a_stopped_world_is_nobodys_fault() {
    let trace = Trace::new().generation(1, |g| {
        let stop = g.string(reason::STW_GOMAXPROCS);
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(0, Ev::ProcStatus, &[1, P_IDLE]).after(100, Ev::GoCreate, &[7, 0, 0]); // 1,100
        let m = m.after(100, Ev::StwBegin, &[stop, 0]).after(300, Ev::StwEnd, &[]); // 1,200, 1,500
        m.after(100, Ev::GoStop, &[2, 0]).after(0, Ev::GoStart, &[7, 1]); // 1,600
    });
    let s = summary(&trace);
    let [wait] = &s.latency.longest[..] else { panic!("{:?}", s.latency.longest) };
    // For the last ns, G 1 is another that waits.
    assert_eq!((wait.ns, wait.stopped, wait.idle), (501, 300, 200));
    assert_eq!(s.procs.stopped, 300);
}

#[test]
fn stacks_are_merged_across_generations() {
    let one = |order: [&'static str; 2]| {
        move |g: &mut Gen| {
            let recv = g.string(reason::CHAN_RECEIVE);
            let stacks = order.map(|func| {
                let (file, func) = (g.string("app.rs"), g.string(func));
                let id = g.stacks.len() as u64 + 1;
                g.stacks.push((id, vec![[0x70, func, file, 7]]));
                (func, id)
            });
            // The same PC stands for the first function in both generations.
            let wait = stacks[0].1;
            let (number, m) = (g.number, g.batch(0, g.number * 10_000));
            let m = m.after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
            let m = m.after(100, Ev::GoBlock, &[recv, wait]).after(100 * number, Ev::GoUnblock, &[1, 1, 0]);
            m.after(0, Ev::GoStart, &[1, 2]);
        }
    };
    let trace = Trace::new().generation(1, one(["app::a", "app::b"])).generation(2, one(["app::a", "app::c"]));
    let s = summary(&trace);
    let [waits] = &s.waits.by_stack[..] else { panic!("{:?}", s.waits.by_stack) };
    assert_eq!((waits.stat.count, waits.stat.total), (2, 100 + 200));
    assert_eq!(s.stacks.site(waits.stack).map(|frame| frame.func.to_string()), Some("app::a".into()));
    let [site] = &s.waits.by_site[..] else { panic!("{:?}", s.waits.by_site) };
    assert_eq!((&*site.func, site.line, site.stat.max), ("app::a", 7, 200));
}

#[test]
fn tasks_and_regions() {
    let trace = Trace::new().generation(1, |g| {
        let [request, parse, key, value, sleep] = ["request", "parse", "user", "smith", "sleep"].map(|s| g.string(s));
        let here = g.stack(&["rt::trace::region", "app::handle"]);
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(100, Ev::UserTaskBegin, &[5, 0, request, 0]); // 1,100
        let m = m.after(1, Ev::UserTaskBegin, &[6, 5, request, 0]);
        let m = m.after(99, Ev::UserRegionBegin, &[5, parse, here]); // 1,200
        let m = m.after(1, Ev::UserRegionBegin, &[5, parse, here]); // 1,201
        let m = m.after(99, Ev::GoBlock, &[sleep, here]).after(700, Ev::GoUnblock, &[1, 1, 0]); // 1,300, 2,000
        let m = m.after(50, Ev::GoStart, &[1, 2]).after(1, Ev::UserLog, &[5, key, value, 0]); // 2,050, 2,051
        let m = m.after(149, Ev::UserRegionEnd, &[5, parse, here]); // 2,200
        let m = m.after(100, Ev::UserRegionEnd, &[5, parse, here]); // 2,300
        let m = m.after(100, Ev::UserTaskEnd, &[5, 0]).after(1, Ev::UserLog, &[5, key, value, 0]); // 2,400, 2,401
        let m = m.after(1, Ev::UserRegionBegin, &[6, parse, 0]).after(598, Ev::HeapAlloc, &[1]); // 2,402, 3,000
        m.done();
    });
    let s = summary(&trace);
    let [group] = &s.users.tasks[..] else { panic!("{:?}", s.users.tasks) };
    assert_eq!((&*group.name, group.latency.count(), group.latency.open(), group.regions), ("request", 2, 1, 3));
    let [open, done] = &group.slowest[..] else { panic!("{:?}", group.slowest) };
    assert_eq!((open.id, open.parent, open.ns, open.open), (6, 5, 3_000 - 1_101, true));
    assert_eq!((open.spent.running, open.regions), (598, 1));
    assert_eq!((done.id, done.ns, done.children, done.begin), (5, 1_300, 1, Some(1_100)));
    // From 1,200 to 2,300; the region inside it counts once.
    assert_eq!((done.spent.running, done.spent.blocked, done.spent.runnable), (350, 700, 50));
    assert_eq!((done.goroutines.iter().copied().collect::<Vec<_>>(), done.logged), (vec![1], 1));
    assert_eq!((&*done.logs[0].key, &*done.logs[0].value, done.logs[0].g), ("user", "smith", 1));
    assert_eq!(s.users.logged_outside, 1);
    let [parse, elsewhere] = &s.users.regions[..] else { panic!("{:?}", s.users.regions) };
    assert_eq!((parse.latency.count(), parse.latency.total()), (2, 1_100 + 999));
    assert_eq!(parse.site.as_ref().map(|frame| &*frame.func), Some("app::handle"));
    assert_eq!((elsewhere.latency.open(), elsewhere.spent.running), (1, 598));
}

#[test]
fn groups_split_by_state_and_reason() {
    let s = summary(&waiting());
    let reader = s.goroutines.groups.iter().find(|g| &*g.name == "app::reader").expect("the group");
    assert_eq!((reader.running.count(), reader.runnable.count(), reader.runnable.max()), (2, 2, 500));
    let [(reason, waits)] = &reader.blocked[..] else { panic!("{:?}", reader.blocked) };
    assert_eq!((&**reason, waits.count(), waits.open(), waits.max()), ("chan receive", 2, 1, 6_500));
    assert_eq!(reader.all_blocked().total(), 7_600);
    let calls = &s.calls.by_site[..];
    assert_eq!((calls.len(), &*calls[0].reason, calls[0].stat.total), (1, "syscall", 1_000));
}

#[test]
fn a_goroutine_that_gets_its_name_late_is_counted_from_its_beginning() {
    let trace = Trace::new().generation(1, |g| {
        let stop = g.string(reason::GOSCHED);
        let here = g.stack(&["rt::yield_now", "app::worker"]);
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNABLE]);
        m.after(500, Ev::GoStart, &[1, 1]).after(200, Ev::GoStop, &[stop, here]).after(50, Ev::HeapAlloc, &[1]);
    });
    let s = summary(&trace);
    let [group] = &s.goroutines.groups[..] else { panic!("{:?}", s.goroutines.groups) };
    assert_eq!((&*group.name, group.count, group.alive), ("app::worker", 1, 1));
    assert_eq!((group.running.total(), group.runnable.total(), group.runnable.open()), (200, 499 + 50, 1));
    // The first wait began before the trace.
    assert_eq!(s.latency.all.count(), 0);
}

#[test]
fn gc_cycles_one_by_one() {
    let trace = Trace::new().generation(1, |g| {
        let [sweep, mark] = [reason::STW_GC_SWEEP_TERM, reason::STW_GC_MARK_TERM].map(|s| g.string(s));
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(0, Ev::ProcsChange, &[1, 0]).after(0, Ev::HeapAlloc, &[100]).after(0, Ev::HeapGoal, &[400]);
        let m = m.after(90, Ev::StwBegin, &[sweep, 0]).after(10, Ev::GcBegin, &[1, 0]).after(20, Ev::StwEnd, &[]);
        let m = m.after(10, Ev::GcMarkAssistBegin, &[0]).after(70, Ev::GcMarkAssistEnd, &[]);
        let m = m.after(100, Ev::GcEnd, &[2]).after(1, Ev::StwBegin, &[mark, 0]).after(39, Ev::StwEnd, &[]);
        let m = m.after(10, Ev::GcSweepBegin, &[0]).after(5, Ev::GcSweepEnd, &[4_096, 1_024]);
        m.after(50, Ev::GcBegin, &[3, 0]).after(60, Ev::HeapAlloc, &[300]);
    });
    let s = summary(&trace);
    let [first, second] = &s.world.cycles[..] else { panic!("{:?}", s.world.cycles) };
    assert_eq!((first.ns, first.stopped, first.assisted, first.open), (200, 30 + 39, 70, false));
    assert_eq!((first.heap, first.goal), (Some(100), Some(400)));
    assert_eq!((second.ns, second.open, s.world.gc.open()), (60, true, 1));
    assert_eq!((s.world.sweeps.total(), s.world.swept, s.world.heap_max), (5, (4_096, 1_024), 300));
    let group = &s.goroutines.groups[0];
    assert_eq!((group.assist.count(), group.assist.total()), (1, 70));

    let mut mmu = tracer::analyze::mmu::Builder::default();
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    while let Some(event) = reader.next() {
        mmu.event(&event.expect("the trace is good"), reader.tables());
    }
    let curve = mmu.finish();
    // Nothing is left during the stops and the assist, all else is.
    assert_eq!(curve.mmu(30).map(|(mmu, _)| mmu), Some(0.0));
    let taken = 30 + 70 + 39;
    let whole = curve.duration_ns();
    let mean = 1.0 - taken as f64 / whole as f64;
    assert!((curve.mmu(whole).expect("a curve").0 - mean).abs() < 1e-9, "{:?} {mean}", curve.changes());
}

/// The second generation breaks; what is open then ends there, and the third is a trace of its own.
#[test]
fn what_is_open_where_the_trace_breaks_ends_there() {
    let first = |g: &mut Gen| {
        let recv = g.string(reason::CHAN_RECEIVE);
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(0, Ev::ProcsChange, &[2, 0]).after(0, Ev::ProcStatus, &[1, P_IDLE]);
        let m = m.after(500, Ev::GoBlock, &[recv, 1]).after(100, Ev::GoCreate, &[7, 1, 0]); // 1,500, 1,600
        m.after(400, Ev::HeapAlloc, &[1]).done(); // 2,000
    };
    let second = |g: &mut Gen| {
        let m = g.batch(0, 3_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]);
        m.after(0, Ev::GoStart, &[99, 1]).done();
    };
    let third = |g: &mut Gen| {
        let m = g.batch(0, 50_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        m.after(100, Ev::HeapAlloc, &[2]).done(); // 50,100
    };
    let trace = Trace::new().generation(1, first).generation(2, second).generation(3, third);
    let mut salvage = Salvage::new(&trace.0[..]).expect("the header is good");
    let mut builder = Builder::new(salvage.version());
    let done = salvage.each(|event, info, tables| {
        match event {
            Some(event) => builder.event(event, info, tables),
            None => builder.gap(),
        }
        Ok::<(), std::convert::Infallible>(())
    });
    done.unwrap_or_else(|never| match never {});
    assert_eq!(salvage.report().damages, 1, "{}", salvage.report());
    let s = builder.finish();
    let gs = &s.goroutines;
    assert_eq!((gs.seen, gs.created, gs.lost, gs.alive(), gs.ended), (3, 1, 2, 1, 0));
    // The last event before the gap: the P's status in the second generation.
    let broken_at = 3_000 + 1;
    let stat = s.waits_for(reason::CHAN_RECEIVE).stat();
    assert_eq!((stat.count, stat.open), (1, 1));
    assert!((1_500..=broken_at - 1_500).contains(&stat.max), "{stat:?}");
    // Nothing is counted over the gap.
    let all: u128 = s.procs.each.iter().map(|p| p.running + p.held + p.idle + p.calls).sum();
    assert!(all <= 2 * (2_001 + 101), "{:?}", s.procs);
    assert_eq!(
        gs.groups.iter().map(|group| (group.count, group.alive)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (3, 1)
    );
    assert!(s.latency.all.count() == 0);
}

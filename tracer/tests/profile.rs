//! Profiles of traces whose every nanosecond is known.
#![cfg(feature = "read")]

mod common;

use common::*;
use tracer::analyze::profile::{Builder, Profile, ProfileKind};
use tracer::read::Reader;
use tracer::wire::{Ev, reason};

fn profile(trace: &Trace, builder: Builder) -> Profile {
    let mut builder = builder;
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    while let Some(event) = reader.next() {
        builder.event(&event.expect("the trace is good"), reader.tables());
    }
    builder.finish()
}

/// Count and ns by the innermost function.
fn flat(trace: &Trace, builder: Builder) -> Vec<(String, u64, u64)> {
    let profile = profile(trace, builder);
    let name = |stack| profile.stacks.frames(stack).next().map_or(String::new(), |(_, frame)| frame.func.to_string());
    let mut flat: Vec<_> = profile.records.iter().map(|r| (name(r.stack), r.count, r.ns)).collect();
    flat.sort();
    flat
}

fn row(func: &str, count: u64, ns: u64) -> (String, u64, u64) {
    (func.into(), count, ns)
}

/// G 1 runs from 1,000, receives from 1,100 to 1,300 and runs at 1,350, locks from 1,400 to 1,500, reads the network from
/// 1,600 to the end. G 7, made at 1,050, waits for its first turn until 1,100, and for the next from 1,200 to 1,500 (its
/// P runs G 1 meanwhile), and calls from 1,600 to 1,800.
fn busy() -> Trace {
    Trace::new().generation(1, |g| {
        let [recv, sync, net] = [reason::CHAN_RECEIVE, reason::SYNC, reason::NETWORK].map(|s| g.string(s));
        let [chan, lock, read, make, wake, call, stop] =
            ["chan", "lock", "read", "make", "wake", "call", "stop"].map(|func| g.stack(&[func, "app"]));
        let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(50, Ev::GoCreate, &[7, 1, make]).after(50, Ev::GoBlock, &[recv, chan]); // 1,050, 1,100
        let m = m.after(1, Ev::GoStart, &[7, 1]).after(99, Ev::GoStop, &[2, stop]); // 1,101, 1,200
        let m = m.after(100, Ev::GoUnblock, &[1, 1, wake]).after(50, Ev::GoStart, &[1, 2]); // 1,300, 1,350
        let m = m.after(50, Ev::GoBlock, &[sync, lock]).after(100, Ev::GoUnblock, &[1, 3, wake]); // 1,400, 1,500
        let m = m.after(1, Ev::GoStart, &[1, 4]).after(99, Ev::GoBlock, &[net, read]); // 1,501, 1,600
        let m = m.after(1, Ev::GoStart, &[7, 2]).after(9, Ev::GoSyscallBegin, &[1, call]); // 1,601, 1,610
        m.after(190, Ev::GoSyscallEnd, &[]).after(200, Ev::HeapAlloc, &[1]).done(); // 1,800, 2,000
    })
}

#[test]
fn what_go_counts() {
    let of = |kind| flat(&busy(), Builder::new(kind));
    assert_eq!(of(ProfileKind::Sync), [row("chan", 1, 200), row("lock", 1, 100)]);
    assert_eq!(of(ProfileKind::Chan), [row("chan", 1, 200)]);
    // Open at the end.
    assert_eq!(of(ProfileKind::Net), []);
    assert_eq!(of(ProfileKind::Syscall), [row("call", 1, 190)]);
    // The first turn of G 7 does not count.
    assert_eq!(of(ProfileKind::Sched), [row("stop", 1, 401), row("wake", 2, 50 + 1)]);
    let running = of(ProfileKind::Running);
    // Of G 1 since its status, at 1,002.
    let expected = [row("call", 1, 9), row("chan", 1, 98), row("lock", 1, 50), row("read", 1, 99), row("stop", 1, 99)];
    assert_eq!(running, expected);
}

#[test]
fn what_go_leaves_out() {
    let of = |kind| flat(&busy(), Builder::new(kind).complete());
    assert_eq!(of(ProfileKind::Net), [row("read", 1, 400)]);
    assert_eq!(of(ProfileKind::Sched), [row("make", 1, 51), row("stop", 1, 401), row("wake", 2, 51)]);
    // G 7 runs at the end, nobody knows until where.
    assert!(of(ProfileKind::Running).contains(&row("", 1, 200)), "{:?}", of(ProfileKind::Running));
}

/// A call that began before the trace counts only if its goroutine never runs in it: as in Go.
#[test]
fn calls_from_before() {
    let trace = |runs: bool| {
        Trace::new().generation(1, |g| {
            let here = g.stack(&["call", "app"]);
            let m = g.batch(1, 1_100).after(0, Ev::GoStatusStack, &[7, 1, SYSCALL, here]);
            m.after(300, Ev::GoSyscallEndBlocked, &[]).done(); // 1,400
            let m = g.batch(0, 1_000).after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(1_000, Ev::HeapAlloc, &[1]);
            m.ev_if(runs, Ev::GoStart, &[7, 1]).done();
        })
    };
    assert_eq!(flat(&trace(false), Builder::new(ProfileKind::Syscall)), [row("call", 1, 300)]);
    assert_eq!(flat(&trace(true), Builder::new(ProfileKind::Syscall)), []);
    // From the first event on.
    assert_eq!(flat(&trace(true), Builder::new(ProfileKind::Syscall).complete()), [row("call", 1, 399)]);
}

#[test]
fn stacks_of_all_generations_are_one() {
    let one = |g: &mut Gen| {
        let recv = g.string(reason::CHAN_RECEIVE);
        // The ids differ.
        for i in 0..g.number {
            g.string(&format!("filler {i}"));
        }
        let file = g.string("app.rs");
        let func = g.string("app::wait");
        let id = 100 * g.number;
        g.stacks.push((id, vec![[0x77, func, file, 3]]));
        let m = g.batch(0, g.number * 10_000);
        let m = m.after(0, Ev::ProcStatus, &[0, P_RUNNING]).after(0, Ev::GoStatus, &[1, 0, RUNNING]);
        let m = m.after(100, Ev::GoBlock, &[recv, id]).after(100, Ev::GoUnblock, &[1, 1, 0]);
        m.after(0, Ev::GoStart, &[1, 2]).done();
    };
    let trace = (1..=4).fold(Trace::new(), |trace, number| trace.generation(number, one));
    assert_eq!(flat(&trace, Builder::new(ProfileKind::Sync)), [row("app::wait", 4, 400)]);
    let sched = profile(&trace, Builder::new(ProfileKind::Sched));
    assert_eq!(sched.total(), (4, 4));
    assert_eq!(sched.records.len(), 1);
}

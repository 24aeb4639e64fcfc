//! The second opinion: a good trace has no findings; each way to spoil its events is found for what it is.
#![cfg(feature = "read")]

mod common;

use common::*;
use tracer::read::validate::{Check, Findings, Validator, validate};
use tracer::read::{Event, Reader, Resource, Tables};
use tracer::wire::{Ev, NO_M};

fn opinion(events: &[Event]) -> Findings {
    let mut validator = Validator::default();
    for event in events {
        if event.kind != Ev::CpuSample {
            validator.event(event, &Tables::default());
        }
    }
    validator.finish()
}

fn good() -> Vec<Event> {
    let (events, error) = read(&rich());
    assert!(error.is_none(), "{}", error.unwrap());
    assert_eq!(opinion(&events).first, []);
    events
}

/// Where the `n`th event of this kind is.
fn place(events: &[Event], kind: Ev, n: usize) -> usize {
    let mut places = events.iter().enumerate().filter(|(_, event)| event.kind == kind);
    places.nth(n).unwrap_or_else(|| panic!("no {} number {n}", kind.name())).0
}

/// Spoils the good trace and says what is found first.
fn spoil(spoil: impl FnOnce(&mut Vec<Event>)) -> (Check, Resource) {
    let mut events = good();
    spoil(&mut events);
    let findings = opinion(&events);
    let first = findings.first.first().expect("something is found");
    assert!(!first.to_string().is_empty());
    (first.check, first.resource)
}

#[test]
fn an_event_is_missing() {
    let without = |kind: Ev, n: usize| {
        spoil(move |events| {
            events.remove(place(events, kind, n));
        })
    };
    assert_eq!(without(Ev::GoUnblock, 0), (Check::GState, Resource::G(7)));
    assert_eq!(without(Ev::GoCreate, 0), (Check::GFirst, Resource::G(7)));
    assert_eq!(without(Ev::GoStart, 0), (Check::Context, Resource::M(1)));
    assert_eq!(without(Ev::ProcStop, 0), (Check::Context, Resource::M(1)));
    assert_eq!(without(Ev::ProcSteal, 0), (Check::Context, Resource::M(0)));
    assert_eq!(without(Ev::GoSyscallBegin, 0), (Check::Steal, Resource::P(0)));
    // In the second generation: P 1, P 0, G 100, G 7.
    assert_eq!(without(Ev::ProcStatus, 2), (Check::PCensus, Resource::P(1)));
    assert_eq!(without(Ev::ProcStatus, 3), (Check::PCensus, Resource::P(0)));
    assert_eq!(without(Ev::GoStatus, 1), (Check::GFirst, Resource::G(100)));
    assert_eq!(without(Ev::GoStatusStack, 0), (Check::GCensus, Resource::G(7)));
}

#[test]
fn an_event_is_repeated() {
    let twice = |kind: Ev, n: usize| {
        spoil(move |events| {
            let at = place(events, kind, n);
            events.insert(at, events[at]);
        })
    };
    assert_eq!(twice(Ev::GoStatus, 1), (Check::GFirst, Resource::G(100)));
    assert_eq!(twice(Ev::ProcStatus, 3), (Check::PFirst, Resource::P(0)));
    assert_eq!(twice(Ev::GoCreate, 0), (Check::GFirst, Resource::G(7)));
    assert_eq!(twice(Ev::GoUnblock, 0), (Check::GState, Resource::G(7)));
}

#[test]
fn an_event_is_on_another_m() {
    // P 0 is in M 0's blocking call when another M takes it, and its goroutine with it.
    let found = spoil(|events| {
        let at = place(events, Ev::GoSyscallBegin, 0);
        let status = Event { kind: Ev::GoStatus, m: 5, args: [100, 5, RUNNING, 0], ..events[at] };
        events.insert(at, status);
    });
    assert_eq!(found, (Check::GFirst, Resource::G(100)));
    let mut events = good();
    let at = place(&events, Ev::ProcStatus, 2);
    let event = Event { m: 5, ..events[at] };
    events.insert(at + 1, event);
    let findings = opinion(&events);
    assert!(findings.first.iter().any(|f| (f.check, f.resource) == (Check::PHolder, Resource::P(1))), "{findings:?}");

    let mut events = good();
    let at = place(&events, Ev::GoStatus, 0);
    let event = Event { m: 5, ..events[at] };
    events.insert(at + 1, event);
    let findings = opinion(&events);
    assert!(findings.first.iter().any(|f| (f.check, f.resource) == (Check::GHolder, Resource::G(100))), "{findings:?}");
}

#[test]
fn a_p_is_left_by_nobody() {
    let found = spoil(|events| {
        let at = place(events, Ev::ProcStop, 0);
        let idle = Event { kind: Ev::ProcStart, args: [1, 9, 0, 0], ..events[at] };
        events.insert(at, idle);
    });
    assert_eq!(found, (Check::PState, Resource::P(1)));
}

#[test]
fn time_goes_back() {
    let found = spoil(|events| {
        let at = place(events, Ev::UserLog, 0);
        events[at].file_time -= 1_000;
    });
    assert_eq!(found, (Check::MTime, Resource::M(0)));
    // From one generation to the next it may: each has its own frequency.
    let mut events = good();
    let at = place(&events, Ev::Sync, 1);
    for event in &mut events[at..] {
        event.file_time -= 900_000;
    }
    assert_eq!(opinion(&events).first, []);
}

#[test]
fn a_sample_without_its_stack() {
    for (stack, total) in [(1, 0), (0, 0), (99, 1)] {
        let trace = Trace::new().generation(1, |g| g.samples.push([1, 0, 0, 0, stack]));
        let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
        let (findings, error) = validate(&mut reader);
        assert!(error.is_none());
        assert_eq!(findings.total, total, "{stack}");
        assert!(findings.first.iter().all(|f| f.check == Check::SampleStack));
    }
}

#[test]
fn ps_beyond_gomaxprocs_need_no_status() {
    let trace = |procs: u64| {
        let first = |g: &mut Gen| {
            g.running(0).ev(Ev::ProcsChange, &[2, 0]).ev(Ev::ProcStatus, &[1, P_IDLE]);
        };
        Trace::new().generation(1, first).generation(2, |g| g.running(0).ev(Ev::ProcsChange, &[procs, 0]).done()).0
    };
    for (procs, total) in [(1, 0), (2, 1)] {
        let trace = trace(procs);
        let (findings, error) = validate(&mut Reader::new(&trace[..]).expect("the header is good"));
        assert!(error.is_none());
        assert_eq!(findings.total, total, "{findings:?}");
    }
}

#[test]
fn findings_are_counted_beyond_what_is_kept() {
    let trace = Trace::new().generation(1, |g| {
        let mut m = g.m(0);
        for id in 0..1_000 {
            m = m.ev(Ev::GoStatus, &[id, NO_M, WAITING]);
        }
    });
    let trace = trace.generation(2, |_| {}).0;
    let (findings, _) = validate(&mut Reader::new(&trace[..]).expect("the header is good"));
    assert_eq!(findings.total, 1_000);
    assert!(findings.first.len() < 100);
}

/// Everything that is found in a trace, by its check.
fn found(trace: &[u8]) -> Vec<(Check, Resource)> {
    let mut reader = Reader::new(trace).expect("the header is good");
    let (findings, error) = validate(&mut reader);
    assert!(error.is_none(), "{}", error.unwrap());
    findings.first.iter().map(|finding| (finding.check, finding.resource)).collect()
}

#[test]
fn a_goroutine_runs_without_a_p() {
    let trace = Trace::new().generation(1, |g| {
        g.running(0).ev(Ev::ProcStop, &[]).ev(Ev::ProcStart, &[0, 1]).ev(Ev::GoStop, &[1, 1]).done();
    });
    assert_eq!(found(&trace.0), [(Check::Running, Resource::G(100))]);
    let mut events = good();
    let at = place(&events, Ev::GoStart, 0);
    events[at].p = -1;
    assert!(opinion(&events).first.iter().any(|finding| finding.check == Check::Running));
    let mut events = good();
    // P 1 is taken from M 1, which runs G 7, instead of given up after it has blocked.
    let (at, stop) = (place(&events, Ev::GoBlock, 0), place(&events, Ev::ProcStop, 0));
    let theft = Event { kind: Ev::ProcSteal, m: 2, p: -1, g: 100, args: [1, 1, 1, 0], ..events[stop] };
    events.insert(at, theft);
    assert!(opinion(&events).first.iter().any(|finding| finding.check == Check::Steal), "{:?}", opinion(&events));
}

#[test]
fn ranges_that_do_not_fit() {
    for (begin, end) in
        [(Ev::GcSweepBegin, Ev::GcSweepEnd), (Ev::GcMarkAssistBegin, Ev::GcMarkAssistEnd), (Ev::StwBegin, Ev::StwEnd)]
    {
        // The first event is missing, or is there twice.
        let (check, _) = spoil(|events| _ = events.remove(place(events, begin, 0)));
        assert_eq!(check, Check::Range, "{}", begin.name());
        for kind in [begin, end] {
            let (check, _) = spoil(|events| {
                let at = place(events, kind, 0);
                events.insert(at, events[at]);
            });
            assert_eq!(check, Check::Range, "{}", kind.name());
        }
    }
    let (check, resource) = spoil(|events| _ = events.remove(place(events, Ev::GcEnd, 0)));
    assert_eq!((check, resource), (Check::RangeCensus, Resource::Trace));
    let (check, resource) = spoil(|events| _ = events.remove(place(events, Ev::GcSweepEnd, 0)));
    assert_eq!((check, resource), (Check::RangeCensus, Resource::P(1)));
}

#[test]
fn generations_and_clocks_go_on() {
    let clock = |g: &mut Gen, snapshot: Vec<u8>| {
        g.sync[0] = [vec![Ev::Sync as u8], frequency(1_000_000_000), snapshot].concat();
    };
    let at = |mono: u64| event(Ev::ClockSnapshot, &[5, mono, 1_700_000_000, 9]);
    let good = Trace::new().generation(1, |g| clock(g, at(100))).generation(2, |g| clock(g, at(200)));
    assert_eq!(found(&good.0), []);
    let back = good.generation(3, |g| clock(g, at(199)));
    assert_eq!(found(&back.0), [(Check::Clocks, Resource::Generation(3))]);
    let gap = back.generation(5, |g| clock(g, at(300)));
    assert_eq!(found(&gap.0)[1..], [(Check::Numbers, Resource::Generation(5))]);
}

#[test]
fn the_end_of_a_callback_that_had_a_p() {
    let trace = Trace::new().generation(1, |g| {
        g.m(0)
            .ev(Ev::ProcStatus, &[0, P_IDLE])
            .ev(Ev::GoCreateSyscall, &[5])
            .ev(Ev::ProcStart, &[0, 1])
            .ev(Ev::GoSyscallEndBlocked, &[])
            .ev(Ev::GoStart, &[5, 1])
            .ev(Ev::GoSyscallBegin, &[2, 0])
            .ev(Ev::GoDestroySyscall, &[])
            .done();
    });
    assert_eq!(found(&trace.0), []);
}

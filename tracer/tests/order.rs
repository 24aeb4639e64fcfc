//! The order that the reader finds, and the context that it gives.
#![cfg(feature = "read")]

mod common;

use common::*;
use tracer::read::{Event, Kind, NONE, Prior, Reader, State, Transition};
use tracer::wire::{Ev, NO_M};

/// The kinds of events, without the boundaries.
fn kinds(events: &[Event]) -> Vec<Ev> {
    events.iter().map(|event| event.kind).filter(|&kind| kind != Ev::Sync).collect()
}

fn good(trace: &Trace) -> Vec<Event> {
    let (events, error) = read(&trace.0);
    assert!(error.is_none(), "{}", error.unwrap());
    events
}

#[test]
fn state_tells_the_order_where_times_lie() {
    // M 1's clock is far behind: it starts, blocks and is woken before M 0 has created.
    let trace = Trace::new().generation(1, |g| {
        let m = g.batch(0, 1_000_000).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GoStatus, &[1, 0, RUNNING]);
        m.ev(Ev::GoCreate, &[7, 0, 0]).ev(Ev::GoUnblock, &[7, 2, 0]).ev(Ev::GoBlock, &[1, 0]).ev(Ev::ProcStop, &[]);
        let m = g.batch(1, 1_000).ev(Ev::ProcStatus, &[1, P_RUNNING]).ev(Ev::GoStart, &[7, 1]).ev(Ev::GoBlock, &[1, 0]);
        m.ev(Ev::GoStart, &[7, 3]).ev(Ev::GoUnblock, &[1, 1, 0]).ev(Ev::GoDestroy, &[]);
    });
    let events = good(&trace);
    use Ev::*;
    let expected = [
        ProcStatus, ProcStatus, GoStatus, GoCreate, GoStart, GoBlock, GoUnblock, GoStart, GoBlock, GoUnblock,
        GoDestroy, ProcStop,
    ];
    assert_eq!(kinds(&events), expected);
    assert!(events.windows(2).all(|w| w[0].time < w[1].time), "given times increase");
    assert!(events.windows(2).any(|w| w[0].file_time > w[1].file_time), "the file's do not");
}

#[test]
fn an_event_has_the_context_before_it() {
    let trace = Trace::new().generation(1, |g| {
        let m =
            g.m(5).ev(Ev::ProcStatus, &[2, P_IDLE]).ev(Ev::GoStatus, &[9, NO_M, RUNNABLE]).ev(Ev::ProcStart, &[2, 1]);
        m.ev(Ev::GoStart, &[9, 1]).ev(Ev::GoLabel, &[1]).ev(Ev::GoBlock, &[2, 1]).ev(Ev::ProcStop, &[]);
    });
    let context: Vec<_> = good(&trace)[1..8].iter().map(|e| (e.m, e.p, e.g)).collect();
    assert_eq!(
        context,
        [(5, NONE, NONE), (5, NONE, NONE), (5, NONE, NONE), (5, 2, NONE), (5, 2, 9), (5, 2, 9), (5, 2, NONE)]
    );
}

#[test]
fn a_steal_frees_the_victim() {
    let trace = Trace::new().generation(1, |g| {
        let m = g.running(0).ev(Ev::GoSyscallBegin, &[1, 1]).ev(Ev::GoSyscallEndBlocked, &[]);
        m.after(100_000, Ev::ProcStart, &[0, 3]);
        g.batch(1, 5_000_000).ev(Ev::ProcSteal, &[0, 2, 0]);
    });
    let events = good(&trace);
    use Ev::*;
    assert_eq!(kinds(&events), [ProcStatus, GoStatus, GoSyscallBegin, ProcSteal, GoSyscallEndBlocked, ProcStart]);
    assert_eq!(events[4].transition(), Some(Transition::P { id: 0, from: State::Running, to: State::Idle }));
    assert_eq!((events[5].p, events[5].g), (NONE, 100), "the victim has lost its P");
}

#[test]
fn an_abandoned_p_is_known_again_if_its_call_is() {
    // The P's call is known, so whoever tells of it does so in the context of its M.
    let trace = Trace::new().generation(1, |g| {
        g.batch(0, 100)
            .ev(Ev::ProcStatus, &[0, P_RUNNING])
            .ev(Ev::GoStatus, &[1, 0, RUNNING])
            .ev(Ev::GoSyscallBegin, &[1, 0]);
        g.batch(1, 500).ev(Ev::ProcStatus, &[0, P_ABANDONED]).ev(Ev::ProcSteal, &[0, 1, 0]);
    });
    let status = good(&trace)[4];
    assert_eq!((status.kind, status.m, status.p, status.g), (Ev::ProcStatus, 0, 0, 1));
    assert_eq!(status.args[1], P_SYSCALL);
    assert_eq!(status.transition(), Some(Transition::P { id: 0, from: State::Running, to: State::Running }));
    // It is not known, so nothing is lost with it.
    let trace = Trace::new().generation(1, |g| {
        g.batch(1, 500).ev(Ev::ProcStatus, &[0, P_ABANDONED]).ev(Ev::ProcSteal, &[0, 1, 77]);
    });
    let steal = good(&trace)[2];
    assert_eq!(steal.prior, Prior::Idle);
    assert_eq!(steal.transition(), Some(Transition::P { id: 0, from: State::Idle, to: State::Idle }));
}

#[test]
fn a_switch_is_told_as_three_events() {
    let trace = Trace::new().generation(1, |g| {
        let m = g.running(0).ev(Ev::GoCreateBlocked, &[8, 0, 0]).ev(Ev::GoSwitch, &[8, 1]);
        m.ev(Ev::GoSwitchDestroy, &[100, 1]);
    });
    let events = good(&trace);
    use Ev::*;
    let expected =
        [ProcStatus, GoStatus, GoCreateBlocked, GoSwitch, GoBlock, GoStart, GoSwitchDestroy, GoDestroy, GoStart];
    assert_eq!(kinds(&events), expected);
    let at = |i: usize| events[i + 1];
    assert_eq!(at(3).transition(), Some(Transition::G { id: 8, from: State::Waiting, to: State::Runnable }));
    assert_eq!((at(4).g, at(5).g, at(5).args[0]), (100, NONE, 8));
    assert_eq!(at(7).transition(), Some(Transition::G { id: 8, from: State::Running, to: State::NotExist }));
}

#[test]
fn a_callback_that_ends_lets_its_p_go() {
    let trace = Trace::new().generation(1, |g| {
        let m = g.m(3).ev(Ev::GoCreateSyscall, &[7]).ev(Ev::ProcStatus, &[0, P_SYSCALL]);
        m.ev(Ev::GoDestroySyscall, &[]).ev(Ev::GoCreateSyscall, &[8]);
        // The id of M 3 is another's by now.
        g.batch(4, 9_000_000).ev(Ev::ProcSteal, &[0, 1, 3]);
    });
    let events = good(&trace);
    use Ev::*;
    assert_eq!(kinds(&events), [GoCreateSyscall, ProcStatus, ProcSteal, GoDestroySyscall, GoCreateSyscall, ProcSteal]);
    assert_eq!(events[5].p, NONE);
}

#[test]
fn the_end_of_a_stop_has_its_reason() {
    let trace = Trace::new().generation(1, |g| {
        let reason = g.string("GOMAXPROCS");
        g.running(0).ev(Ev::StwBegin, &[reason, 1]).ev(Ev::StwEnd, &[]);
    });
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    let end = reader.by_ref().map(|e| e.expect("good")).find(|e| e.kind == Ev::StwEnd).expect("a stop");
    assert_eq!(end.text(reader.tables()).as_deref(), Some("GOMAXPROCS"));
}

#[test]
fn events_have_their_words_and_stacks() {
    let trace = Trace::new().generation(1, |g| {
        let stack = g.stack(&["inner", "outer"]);
        g.running(0).ev(Ev::GoBlock, &[3, stack]);
    });
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    let block = reader.by_ref().map(|e| e.expect("good")).find(|e| e.kind == Ev::GoBlock).expect("a block");
    assert_eq!(block.text(reader.tables()).as_deref(), Some("three"));
    assert_eq!(block.category(), Kind::StateTransition);
    let frames: Vec<_> =
        reader.tables().stack(block.stack()).map(|f| (f.func.into_owned(), f.file.into_owned())).collect();
    assert_eq!(frames, [("inner".into(), "app.rs".into()), ("outer".into(), "app.rs".into())]);
    assert_eq!(trace.0[block.offset as usize], Ev::GoBlock as u8);
    let snapshot = reader.tables().clock_snapshot().expect("1.26 has one");
    assert_eq!(
        (snapshot.trace_ns, snapshot.mono_ns, snapshot.wall_sec, snapshot.wall_nsec),
        (1_000_005, 77, 1_700_000_000, 9)
    );
}

#[test]
fn samples_come_between_events_by_time() {
    let trace = Trace::new().generation(1, |g| {
        g.batch(0, 1_000).ev(Ev::ProcStatus, &[0, P_RUNNING]).after(100, Ev::ProcStop, &[]);
        g.samples.extend([[1_050, 0, 0, 0, 1], [5_000, 0, 0, 3, 1], [1_020, 0, 0, 2, 0]]);
    });
    let events = good(&trace);
    use Ev::*;
    assert_eq!(kinds(&events), [ProcStatus, CpuSample, CpuSample, ProcStop, CpuSample]);
    assert_eq!([events[2].g, events[3].g, events[5].g], [2, NONE, 3]);
    assert_eq!((events[3].stack(), events[3].time), (1, 1_050));
}

#[test]
fn one_pc_is_one_frame() {
    let trace = Trace::new().generation(1, |g| {
        g.stacks.push((2, vec![[0x10, 3, 3, 99], [0x11, 3, 2, 5]]));
        g.running(0).ev(Ev::GoStop, &[1, 2]);
    });
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    assert!(reader.by_ref().all(|e| e.is_ok()));
    let frames: Vec<_> = reader.tables().stack(2).map(|f| (f.func.into_owned(), f.line)).collect();
    assert_eq!(frames, [("one".into(), 7), ("three".into(), 5)], "the first to name PC 0x10 was stack 1");
}

#[test]
fn every_generation_begins_with_a_sync_and_the_trace_ends_with_one() {
    let empty = good(&Trace::new());
    assert_eq!(empty.len(), 1);
    let trace = Trace::new().generation(3, |_| {}).generation(4, |g| g.running(0).done()).generation(9, |_| {});
    let events = good(&trace);
    let syncs: Vec<u64> = events.iter().filter(|e| e.kind == Ev::Sync).map(|e| e.args[0]).collect();
    assert_eq!(syncs, [1, 2, 3, 4]);
    assert_eq!(events.len(), 6);
}

#[test]
fn times_are_converted_by_the_frequency_of_the_generation() {
    let trace = Trace::new().generation(1, |g| {
        g.sync[0] = [vec![Ev::Sync as u8], frequency(2_000_000_000), snapshot()].concat();
        g.batch(0, 1_000).after(500, Ev::ProcStatus, &[0, P_RUNNING]).after(11, Ev::ProcStop, &[]);
    });
    let times: Vec<i64> = good(&trace).iter().filter(|e| e.kind != Ev::Sync).map(|e| e.file_time).collect();
    assert_eq!(times, [750, 755]);
}

#[test]
fn extension_records_are_read_and_change_nothing() {
    let trace = rich();
    let mut reader = Reader::new(&trace[..]).expect("the header is good");
    reader.next();
    let records: Vec<_> = reader.tables().ext_records().map(|r| r.expect("good").time).collect();
    assert_eq!(records, [1_000_200, 1_000_300]);
}

#[test]
fn older_versions_are_read() {
    for (header, since) in [(b"go 1.22 trace\0\0\0", 22), (b"go 1.23 trace\0\0\0", 23), (b"go 1.25 trace\0\0\0", 25)] {
        let mut trace = Trace::version(header);
        for number in 1..=2 {
            let mut all = Vec::new();
            let status = [event(Ev::ProcStatus, &[1, 0, P_RUNNING]), event(Ev::GoStatus, &[1, 1, 0, RUNNING])].concat();
            put_batch(&mut all, number, 0, 10 * number, &status);
            let sync = if since < 25 {
                frequency(1_000_000_000)
            } else {
                [vec![Ev::Sync as u8], frequency(1_000_000_000), snapshot()].concat()
            };
            put_batch(&mut all, number, NO_M, 10 * number, &sync);
            trace = trace.raw(&all);
        }
        let events = good(&trace);
        assert_eq!(events.len(), 3 + 4, "{since}");
        let mut cut = trace.0.clone();
        cut.pop();
        let (events, error) = read(&cut);
        assert!(error.is_some(), "{since}");
        assert_eq!(events.len(), 1 + 2 + 1, "{since}: the first generation, and the boundary after it");
    }
}

/// Gives a byte at a time, and says no when more is asked of it than has been given free.
struct Live<'a> {
    bytes: &'a [u8],
    free: std::rc::Rc<std::cell::Cell<usize>>,
}

impl std::io::Read for Live<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        assert!(self.free.get() > 0, "the reader wants bytes that it does not need yet");
        self.free.set(self.free.get() - 1);
        let n = self.bytes.len().min(1);
        buf[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes = &self.bytes[n..];
        Ok(n)
    }
}

#[test]
fn a_live_generation_is_told_as_soon_as_it_is_whole() {
    let first = Trace::new().generation(1, |g| g.running(0).ev(Ev::GoStop, &[1, 1]).done());
    let first_bytes = first.0.len();
    let whole = first.generation(2, |g| g.running(1).done());
    let free = std::rc::Rc::new(std::cell::Cell::new(first_bytes));
    let live = Live { bytes: &whole.0, free: free.clone() };
    let mut reader = Reader::new(live).expect("the header is good");
    for kind in [Ev::Sync, Ev::ProcStatus, Ev::GoStatus, Ev::GoStop] {
        assert_eq!(reader.next().map(|e| e.expect("good").kind), Some(kind));
    }
    free.set(usize::MAX);
    assert_eq!(reader.by_ref().map(|e| e.expect("the statuses are of new Ps and Ms").kind).next(), Some(Ev::Sync));
}

//! What a goroutine waits for, as a dump and the trace tell it: one for each way to wait in `rt::sync`, and for a future.

mod common;

use std::future::pending;
use std::sync::Arc;

use common::{CONFIGURATIONS, events, judge, program, scratch_file};
use rt::sync::{Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup};
use tracer::wire::{Ev, reason};

programs!(everybody_waits);

fn start(name: &str, life: impl FnOnce() + Send + 'static) {
    rt::Builder::new().name(name).spawn(life).unwrap();
    // Each has begun to wait before the next one comes.
    (0..10).for_each(|_| rt::yield_now());
}

fn everybody_waits() {
    rt::run(|| {
        let read = Arc::new(RwLock::new(()));
        let written = Arc::new(RwLock::new(()));
        let (_reading, _writing) = (read.read(), written.write());
        let r = read.clone();
        start("writes", move || drop(r.write()));
        let r = read.clone();
        start("writes second", move || drop(r.write()));
        let w = written.clone();
        start("reads", move || drop(w.read()));
        let lock = Arc::new(Mutex::new(()));
        let condvar = Arc::new((Mutex::new(()), Condvar::new()));
        let (c, l) = (condvar.clone(), lock.clone());
        let _locked = lock.lock();
        start("locks", move || drop(l.lock()));
        start("is notified", move || drop(c.1.wait(c.0.lock())));
        start("begins once", || {
            static ONCE: Once = Once::new();
            start("comes late", || ONCE.wait());
            ONCE.call_once(|| ONCE.wait());
        });
        start("sets", || {
            static CELL: OnceLock<u32> = OnceLock::new();
            CELL.get_or_init(|| *CELL.wait());
        });
        start("acquires", || drop(Semaphore::new(1).acquire_many(2)));
        start("arrives", || _ = Barrier::new(2).wait());
        start("polls", || rt::block_on(pending()));
        let group = WaitGroup::new();
        group.add(1);
        group.wait();
    });
}

#[test]
fn everything_has_its_name() {
    let expected = [
        ("main", reason::SYNC, "wait group"),
        ("writes", reason::SYNC, "read-write lock"),
        ("writes second", reason::SYNC, "read-write lock"),
        ("reads", reason::SYNC, "read-write lock"),
        ("locks", reason::SYNC, "mutex"),
        ("is notified", reason::COND_WAIT, "condition variable"),
        ("begins once", reason::SYNC, "once"),
        ("comes late", reason::SYNC, "once"),
        ("sets", reason::SYNC, "once"),
        ("acquires", reason::SYNC, "semaphore"),
        ("arrives", reason::SYNC, "barrier"),
        ("polls", reason::SYNC, "future"),
    ];
    for env in CONFIGURATIONS {
        let path = scratch_file("wait_reasons.trace");
        let ended = program("everybody_waits", &[env, &[("RT_TRACE", path.to_str().unwrap())]].concat());
        ended.expect_code(2);
        for (name, why, kind) in expected {
            let quoted = format!("{name:?}");
            let line = ended.stderr.lines().find(|l| l.starts_with("goroutine ") && l.contains(&quoted));
            let line = line.unwrap_or_else(|| ended.fail(&format!("{name} is not in the report")));
            ended.expect(&format!("{name}: {why}, {kind}"), line.contains(why) && line.contains(kind));
        }
        let trace = std::fs::read(&path).unwrap();
        judge("wait_reasons", &trace);
        let mut in_wait = false;
        events(&trace, |event, tables| {
            let is_cond = event.kind == Ev::GoBlock && event.text(tables).is_some_and(|t| t == reason::COND_WAIT);
            in_wait |= is_cond && tables.stack(event.stack()).any(|f| f.func.contains("everybody_waits"));
        });
        assert!(in_wait, "nobody blocks for {}", reason::COND_WAIT);
        std::fs::remove_file(path).unwrap();
    }
}

//! The threads that write what triggers ask for: the keeper writes, the flusher ends the present generation for it.
//!
//! - KE1: they are made when the first trigger is armed, so that nothing has to be made when it matters. While they sleep they wake nobody,
//!   and the deadlock report counts them as ours; while one works there is no report.
//! - KE2: ending a generation needs the scheduler, which may be what is broken. So the flusher asks for it, and the keeper waits for
//!   that no longer than it can afford, and then writes the whole generations that there are. It waits longer when the generation has been
//!   changed and is only to be put together, which may take a while when the machine is busy.
//! - KE3: neither calls the program's logger, which may hang or send: the reporter does.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracer::clock::mono_ns;
use tracer::record;

use crate::sched::{advance, tripwire};
use crate::trace::{BUSY, Counted};

/// How long a generation's end is waited for, and how long until it is put together (KE2).
const CHANGE: Duration = Duration::from_secs(4);
const WHOLE: Duration = Duration::from_secs(8);

/// What the flusher is asked for and has done.
struct Flushes {
    wanted: u64,
    done: u64,
    tid: u64,
}

static FLUSHES: Mutex<Flushes> = Mutex::new(Flushes { wanted: 0, done: 0, tid: 0 });
static CHANGED: Condvar = Condvar::new();

/// Which of the threads there are.
struct Threads {
    keeper: bool,
    flusher: bool,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { keeper: false, flusher: false });

/// Makes the threads, if they are not there (KE1).
pub(super) fn start() -> io::Result<()> {
    let mut threads = THREADS.lock();
    let make = |name: &str, life: fn()| std::thread::Builder::new().name(name.into()).spawn(life).map(drop);
    if !threads.flusher {
        make("gort-flush", flusher)?;
        threads.flusher = true;
    }
    if !threads.keeper {
        make("gort-keeper", || tripwire::keep())?;
        threads.keeper = true;
    }
    Ok(())
}

/// How many there are.
pub(crate) fn threads() -> usize {
    let threads = THREADS.lock();
    usize::from(threads.keeper) + usize::from(threads.flusher)
}

/// How many there are that sleep (KE1).
pub(crate) fn sleeping_threads() -> usize {
    let flushes = FLUSHES.lock();
    let flusher = flushes.tid != 0 && flushes.wanted == flushes.done;
    usize::from(flusher) + usize::from(tripwire::keeper_sleeps())
}

/// Whether the calling thread is one of them.
pub(super) fn is_one() -> bool {
    tripwire::is_keeper() || FLUSHES.lock().tid == tracer::record::thread_id()
}

fn flusher() {
    FLUSHES.lock().tid = tracer::record::thread_id();
    loop {
        let wanted = {
            let mut flushes = FLUSHES.lock();
            while flushes.wanted == flushes.done {
                CHANGED.wait(&mut flushes);
            }
            flushes.wanted
        };
        {
            let _busy = Counted::new(&BUSY);
            advance::flush();
        }
        FLUSHES.lock().done = wanted;
        CHANGED.notify_all();
    }
}

/// Ends the present generation, if that works in time; answers whether it did (KE2). By the keeper. `until_ns`: see
/// [`tripwire::Trip`].
pub(super) fn flush(until_ns: Option<u64>) -> bool {
    let began = Instant::now();
    let before = record::generation();
    let mut flushes = FLUSHES.lock();
    flushes.wanted += 1;
    let mine = flushes.wanted;
    CHANGED.notify_all();
    while flushes.done < mine {
        // In steps: a thread may have begun to die meanwhile, and then there is less time.
        CHANGED.wait_for(&mut flushes, Duration::from_millis(20));
        let passed = began.elapsed();
        let hurry = tripwire::is_fatal() && until_ns.is_none() && passed >= Duration::from_secs(1);
        let stuck = passed >= if record::generation() == before { CHANGE } else { WHOLE };
        if hurry || stuck || until_ns.is_some_and(|until| mono_ns() >= until) {
            break;
        }
    }
    flushes.done >= mine
}

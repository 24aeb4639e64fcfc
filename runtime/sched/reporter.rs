//! A thread that makes reports: what takes time, opens debug information, or calls the program's logger. Sysmon, which
//! finds the occasions, must be back at its looks meanwhile.
//!
//! - RE1: the thread is made at the first report. While it sleeps it wakes nobody, and the deadlock report counts it as
//!   one of ours. From the moment it is given a job it may be in the program's logger, and counts as a thread that
//!   could send.
//! - RE2: jobs are dropped when too many wait: a logger that hangs must not cost memory.

use std::collections::VecDeque;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tracer::record::{self, Slot, thread_id};

use crate::prim::parker::Parker;

/// Jobs that wait, at most.
const JOBS_MAX: usize = 64;

/// A report to be made, by the thread's own slot in the tracer.
pub(crate) type Job = Box<dyn FnOnce(&'static Slot) + Send>;

struct Reporter {
    slot: Slot,
    parker: Parker,
    state: Mutex<State>,
}

struct State {
    jobs: VecDeque<Job>,
    /// RE1
    asleep: bool,
}

static REPORTER: OnceLock<&'static Reporter> = OnceLock::new();

/// Has a report made. By threads of the runtime's own, outside the border.
pub(crate) fn submit(job: Job) {
    let reporter = match REPORTER.get() {
        Some(r) => *r,
        None => {
            static MAKING: Mutex<()> = Mutex::new(());
            let _one = MAKING.lock();
            if REPORTER.get().is_some() {
                return submit(job);
            }
            let r: &'static Reporter = Box::leak(Box::new(Reporter {
                slot: Slot::new(0),
                parker: Parker::new(),
                state: Mutex::new(State { jobs: VecDeque::new(), asleep: false }),
            }));
            if std::thread::Builder::new().name("gort-reporter".into()).spawn(move || main(r)).is_err() {
                return; // No thread, no report; the next one tries again.
            }
            REPORTER.get_or_init(|| r)
        }
    };
    {
        let mut state = reporter.state.lock();
        if state.jobs.len() < JOBS_MAX {
            state.jobs.push_back(job);
        }
        state.asleep = false;
    }
    reporter.parker.unpark();
}

/// How many threads there are here.
pub(crate) fn threads() -> usize {
    usize::from(REPORTER.get().is_some())
}

/// How many threads there are here that sleep and wake nobody (RE1).
pub(crate) fn sleeping_threads() -> usize {
    REPORTER.get().map_or(0, |r| usize::from(r.state.lock().asleep))
}

fn main(me: &'static Reporter) {
    me.slot.set_m_id(thread_id());
    record::register(&me.slot);
    loop {
        let job = {
            let mut state = me.state.lock();
            let job = state.jobs.pop_front();
            state.asleep = job.is_none();
            job
        };
        match job {
            Some(job) => {
                // A logger that panics is the program's affair; the panic hook has told of it.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(&me.slot)));
            }
            None => me.parker.park(),
        }
    }
}

//! A thread that decodes ahead of the reader, so that the two share the work: what decodes needs nothing of the order.
//!
//! ```text
//!   Frontier ── Job (a stream's decoder, an old chunk) ──> thread ── the same, filled ──> Frontier
//! ```
//!
//! A job holds all that it needs, so the thread knows nothing from one to the next. It lets go of the streams before it answers: when
//! all answers have come, the reader has the bytes for itself again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, available_parallelism};

use super::frontier::{Chunk, Decoder, Streams};

/// The next chunk of a stream: to be decoded, and then decoded.
#[derive(Debug)]
pub(super) struct Job {
    /// Whose it is.
    pub cursor: usize,
    pub decoder: Decoder,
    pub chunk: Chunk,
    /// How many events, at most.
    pub most: usize,
}

/// The thread, and what it is asked for.
#[derive(Debug)]
pub(super) struct Ahead {
    jobs: Option<Sender<(Job, Arc<Streams>)>>,
    done: Receiver<Job>,
    /// Jobs that have not come back.
    asked: usize,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// `None` if there is no second processor, or no thread to be had: then the reader decodes alone.
    pub fn start() -> Option<Ahead> {
        if !available_parallelism().is_ok_and(|n| n.get() > 1) {
            return None;
        }
        let (jobs, to_do) = channel::<(Job, Arc<Streams>)>();
        let (ready, done) = channel();
        let decode = move || {
            for (mut job, streams) in to_do {
                job.decoder.decode(&streams, job.most, &mut job.chunk);
                drop(streams);
                if ready.send(job).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("trace decoder".into()).spawn(decode).ok()?;
        Some(Ahead { jobs: Some(jobs), done, asked: 0, thread: Some(thread) })
    }

    pub fn ask(&mut self, job: Job, streams: &Arc<Streams>) {
        let jobs = self.jobs.as_ref().expect("taken by Drop only");
        jobs.send((job, Arc::clone(streams))).expect("the thread ends when there are no more jobs");
        self.asked += 1;
    }

    /// Waits for one of the jobs.
    pub fn wait(&mut self) -> Job {
        self.asked -= 1;
        self.done.recv().expect("decoding does not panic")
    }

    /// Waits for all of them, and throws them away.
    pub fn drain(&mut self) {
        while self.asked > 0 {
            self.wait();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

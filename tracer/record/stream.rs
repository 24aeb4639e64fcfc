//! A stream: generations go to a writer of the user's, in a thread of its own.
//!
//! - W1: nobody waits for the writer. What waits for it is bounded ([`PENDING_BYTES_MAX`]); past it the stream ends at the last whole
//!   generation that it has got, and what comes later is counted.
//! - W2: a writer that fails once is not called again; the error is what the stream ends with.
//! - W3: a stream that was begun ends, with a call of `on_end`, once the last generation was told: whatever the writer does, short of never
//!   coming back.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::record::generation::Generation;
use crate::record::sink::{PENDING_BYTES_MAX, Threads};
use crate::record::{Stats, StreamError};
use crate::wire::HEADER;

/// What happens when a stream has ended.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<Stats, StreamError>) + Send>;

/// The reader's end of a stream.
pub struct Stream(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    generations: VecDeque<Arc<Generation>>,
    pending: usize,
    /// Bytes that came when too many waited, or that were lost before they came here.
    lost: Option<u64>,
    failed: bool,
    ended: bool,
    /// [`PENDING_BYTES_MAX`], but for tests.
    pending_max: usize,
}

impl Stream {
    /// Begins a stream, with its thread. `on_end` runs there when the last generation is written, with what became of it.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn new(
        out: Box<dyn Write + Send>,
        on_end: impl FnOnce(Result<Stats, StreamError>) + Send + 'static,
    ) -> io::Result<Stream> {
        let queue = Queue { pending_max: PENDING_BYTES_MAX, ..Queue::default() };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), arrived: Condvar::new() });
        let on_end: OnEnd = Box::new(on_end);
        let theirs = shared.clone();
        std::thread::Builder::new().name("gort-stream".into()).spawn(move || {
            let _registered = Threads::enter();
            let result = Writing { out: Guarded(Some(out)), stats: Stats::default(), failed: None }.run(&theirs);
            on_end(result);
        })?;
        Ok(Stream(shared))
    }

    /// A generation has ended (W1).
    pub(crate) fn take(&self, generation: &Arc<Generation>) {
        let mut queue = self.0.queue.lock();
        let n = generation.bytes();
        match queue.lost {
            Some(lost) => queue.lost = Some(lost + n as u64),
            None if queue.failed => {}
            None if queue.pending + n > queue.pending_max => queue.lost = Some(n as u64),
            None => {
                queue.pending += n;
                queue.generations.push_back(generation.clone());
                self.0.arrived.notify_one();
            }
        }
    }

    /// A generation has ended and cannot be had: `bytes` of it are lost.
    pub(crate) fn lose(&self, bytes: u64) {
        let mut queue = self.0.queue.lock();
        queue.lost = Some(queue.lost.unwrap_or(0) + bytes);
    }
}

impl Drop for Stream {
    /// That was the last one (W3).
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.arrived.notify_one();
    }
}

/// The user's writer. A panic of it, in a write or when it is dropped, is an error like any other (W2).
struct Guarded(Option<Box<dyn Write + Send>>);

impl Guarded {
    fn call<T>(&mut self, f: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        let Some(out) = &mut self.0 else { return Err(io::Error::other("the writer has panicked before")) };
        match catch_unwind(AssertUnwindSafe(|| f(out))) {
            Ok(result) => result,
            Err(payload) => {
                forget(payload);
                Err(io::Error::other("the writer panicked"))
            }
        }
    }

    /// Drops the writer.
    fn close(&mut self) -> io::Result<()> {
        let out = self.0.take();
        catch_unwind(AssertUnwindSafe(|| drop(out))).map_err(|payload| {
            forget(payload);
            io::Error::other("the writer panicked when it was dropped")
        })
    }
}

struct Writing {
    out: Guarded,
    stats: Stats,
    failed: Option<io::Error>,
}

impl Writing {
    fn run(mut self, shared: &Shared) -> Result<Stats, StreamError> {
        while let Some(generation) = next(shared) {
            if self.failed.is_none()
                && let Err(e) = self.write(&generation)
            {
                self.failed = Some(e);
            }
            let mut queue = shared.queue.lock();
            queue.pending -= generation.bytes();
            if self.failed.is_some() {
                // W2: what waits is not wanted any more.
                queue.failed = true;
            }
        }
        if let Err(e) = self.out.close() {
            self.failed.get_or_insert(e);
        }
        match (self.failed, shared.queue.lock().lost) {
            (Some(e), _) => Err(StreamError::Write(e)),
            (None, Some(bytes)) => Err(StreamError::Lost { bytes, generations: self.stats.generations }),
            (None, None) => Ok(self.stats),
        }
    }

    fn write(&mut self, generation: &Generation) -> io::Result<()> {
        if self.stats.bytes == 0 {
            self.out.call(|out| out.write_all(&HEADER))?;
            self.stats.bytes += HEADER.len() as u64;
        }
        self.out.call(|out| generation.write_to(out))?;
        self.out.call(|out| out.flush())?;
        self.stats.bytes += generation.bytes() as u64;
        self.stats.generations += 1;
        self.stats.entries_lost += generation.entries_lost();
        Ok(())
    }
}

/// The next generation; `None` when there are no more.
fn next(shared: &Shared) -> Option<Arc<Generation>> {
    let mut queue = shared.queue.lock();
    loop {
        if let Some(generation) = queue.generations.pop_front() {
            return Some(generation);
        }
        if queue.ended {
            return None;
        }
        shared.arrived.wait(&mut queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Writes into a channel; fails as it is told.
    struct To(mpsc::Sender<Vec<u8>>, Option<io::ErrorKind>);

    impl Write for To {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(kind) = self.1 {
                return Err(kind.into());
            }
            self.0.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    type Results = mpsc::Receiver<Result<Stats, StreamError>>;

    fn stream(fails: Option<io::ErrorKind>) -> (Stream, mpsc::Receiver<Vec<u8>>, Results) {
        let ((tx, rx), (done, result)) = (mpsc::channel(), mpsc::channel());
        (Stream::new(Box::new(To(tx, fails)), move |r| done.send(r).unwrap()).unwrap(), rx, result)
    }

    #[test]
    fn header_and_generations_in_order() {
        let (s, written, result) = stream(None);
        for n in 1..=3 {
            s.take(&Arc::new(Generation::of(n, vec![n as u8; 10])));
        }
        drop(s);
        assert_eq!(result.recv().unwrap().unwrap(), Stats { generations: 3, bytes: 16 + 30, entries_lost: 0 });
        let all: Vec<u8> = written.iter().flatten().collect();
        assert_eq!(all, [&HEADER[..], &[1; 10], &[2; 10], &[3; 10]].concat());
    }

    #[test]
    fn a_writer_that_fails_is_not_called_again() {
        let (s, written, result) = stream(Some(io::ErrorKind::StorageFull));
        s.take(&Arc::new(Generation::of(1, vec![0; 10])));
        s.take(&Arc::new(Generation::of(2, vec![0; 10])));
        drop(s);
        match result.recv().unwrap() {
            Err(StreamError::Write(e)) => assert_eq!(e.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        assert!(written.recv().is_err(), "nothing was written");
    }

    /// Takes so many bytes and then fails.
    struct Disk(usize, Arc<Mutex<Vec<u8>>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.0 -= n;
            self.1.lock().extend_from_slice(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_is_full_in_the_middle_of_a_generation() {
        let (written, (done, result)) = (Arc::new(Mutex::new(Vec::new())), mpsc::channel());
        let disk = Disk(HEADER.len() + 15, written.clone());
        let s = Stream::new(Box::new(disk), move |r| done.send(r).unwrap()).unwrap();
        for n in 1..=4 {
            s.take(&Arc::new(Generation::of(n, vec![n as u8; 10])));
        }
        drop(s);
        match result.recv().unwrap() {
            Err(StreamError::Write(e)) => assert_eq!(e.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        assert_eq!(*written.lock(), [&HEADER[..], &[1; 10], &[2; 5]].concat(), "nothing after the break");
    }

    /// W1: what waits for a writer that does not come back is bounded, and what it takes in the end is whole generations.
    #[test]
    fn a_writer_that_is_too_slow() {
        struct Slow(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);
        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                self.1.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (written, (done, result), (go_on, held)) =
            (Arc::new(Mutex::new(Vec::new())), mpsc::channel(), mpsc::channel());
        let s = Stream::new(Box::new(Slow(held, written.clone())), move |r| done.send(r).unwrap()).unwrap();
        s.0.queue.lock().pending_max = 35;
        for n in 1..=9 {
            s.take(&Arc::new(Generation::of(n, vec![n as u8; 10])));
        }
        assert_eq!(s.0.queue.lock().pending, 30, "it counts until it is written");
        drop(s);
        assert!(result.try_recv().is_err(), "the writer has the last word");
        drop(go_on);
        match result.recv().unwrap() {
            Err(StreamError::Lost { bytes: 60, generations: 3 }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(*written.lock(), [&HEADER[..], &[1; 10], &[2; 10], &[3; 10]].concat());
    }

    #[test]
    fn what_is_lost_ends_it_at_a_whole_generation() {
        let (s, written, result) = stream(None);
        s.take(&Arc::new(Generation::of(1, vec![7; 10])));
        s.lose(100);
        s.take(&Arc::new(Generation::of(3, vec![8; 10])));
        drop(s);
        match result.recv().unwrap() {
            Err(StreamError::Lost { bytes: 110, generations: 1 }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(written.iter().map(|w| w.len()).sum::<usize>(), HEADER.len() + 10);
    }
}

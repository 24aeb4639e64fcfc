//! One connection: requests in, responses out, in order.
//!
//! - C1: what has been answered is sent before anything is waited for. Otherwise a client that waits for the answer before it sends
//!   more would wait for ever.
//! - C2: the time for a request is a deadline, set when a part of it is there and more has to be read. A request that comes whole meets
//!   neither a clock nor a timer. Between requests the time-out of the socket holds, which is set once.
//! - C3: a connection that the server ends is closed in three steps: end of output, wait for the client's, close. Closing at once
//!   while the client still sends would destroy what it has not read yet, the reason for the end included.

use super::answer::{self, Answer, Manner};
use super::body::{Body, Fault, Framing};
use super::date::Date;
use super::request::{self, Request};
use super::{Limits, Status};
use rt::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a connection asks of its socket.
pub trait Transport {
    /// The time-outs of single calls, which hold while there is no deadline.
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()>;
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn write(&self, buf: &[u8]) -> io::Result<usize>;
    fn read_until(&self, deadline: Option<Instant>);
    fn write_until(&self, deadline: Option<Instant>);
    /// The client reads the end after what was written.
    fn end_output(&self) -> io::Result<()>;
}

impl Transport for TcpStream {
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }

    #[inline]
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Read::read(&mut &*self, buf)
    }

    #[inline]
    fn write(&self, buf: &[u8]) -> io::Result<usize> {
        Write::write(&mut &*self, buf)
    }

    fn read_until(&self, deadline: Option<Instant>) {
        self.set_read_deadline(deadline);
    }

    fn write_until(&self, deadline: Option<Instant>) {
        self.set_write_deadline(deadline);
    }

    fn end_output(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Room for input at first. It grows for longer heads, to what the limits allow.
const INPUT: usize = 4 << 10;

/// Responses to requests that came together are sent together, up to about so much.
const OUTPUT: usize = 16 << 10;

/// A head that is longer is parsed again only when a line has ended. Otherwise one that drips in byte by byte would cost the square of
/// its length. Up to here every byte is looked at, so that nonsense is refused at once.
const EARLY: usize = 256;

/// What is read, and thrown away, of a client that goes on sending after the end (C3).
const LINGER_BYTES: usize = 256 << 10;
const LINGER: Duration = Duration::from_secs(1);

/// A connection.
pub struct Connection<'a, T> {
    transport: &'a T,
    limits: &'a Limits,
    ending: &'a AtomicBool,
    input: Input,
    out: Vec<u8>,
    date: Date,
    /// A read deadline is set (C2).
    is_timed: bool,
}

/// Why no request is to be had.
enum Stop {
    /// The client has ended, or fallen silent between requests.
    Quiet,
    /// It is to be told why.
    Refuse(Status),
}

/// What is left of a request when its bytes are gone.
struct Asked {
    answer: Answer,
    manner: Manner,
    framing: Framing,
    expects_continue: bool,
}

impl Asked {
    #[inline]
    fn of(request: &Request<'_>) -> Asked {
        let answer = Answer::to(request);
        // A body that ends with the connection is all that HTTP/1.0 has for unknown lengths.
        let needs_close = request.is_old && matches!(answer, Answer::Download(_));
        let manner = Manner {
            head_only: request.method == "HEAD",
            is_old: request.is_old,
            keep_alive: request.keep_alive && !needs_close,
        };
        Asked { answer, manner, framing: request.framing, expects_continue: request.expects_continue }
    }
}

impl<'a, T: Transport> Connection<'a, T> {
    /// `ending` becomes true when the server ends: then each response is the last.
    pub fn new(transport: &'a T, limits: &'a Limits, ending: &'a AtomicBool) -> Self {
        let input = Input::new(limits.head_bytes);
        Connection { transport, limits, ending, input, out: Vec::new(), date: Date::new(), is_timed: false }
    }

    /// Answers requests until one side ends.
    ///
    /// # Errors
    ///
    /// The socket's, and when the client does not take what it has asked for.
    pub fn serve(mut self) -> io::Result<()> {
        self.transport.set_timeouts(self.limits.idle, self.limits.write)?;
        loop {
            let asked = match self.request()? {
                Ok(asked) => asked,
                Err(Stop::Quiet) => return self.flush(),
                Err(Stop::Refuse(status)) => return self.refuse(status),
            };
            if let Err(stop) = self.body(&asked)? {
                return match stop {
                    Stop::Quiet => self.flush(),
                    Stop::Refuse(status) => self.refuse(status),
                };
            }
            if self.is_timed {
                self.is_timed = false;
                self.transport.read_until(None);
            }
            if let Answer::Slow(time) = asked.answer {
                self.flush()?; // C1
                rt::time::sleep(time);
            }
            // As late as can be, and when the deadline is gone, which may have been the one that the end of the server has set.
            let keep_alive = asked.manner.keep_alive && !self.ending.load(Ordering::SeqCst);
            self.answer(asked.answer, Manner { keep_alive, ..asked.manner })?;
            if !keep_alive {
                return self.end();
            }
        }
    }

    /// Reads the head of a request.
    #[inline]
    fn request(&mut self) -> io::Result<Result<Asked, Stop>> {
        let mut known = 0;
        loop {
            let bytes = self.input.bytes();
            if known < EARLY || bytes[known..].contains(&b'\n') {
                match request::parse(bytes) {
                    Ok(Some((request, length))) => {
                        let asked = Asked::of(&request);
                        self.input.take(length);
                        return Ok(Ok(asked));
                    }
                    Ok(None) => {}
                    Err(status) => return Ok(Err(Stop::Refuse(status))),
                }
            }
            known = bytes.len();
            if self.input.is_full() {
                return Ok(Err(Stop::Refuse(Status::HEADERS_TOO_LARGE)));
            }
            if let Err(stop) = self.read_more(!self.input.bytes().is_empty())? {
                return Ok(Err(stop));
            }
        }
    }

    /// Skips the body of a request.
    #[inline]
    fn body(&mut self, asked: &Asked) -> io::Result<Result<(), Stop>> {
        if asked.framing == Framing::Length(0) {
            return Ok(Ok(()));
        }
        let fault = |fault| match fault {
            Fault::Malformed => Ok(Err(Stop::Refuse(Status::BAD_REQUEST))),
            Fault::TooLarge => Ok(Err(Stop::Refuse(Status::CONTENT_TOO_LARGE))),
        };
        let mut body = match Body::new(asked.framing, self.limits.body_bytes) {
            Ok(body) => body,
            Err(why) => return fault(why),
        };
        let mut is_invited = !asked.expects_continue;
        loop {
            match body.skip(self.input.bytes()) {
                Ok(n) => self.input.take(n),
                Err(why) => return fault(why),
            }
            if body.is_done() {
                return Ok(Ok(()));
            }
            if !is_invited && self.input.bytes().is_empty() {
                self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                is_invited = true;
            }
            if let Err(stop) = self.read_more(true)? {
                return Ok(Err(stop));
            }
        }
    }

    /// Reads what comes next; `is_within`: of a request that has begun.
    fn read_more(&mut self, is_within: bool) -> io::Result<Result<(), Stop>> {
        // C1
        self.flush()?;
        if is_within && !self.is_timed {
            // C2
            self.is_timed = true;
            self.transport.read_until(Instant::now().checked_add(self.limits.request));
            // The end of the server sets one too, and may have done so just before.
            if self.ending.load(Ordering::SeqCst) {
                self.transport.read_until(Some(Instant::now()));
            }
        }
        match self.input.fill(self.transport) {
            Ok(0) => Ok(Err(Stop::Quiet)),
            Ok(_) => Ok(Ok(())),
            // What a time-out is on this system; and what a deadline is.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(Err(if is_within { Stop::Refuse(Status::REQUEST_TIMEOUT) } else { Stop::Quiet }))
            }
            Err(e) => Err(e),
        }
    }

    #[inline]
    fn answer(&mut self, answer: Answer, manner: Manner) -> io::Result<()> {
        answer::write(&mut self.out, answer, manner, &mut self.date);
        match answer {
            Answer::Download(chunks) if !manner.head_only => self.download(chunks, manner.is_old),
            _ if self.out.len() >= OUTPUT => self.flush(),
            _ => Ok(()),
        }
    }

    fn download(&mut self, chunks: u64, is_old: bool) -> io::Result<()> {
        self.flush()?;
        let chunk = if is_old { answer::plain_chunk() } else { &answer::WIRE_CHUNK };
        for _ in 0..chunks {
            self.write_all(chunk)?;
        }
        if !is_old {
            self.out.extend_from_slice(answer::LAST_CHUNK);
        }
        Ok(())
    }

    /// The last response, to a request that is none.
    #[cold]
    fn refuse(mut self, status: Status) -> io::Result<()> {
        let manner = Manner { head_only: false, is_old: false, keep_alive: false };
        answer::write(&mut self.out, Answer::Error(status), manner, &mut self.date);
        self.end()
    }

    /// Ends the connection from this side (C3).
    fn end(mut self) -> io::Result<()> {
        self.flush()?;
        self.transport.end_output()?;
        self.transport.read_until(Instant::now().checked_add(LINGER));
        let mut left = LINGER_BYTES;
        while left > 0 {
            self.input.clear();
            match self.input.fill(self.transport) {
                Ok(n @ 1..) => left = left.saturating_sub(n),
                _ => break,
            }
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Most of the time one write takes it all. What it leaves has a deadline: a client that takes a byte now and then does not
    /// keep us for longer than one that takes none.
    #[inline]
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let n = self.transport.write(bytes)?;
        if n == bytes.len() { Ok(()) } else { self.write_rest(&bytes[n..]) }
    }

    fn write_rest(&self, mut bytes: &[u8]) -> io::Result<()> {
        self.transport.write_until(Instant::now().checked_add(self.limits.write));
        while !bytes.is_empty() {
            match self.transport.write(bytes)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => bytes = &bytes[n..],
            }
        }
        self.transport.write_until(None);
        Ok(())
    }
}

/// Bytes that were read and not yet used: `start..end` of the buffer.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    most: usize,
}

impl Input {
    fn new(most: usize) -> Input {
        Input { buffer: vec![0; INPUT], start: 0, end: 0, most: most.max(INPUT) }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    fn take(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            self.clear();
        }
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    fn is_full(&self) -> bool {
        self.end - self.start >= self.most
    }

    /// Reads behind what is there. Not if it is full.
    #[inline]
    fn fill<T: Transport>(&mut self, transport: &T) -> io::Result<usize> {
        if self.end == self.buffer.len() {
            self.make_room();
        }
        let n = transport.read(&mut self.buffer[self.end..])?;
        self.end += n;
        Ok(n)
    }

    #[cold]
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            self.buffer.resize((self.buffer.len() * 2).min(self.most), 0);
        }
    }
}

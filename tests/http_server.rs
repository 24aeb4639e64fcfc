//! The HTTP server of the examples, against clients that send what they like, cut where they like.
#![cfg(unix)]

mod common;
#[path = "../examples/http_server/http/mod.rs"]
#[allow(dead_code)]
mod http;
#[path = "../examples/support/mod.rs"]
#[allow(dead_code)]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Rng, scaled, seed, traced, wait_for};
use http::body::{Body, Fault, Framing};
use http::connection::{Connection, Transport};
use http::{Limits, date, request};
use rt::net::{Shutdown, TcpListener, TcpStream};
use support::Connections;

/// A client whose pieces are read one by one, and which takes what is written in pieces too.
struct Script {
    pieces: RefCell<VecDeque<Vec<u8>>>,
    written: RefCell<Vec<u8>>,
    reads: Cell<usize>,
    writes: Cell<usize>,
    /// What one write takes at most.
    takes: usize,
    /// After the last piece the client is silent instead of gone.
    falls_silent: bool,
    has_deadline: Cell<bool>,
    is_over: Cell<bool>,
}

impl Script {
    fn new(pieces: impl IntoIterator<Item = Vec<u8>>) -> Script {
        Script {
            pieces: RefCell::new(pieces.into_iter().filter(|piece| !piece.is_empty()).collect()),
            written: RefCell::default(),
            reads: Cell::new(0),
            writes: Cell::new(0),
            takes: usize::MAX,
            falls_silent: false,
            has_deadline: Cell::new(false),
            is_over: Cell::new(false),
        }
    }

    /// Serves it, and gives what was written, without the dates.
    fn serve(&self) -> String {
        let (limits, ending) = (limits(), AtomicBool::new(false));
        Connection::new(self, &limits, &ending).serve().expect("a script has no errors");
        let written = String::from_utf8(self.written.take()).expect("all responses here are text");
        written.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: ")).collect()
    }
}

impl Transport for Script {
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        assert!(!read.is_zero() && !write.is_zero());
        Ok(())
    }

    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        assert!(!buf.is_empty(), "a read into no room looks like the end");
        self.reads.set(self.reads.get() + 1);
        let mut pieces = self.pieces.borrow_mut();
        let Some(mut piece) = pieces.pop_front() else {
            // A deadline that has passed, or a time-out.
            let silence = if self.has_deadline.get() { ErrorKind::TimedOut } else { ErrorKind::WouldBlock };
            return if self.falls_silent { Err(silence.into()) } else { Ok(0) };
        };
        let n = piece.len().min(buf.len());
        buf[..n].copy_from_slice(&piece[..n]);
        if n < piece.len() {
            pieces.push_front(piece.split_off(n));
        }
        Ok(n)
    }

    fn write(&self, buf: &[u8]) -> io::Result<usize> {
        assert!(!self.is_over.get(), "a write after the end of output");
        self.writes.set(self.writes.get() + 1);
        let n = buf.len().min(self.takes);
        self.written.borrow_mut().extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn read_until(&self, deadline: Option<Instant>) {
        self.has_deadline.set(deadline.is_some());
    }

    fn write_until(&self, _deadline: Option<Instant>) {}

    fn end_output(&self) -> io::Result<()> {
        self.is_over.set(true);
        Ok(())
    }
}

fn limits() -> Limits {
    Limits { body_bytes: 1000, ..Limits::default() }
}

/// The statuses in a text of responses.
fn statuses(responses: &str) -> Vec<u16> {
    // A body may end without a line end. No body here has the word in it.
    let responses = responses.split("HTTP/1.1 ").skip(1);
    responses.map(|response| response[..3].parse().expect("a status has three digits")).collect()
}

fn answers(input: &[u8]) -> Vec<u16> {
    statuses(&Script::new([input.to_vec()]).serve())
}

/// Requests of all kinds, one behind the other.
const CONVERSATION: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\
    HEAD /?a=b HTTP/1.1\r\nhost: x\r\nUser-Agent: me\r\n\r\n\
    \r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /\
    GET /missing HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n\
    PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3;name=\"v\"\r\nabc\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nA: b\r\n\r\n\
    GET /slow?ms=0 HTTP/1.1\r\nHost: x\r\n\r\n\
    GET /slow?ms=many HTTP/1.1\r\nHost: x\r\n\r\n\
    GET http://x/?q HTTP/1.1\r\nHost: x\r\n\r\n\
    GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
    GET / HTTP/1.1\r\nHost: x\r\nConnection: a, Close\r\n\r\n\
    GET /never HTTP/1.1\r\nHost: x\r\n\r\n";

const STATUSES: [u16; 10] = [200, 200, 405, 404, 404, 200, 400, 200, 200, 200];

#[test]
fn smoke_all_kinds() {
    let script = Script::new([CONVERSATION.to_vec()]);
    let responses = script.serve();
    assert_eq!(statuses(&responses), STATUSES);
    assert_eq!(responses.matches("Hello, world!").count(), 5, "a HEAD has no body:\n{responses}");
    assert!(responses.contains("Allow: GET, HEAD\r\n"));
    assert!(responses.ends_with("Connection: close\r\nContent-Length: 13\r\n\r\nHello, world!"));
    assert_eq!(responses.matches("Connection: close").count(), 1);
    assert_eq!(responses.matches("Connection: keep-alive").count(), 1, "HTTP/1.0 is told");
}

#[test]
fn cut_at_every_byte() {
    let whole = Script::new([CONVERSATION.to_vec()]).serve();
    for at in 0..=CONVERSATION.len() {
        let (before, after) = CONVERSATION.split_at(at);
        assert_eq!(Script::new([before.to_vec(), after.to_vec()]).serve(), whole, "cut at {at}");
    }
    let bytes = || CONVERSATION.iter().map(|byte| vec![*byte]);
    assert_eq!(Script::new(bytes()).serve(), whole, "byte by byte");
    let slow_reader = Script { takes: 1, ..Script::new(bytes()) };
    assert_eq!(slow_reader.serve(), whole, "byte by byte, both ways");

    let mut rng = Rng::new(seed());
    for _ in 0..scaled(2_000, 200) {
        let mut rest = CONVERSATION;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + rng.below(rest.len().min(90) as u64) as usize);
            pieces.push(piece.to_vec());
            rest = after;
        }
        assert_eq!(Script::new(pieces).serve(), whole);
    }
}

#[test]
fn one_read_and_one_write() {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let one_by_one = Script::new(vec![REQUEST.to_vec(); 50]);
    assert_eq!(statuses(&one_by_one.serve()), [200; 50]);
    assert_eq!((one_by_one.reads.get(), one_by_one.writes.get()), (51, 50), "the last read finds the end");
    let together = Script::new([REQUEST.repeat(50)]);
    assert_eq!(statuses(&together.serve()), [200; 50]);
    assert_eq!((together.reads.get(), together.writes.get()), (2, 1));
}

/// Counts what each thread asks for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's as it is; the counter neither allocates nor needs a destructor. (A vector that grows
// does so by `alloc` here, as the trait has it.)
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller has it.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// A client with so many requests, who keeps nothing.
struct Busy(Cell<usize>);

impl Transport for Busy {
    fn set_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
        let Some(left) = self.0.get().checked_sub(1) else { return Ok(0) };
        self.0.set(left);
        buf[..REQUEST.len()].copy_from_slice(REQUEST);
        Ok(REQUEST.len())
    }

    fn write(&self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn read_until(&self, _: Option<Instant>) {}

    fn write_until(&self, _: Option<Instant>) {}

    fn end_output(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn requests_do_not_allocate() {
    let allocations = |requests| {
        let (limits, ending) = (limits(), AtomicBool::new(false));
        let before = ALLOCATIONS.get();
        Connection::new(&Busy(Cell::new(requests)), &limits, &ending).serve().unwrap();
        ALLOCATIONS.get() - before
    };
    let first = allocations(1);
    assert!(first > 0, "a connection has buffers, or nobody counts");
    assert_eq!(allocations(10_000), first);
}

#[test]
fn refused_and_closed() {
    let head = |lines: &str| format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n").into_bytes();
    let long = format!("A: {}", "a".repeat(20_000));
    let many = "A: b\r\n".repeat(101);
    let table: &[(&str, u16, Vec<u8>)] = &[
        ("no host", 400, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("two hosts", 400, head("Host: y")),
        ("a request line of its own kind", 400, b"hello\r\n\r\n".to_vec()),
        ("bytes", 400, vec![0, 1, 2, 3, 200]),
        ("TLS", 400, vec![0x16, 3, 1, 2, 0, 1, 0]),
        ("a space before the colon", 400, head("A : b")),
        ("a folded header", 400, head("A: b\r\n c")),
        ("another version", 505, b"GET / HTTP/3.0\r\nHost: x\r\n\r\n".to_vec()),
        ("the preface of HTTP/2", 505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("a long header", 431, head(&long)),
        ("many headers", 431, head(&many)),
        ("a long target", 431, format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000)).into_bytes()),
        ("two lengths", 400, head("Content-Length: 1\r\nContent-Length: 1")),
        ("a list of lengths", 400, head("Content-Length: 1, 1")),
        ("a signed length", 400, head("Content-Length: +1")),
        ("an empty length", 400, head("Content-Length:")),
        ("a length beyond numbers", 400, head("Content-Length: 99999999999999999999999")),
        ("a long body", 413, head("Content-Length: 1001")),
        ("both framings", 400, head("Content-Length: 1\r\nTransfer-Encoding: chunked")),
        ("another coding", 501, head("Transfer-Encoding: gzip, chunked")),
        ("the coding twice", 400, head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")),
        ("another expectation", 417, head("Expect: tea")),
        ("chunks in HTTP/1.0", 400, b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()),
    ];
    for (what, status, input) in table {
        // What follows must not be taken for a request.
        let input = [input, &b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"[..]].concat();
        for pieces in [vec![input.clone()], input.iter().map(|byte| vec![*byte]).collect()] {
            let script = Script::new(pieces);
            let responses = script.serve();
            assert_eq!(statuses(&responses), [*status], "{what}");
            assert!(responses.contains("Connection: close\r\n"), "{what}");
            assert!(script.is_over.get() && script.pieces.borrow().is_empty(), "{what}: it lingers");
        }
    }
}

#[test]
fn chunks_are_checked() {
    let chunked = |body: &str| {
        answers(format!("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes())
    };
    assert_eq!(chunked("0\r\n\r\n"), [200]);
    assert_eq!(chunked("3E8\r\n"), [], "not refused for its size, and not whole");
    assert_eq!(chunked("3E9\r\n"), [413]);
    assert_eq!(chunked(&"1\r\na\r\n".repeat(1001)), [413]);
    assert_eq!(chunked("ffffffffffffffff\r\n"), [413]);
    assert_eq!(chunked("fffffffffffffffff\r\n"), [400]);
    for bad in ["\r\n", " 1\r\n", "-1\r\n", "0x1\r\n", "1\na\r\n", "1\r\nab\r\n", "1\r\na\n0\r\n\r\n", ";\r\n"] {
        assert_eq!(chunked(bad), [400], "{bad:?}");
    }
    assert_eq!(chunked(&format!("1;{}\r\n", "a".repeat(300))), [400], "a long extension");
    assert_eq!(chunked(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(17))), [413], "many trailers");
    assert_eq!(chunked(&format!("0\r\nA: {}\r\n\r\n", "a".repeat(3000))), [413], "long trailers");
    assert_eq!(chunked("0\r\nnot a header\r\n\r\n"), [400]);
}

#[test]
fn a_body_ends_where_it_ends() {
    let mut body = Body::new(Framing::Length(5), 5).unwrap();
    assert_eq!(body.skip(b"abc"), Ok(3));
    assert!(!body.is_done());
    assert_eq!(body.skip(b"defg"), Ok(2));
    assert!(body.is_done());
    assert_eq!(body.skip(b"g"), Ok(0));
    assert_eq!(Body::new(Framing::Length(6), 5).unwrap_err(), Fault::TooLarge);
    assert_eq!(Body::new(Framing::Length(u64::MAX), u64::MAX).unwrap().skip(b"abc"), Ok(3));
}

#[test]
fn invites_a_body_once() {
    const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 4\r\n\r\n";
    let waits = Script::new([HEAD.to_vec(), b"ab".to_vec(), b"cd".to_vec()]);
    assert_eq!(statuses(&waits.serve()), [100, 405]);
    let impatient = Script::new([[HEAD, b"abcd"].concat()]);
    assert_eq!(statuses(&impatient.serve()), [405]);
}

#[test]
fn silence_is_told_from_slowness() {
    let served = |pieces: &[&[u8]]| {
        let script = Script { falls_silent: true, ..Script::new(pieces.iter().map(|piece| piece.to_vec())) };
        statuses(&script.serve())
    };
    assert_eq!(served(&[]), []);
    assert_eq!(served(&[b"G"]), [408]);
    assert_eq!(served(&[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]), [200]);
    // The deadline of a request that came in pieces is gone with it.
    assert_eq!(served(&[b"GET / HT", b"TP/1.1\r\nHost: x\r\n\r\n"]), [200]);
    assert_eq!(served(&[b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"a"]), [408]);
}

/// Whatever comes, responses go out, and every one of them is whole.
#[test]
fn stress_garbage() {
    let mut rng = Rng::new(seed());
    let mut answered = 0;
    for round in 0..scaled(100_000, 5_000) {
        let mut input = CONVERSATION.to_vec();
        match round % 4 {
            // Bytes.
            0 => input = (0..rng.below(200)).map(|_| rng.next() as u8).collect(),
            // Letters that mean something.
            1 => input = (0..rng.below(300)).map(|_| b"GET /HP1.:\r\n\r\n0aF;,"[rng.below(19) as usize]).collect(),
            // A conversation with flaws.
            2 => {
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(input.len() as u64) as usize;
                    input[at] = rng.next() as u8;
                }
            }
            // One with parts missing, twice or elsewhere.
            _ => {
                let (from, to) = (rng.below(input.len() as u64) as usize, rng.below(input.len() as u64) as usize);
                let piece = input[from..(from + 40).min(input.len())].to_vec();
                input.splice(to..(to + rng.below(40) as usize).min(input.len()), piece);
            }
        }
        // No test waits a minute because a digit changed.
        if input.windows(3).any(|window| window == b"ms=") && !input.windows(5).any(|window| window == b"ms=0 ") {
            continue;
        }
        let cut = rng.below(input.len() as u64 + 1) as usize;
        let script = Script::new([input[..cut].to_vec(), input[cut..].to_vec()]);
        let responses = script.serve();
        answered += check_responses(&responses, &input);
    }
    assert!(answered > 0);
}

/// Each response is whole and the last thing is not half a response. Gives their number.
fn check_responses(responses: &str, input: &[u8]) -> usize {
    let mut rest = responses.as_bytes();
    let mut count = 0;
    while !rest.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut response = httparse::Response::new(&mut headers);
        let Ok(httparse::Status::Complete(head)) = response.parse(rest) else {
            panic!("no response at the end of {responses:?}, which answers {:?}", String::from_utf8_lossy(input));
        };
        let length = response.headers.iter().find(|header| header.name == "Content-Length");
        let length: usize = length.map_or(0, |header| std::str::from_utf8(header.value).unwrap().parse().unwrap());
        rest = &rest[head..];
        // The answer to HEAD has a length and no body.
        if !rest.starts_with(b"HTTP/1.1 ") {
            rest = rest.get(length..).filter(|_| !rest.is_empty()).unwrap_or_default();
        }
        count += 1;
    }
    count
}

#[test]
fn heads_are_read_as_they_are() {
    let (request, length) =
        request::parse(b"GET /a?b HTTP/1.1\r\nHOST:x\r\nContent-Length: 7\r\n\r\nxyz").unwrap().unwrap();
    assert_eq!((request.method, request.target, length), ("GET", "/a?b", 48));
    assert_eq!(request.framing, Framing::Length(7));
    assert!(request.keep_alive && !request.is_old && !request.expects_continue);
    let target = |target: &str| {
        let head = format!("GET {target} HTTP/1.0\r\n\r\n");
        request::parse(head.as_bytes()).unwrap().unwrap().0.target.to_owned()
    };
    for (given, meant) in
        [("http://x", "/"), ("HTTP://x/y?z", "/y?z"), ("http://x?a=/b", "/"), ("*", "*"), ("/u://v", "/u://v")]
    {
        assert_eq!(target(given), meant, "{given}");
    }
}

#[test]
fn dates() {
    let text = |second| String::from_utf8(date::write(second).to_vec()).unwrap();
    assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    assert_eq!(text(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
    assert_eq!(text(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
    assert_eq!(text(1_735_689_599), "Tue, 31 Dec 2024 23:59:59 GMT");
    // Beyond what fits: some date, and no end of the program.
    assert_eq!(text(u64::MAX).len(), 29);
}

/// A server that ends when the listener is closed.
struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    /// What its connections are told of the end.
    ending: Arc<AtomicBool>,
    /// Connections that are over.
    ended: Arc<AtomicUsize>,
}

impl Server {
    fn start(limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Server { listener, addr, ending: Arc::default(), ended: Arc::default() };
        let (acceptor, limits) = (server.listener.try_clone().unwrap(), Arc::new(limits));
        let (ending, ended) = (server.ending.clone(), server.ended.clone());
        rt::go(move || {
            for stream in acceptor.incoming() {
                let Ok(stream) = stream else { break };
                let (limits, ending, ended) = (limits.clone(), ending.clone(), ended.clone());
                rt::go(move || {
                    let _ = Connection::new(&stream, &limits, &ending).serve();
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        server
    }
}

/// Sends, ends its side, and gives all that comes back.
fn ask(addr: SocketAddr, input: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(input).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut responses = String::new();
    stream.read_to_string(&mut responses).unwrap();
    responses
}

#[test]
fn over_tcp() {
    traced("http over tcp", || {
        let server = Server::start(limits());
        let addr = server.addr;
        let clients: Vec<_> = (0..8)
            .map(|_| {
                rt::go(move || {
                    for _ in 0..scaled(20, 5) {
                        assert_eq!(statuses(&ask(addr, CONVERSATION)), STATUSES);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());

        let asked = Instant::now();
        assert_eq!(statuses(&ask(addr, b"GET /slow?ms=30 HTTP/1.1\r\nHost: x\r\n\r\n")), [200]);
        assert!(asked.elapsed() >= Duration::from_millis(30));

        let download =
            ask(addr, b"GET /download?mb=2 HTTP/1.1\r\nHost: x\r\n\r\nHEAD /download HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, rest) = download.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
        let mut body = Body::new(Framing::Chunked, 2 << 20).unwrap();
        let length = body.skip(rest.as_bytes()).unwrap();
        assert!(body.is_done());
        assert_eq!(statuses(&rest[length..]), [200]);
        assert!(rest.ends_with("\r\n\r\n"), "a HEAD has no body");
        let old = ask(addr, b"GET /download?mb=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let (head, rest) = old.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Connection: close"), "{head}");
        assert_eq!(rest.len(), 1 << 20);

        // Refused while it still sends: the reason arrives.
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n").unwrap();
        stream.write_all(&vec![b'x'; 200_000]).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert_eq!(statuses(&response), [413]);

        // The end of the server: a connection gets its answer, and the word that it is the last.
        server.ending.store(true, Ordering::SeqCst);
        let last = ask(addr, b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(statuses(&last), [200]);
        assert!(last.contains("Connection: close"));
        server.listener.close().unwrap();
    });
}

#[test]
fn slow_clients() {
    traced("slow http clients", || {
        let brief = Duration::from_millis(40);
        let server = Server::start(Limits { request: brief, write: brief, ..limits() });
        let addr = server.addr;
        let end = |mut stream: TcpStream| {
            let mut responses = String::new();
            // Drips bytes in until the server has had enough: each one is in time, the request is not.
            while stream.write_all(b"A").is_ok() {
                stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
                let mut buf = [0; 512];
                match stream.read(&mut buf) {
                    Ok(0) => break,
                    Ok(n) => responses += std::str::from_utf8(&buf[..n]).unwrap(),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
            statuses(&responses)
        };
        let mut drips = TcpStream::connect(addr).unwrap();
        drips.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
        assert_eq!(end(drips), [408]);
        let mut drips = TcpStream::connect(addr).unwrap();
        drips.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n").unwrap();
        assert_eq!(end(drips), [408]);

        // Does not take what it asked for: the server gives up, and the client finds the download cut short.
        let mut greedy = TcpStream::connect(addr).unwrap();
        greedy.write_all(b"GET /download?mb=512 HTTP/1.0\r\n\r\n").unwrap();
        wait_for("the server gives up", || server.ended.load(Ordering::SeqCst) == 3);
        let taken = std::io::copy(&mut greedy, &mut std::io::sink());
        assert!(taken.is_err() || taken.is_ok_and(|bytes| bytes < 512 << 20));
        server.listener.close().unwrap();
    });
}

#[test]
fn idle_clients() {
    traced("idle http clients", || {
        let server = Server::start(Limits { idle: Duration::from_secs(1), ..limits() });
        let mut idle = TcpStream::connect(server.addr).unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        // Closed without a word more.
        let mut response = String::new();
        idle.read_to_string(&mut response).unwrap();
        assert_eq!(statuses(&response), [200]);
        server.listener.close().unwrap();
    });
}

/// The end of a server: who is being answered gets the answer, who waits is let go, and who does not take what it has asked for is
/// cut off.
#[test]
fn end_of_the_server() {
    traced("the end of an http server", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(Connections::default());
        let (acceptor, accepted) = (listener.try_clone().unwrap(), connections.clone());
        let acceptor = rt::go(move || {
            support::accept_all(&acceptor, |stream, _| {
                let Some(open) = accepted.open(stream) else { return };
                rt::go(move || Connection::new(open.stream(), &limits(), open.ending()).serve().ok());
            });
        });
        let client = |request: &str| {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        };
        // Each has an answer before: so what follows it has been read, too.
        const FIRST: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut idle = client(FIRST);
        let mut half = client(&format!("{FIRST}GET / HTTP/1.1\r\nHost:"));
        let mut slow = client(&format!("{FIRST}GET /slow?ms=300 HTTP/1.1\r\nHost: x\r\n\r\n"));
        let greedy = client("GET /download?mb=1024 HTTP/1.1\r\nHost: x\r\n\r\n");
        [&idle, &half, &slow, &greedy].into_iter().for_each(|stream| _ = stream.peek(&mut [0]).unwrap());

        listener.close().unwrap();
        acceptor.join().unwrap();
        connections.end(Duration::from_secs(2));
        let read = |stream: &mut TcpStream| {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            rest
        };
        assert!(read(&mut idle).ends_with("Hello, world!"));
        assert_eq!(statuses(&read(&mut half)), [200, 408]);
        let last = read(&mut slow);
        assert_eq!(statuses(&last), [200, 200]);
        assert!(last.contains("Connection: close"));
        let taken = std::io::copy(&mut &greedy, &mut std::io::sink());
        assert!(taken.is_err() || taken.is_ok_and(|bytes| bytes < 1 << 30));
        assert!(TcpStream::connect(addr).is_err(), "nobody listens any more");
    });
}

//! A loop around mio's poll: the floor. As many threads as there are Ps, each with a poll of its own and both ends of its
//! connections.

use super::{CHURNERS, ECHO_BUFFER, Echo, LOCAL, MESSAGE, Sockets, Work, drive, talk};
use crate::drive::Outcome;
use crate::probe;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;

/// Measures one workload.
pub fn run(work: Work) -> Result<Outcome, String> {
    drive(&Mio { threads: work.procs }, work)
}

struct Mio {
    threads: usize,
}

impl Sockets for Mio {
    fn echo(&self, connections: usize) -> Box<dyn Echo> {
        let share = |i| (connections * i / self.threads) as u64..(connections * (i + 1) / self.threads) as u64;
        Box::new(Open { loops: (0..self.threads).map(|i| EchoLoop::new(share(i))).collect() })
    }

    fn churn(&self) -> Box<dyn FnMut(u64)> {
        let threads = self.threads as u64;
        let mut loops: Vec<ChurnLoop> = (0..threads).map(|_| ChurnLoop::new()).collect();
        Box::new(move |connections| {
            thread::scope(|scope| {
                for (i, one) in (0..).zip(&mut loops) {
                    let share = move |of: u64| of * (i + 1) / threads - of * i / threads;
                    scope.spawn(move || one.run(share(CHURNERS), share(connections)));
                }
            });
        })
    }
}

/// Both ends of a connection. The client's token is even, the server's the odd one after it.
struct Pair {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    round: u64,
    reply: [u8; MESSAGE],
    replied: usize,
}

/// The connections of a thread.
struct EchoLoop {
    poll: Poll,
    events: Events,
    pairs: Vec<Pair>,
    echoed: u64,
}

impl EchoLoop {
    fn new(numbers: std::ops::Range<u64>) -> EchoLoop {
        let poll = Poll::new().expect("a poll");
        let listener = std::net::TcpListener::bind(LOCAL).expect("a port");
        let address = listener.local_addr().expect("is bound");
        let pair = |(i, number): (usize, u64)| {
            let client = std::net::TcpStream::connect(address).expect("we listen");
            let (server, _) = listener.accept().expect("it has connected");
            let mut ends = [client, server].map(|end| {
                end.set_nodelay(true).expect("is a socket");
                end.set_nonblocking(true).expect("is a socket");
                TcpStream::from_std(end)
            });
            for (end, token) in ends.iter_mut().zip(2 * i..) {
                poll.registry().register(end, Token(token), Interest::READABLE).expect("is a socket");
            }
            let [client, server] = ends;
            Pair { number, client, server, round: 0, reply: [0; MESSAGE], replied: 0 }
        };
        let pairs = (0..).zip(numbers).map(pair).collect();
        EchoLoop { poll, events: Events::with_capacity(1_024), pairs, echoed: 0 }
    }

    fn run(&mut self, rounds: u64) {
        let mut left = self.pairs.len();
        if rounds == 0 {
            return;
        }
        for pair in &mut self.pairs {
            pair.round = 0;
            write(&mut pair.client, &talk::message(pair.number, 0));
        }
        while left > 0 {
            wait(&mut self.poll, &mut self.events);
            for event in &self.events {
                let Token(token) = event.token();
                let pair = &mut self.pairs[token / 2];
                if token % 2 == 1 {
                    self.echoed += pair.echo();
                } else if pair.hear() {
                    pair.round += 1;
                    match pair.round == rounds {
                        true => left -= 1,
                        false => write(&mut pair.client, &talk::message(pair.number, pair.round)),
                    }
                }
            }
        }
    }
}

impl Pair {
    /// The server's turn.
    fn echo(&mut self) -> u64 {
        let mut buffer = [0; ECHO_BUFFER];
        let len = read(&mut self.server, &mut buffer);
        write(&mut self.server, &buffer[..len]);
        len as u64
    }

    /// The client's; whether the reply is whole.
    fn hear(&mut self) -> bool {
        // One byte more than there can be, so that a full buffer never hides another.
        let mut buffer = [0; MESSAGE + 1];
        let len = read(&mut self.client, &mut buffer);
        assert!(self.replied + len <= MESSAGE, "more comes back than was sent");
        self.reply[self.replied..][..len].copy_from_slice(&buffer[..len]);
        self.replied += len;
        if self.replied < MESSAGE {
            return false;
        }
        talk::compare(&self.reply, self.number, self.round);
        self.replied = 0;
        true
    }
}

struct Open {
    loops: Vec<EchoLoop>,
}

impl Echo for Open {
    fn run(&mut self, round_trips: u64) {
        let connections: usize = self.loops.iter().map(|one| one.pairs.len()).sum();
        let each = round_trips / connections as u64;
        thread::scope(|scope| self.loops.iter_mut().for_each(|one| _ = scope.spawn(move || one.run(each))));
    }

    fn end(self: Box<Self>) -> u64 {
        self.loops.iter().map(|one| one.echoed).sum()
    }
}

const LISTENER: Token = Token(0);
/// Tokens of clients; those of accepted connections are above.
const CLIENTS: usize = 1;
const ACCEPTED: usize = CLIENTS + CHURNERS as usize;

/// A listener of a thread's own, and the connections to it.
struct ChurnLoop {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    address: SocketAddr,
    accepted: Vec<Option<TcpStream>>,
    vacant: Vec<usize>,
}

/// What a client of churn waits for: first to be connected, then for its byte.
struct Client {
    stream: TcpStream,
    byte: u8,
    asked: bool,
}

impl ChurnLoop {
    fn new() -> ChurnLoop {
        let poll = Poll::new().expect("a poll");
        let listener = std::net::TcpListener::bind(LOCAL).expect("a port");
        listener.set_nonblocking(true).expect("is a socket");
        let address = listener.local_addr().expect("is bound");
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).expect("is a socket");
        let (events, accepted) = (Events::with_capacity(1_024), Vec::new());
        ChurnLoop { poll, events, listener, address, accepted, vacant: Vec::new() }
    }

    /// So many connections, by so many clients at a time.
    fn run(&mut self, clients: u64, connections: u64) {
        let (mut begun, mut left) = (0, connections);
        let mut next = |poll: &Poll, i: usize| {
            (begun < connections).then(|| {
                begun += 1;
                let mut stream = TcpStream::connect(self.address).expect("we listen");
                probe::reset_on_close(&stream);
                let both = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut stream, Token(CLIENTS + i), both).expect("is a socket");
                Client { stream, byte: begun as u8, asked: false }
            })
        };
        let mut clients: Vec<Option<Client>> = (0..clients as usize).map(|i| next(&self.poll, i)).collect();
        while left > 0 {
            wait(&mut self.poll, &mut self.events);
            for event in &self.events {
                match event.token() {
                    LISTENER => accept(&self.poll, &self.listener, &mut self.accepted, &mut self.vacant),
                    Token(token) if token >= ACCEPTED => {
                        let slot = &mut self.accepted[token - ACCEPTED];
                        // Gone: what is left of an event of one that was here before.
                        if slot.as_mut().is_some_and(answer) {
                            *slot = None;
                            self.vacant.push(token - ACCEPTED);
                        }
                    }
                    Token(token) => {
                        let slot = &mut clients[token - CLIENTS];
                        if slot.as_mut().is_some_and(|client| client.is_answered(event.is_writable())) {
                            *slot = None;
                            left -= 1;
                            *slot = next(&self.poll, token - CLIENTS);
                        }
                    }
                }
            }
        }
    }
}

impl Client {
    fn is_answered(&mut self, is_writable: bool) -> bool {
        if !self.asked {
            if is_writable {
                assert!(matches!(self.stream.take_error(), Ok(None)), "not connected");
                write(&mut self.stream, &[self.byte]);
                self.asked = true;
            }
            return false;
        }
        let mut reply = [!self.byte];
        if read(&mut self.stream, &mut reply) == 0 {
            return false;
        }
        assert_eq!(reply, [self.byte], "another byte comes back");
        true
    }
}

/// Whether it could.
fn answer(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let there = read(stream, &mut byte) == 1;
    if there {
        write(stream, &byte);
    }
    there
}

fn accept(poll: &Poll, listener: &TcpListener, accepted: &mut Vec<Option<TcpStream>>, vacant: &mut Vec<usize>) {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("cannot accept: {error}"),
        };
        let slot = vacant.pop().unwrap_or_else(|| {
            accepted.push(None);
            accepted.len() - 1
        });
        poll.registry().register(&mut stream, Token(ACCEPTED + slot), Interest::READABLE).expect("is a socket");
        accepted[slot] = Some(stream);
    }
}

fn wait(poll: &mut Poll, events: &mut Events) {
    match poll.poll(events, None) {
        Err(error) if error.kind() != ErrorKind::Interrupted => panic!("cannot poll: {error}"),
        _ => {}
    }
}

/// What is there; 0: nothing. Less than a full buffer: all of it, so there is no second read to find that out.
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> usize {
    match stream.read(buffer) {
        Ok(0) => panic!("the other end is closed"),
        Ok(len) => len,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("cannot read: {error}"),
    }
}

/// All of it: there is always room for a message.
fn write(stream: &mut TcpStream, bytes: &[u8]) {
    match stream.write(bytes) {
        Ok(len) if len == bytes.len() => {}
        other => panic!("cannot write {} bytes: {other:?}", bytes.len()),
    }
}

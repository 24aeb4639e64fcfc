//! std, on plain threads: one at each end.

use super::{CHURNERS, Echo, LOCAL, Sockets, Work, drive, talk};
use crate::drive::Outcome;
use crate::probe;
use crate::rivals::threads::share_out;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

/// Measures one workload.
pub fn run(work: Work) -> Result<Outcome, String> {
    probe::confine(work.procs);
    drive(&Threads, work)
}

struct Threads;

impl Sockets for Threads {
    fn echo(&self, connections: usize) -> Box<dyn Echo> {
        let (clients, servers): (_, Vec<_>) = pairs(connections).unzip();
        let servers = servers.into_iter().map(|mut server| thread::spawn(move || talk::serve(&mut server))).collect();
        Box::new(Open { clients, servers })
    }

    fn churn(&self) -> Box<dyn FnMut(u64)> {
        let address = answering();
        Box::new(move |connections| {
            share_out(CHURNERS, move || {
                for i in 0..connections / CHURNERS {
                    let mut stream = TcpStream::connect(address).expect("the server listens");
                    probe::reset_on_close(&stream);
                    talk::ask(&mut stream, i as u8);
                }
            });
        })
    }

    fn stream(&self, bytes: u64) {
        let (mut client, mut server) = pairs(1).next().expect("one");
        let source = thread::spawn(move || talk::pour(&mut client, bytes));
        talk::drain(&mut server, bytes);
        source.join().expect("does not panic");
    }
}

/// Connections, and what serves them.
struct Open {
    clients: Vec<TcpStream>,
    servers: Vec<JoinHandle<u64>>,
}

impl Echo for Open {
    fn run(&mut self, round_trips: u64) {
        let each = round_trips / self.clients.len() as u64;
        thread::scope(|scope| {
            for (i, client) in (0..).zip(&mut self.clients) {
                scope.spawn(move || talk::converse(client, i, each));
            }
        });
    }

    fn end(self: Box<Self>) -> u64 {
        drop(self.clients);
        self.servers.into_iter().map(|server| server.join().expect("does not panic")).sum()
    }
}

/// So many connections: both ends.
fn pairs(count: usize) -> impl Iterator<Item = (TcpStream, TcpStream)> {
    let listener = TcpListener::bind(LOCAL).expect("a port");
    let address = listener.local_addr().expect("is bound");
    (0..count).map(move |_| {
        let client = TcpStream::connect(address).expect("we listen");
        let (server, _) = listener.accept().expect("it has connected");
        [&client, &server].into_iter().for_each(|end| end.set_nodelay(true).expect("is a socket"));
        (client, server)
    })
}

/// Starts a server that returns a byte to each client, to the end of the process.
fn answering() -> SocketAddr {
    let listener = TcpListener::bind(LOCAL).expect("a port");
    let address = listener.local_addr().expect("is bound");
    thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("nobody is refused");
            thread::spawn(move || talk::answer(&mut stream));
        }
    });
    address
}

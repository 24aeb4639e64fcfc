//! Ours.

use super::{CHURNERS, DIAL_PAUSE, Echo, LOCAL, Sockets, Work, drive, talk};
use crate::drive::Outcome;
use crate::probe;
use crate::rivals::Sink;
use crate::rivals::gort::{inside, share_out};
use rt::JoinHandle;
use rt::net::{TcpListener, TcpStream};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Measures one workload; answers how many bytes the trace has, too.
pub fn run(work: Work, sink: Option<Sink>) -> Result<(Outcome, u64), String> {
    inside(work.procs, sink, move || drive(&Gort, work))
}

/// Its caller is a goroutine.
struct Gort;

impl Sockets for Gort {
    fn echo(&self, connections: usize) -> Box<dyn Echo> {
        let (clients, servers): (_, Vec<_>) = pairs(connections).unzip();
        let servers = servers.into_iter().map(|mut server| rt::go(move || talk::serve(&mut server))).collect();
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
        let source = rt::go(move || talk::pour(&mut client, bytes));
        talk::drain(&mut server, bytes);
        source.join().expect("does not panic");
    }

    fn connect(&self, connections: usize) -> Box<dyn FnOnce()> {
        let (clients, servers): (Vec<_>, Vec<_>) = pairs(connections).unzip();
        let servers: Vec<_> = servers.into_iter().map(|mut server| rt::go(move || talk::serve(&mut server))).collect();
        Box::new(move || {
            drop(clients);
            servers.into_iter().for_each(|server| assert_eq!(server.join().expect("does not panic"), 0));
        })
    }

    fn dial(&self, busy: usize, dials: usize) -> Vec<Duration> {
        let address = answering();
        let stop = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..busy)
            .map(|_| {
                let stop = Arc::clone(&stop);
                rt::go(move || talk::compute(&stop))
            })
            .collect();
        rt::time::sleep(50 * DIAL_PAUSE);
        let dial = |i| {
            rt::time::sleep(DIAL_PAUSE);
            let start = Instant::now();
            let mut stream = TcpStream::connect(address).expect("the server listens");
            talk::ask(&mut stream, i as u8);
            start.elapsed()
        };
        let took = (0..dials).map(dial).collect();
        // ORDER: Relaxed; it orders nothing.
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|one| assert_ne!(one.join().expect("does not panic"), 0));
        took
    }

    fn pause(&self, duration: Duration) {
        rt::time::sleep(duration);
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
        let clients: Vec<_> = (0..)
            .zip(self.clients.drain(..))
            .map(|(i, mut client)| {
                rt::go(move || {
                    talk::converse(&mut client, i, each);
                    client
                })
            })
            .collect();
        self.clients.extend(clients.into_iter().map(|client| client.join().expect("does not panic")));
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
    rt::go(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("nobody is refused");
            rt::go(move || talk::answer(&mut stream));
        }
    });
    address
}

//! may.

use super::{CHURNERS, Echo, LOCAL, Sockets, Work, drive, talk};
use crate::drive::Outcome;
use crate::probe;
use crate::rivals::may::{inside, share_out, start};
use may::coroutine::JoinHandle;
use may::go;
use may::net::{TcpListener, TcpStream};

/// Measures one workload.
pub fn run(work: Work) -> Result<Outcome, String> {
    start(work.procs);
    drive(&May, work)
}

/// Its caller is a thread.
struct May;

impl Sockets for May {
    fn echo(&self, connections: usize) -> Box<dyn Echo> {
        inside(move || {
            let (clients, servers): (_, Vec<_>) = pairs(connections).unzip();
            let servers = servers.into_iter().map(|mut server| go!(move || talk::serve(&mut server))).collect();
            Box::new(Open { clients, servers })
        })
    }

    fn churn(&self) -> Box<dyn FnMut(u64)> {
        let address = inside(|| {
            let listener = TcpListener::bind(LOCAL).expect("a port");
            let address = listener.local_addr().expect("is bound");
            drop(go!(move || {
                loop {
                    let (mut stream, _) = listener.accept().expect("nobody is refused");
                    drop(go!(move || talk::answer(&mut stream)));
                }
            }));
            address
        });
        Box::new(move |connections| {
            inside(move || {
                share_out(CHURNERS, move || {
                    for i in 0..connections / CHURNERS {
                        let mut stream = TcpStream::connect(address).expect("the server listens");
                        probe::reset_on_close(&stream);
                        talk::ask(&mut stream, i as u8);
                    }
                });
            });
        })
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
        let clients = std::mem::take(&mut self.clients);
        self.clients = inside(move || {
            let clients: Vec<JoinHandle<TcpStream>> = (0..)
                .zip(clients)
                .map(|(i, mut client)| {
                    go!(move || {
                        talk::converse(&mut client, i, each);
                        client
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("does not panic")).collect()
        });
    }

    fn end(self: Box<Self>) -> u64 {
        inside(move || {
            drop(self.clients);
            self.servers.into_iter().map(|server| server.join().expect("does not panic")).sum()
        })
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

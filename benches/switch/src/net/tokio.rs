//! tokio.

use super::{CHURNERS, ECHO_BUFFER, Echo, LOCAL, MESSAGE, STREAM_BUFFER, Sockets, Work, drive, talk};
use crate::drive::Outcome;
use crate::probe;
use crate::rivals::tokio::{Tokio, share_out};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Measures one workload.
pub fn run(work: Work) -> Result<Outcome, String> {
    drive(&Tokio::start(work.procs)?, work)
}

impl Sockets for Tokio {
    fn echo(&self, connections: usize) -> Box<dyn Echo + '_> {
        let (clients, servers) = self.inside(async move {
            let (clients, servers): (_, Vec<_>) = pairs(connections).await.into_iter().unzip();
            (clients, servers.into_iter().map(|server| tokio::spawn(serve(server))).collect())
        });
        Box::new(Open { tokio: self, clients, servers })
    }

    fn churn(&self) -> Box<dyn FnMut(u64) + '_> {
        let address = self.inside(async {
            let listener = TcpListener::bind(LOCAL).await.expect("a port");
            let address = listener.local_addr().expect("is bound");
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.expect("nobody is refused");
                    tokio::spawn(answer(stream));
                }
            });
            address
        });
        Box::new(move |connections| {
            self.inside(share_out(CHURNERS, move || ask(address, connections / CHURNERS)));
        })
    }

    fn stream(&self, bytes: u64) {
        self.inside(async move {
            let (mut client, mut server) = pairs(1).await.pop().expect("one");
            let source = tokio::spawn(async move {
                let water = talk::water();
                for _ in 0..bytes / STREAM_BUFFER as u64 {
                    client.write_all(&water).await.expect("somebody reads");
                }
            });
            let (mut gauge, mut buffer) = (talk::Gauge::new(), vec![0; STREAM_BUFFER]);
            loop {
                let len = server.read(&mut buffer).await.expect("somebody writes");
                if !gauge.passes(&buffer[..len]) {
                    break;
                }
            }
            gauge.reads(bytes);
            source.await.expect("does not panic");
        });
    }

    fn connect(&self, connections: usize) -> Box<dyn FnOnce() + '_> {
        let open = self.echo(connections);
        Box::new(move || assert_eq!(open.end(), 0))
    }
}

/// Connections, and what serves them.
struct Open<'a> {
    tokio: &'a Tokio,
    clients: Vec<TcpStream>,
    servers: Vec<JoinHandle<u64>>,
}

impl Echo for Open<'_> {
    fn run(&mut self, round_trips: u64) {
        let each = round_trips / self.clients.len() as u64;
        let clients = std::mem::take(&mut self.clients);
        self.clients = self.tokio.inside(async move {
            let all: Vec<_> = (0..).zip(clients).map(|(i, client)| tokio::spawn(converse(client, i, each))).collect();
            let mut clients = Vec::new();
            for one in all {
                clients.push(one.await.expect("does not panic"));
            }
            clients
        });
    }

    fn end(self: Box<Self>) -> u64 {
        let Open { tokio, clients, servers } = *self;
        tokio.inside(async move {
            drop(clients);
            let mut echoed = 0;
            for server in servers {
                echoed += server.await.expect("does not panic");
            }
            echoed
        })
    }
}

/// So many connections: both ends.
async fn pairs(count: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(LOCAL).await.expect("a port");
    let address = listener.local_addr().expect("is bound");
    let mut pairs = Vec::new();
    for _ in 0..count {
        let client = TcpStream::connect(address).await.expect("we listen");
        let (server, _) = listener.accept().await.expect("it has connected");
        [&client, &server].into_iter().for_each(|end| end.set_nodelay(true).expect("is a socket"));
        pairs.push((client, server));
    }
    pairs
}

async fn converse(mut stream: TcpStream, connection: u64, rounds: u64) -> TcpStream {
    let mut reply = [0; MESSAGE];
    for round in 0..rounds {
        stream.write_all(&talk::message(connection, round)).await.expect("the server reads");
        stream.read_exact(&mut reply).await.expect("the server answers");
        talk::compare(&reply, connection, round);
    }
    stream
}

async fn serve(mut stream: TcpStream) -> u64 {
    let mut buffer = [0; ECHO_BUFFER];
    let mut echoed = 0;
    loop {
        let len = stream.read(&mut buffer).await.expect("the client writes");
        if len == 0 {
            return echoed;
        }
        stream.write_all(&buffer[..len]).await.expect("the client reads");
        echoed += len as u64;
    }
}

async fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    stream.read_exact(&mut byte).await.expect("the client writes");
    stream.write_all(&byte).await.expect("the client reads");
}

async fn ask(address: SocketAddr, connections: u64) {
    for i in 0..connections {
        let byte = i as u8;
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        probe::reset_on_close(&stream);
        stream.write_all(&[byte]).await.expect("the server reads");
        let mut reply = [!byte];
        stream.read_exact(&mut reply).await.expect("the server answers");
        assert_eq!(reply, [byte], "another byte comes back");
    }
}

//! smol.

use super::{CHURNERS, ECHO_BUFFER, Echo, LOCAL, MESSAGE, Sockets, Work, drive, talk};
use crate::drive::Outcome;
use crate::probe;
use crate::rivals::smol::{EXECUTOR, inside, share_out, start};
use smol::Task;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use std::net::SocketAddr;

/// Measures one workload.
pub fn run(work: Work) -> Result<Outcome, String> {
    start(work.procs);
    drive(&Smol, work)
}

/// Its caller is a thread.
struct Smol;

impl Sockets for Smol {
    fn echo(&self, connections: usize) -> Box<dyn Echo> {
        let (clients, servers) = inside(async move {
            let (clients, servers): (_, Vec<_>) = pairs(connections).await.into_iter().unzip();
            (clients, servers.into_iter().map(|server| EXECUTOR.spawn(serve(server))).collect())
        });
        Box::new(Open { clients, servers })
    }

    fn churn(&self) -> Box<dyn FnMut(u64)> {
        let address = inside(async {
            let listener = TcpListener::bind(LOCAL).await.expect("a port");
            let address = listener.local_addr().expect("is bound");
            let accepts = async move {
                loop {
                    let (stream, _) = listener.accept().await.expect("nobody is refused");
                    EXECUTOR.spawn(answer(stream)).detach();
                }
            };
            EXECUTOR.spawn(accepts).detach();
            address
        });
        Box::new(move |connections| inside(share_out(CHURNERS, move || ask(address, connections / CHURNERS))))
    }
}

/// Connections, and what serves them.
struct Open {
    clients: Vec<TcpStream>,
    servers: Vec<Task<u64>>,
}

impl Echo for Open {
    fn run(&mut self, round_trips: u64) {
        let each = round_trips / self.clients.len() as u64;
        let clients = std::mem::take(&mut self.clients);
        self.clients = inside(async move {
            let all: Vec<_> = (0..).zip(clients).map(|(i, client)| EXECUTOR.spawn(converse(client, i, each))).collect();
            let mut clients = Vec::new();
            for one in all {
                clients.push(one.await);
            }
            clients
        });
    }

    fn end(self: Box<Self>) -> u64 {
        inside(async move {
            drop(self.clients);
            let mut echoed = 0;
            for server in self.servers {
                echoed += server.await;
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

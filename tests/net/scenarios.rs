//! What happens to sockets, for whatever types the parent has: std's, in threads, or ours. Each scenario notes what each call gives; the
//! notes must be the same. So nothing that depends on the moment or on a port is noted.

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::sockets::{deserted, loopback};

use super::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, start};

/// What calls gave: values, or kinds of errors.
#[derive(Default)]
pub struct Notes(pub Vec<String>);

impl Notes {
    fn add(&mut self, what: &str, result: io::Result<impl Debug>) {
        self.0.push(match result {
            Ok(value) => format!("{what}: {value:?}"),
            Err(e) => format!("{what}: {:?}", e.kind()),
        });
    }

    /// The text of a value, without its numbers: ports and descriptors.
    fn text(&mut self, what: &str, value: impl Debug) {
        let text: String = format!("{value:?}").chars().filter(|c| !c.is_ascii_digit()).collect();
        self.0.push(format!("{what}: {text}"));
    }
}

pub type Scenario = fn(&mut Notes);

pub const ALL: [(&str, Scenario); 15] = [
    ("tcp_addresses", tcp_addresses),
    ("tcp_options", tcp_options),
    ("tcp_bytes", tcp_bytes),
    ("tcp_halves", tcp_halves),
    ("tcp_reset", tcp_reset),
    ("tcp_limits", tcp_limits),
    ("tcp_nonblocking", tcp_nonblocking),
    ("tcp_clones", tcp_clones),
    ("udp_datagrams", udp_datagrams),
    ("udp_options", udp_options),
    ("udp_limits", udp_limits),
    ("unix_paths", unix_paths),
    ("unix_streams", unix_streams),
    ("unix_datagrams", unix_datagrams),
    ("unix_datagrams_shut_down", unix_datagrams_shut_down),
];

const SHORT: Duration = Duration::from_millis(40);

/// Two ends of a connection.
fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// A path for a socket, where nothing is.
fn path(name: &str) -> PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let side = module_path!().split("::").nth(1).unwrap_or("");
    // Not below the target folder, whose path may be too long for a socket's.
    let path = std::env::temp_dir().join(format!("gort-{}-{side}-{n}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Writes until an error comes, which it gives.
fn fill(mut stream: impl Write) -> io::Result<()> {
    loop {
        stream.write_all(&[7; 1 << 16])?;
    }
}

fn tcp_addresses(notes: &mut Notes) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (deserted, _fd) = deserted();
    notes.text("bound", addr);
    notes.text("debug of a listener", &listener);
    notes.add("bind to the same", TcpListener::bind(addr).map(|_| ()));
    notes.add("bind to another's", TcpListener::bind("192.0.2.1:0").map(|_| ()));
    notes.add("bind to nothing", TcpListener::bind(&[][..]).map(|_| ()));
    notes.add("bind to the second", TcpListener::bind(&[addr, loopback()][..]).map(|_| ()));
    notes.add("nobody there", TcpStream::connect(deserted).map(|_| ()));
    notes.add("nobody there, in time", TcpStream::connect_timeout(&deserted, SHORT).map(|_| ()));
    notes.add("in no time", TcpStream::connect_timeout(&addr, Duration::ZERO).map(|_| ()));
    notes.add("no address", TcpStream::connect(&[][..]).map(|_| ()));
    for text in ["", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:http", ":80x"] {
        notes.add(text, TcpStream::connect(text).map(|_| ()));
        notes.add(text, UdpSocket::bind(text.to_owned()).map(|_| ()));
    }
    notes.add("broadcast", TcpStream::connect("255.255.255.255:9").map(|_| ()));
    notes.add("the second answers", TcpStream::connect(&[deserted, addr][..]).map(|_| ()));
    notes.add("none answers", TcpStream::connect(&[deserted, deserted][..]).map(|_| ()));
    let SocketAddr::V4(v4) = addr else { unreachable!("bound to one") };
    let text = addr.to_string();
    let ways: [io::Result<TcpStream>; 9] = [
        TcpStream::connect(addr),
        TcpStream::connect(v4),
        TcpStream::connect(SocketAddrV4::new(*v4.ip(), v4.port())),
        TcpStream::connect(("127.0.0.1", addr.port())),
        TcpStream::connect(("127.0.0.1".to_owned(), addr.port())),
        TcpStream::connect((IpAddr::V4(*v4.ip()), addr.port())),
        TcpStream::connect(&*text),
        TcpStream::connect(&text),
        TcpStream::connect_timeout(&addr, Duration::from_secs(60)),
    ];
    for stream in ways {
        let stream = stream.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addr);
        notes.text("debug of a stream", &stream);
        // The attempts above are in the queue as well.
        let (peer, from) = loop {
            let (peer, from) = listener.accept().unwrap();
            if from == stream.local_addr().unwrap() {
                break (peer, from);
            }
        };
        assert_eq!(peer.local_addr().unwrap(), addr);
        assert_eq!(peer.peer_addr().unwrap(), from);
    }
    let named = TcpStream::connect(("localhost", addr.port()));
    notes.add("by name", named.map(|_| ()));
    // A new one, whose queue is empty.
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    let stream = TcpStream::connect(addr).unwrap();
    let end = start(move || {
        let mut n = 0;
        for stream in listener.incoming().take(2) {
            drop(stream.unwrap());
            n += 1;
        }
        n
    });
    drop((stream, TcpStream::connect(addr).unwrap()));
    notes.add("incoming", Ok(end.join().unwrap()));
}

fn tcp_options(notes: &mut Notes) {
    let listener = TcpListener::bind(loopback()).unwrap();
    listener.set_ttl(33).unwrap();
    notes.add("listener's ttl", listener.ttl());
    notes.add("listener's error", listener.take_error().map(|e| e.map(|e| e.kind())));
    let (near, far) = tcp();
    notes.add("nodelay", near.nodelay());
    notes.add("set_nodelay", near.set_nodelay(true));
    notes.add("nodelay", near.nodelay());
    notes.add("ttl", near.ttl());
    notes.add("set_ttl", near.set_ttl(44));
    notes.add("ttl", near.ttl());
    notes.add("set_ttl to none", near.set_ttl(0));
    notes.add("set_ttl to too many", near.set_ttl(256));
    notes.add("error", near.take_error().map(|e| e.map(|e| e.kind())));
    for (set, get) in [
        (TcpStream::set_read_timeout as fn(&TcpStream, _) -> _, TcpStream::read_timeout as fn(&TcpStream) -> _),
        (TcpStream::set_write_timeout, TcpStream::write_timeout),
    ] {
        notes.add("time-out", get(&near));
        notes.add("set to zero", set(&near, Some(Duration::ZERO)));
        notes.add("set", set(&near, Some(SHORT)));
        notes.add("time-out", get(&near));
        notes.add("set to none", set(&near, None));
        notes.add("time-out", get(&near));
        notes.add("the other end's", get(&far));
    }
}

fn tcp_bytes(notes: &mut Notes) {
    let (mut near, mut far) = tcp();
    let mut buf = [0; 16];
    notes.add("write", near.write(b"hello"));
    notes.add("peek at some", far.peek(&mut buf[..3]));
    notes.add("peek at all", far.peek(&mut buf));
    notes.add("peek at nothing", far.peek(&mut []));
    notes.add("read nothing", far.read(&mut []));
    notes.add("read nothing into many", far.read_vectored(&mut [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])]));
    notes.add("read into none", far.read_vectored(&mut []));
    notes.add("write nothing", near.write(&[]));
    notes.add("write nothing of many", near.write_vectored(&[IoSlice::new(&[]), IoSlice::new(&[])]));
    notes.add("write none", near.write_vectored(&[]));
    notes.add("read some", far.read(&mut buf[..2]));
    notes.add("read the rest", far.read(&mut buf));
    notes.add("bytes", Ok(buf));
    notes.add("write many", near.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdefg")]));
    let (mut one, mut two) = ([0; 3], [0; 9]);
    notes.add("read into many", far.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]));
    notes.add("bytes", Ok((one, two)));
    // More than one call takes: the system's limit of buffers is not an error.
    let bytes: Vec<u8> = (0..3000).map(|i| i as u8).collect();
    let slices: Vec<_> = bytes.iter().map(|b| IoSlice::new(std::slice::from_ref(b))).collect();
    let n = near.write_vectored(&slices);
    notes.add("write very many", n);
    let mut back = [0; 1024];
    notes.add("read them", far.read_exact(&mut back));
    notes.add("flush", near.flush());
    // Through references, both ways at once.
    let big = vec![3u8; 1 << 20];
    let (a, b) = (std::sync::Arc::new(near), std::sync::Arc::new(far));
    let hands: Vec<_> = [a.clone(), b.clone()]
        .into_iter()
        .map(|s| {
            let big = big.clone();
            start(move || (&*s).write_all(&big).map_err(|e| e.kind()))
        })
        .collect();
    let eyes: Vec<_> = [a, b]
        .into_iter()
        .map(|s| start(move || (&*s).take(1 << 20).read_to_end(&mut Vec::new()).map_err(|e| e.kind())))
        .collect();
    for hand in hands {
        notes.add("write at the same time", Ok(hand.join().unwrap()));
    }
    for eye in eyes {
        notes.add("read at the same time", Ok(eye.join().unwrap()));
    }
}

fn tcp_halves(notes: &mut Notes) {
    let (mut near, mut far) = tcp();
    near.write_all(b"last words").unwrap();
    notes.add("shut down writing", near.shutdown(Shutdown::Write));
    notes.add("again", near.shutdown(Shutdown::Write));
    notes.add("write", near.write(b"x"));
    notes.add("write nothing", near.write(b""));
    notes.add("write many", near.write_vectored(&[IoSlice::new(b"x")]));
    notes.add("write none of many", near.write_vectored(&[IoSlice::new(b""), IoSlice::new(b"")]));
    let mut text = String::new();
    notes.add("the rest", far.read_to_string(&mut text));
    notes.add("text", Ok(text));
    notes.add("after the end", far.read(&mut [0; 4]));
    notes.add("peek after the end", far.peek(&mut [0; 4]));
    notes.add("nothing after the end", far.read(&mut []));
    notes.add("answer", far.write(b"answer"));
    let mut buf = [0; 6];
    notes.add("the answer", near.read_exact(&mut buf));
    // The other half, while somebody reads.
    let (near, mut far) = tcp();
    let near = std::sync::Arc::new(near);
    let reader = {
        let near = near.clone();
        start(move || (&*near).read(&mut [0; 4]).map_err(|e| e.kind()))
    };
    std::thread::sleep(Duration::from_millis(5));
    notes.add("shut down reading", near.shutdown(Shutdown::Read));
    notes.add("who reads", Ok(reader.join().unwrap()));
    notes.add("who reads later", (&*near).read(&mut [0; 4]));
    notes.add("write on", (&*near).write(b"abc"));
    notes.add("read that", far.read(&mut [0; 8]));
    notes.add("shut down both", near.shutdown(Shutdown::Both));
    notes.add("write after that", (&*near).write(b"abc"));
    notes.add("end", far.read(&mut [0; 8]));
}

fn tcp_reset(notes: &mut Notes) {
    let (mut near, far) = tcp();
    near.write_all(b"unread").unwrap();
    // Until they are there; a close would be a polite one otherwise.
    notes.add("peek", far.peek(&mut [0; 6]));
    drop(far);
    notes.add("read", near.read(&mut [0; 4]));
    notes.add("read again", near.read(&mut [0; 4]));
    notes.add("write", near.write(b"x"));
    notes.add("peer", near.peer_addr().map(|_| ()));
    notes.add("shut down", near.shutdown(Shutdown::Both));
    let (near, far) = tcp();
    (&near).write_all(b"unread").unwrap();
    far.peek(&mut [0; 6]).unwrap();
    drop(far);
    notes.add("fill", fill(&near));
}

fn tcp_limits(notes: &mut Notes) {
    let (mut near, mut far) = tcp();
    near.set_read_timeout(Some(SHORT)).unwrap();
    notes.add("read", near.read(&mut [0; 4]));
    notes.add("peek", near.peek(&mut [0; 4]));
    notes.add("read many", near.read_vectored(&mut [IoSliceMut::new(&mut [0; 4])]));
    far.write_all(b"ab").unwrap();
    notes.add("read what is there", near.read(&mut [0; 4]));
    notes.add("read on", near.read(&mut [0; 4]));
    near.set_read_timeout(None).unwrap();
    let writer = start(move || {
        std::thread::sleep(2 * SHORT);
        far.write_all(b"cd").unwrap();
        far
    });
    notes.add("read for as long as it takes", near.read(&mut [0; 4]));
    let far = writer.join().unwrap();
    near.set_write_timeout(Some(SHORT)).unwrap();
    notes.add("fill", fill(&near));
    notes.add("fill again", fill(&near));
    notes.add("write nothing", near.write(b""));
    notes.add("read, which is another matter", near.set_nonblocking(true).and_then(|()| near.read(&mut [0; 4])));
    near.set_nonblocking(false).unwrap();
    near.set_write_timeout(None).unwrap();
    drop(far);
    notes.add("the peer is gone", fill(&near));
}

fn tcp_nonblocking(notes: &mut Notes) {
    let listener = TcpListener::bind(loopback()).unwrap();
    listener.set_nonblocking(true).unwrap();
    notes.add("accept", listener.accept().map(|_| ()));
    notes.add("incoming", listener.incoming().next().unwrap().map(|_| ()));
    listener.set_nonblocking(false).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut near = TcpStream::connect(addr).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    notes.add("read", near.read(&mut [0; 4]));
    notes.add("peek", near.peek(&mut [0; 4]));
    notes.add("fill", fill(&near));
    far.write_all(b"ab").unwrap();
    near.set_nonblocking(false).unwrap();
    notes.add("read, which waits again", near.read(&mut [0; 4]));
}

fn tcp_clones(notes: &mut Notes) {
    let (near, mut far) = tcp();
    let mut twin = near.try_clone().unwrap();
    twin.set_nonblocking(true).unwrap();
    notes.add("what one sets holds for the other", (&near).read(&mut [0; 4]));
    near.set_nonblocking(false).unwrap();
    twin.set_read_timeout(Some(SHORT)).unwrap();
    notes.add("time-out", near.read_timeout());
    notes.add("read", (&near).read(&mut [0; 4]));
    twin.set_read_timeout(None).unwrap();
    drop(near);
    far.write_all(b"abc").unwrap();
    notes.add("one is gone", twin.read(&mut [0; 4]));
    let last = twin.try_clone().unwrap();
    notes.add("shut down by the other", last.shutdown(Shutdown::Write));
    notes.add("write", twin.write(b"x"));
    notes.add("end", far.read(&mut [0; 4]));
    let listener = TcpListener::bind(loopback()).unwrap();
    let (twin, addr) = (listener.try_clone().unwrap(), listener.local_addr().unwrap());
    drop(listener);
    let client = start(move || TcpStream::connect(addr).map(|_| ()).map_err(|e| e.kind()));
    notes.add("accept", twin.accept().map(|_| ()));
    notes.add("connect", Ok(client.join().unwrap()));
    drop(twin);
    notes.add("nobody listens", TcpStream::connect(addr).map(|_| ()));
}

fn udp() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(loopback()).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

fn udp_datagrams(notes: &mut Notes) {
    let ((a, at_a), (b, at_b)) = (udp(), udp());
    let mut buf = [0; 16];
    notes.text("debug", &a);
    notes.add("send", a.send(b"x"));
    notes.add("peer", a.peer_addr().map(|_| ()));
    notes.add("send to nobody", a.send_to(b"x", &[][..]));
    notes.add("send to nonsense", a.send_to(b"x", "nonsense"));
    notes.add("bind to the same", UdpSocket::bind(at_a).map(|_| ()));
    notes.add("too long", a.send_to(&[0; 1 << 17], at_b));
    for text in [&b"hello"[..], b"", b"what does not fit into the buffer is lost", b"more"] {
        notes.add("send to", a.send_to(text, at_b));
        notes.add("peek from", b.peek_from(&mut buf).map(|(n, from)| (n, from == at_a)));
        notes.add("peek", b.peek(&mut buf[..2]));
        notes.add("recv from", b.recv_from(&mut buf).map(|(n, from)| (n, from == at_a)));
        notes.add("bytes", Ok(buf));
    }
    a.send_to(b"full", at_b).unwrap();
    notes.add("recv nothing", b.recv(&mut []));
    a.connect(at_b).unwrap();
    notes.add("peer", a.peer_addr().map(|peer| peer == at_b));
    notes.add("send", a.send(b"by send"));
    notes.add("recv", b.recv(&mut buf));
    // From somebody else.
    let (c, _) = udp();
    c.send_to(b"not for a", at_a).unwrap();
    b.send_to(b"for a", at_a).unwrap();
    notes.add("recv from the peer only", a.recv(&mut buf));
    drop(b);
    notes.add("send to who is gone", a.send(b"x"));
    notes.add("recv from who is gone", a.recv(&mut buf));
    notes.add("send again", a.send(b"x"));
    notes.add("that error again", a.take_error().map(|e| e.map(|e| e.kind())));
    let clone = c.try_clone().unwrap();
    drop(c);
    notes.add("a clone", clone.send_to(b"x", at_a));
}

fn udp_options(notes: &mut Notes) {
    let (a, _) = udp();
    let any = Ipv4Addr::UNSPECIFIED;
    notes.add("broadcast", a.broadcast());
    notes.add("without leave", a.send_to(b"x", "255.255.255.255:9").map(|_| ()));
    notes.add("set", a.set_broadcast(true));
    notes.add("broadcast", a.broadcast());
    notes.add("set", a.set_ttl(9));
    notes.add("ttl", a.ttl());
    notes.add("set", a.set_multicast_loop_v4(false));
    notes.add("loop", a.multicast_loop_v4());
    notes.add("set", a.set_multicast_ttl_v4(7));
    notes.add("multicast ttl", a.multicast_ttl_v4());
    notes.add("join", a.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 123), &any));
    notes.add("leave", a.leave_multicast_v4(&Ipv4Addr::new(224, 0, 0, 123), &any));
    notes.add("leave again", a.leave_multicast_v4(&Ipv4Addr::new(224, 0, 0, 123), &any));
    notes.add("join what is no group", a.join_multicast_v4(&Ipv4Addr::LOCALHOST, &any));
    notes.add("error", a.take_error().map(|e| e.map(|e| e.kind())));
    let six = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0));
    notes.add("version 6", six.as_ref().map(|_| ()).map_err(|e| e.kind().into()));
    if let Ok(six) = six {
        notes.add("set", six.set_multicast_loop_v6(false));
        notes.add("loop", six.multicast_loop_v6());
        notes.add("join", six.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0));
        notes.add("leave", six.leave_multicast_v6(&Ipv6Addr::LOCALHOST, 0));
    }
}

fn udp_limits(notes: &mut Notes) {
    let (a, at_a) = udp();
    notes.add("set to zero", a.set_read_timeout(Some(Duration::ZERO)));
    notes.add("set to zero", a.set_write_timeout(Some(Duration::ZERO)));
    a.set_read_timeout(Some(SHORT)).unwrap();
    a.set_write_timeout(Some(SHORT)).unwrap();
    notes.add("time-outs", Ok((a.read_timeout().unwrap(), a.write_timeout().unwrap())));
    let mut buf = [0; 4];
    notes.add("recv", a.recv(&mut buf));
    notes.add("recv from", a.recv_from(&mut buf).map(|_| ()));
    notes.add("peek", a.peek(&mut buf));
    notes.add("peek from", a.peek_from(&mut buf).map(|_| ()));
    notes.add("send", a.send_to(b"x", at_a));
    notes.add("recv", a.recv(&mut buf));
    a.set_read_timeout(None).unwrap();
    a.set_nonblocking(true).unwrap();
    notes.add("recv", a.recv(&mut buf));
    a.set_nonblocking(false).unwrap();
    let sender = start(move || {
        std::thread::sleep(SHORT);
        UdpSocket::bind(loopback()).unwrap().send_to(b"late", at_a).unwrap()
    });
    notes.add("recv", a.recv(&mut buf));
    sender.join().unwrap();
}

fn unix_paths(notes: &mut Notes) {
    let at = path("listener");
    notes.add("connect to nothing", UnixStream::connect(&at).map(|_| ()));
    let listener = UnixListener::bind(&at).unwrap();
    notes.add("bind again", UnixListener::bind(&at).map(|_| ()));
    notes.add("where", listener.local_addr().map(|a| a.as_pathname() == Some(&*at)));
    notes.add("error", listener.take_error().map(|e| e.map(|e| e.kind())));
    let near = UnixStream::connect(&at).unwrap();
    let (far, from) = listener.accept().unwrap();
    notes.text("from", from);
    notes.add("local", near.local_addr().map(|a| a.is_unnamed()));
    notes.add("peer", near.peer_addr().map(|a| a.as_pathname() == Some(&*at)));
    notes.add("far's local", far.local_addr().map(|a| a.as_pathname() == Some(&*at)));
    notes.add("far's peer", far.peer_addr().map(|a| a.is_unnamed()));
    let clients = [UnixStream::connect(&at).unwrap(), UnixStream::connect(&at).unwrap()];
    notes.add("incoming", Ok(listener.incoming().take(1).map(|s| s.map(|_| ()).is_ok()).collect::<Vec<_>>()));
    let by_reference = |each: &UnixListener| each.into_iter().next().unwrap().map(|_| ());
    notes.add("each", by_reference(&listener));
    drop(clients);
    listener.set_nonblocking(true).unwrap();
    notes.add("accept", listener.accept().map(|_| ()));
    drop(listener);
    notes.add("nobody listens", UnixStream::connect(&at).map(|_| ()));
    let long = std::env::temp_dir().join("x".repeat(200));
    let too_long: [io::Result<()>; 5] = [
        UnixStream::connect(&long).map(|_| ()),
        UnixListener::bind(&long).map(|_| ()),
        UnixDatagram::bind(&long).map(|_| ()),
        UnixDatagram::unbound().unwrap().connect(&long),
        UnixDatagram::unbound().unwrap().send_to(b"x", &long).map(|_| ()),
    ];
    too_long.into_iter().for_each(|r| notes.add("too long", r));
    notes.add("with a zero", UnixStream::connect("with\0zero").map(|_| ()));
    notes.add("empty", UnixStream::connect("").map(|_| ()));
    notes.add("no socket", UnixStream::connect(std::env::temp_dir()).map(|_| ()));
    notes.add("no place", UnixListener::bind("/nowhere/at/all").map(|_| ()));
    let datagrams = path("datagrams");
    let datagram = UnixDatagram::bind(&datagrams).unwrap();
    notes.add("of another kind", UnixStream::connect(&datagrams).map(|_| ()));
    drop(datagram);
    let _ = std::fs::remove_file(&at);
    let _ = std::fs::remove_file(&datagrams);
}

fn unix_streams(notes: &mut Notes) {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let mut buf = [0; 16];
    notes.add("has a descriptor", Ok(near.as_raw_fd() > 2));
    notes.add("local", near.local_addr().map(|a| a.is_unnamed()));
    notes.add("peer", near.peer_addr().map(|a| a.is_unnamed()));
    notes.add("write", near.write(b"hello"));
    notes.add("read nothing", far.read(&mut []));
    notes.add("write nothing", near.write(&[]));
    notes.add("write many", near.write_vectored(&[IoSlice::new(b" the"), IoSlice::new(b"re")]));
    notes.add("read", far.read(&mut buf[..11]));
    notes.add("bytes", Ok(buf));
    near.write_all(b"abcdef").unwrap();
    let (mut one, mut two) = ([0; 3], [0; 9]);
    notes.add("read many", far.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]));
    notes.add("bytes", Ok((one, two)));
    notes.add("set to zero", near.set_read_timeout(Some(Duration::ZERO)));
    near.set_read_timeout(Some(SHORT)).unwrap();
    near.set_write_timeout(Some(SHORT)).unwrap();
    notes.add("time-outs", Ok((near.read_timeout().unwrap(), near.write_timeout().unwrap())));
    notes.add("read", near.read(&mut buf));
    notes.add("fill", fill(&near));
    notes.add("write nothing", near.write(b""));
    near.set_nonblocking(true).unwrap();
    notes.add("write", near.write(b"x"));
    notes.add("read", near.read(&mut buf));
    near.set_nonblocking(false).unwrap();
    let drain = start(move || io::copy(&mut far, &mut io::sink()).map(|n| n > 0).map_err(|e| e.kind()));
    near.set_write_timeout(None).unwrap();
    notes.add("write", near.write_all(&[1; 1 << 20]));
    notes.add("shut down writing", near.shutdown(Shutdown::Write));
    notes.add("write", near.write(b"x"));
    notes.add("write nothing", near.write(b""));
    notes.add("drained", Ok(drain.join().unwrap()));
    notes.add("end", near.read(&mut buf));
    // Gone without a word, with something unread.
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"unread").unwrap();
    drop(far);
    notes.add("read", near.read(&mut buf));
    notes.add("read again", near.read(&mut buf));
    notes.add("write", near.write(b"x"));
    let (near, far) = UnixStream::pair().unwrap();
    let twin = near.try_clone().unwrap();
    notes.add("shut down reading", twin.shutdown(Shutdown::Read));
    notes.add("read", (&near).read(&mut buf));
    notes.add("write to who does not read", (&far).write(b"x"));
    notes.add("error", near.take_error().map(|e| e.map(|e| e.kind())));
}

fn unix_datagrams(notes: &mut Notes) {
    let (a, b) = UnixDatagram::pair().unwrap();
    let mut buf = [0; 16];
    for text in [&b"hello"[..], b"", b"what does not fit into the buffer is lost", b"more"] {
        notes.add("send", a.send(text));
        notes.add("recv", b.recv(&mut buf));
        notes.add("bytes", Ok(buf));
    }
    notes.add("peer", a.peer_addr().map(|a| a.is_unnamed()));
    notes.add("local", a.local_addr().map(|a| a.is_unnamed()));
    let lone = UnixDatagram::unbound().unwrap();
    notes.add("send", lone.send(b"x"));
    notes.add("peer", lone.peer_addr().map(|_| ()));
    notes.add("send to nothing", lone.send_to(b"x", path("nothing")));
    notes.add("connect to nothing", lone.connect(path("nothing")));
    let at = path("bound");
    let bound = UnixDatagram::bind(&at).unwrap();
    notes.add("bind again", UnixDatagram::bind(&at).map(|_| ()));
    notes.add("send to", lone.send_to(b"abc", &at));
    notes.add("from", bound.recv_from(&mut buf).map(|(n, from)| (n, from.is_unnamed())));
    notes.add("connect", lone.connect(&at));
    notes.add("send", lone.send(b"abcd"));
    notes.add("recv", bound.recv(&mut buf));
    notes.add("set to zero", bound.set_read_timeout(Some(Duration::ZERO)));
    bound.set_read_timeout(Some(SHORT)).unwrap();
    notes.add("time-out", bound.read_timeout());
    notes.add("recv", bound.recv(&mut buf));
    notes.add("recv from", bound.recv_from(&mut buf).map(|_| ()));
    // Until its queue is full: of a peer, and of one that is only sent to.
    lone.set_write_timeout(Some(SHORT)).unwrap();
    notes.add(
        "fill",
        loop {
            if let Err(e) = lone.send(b"x") {
                break io::Result::<()>::Err(e);
            }
        },
    );
    notes.add("send to the full", lone.send_to(b"x", &at));
    lone.set_nonblocking(true).unwrap();
    notes.add("send", lone.send(b"x"));
    notes.add("send to", lone.send_to(b"x", &at));
    lone.set_nonblocking(false).unwrap();
    lone.set_write_timeout(None).unwrap();
    bound.set_read_timeout(None).unwrap();
    let receiver = start(move || {
        std::thread::sleep(SHORT);
        let (mut got, mut buf) = (0, [0; 4]);
        while bound.recv(&mut buf).unwrap() != 3 {
            got += 1;
        }
        (got > 5, bound)
    });
    notes.add("send when there is room", lone.send(b"xy"));
    notes.add("send the last", lone.send(b"end"));
    let (got, bound) = receiver.join().unwrap();
    notes.add("got", Ok(got));
    drop(bound);
    notes.add("send to who is gone", lone.send(b"x"));
    notes.add("error", lone.take_error().map(|e| e.map(|e| e.kind())));
    drop(b);
    notes.add("send to a pair that is gone", a.send(b"x"));
    let _ = std::fs::remove_file(&at);
}

fn unix_datagrams_shut_down(notes: &mut Notes) {
    let (a, b) = UnixDatagram::pair().unwrap();
    a.send(b"before").unwrap();
    notes.add("shut down reading", b.shutdown(Shutdown::Read));
    let mut buf = [0; 16];
    notes.add("what was there", b.recv(&mut buf));
    notes.add("and then", b.recv(&mut buf));
    notes.add("from", b.recv_from(&mut buf).map(|(n, _)| n));
    notes.add("send there", a.send(b"x"));
    notes.add("send back", b.send(b"x"));
    notes.add("shut down writing", b.shutdown(Shutdown::Write));
    notes.add("send", b.send(b"x"));
    b.set_nonblocking(true).unwrap();
    notes.add("without a wait", b.recv(&mut buf));
    // While somebody waits.
    let (_a, b) = UnixDatagram::pair().unwrap();
    let b = std::sync::Arc::new(b);
    let receiver = {
        let b = b.clone();
        start(move || b.recv(&mut [0; 4]).map_err(|e| e.kind()))
    };
    std::thread::sleep(Duration::from_millis(5));
    notes.add("shut down both", b.shutdown(Shutdown::Both));
    notes.add("who waits", Ok(receiver.join().unwrap()));
}

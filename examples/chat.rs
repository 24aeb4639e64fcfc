//! A chat room: goroutines that share nothing and tell each other everything over channels.
//!
//!     cargo run --release --example chat -- --addr 127.0.0.1:7000
//!     nc 127.0.0.1 7000                          in two terminals or more; /help says what there is
//!     cargo run --release --example chat -- --demo --trace chat.trace
//!
//! ```text
//!   client's socket -> reader --events--> room --lines--> writer -> client's socket
//!                                          |  \--goodbye--> writer      (one each for each client)
//! ```
//!
//! The room is one goroutine. It alone knows who is there, so there is no lock. Readers wait for room in its channel: who talks faster
//! than all can be told is slowed down. Where a client's queue is full, the room waits a moment, since the writer may just not have
//! had its turn. Who makes it wait for too long in all does not read what it is sent, and is dropped, with a word to it and to
//! the others. So one client can hold up the room for half a second, and then for a hundredth of the time.
//!
//! In `go tool trace chat.trace` the room waits in "select", at the line of `select!` in `room`; readers wait for the network,
//! writers in "select" too. Follow one line of text in "View trace by proc" (flow events on): the network wakes a reader, it wakes the
//! room, the room wakes all writers.

use rt::chan::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};
use rt::net::TcpStream;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Connections, Failure, Until};

#[path = "chat/demo.rs"]
mod demo;
#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

const HELP: &str = "\
A chat room for nc, telnet and the like.

    --addr HOST:PORT    where to listen; port 0 takes a free one [127.0.0.1:7000]
    --demo              let some clients chat with each other, and end
    --trace FILE        record an execution trace
";

/// What a client can type.
const COMMANDS: &str =
    "/who lists who is here, /nick NAME changes your name, /quit leaves; anything else is said to all";

/// Lines that wait for a client.
const QUEUE: usize = 64;

/// How long the room waits for a client, in all; and which part of the time that it is there.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_PART: u32 = 100;

/// Events that wait for the room.
const EVENTS: usize = 64;

/// Bytes of a line.
const LINE: u64 = 1024;

/// How long a client may take to take a line, and to say who it is.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
const NAME_LIMIT: Duration = Duration::from_secs(60);

/// What the system keeps for a client that does not read. Otherwise it would keep megabytes, and we would not see for long that
/// the client is slow.
const SEND_BUFFER: usize = 16 << 10;

/// A line, which many queues share.
type Line = Arc<str>;

struct Options {
    addr: String,
    is_demo: bool,
    trace: Option<PathBuf>,
    until: Until,
}

fn parse(mut args: lexopt::Parser) -> Result<Option<Options>, Failure> {
    use lexopt::prelude::*;
    let mut options = Options { addr: "127.0.0.1:7000".into(), is_demo: false, trace: None, until: Until::default() };
    while let Some(arg) = args.next()? {
        match arg {
            Long("addr") => options.addr = args.value()?.string()?,
            Long("demo") => options.is_demo = true,
            Long("trace") => options.trace = Some(args.value()?.into()),
            Long("for") => options.until.time = Some(support::seconds(&mut args, "--for")?),
            Long("until-eof") => options.until.end_of_input = true,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Some(options))
}

/// What readers tell the room.
enum Event {
    Join { name: String, outlet: Outlet, answer: Sender<Result<u64, &'static str>> },
    Said { id: u64, text: String },
    Left { id: u64 },
}

/// The room's way to a client.
struct Outlet {
    lines: Sender<Line>,
    /// Overtakes the lines.
    goodbye: Sender<Line>,
}

struct Member {
    name: String,
    outlet: Outlet,
    since: Instant,
    /// How long the room has waited for it.
    waited: Duration,
}

impl Member {
    /// Sends it a line; `false` if it is too slow.
    fn tell(&mut self, line: Line) -> bool {
        let line = match self.outlet.lines.try_send(line) {
            Err(TrySendError::Full(line)) => line,
            // Closed: its writer has failed, and its reader will say that it left.
            Ok(()) | Err(TrySendError::Closed(_)) => return true,
        };
        let patience = PATIENCE + self.since.elapsed() / PATIENCE_PART;
        let begun = Instant::now();
        let sent = self.outlet.lines.send_timeout(line, patience.saturating_sub(self.waited));
        self.waited += begun.elapsed();
        !matches!(sent, Err(SendTimeoutError::Timeout(_)))
    }
}

/// Who is there.
#[derive(Default)]
struct Room {
    members: BTreeMap<u64, Member>,
    next_id: u64,
}

/// The life of the room, until `closing` is closed.
fn room(events: &Receiver<Event>, closing: &Receiver<()>) {
    let mut room = Room::default();
    loop {
        rt::select! {
            recv(events) -> event => match event {
                Ok(event) => room.handle(event),
                Err(_) => return,
            },
            recv(closing) -> _ => return room.tell_all("*** the room closes"),
        }
    }
}

impl Room {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Join { name, outlet, answer } => {
                let result = self.join(name, outlet);
                let _ = answer.try_send(result); // There is room for it.
            }
            Event::Said { id, text } => self.said(id, &text),
            Event::Left { id } => {
                if let Some(member) = self.members.remove(&id) {
                    self.tell_all(&format!("*** {} has left", member.name));
                }
            }
        }
    }

    fn join(&mut self, name: String, outlet: Outlet) -> Result<u64, &'static str> {
        self.check(&name)?;
        self.tell_all(&format!("*** {name} is here"));
        let id = self.next_id;
        self.next_id += 1;
        self.members.insert(id, Member { name, outlet, since: Instant::now(), waited: Duration::ZERO });
        self.tell(id, &format!("*** welcome! {COMMANDS}"));
        Ok(id)
    }

    fn check(&self, name: &str) -> Result<(), &'static str> {
        if !(1..=16).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("a name has 1 to 16 letters and digits");
        }
        if self.members.values().any(|member| member.name.eq_ignore_ascii_case(name)) {
            return Err("that name is taken");
        }
        Ok(())
    }

    fn said(&mut self, id: u64, text: &str) {
        // It may have been dropped, and not know yet.
        let Some(member) = self.members.get(&id) else { return };
        let name = member.name.clone();
        match text.split_once(' ').map_or((text, ""), |(command, rest)| (command, rest.trim())) {
            ("", _) => {}
            ("/who", _) => {
                let names: Vec<&str> = self.members.values().map(|member| &*member.name).collect();
                self.tell(id, &format!("*** here: {}", names.join(", ")));
            }
            ("/nick", new) => match self.check(new) {
                Ok(()) => {
                    new.clone_into(&mut self.members.get_mut(&id).expect("found above").name);
                    self.tell_all(&format!("*** {name} is now known as {new}"));
                }
                Err(why) => self.tell(id, &format!("*** {why}")),
            },
            ("/quit", _) => {
                self.tell(id, "*** goodbye");
                self.handle(Event::Left { id });
            }
            (command, _) if command.starts_with('/') => self.tell(id, &format!("*** {COMMANDS}")),
            _ => self.tell_all(&format!("{name}: {text}")),
        }
    }

    /// Tells one client.
    fn tell(&mut self, id: u64, text: &str) {
        let is_slow = self.members.get_mut(&id).is_some_and(|member| !member.tell(format!("{text}\n").into()));
        if is_slow {
            self.drop_slow(id);
        }
    }

    /// Tells everybody.
    fn tell_all(&mut self, text: &str) {
        let line: Line = format!("{text}\n").into();
        let slow = self.members.iter_mut().filter_map(|(id, member)| (!member.tell(line.clone())).then_some(*id));
        slow.collect::<Vec<_>>().into_iter().for_each(|id| self.drop_slow(id));
    }

    fn drop_slow(&mut self, id: u64) {
        let Some(member) = self.members.remove(&id) else { return };
        // Dropping the member closes its channels, which ends its writer; what is in them is still received.
        let _ = member.outlet.goodbye.try_send("*** you are too slow: goodbye\n".into());
        self.tell_all(&format!("*** {} was too slow and has been dropped", member.name));
    }
}

/// Lines of a client, without what a terminal would take for orders.
struct Lines<'a>(BufReader<&'a TcpStream>);

impl Lines<'_> {
    /// The next line; `None` at the end. A line that is too long comes in pieces.
    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.0.by_ref().take(LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line);
        Ok(Some(text.chars().filter(|char| !char.is_control()).collect::<String>().trim().to_owned()))
    }
}

/// Asks a client for its name until the room takes it. Gives its number and what the room sends it.
fn enter(mut stream: &TcpStream, lines: &mut Lines, events: &Sender<Event>) -> io::Result<Option<(u64, Inlet)>> {
    stream.set_deadline(Some(Instant::now() + NAME_LIMIT));
    loop {
        stream.write_all(b"*** what is your name?\n")?;
        let Some(name) = lines.next()? else { return Ok(None) };
        let ((to_lines, lines), (to_goodbye, goodbye)) = (bounded(QUEUE), bounded(1));
        let (to_answer, answer) = bounded(1);
        let outlet = Outlet { lines: to_lines, goodbye: to_goodbye };
        let join = Event::Join { name, outlet, answer: to_answer };
        // An error: the room has closed.
        let Some(answer) = events.send(join).ok().and_then(|()| answer.recv().ok()) else { return Ok(None) };
        match answer {
            Ok(id) => {
                stream.set_deadline(None);
                return Ok(Some((id, Inlet { lines, goodbye })));
            }
            Err(why) => stream.write_all(format!("*** {why}\n").as_bytes())?,
        }
    }
}

/// The client's end of an [`Outlet`].
struct Inlet {
    lines: Receiver<Line>,
    goodbye: Receiver<Line>,
}

/// Writes what the room sends, until the room drops its end.
fn write(stream: &TcpStream, inlet: &Inlet) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let is_end = rt::select_biased! {
            recv(inlet.goodbye) -> goodbye => {
                match goodbye {
                    Ok(line) => buffer.extend_from_slice(line.as_bytes()),
                    // Nothing special: what is left of the lines, and that was it.
                    Err(_) => inlet.lines.iter().for_each(|line| buffer.extend_from_slice(line.as_bytes())),
                }
                true
            },
            recv(inlet.lines) -> line => {
                // Those that have come meanwhile go along, but not by the hundred: a goodbye has to wait for them.
                for line in line.into_iter().chain(inlet.lines.try_iter().take(15)) {
                    buffer.extend_from_slice(line.as_bytes());
                }
                false
            },
        };
        stream.set_write_deadline(Some(Instant::now() + WRITE_LIMIT));
        (&*stream).write_all(&buffer)?;
        buffer.clear();
        if is_end {
            return Ok(());
        }
    }
}

/// Serves one client: reads, with a second goroutine that writes.
fn serve(stream: &TcpStream, events: &Sender<Event>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER)?;
    let mut lines = Lines(BufReader::new(stream));
    let Some((id, inlet)) = enter(stream, &mut lines, events)? else { return Ok(()) };
    rt::scope(|scope| {
        scope.go(move || {
            let _ = write(stream, &inlet);
            // The reader reads the end then, and leaves.
            let _ = stream.shutdown(Shutdown::Both);
        });
        while let Ok(Some(text)) = lines.next() {
            if events.send(Event::Said { id, text }).is_err() {
                break;
            }
        }
        let _ = events.send(Event::Left { id });
    });
    Ok(())
}

/// A room with its doors open.
struct Server {
    addr: SocketAddr,
    end: Box<dyn FnOnce() -> Result<(), Failure> + Send>,
}

/// Opens a room.
fn open(addr: &str) -> Result<Server, Failure> {
    let listener = support::listen(addr)?;
    let addr = listener.local_addr()?;
    let connections = Arc::new(Connections::default());
    let (events, events_rx) = bounded(EVENTS);
    let (close, closing) = bounded::<()>(0);
    let room = rt::Builder::new().name("room").spawn(move || room(&events_rx, &closing))?;

    let (acceptor, accepted) = (listener.try_clone()?, connections.clone());
    let acceptor = rt::Builder::new().name("acceptor").spawn(move || {
        support::accept_all(&acceptor, |stream, _| {
            let Some(open) = accepted.open(stream) else { return };
            let events = events.clone();
            rt::go(move || serve(open.stream(), &events).ok());
        });
    })?;

    let end = move || {
        listener.close()?;
        acceptor.join().map_err(|_| "the acceptor panicked")?;
        drop(close);
        room.join().map_err(|_| "the room panicked")?;
        connections.end(Duration::from_secs(2));
        Ok(())
    };
    Ok(Server { addr, end: Box::new(end) })
}

fn chat(options: &Options) -> Result<(), Failure> {
    if options.is_demo {
        return demo::run();
    }
    let server = open(&options.addr)?;
    options.until.wait();
    (server.end)()
}

fn main() -> ExitCode {
    let help = format!("{HELP}{}", Until::HELP);
    support::main("chat", &help, parse, |options| support::run(options.trace.clone(), move || chat(&options)))
}

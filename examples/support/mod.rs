//! What the network examples share: a trace of the run, listening with errors that help, when a server ends, and how it does so
//! without cutting anybody short.

use rt::net::{Closed, TcpListener, TcpStream};
use rt::signal::{self, Signal};
use rt::sync::{Mutex, WaitGroup};
use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub type Failure = Box<dyn Error + Send + Sync>;

/// Parses the command line, runs the program in the runtime, and says what went wrong.
pub fn main<O: Send + 'static>(
    name: &str,
    help: &str,
    parse: impl FnOnce(lexopt::Parser) -> Result<Option<O>, Failure>,
    run: impl FnOnce(O) -> Result<(), Failure>,
) -> ExitCode {
    let result = match parse(lexopt::Parser::from_env()) {
        Ok(None) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => run(options),
        Err(why) => {
            eprintln!("{name}: {why}; {name} --help lists the options");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The value of an option, or an error that names the option.
pub fn value<T: std::str::FromStr>(parser: &mut lexopt::Parser, option: &str, wants: &str) -> Result<T, Failure> {
    let value = parser.value()?;
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(value) => Ok(value),
        None => Err(format!("{option} wants {wants}, not {value:?}").into()),
    }
}

/// A time in seconds, fractions allowed.
pub fn seconds(parser: &mut lexopt::Parser, option: &str) -> Result<Duration, Failure> {
    let number: f64 = value(parser, option, "a number of seconds")?;
    let time = Duration::try_from_secs_f64(number).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("{option} wants a number of seconds above 0, not {number}").into())
}

/// Runs `body` as the main goroutine, and records it if there is a file for that.
pub fn run(trace: Option<PathBuf>, body: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    rt::run(move || {
        let Some(path) = trace else { return body() };
        start_trace(&path)?;
        let result = body();
        let stats = rt::trace::stop().map_err(|e| format!("the trace in {} is cut short: {e}", path.display()))?;
        // Not on standard output, which belongs to the program.
        eprintln!("{} bytes of trace: go tool trace {}", stats.bytes, path.display());
        result
    })
}

fn start_trace(path: &Path) -> Result<(), Failure> {
    let file = File::create(path).map_err(|e| {
        format!("cannot write the trace to {}: {e}; give a file in a folder of yours with --trace", path.display())
    })?;
    rt::trace::start(file)?;
    Ok(())
}

/// Listens, and says so in the first line of the output, with the port that port 0 has become.
pub fn listen(addr: &str) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(addr).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => format!(
            "{addr} is in use: end what listens there (ss -ltnp names it), or give another --addr; port 0 takes a free one"
        ),
        ErrorKind::PermissionDenied => format!("{addr}: {e}; ports from 1024 up are free for everybody: give another --addr"),
        ErrorKind::AddrNotAvailable => {
            format!("{addr} is no address of this machine; --addr 0.0.0.0:PORT listens on all it has")
        }
        _ => format!("cannot listen on {addr}: {e}; --addr wants HOST:PORT, such as 127.0.0.1:8080"),
    })?;
    let mut out = io::stdout();
    // The lock of standard output is not held while the goroutine may move to another thread: one call each.
    writeln!(out, "listening on {}", listener.local_addr()?)?;
    out.flush()?;
    Ok(listener)
}

/// Accepts until the listener is closed.
pub fn accept_all(listener: &TcpListener, mut each: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => each(stream, peer),
            Err(e) if Closed::is(&e) => return,
            // The peer has gone again: no reason to wait.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
            Err(e) => {
                // Out of descriptors, most likely. It gets better when connections end, and does not get better by trying at once.
                eprintln!("cannot accept: {e}; going on in a moment (ulimit -n is how many files may be open)");
                rt::time::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// When a server ends: with neither, never.
#[derive(Clone, Copy, Default)]
pub struct Until {
    pub time: Option<Duration>,
    pub end_of_input: bool,
}

impl Until {
    /// The options that say so, for the help.
    pub const HELP: &'static str = concat!(
        "    --for SECONDS       end by itself, after this time\n",
        "    --until-eof         end when standard input ends: with the program that has started this one\n",
        "                        (otherwise by Ctrl-C, or SIGTERM)\n",
    );

    /// Waits until then, or until somebody wants the program to end: SIGINT (Ctrl-C) or SIGTERM.
    pub fn wait(self) {
        let signals = signal::notify(&[Signal::INTERRUPT, Signal::TERMINATE]).expect("these can be listened to");
        let (end, ended) = rt::chan::bounded::<()>(0);
        if self.end_of_input {
            // A thread is kept for that, as for any file that blocks.
            rt::go(move || {
                let _ = rt::blocking(|| io::copy(&mut io::stdin().by_ref(), &mut io::sink()));
                drop(end);
            });
        } else {
            // Nobody says so.
            std::mem::forget(end);
        }
        let time = self.time.map_or_else(rt::chan::never, rt::time::after);
        rt::select! {
            recv(ended) -> _ => {}
            recv(time) -> _ => {}
            recv(signals) -> _ => {}
        }
    }
}

/// The connections of a server, so that it can end them.
#[derive(Default)]
pub struct Connections {
    open: Mutex<Table>,
    group: WaitGroup,
    ending: AtomicBool,
}

#[derive(Default)]
struct Table {
    streams: HashMap<u64, TcpStream>,
    next_id: u64,
}

impl Connections {
    /// Notes a connection, for as long as the value lives; `None` if the server is ending.
    pub fn open(self: &Arc<Self>, stream: TcpStream) -> Option<Open> {
        let mut open = self.open.lock();
        // With the lock held, so that none is forgotten that is accepted in the moment of the end.
        if self.ending.load(Ordering::Relaxed) {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        open.streams.insert(id, stream.try_clone().ok()?);
        self.group.add(1);
        Some(Open { id, stream, connections: self.clone() })
    }

    /// Ends: nobody waits for more input from now on, and what does not end of itself within `grace` is closed.
    pub fn end(&self, grace: Duration) {
        {
            let open = self.open.lock();
            self.ending.store(true, Ordering::SeqCst);
            // A deadline that has passed ends waits that have begun, and all later ones.
            open.streams.values().for_each(|stream| stream.set_read_deadline(Some(Instant::now())));
        }
        if !self.group.wait_timeout(grace) {
            for stream in self.open.lock().streams.values() {
                let _ = stream.close();
            }
            self.group.wait();
        }
    }
}

/// A connection that is on the list.
pub struct Open {
    id: u64,
    stream: TcpStream,
    connections: Arc<Connections>,
}

impl Open {
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Becomes true when the server ends: whoever has answered a request takes no other.
    pub fn ending(&self) -> &AtomicBool {
        &self.connections.ending
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // In a variable: it is dropped, which takes a system call, when the lock is free again.
        let _handle = self.connections.open.lock().streams.remove(&self.id);
        self.connections.group.done();
    }
}

//! Some clients in one process with the room, who do what there is to do in it. Prints what each of them reads.

use super::Failure;
use rt::net::TcpStream;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(30);

/// Clients who all talk at once, and lines that each says.
const CROWD: usize = 6;
const CROWD_LINES: usize = 10;

/// Lines that come at once.
const PASTED: usize = 400;

/// Lines that fill the buffers of somebody who does not read, with room to spare.
const LONG_LINES: usize = 20_000;

/// A client that follows a script.
struct Client {
    name: String,
    lines: BufReader<TcpStream>,
    is_shown: bool,
}

impl Client {
    fn enter(addr: SocketAddr, name: &str, is_shown: bool) -> Result<Client, Failure> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_deadline(Some(Instant::now() + LIMIT));
        let mut client = Client { name: name.to_owned(), lines: BufReader::new(stream), is_shown };
        client.sees("what is your name?")?;
        client.says(name)?;
        Ok(client)
    }

    fn says(&mut self, line: &str) -> Result<(), Failure> {
        let said = self.lines.get_ref().write_all(format!("{line}\n").as_bytes());
        said.map_err(|e| format!("{} cannot say {line:?}: {e}", self.name).into())
    }

    /// The next line; `None` at the end.
    fn reads(&mut self) -> Result<Option<String>, Failure> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(|e| format!("{} cannot read: {e}", self.name))?;
        if line.is_empty() {
            return Ok(None);
        }
        if self.is_shown && line.len() < 200 {
            println!("{:>10} | {}", self.name, line.trim_end());
        }
        Ok(Some(line))
    }

    /// Reads until a line with `text` comes, which it gives.
    fn sees(&mut self, text: &str) -> Result<String, Failure> {
        loop {
            match self.reads()? {
                Some(line) if line.contains(text) => return Ok(line),
                Some(_) => {}
                None => return Err(format!("{} has never seen {text:?}", self.name).into()),
            }
        }
    }
}

/// Many at once: each hears itself, in order.
fn crowd(addr: SocketAddr) -> Result<(), Failure> {
    let clients: Vec<_> = (0..CROWD)
        .map(|i| {
            rt::go(move || {
                let name = format!("guest{i}");
                let mut client = Client::enter(addr, &name, false)?;
                for line in 0..CROWD_LINES {
                    client.says(&format!("line {line}"))?;
                    client.sees(&format!("{name}: line {line}"))?;
                }
                client.says("/quit")?;
                client.sees("goodbye").map(drop)
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a guest panicked")??;
    }
    Ok(())
}

/// Two talk, and one does not listen.
fn sleeper(addr: SocketAddr, ann: &mut Client, bob: &mut Client) -> Result<(), Failure> {
    let mut sleeper = Client::enter(addr, "sleeper", true)?;
    sleeper.sees("welcome")?;
    ann.sees("sleeper is here")?;
    bob.is_shown = false;
    let long = "z".repeat(1000);
    for number in 0.. {
        if number == LONG_LINES {
            return Err("nobody has noticed that the sleeper sleeps".into());
        }
        ann.says(&long)?;
        // Both have it before there is another, so that neither of them is slow.
        let seen = (ann.reads()?, bob.sees("")?);
        if seen.0.is_some_and(|line| line.contains("too slow")) {
            break;
        }
    }
    // It wakes up, and reads what was sent before.
    sleeper.sees("you are too slow: goodbye")?;
    let mut rest = Vec::new();
    sleeper.lines.read_to_end(&mut rest)?;
    if rest.is_empty() { Ok(()) } else { Err("there is something after the goodbye".into()) }
}

pub fn run() -> Result<(), Failure> {
    let server = super::open("127.0.0.1:0")?;
    let mut ann = Client::enter(server.addr, "ann", true)?;
    ann.sees("welcome")?;
    let mut bob = Client::enter(server.addr, "bob", true)?;
    bob.sees("welcome")?;
    ann.sees("bob is here")?;
    ann.says("hello, bob")?;
    bob.sees("ann: hello, bob")?;
    bob.says("/nick robert")?;
    ann.sees("bob is now known as robert")?;

    let mut eve = Client::enter(server.addr, "Ann", true)?;
    eve.sees("that name is taken")?;
    eve.says("e v e")?;
    eve.sees("1 to 16 letters")?;
    eve.says("eve")?;
    eve.says("/who")?;
    eve.sees("here: ann, robert, eve")?;
    eve.says("/dance")?;
    eve.sees("/who lists")?;
    eve.says("/quit")?;
    eve.sees("goodbye")?;
    ann.sees("eve has left")?;

    println!("{:>10} | {CROWD} guests say {CROWD_LINES} lines each", "");
    (ann.is_shown, bob.is_shown) = (false, false);
    crowd(server.addr)?;
    let everyone_left = |client: &mut Client| (0..CROWD).try_for_each(|_| client.sees("has left").map(drop));
    everyone_left(&mut ann)?;
    bob.sees("eve has left")?;
    everyone_left(&mut bob)?;

    // Faster than anybody can be told, but nobody is slow.
    ann.says(&(1..=PASTED).map(|line| format!("pasted {line}\n")).collect::<String>())?;
    for line in 1..=PASTED {
        for client in [&mut ann, &mut bob] {
            let text = client.reads()?.unwrap_or_default();
            if text.trim_end() != format!("ann: pasted {line}") {
                return Err(format!("{} reads {text:?} where line {line} of {PASTED} should be", client.name).into());
            }
        }
    }
    (ann.is_shown, bob.is_shown) = (true, true);
    println!("{:>10} | ann has pasted {PASTED} lines, and all were told", "");

    sleeper(server.addr, &mut ann, &mut bob)?;
    (server.end)()?;
    ann.sees("the room closes")?;
    match ann.reads()? {
        None => Ok(()),
        Some(line) => Err(format!("after the end, ann reads {line:?}").into()),
    }
}

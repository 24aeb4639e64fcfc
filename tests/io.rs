//! `rt::io`: standard streams and pipes, whose waits let the others go on.
//!
//! What uses the standard streams runs as a program of its own (see [`common::program`]), with pipes for them.

mod common;

use std::fmt;
use std::io::{BufRead, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{Actor, Ended, HangGuard, count, judge, scratch_file, traced, wait_for};
use rt::io::{BufReader, BufWriter, pipe, stderr, stdin, stdout};
use tracer::wire::Ev;

programs! {
    echoes,
    counts_while_it_waits,
    shares_stdin,
    reads_in_other_ways,
    continues_what_std_began,
    writes_lines_from_many,
    holds_locks_across_migration,
    prints_what_prints,
    mixes_with_println,
    tells_of_itself,
    floods_a_pipe,
}

/// A program of this binary, with pipes for all three streams.
fn spawn(name: &str, env: &[(&str, &str)]) -> Child {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.env("RT_TEST_PROGRAM", name).env_remove("RT_TRACE").env_remove("RUST_BACKTRACE");
    c.envs(env.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Ended {
    let out = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { status: out.status, stdout: text(out.stdout), stderr: text(out.stderr) }
}

/// Runs a program with this input, with one P and with several, traced; checks its trace, and gives what it said with one.
fn talk(name: &str, input: &str) -> Ended {
    let _guard = HangGuard::new(name);
    let talk_with = |procs: &str| {
        let trace = scratch_file(&format!("io-{name}-{procs}.trace"));
        let mut child = spawn(name, &[("GOMAXPROCS", procs), ("RT_TRACE", trace.to_str().unwrap())]);
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let ended = ended(child);
        ended.expect_code(0);
        judge(name, &std::fs::read(&trace).unwrap());
        std::fs::remove_file(&trace).unwrap();
        ended
    };
    talk_with("4");
    talk_with("1")
}

fn echoes() {
    rt::run(|| {
        for line in stdin().lock().lines() {
            writeln!(stdout(), "{}", line.unwrap().to_uppercase()).unwrap();
        }
        write!(stderr(), "done").unwrap();
    });
}

#[test]
fn smoke() {
    let said = talk("echoes", "one\ntwo\nthree");
    assert_eq!(said.stdout, "ONE\nTWO\nTHREE\n");
    // Under chaos the seed comes first.
    assert!(said.stderr.ends_with("done"), "{}", said.stderr);
}

/// One waits for input; the others go on all the while.
fn counts_while_it_waits() {
    rt::run(|| {
        let reader = rt::go(|| {
            let mut line = String::new();
            stdin().read_line(&mut line).unwrap();
            line
        });
        for i in 0..5 {
            rt::time::sleep(Duration::from_millis(2));
            writeln!(stdout(), "{i}").unwrap();
        }
        writeln!(stdout(), "ready").unwrap();
        assert_eq!(reader.join().unwrap(), "go\n");
    });
}

#[test]
fn a_wait_for_input_gives_up_the_processor() {
    let _guard = HangGuard::new("waiting for input");
    let mut child = spawn("counts_while_it_waits", &[("GOMAXPROCS", "1")]);
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("ready") {
        assert_ne!(out.read_line(&mut said).unwrap(), 0, "it has ended: {said}");
    }
    assert_eq!(said, "0\n1\n2\n3\n4\nready\n");
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    ended(child).expect_code(0);
}

/// Each line goes to one of them, whole.
fn shares_stdin() {
    rt::run(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..6)
            .map(|i| {
                let seen = seen.clone();
                Actor::mixed(i).start(move || {
                    let mut line = String::new();
                    while stdin().read_line(&mut line).unwrap() != 0 {
                        let n: usize = line.trim().parse().unwrap();
                        seen.fetch_add(n, SeqCst);
                        line.clear();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|a| a.join());
        println!("{}", seen.load(SeqCst));
    });
}

#[test]
fn mpmc_of_lines() {
    let input: String = (0..2000).map(|i| format!("{i}\n")).collect();
    assert_eq!(talk("shares_stdin", &input).stdout, "1999000\n");
}

fn reads_in_other_ways() {
    rt::run(|| {
        let mut input = stdin();
        let mut four = [0; 4];
        (&input).read_exact(&mut four).unwrap();
        assert_eq!(&four, b"abcd");
        let (mut one, mut two) = ([0; 1], [0; 2]);
        assert_eq!(input.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).unwrap(), 3);
        assert_eq!((&one, &two), (b"e", b"fg"));
        {
            let mut locked = input.lock();
            // The buffer may be looked at for as long as one likes.
            let there = locked.fill_buf().unwrap();
            rt::time::sleep(Duration::from_millis(1));
            assert_eq!(there[0], b'\n');
            locked.consume(1);
            let mut word = Vec::new();
            locked.read_until(b' ', &mut word).unwrap();
            assert_eq!(word, b"word ");
        }
        let mut lines = stdin().lines();
        assert_eq!(lines.next().unwrap().unwrap(), "first");
        drop(lines);
        assert_eq!(rt::io::read_to_string(stdin()).unwrap(), "rest\nof it");
        assert_eq!(stdin().read(&mut four).unwrap(), 0);
    });
}

#[test]
fn every_way_to_read() {
    talk("reads_in_other_ways", "abcdefg\nword first\nrest\nof it");
}

fn continues_what_std_began() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert_eq!(line, "std\n");
    rt::run(|| {
        let rest = rt::io::read_to_string(stdin()).unwrap();
        assert_eq!(rest, "ours\n".repeat(5000));
    });
}

/// What std's handle has in its buffer is not lost.
#[test]
fn after_std() {
    talk("continues_what_std_began", &format!("std\n{}", "ours\n".repeat(5000)));
}

const WRITERS: usize = 8;
const LINES: usize = 100;

fn writes_lines_from_many() {
    rt::run(|| {
        let all: Vec<_> = (0..WRITERS)
            .map(|i| {
                Actor::mixed(i).start(move || {
                    for n in 0..LINES {
                        if n % 2 == 0 {
                            writeln!(stdout(), "{i} {n} {:?}", "x".repeat(30)).unwrap();
                        } else {
                            let mut out = stdout().lock();
                            write!(out, "{i} {n} ").unwrap();
                            rt::yield_now();
                            out.write_all(b"\"").unwrap();
                            let quoted = ["x".repeat(30), "\"\n".into()];
                            let n = out.write_vectored(&quoted.each_ref().map(|s| IoSlice::new(s.as_bytes()))).unwrap();
                            assert_eq!(n, 32);
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|a| a.join());
        stdout().flush().unwrap();
    });
}

/// Lines of many writers do not mix, though some of them yield in the middle.
#[test]
fn lines_come_out_whole() {
    let said = talk("writes_lines_from_many", "").stdout;
    let mut next = [0; WRITERS];
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [i, n, text] = words[..] else { panic!("{line:?}") };
        let (i, n): (usize, usize) = (i.parse().unwrap(), n.parse().unwrap());
        assert_eq!((n, text), (next[i], format!("\"{}\"", "x".repeat(30)).as_str()), "{line:?}");
        next[i] += 1;
    }
    assert_eq!(next, [LINES; WRITERS]);
}

/// Locks are held while their goroutines move from thread to thread, as std's must not be.
fn holds_locks_across_migration() {
    rt::run(|| {
        let moved = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..8)
            .map(|i| {
                let moved = moved.clone();
                rt::go(move || {
                    for round in 0..50 {
                        let out = stdout().lock();
                        let err = stderr().lock();
                        let input = stdin().lock();
                        let before = common::gettid();
                        rt::blocking(|| std::thread::sleep(Duration::from_micros(100 * (i + round) % 400)));
                        moved.fetch_add(usize::from(common::gettid() != before), SeqCst);
                        drop((input, out, err));
                        rt::yield_now();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
        writeln!(stdout(), "{}", moved.load(SeqCst)).unwrap();
        // All of them are free.
        drop((stdin().lock(), stdout().lock(), stderr().lock()));
    });
}

#[test]
fn locks_move_along() {
    let said = talk("holds_locks_across_migration", "").stdout;
    println!("moved {} times with one P", said.trim());
}

/// Prints while it is printed.
struct Chatty(u32);

impl fmt::Display for Chatty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0 {
            writeln!(stdout(), "before {}", Chatty(self.0 - 1)).map_err(|_| fmt::Error)?;
        }
        write!(f, "[{}]", self.0)
    }
}

/// Cannot be printed.
struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Err(fmt::Error)
    }
}

fn prints_what_prints() {
    rt::run(|| {
        writeln!(stdout(), "{}", Chatty(2)).unwrap();
        let refused = writeln!(stdout(), "lost {Silent}").unwrap_err();
        assert!(refused.to_string().contains("nothing was written"), "{refused}");
        writeln!(stdout().lock(), "{}", 1).unwrap();
    });
}

#[test]
fn printing_may_print() {
    assert_eq!(talk("prints_what_prints", "").stdout, "before [0]\nbefore [1]\n[2]\n1\n");
}

fn mixes_with_println() {
    rt::run(|| {
        for i in 0..50 {
            write!(stdout(), "{i} ").unwrap();
            println!("std");
            print!("{i} ");
            writeln!(stdout(), "ours").unwrap();
        }
        // Left in the buffer, which is written when the process ends.
        write!(stdout(), "end").unwrap();
    });
}

#[test]
fn in_order_with_println() {
    let wanted: String = (0..50).map(|i| format!("{i} std\n{i} ours\n")).collect();
    assert_eq!(talk("mixes_with_println", "").stdout, wanted + "end");
}

fn tells_of_itself() {
    rt::run(|| {
        assert!(!stdin().is_terminal() && !stdout().is_terminal() && !stderr().is_terminal());
        let fds = [stdin().as_raw_fd(), stdout().as_raw_fd(), stderr().as_raw_fd()];
        assert_eq!(fds, [0, 1, 2]);
        let (input, out, err) = (stdin().lock(), stdout().lock(), stderr().lock());
        assert_eq!([input.as_fd().as_raw_fd(), out.as_fd().as_raw_fd(), err.as_fd().as_raw_fd()], fds);
        let text = format!("{:?} {:?} {:?} {input:?} {out:?} {err:?}", stdin(), stdout(), stderr());
        assert_eq!(
            text,
            "Stdin { .. } Stdout { .. } Stderr { .. } StdinLock { .. } StdoutLock { .. } StderrLock { .. }"
        );
    });
}

#[test]
fn handles() {
    talk("tells_of_itself", "");
}

/// Fills a pipe that nobody reads. The others go on, and those who want to write, too, wait for the lock.
fn floods_a_pipe() {
    rt::run(|| {
        let floods: Vec<_> = (0..3).map(|_| rt::go(|| stdout().write_all(&[b'~'; 100_000]).unwrap())).collect();
        for _ in 0..20 {
            rt::time::sleep(Duration::from_millis(1));
        }
        write!(stderr(), "still here").unwrap();
        floods.into_iter().for_each(|f| f.join().unwrap());
    });
}

#[test]
fn a_full_pipe_gives_up_the_processor() {
    let _guard = HangGuard::new("a full pipe");
    let mut child = spawn("floods_a_pipe", &[("GOMAXPROCS", "1")]);
    let mut said = Vec::new();
    while !said.ends_with(b"still here") {
        let mut byte = [0];
        child.stderr.as_mut().unwrap().read_exact(&mut byte).expect("it is still there");
        said.push(byte[0]);
    }
    let ended = ended(child);
    ended.expect_code(0).expect("all of it", ended.stdout == "~".repeat(300_000));
}

/// Pipes of ours: both ends, clones, adapters, ends.
#[test]
fn pipes() {
    let (_, trace) = traced("pipes", || {
        for actor in Actor::BOTH {
            let (reader, mut writer) = pipe().unwrap();
            let mut second = writer.try_clone().unwrap();
            let sender = actor.start(move || {
                for i in 0..500 {
                    writeln!(writer, "{i}").unwrap();
                }
                writer.flush().unwrap();
            });
            sender.join();
            assert_eq!(second.write_vectored(&[IoSlice::new(b"la"), IoSlice::new(b"st\n")]).unwrap(), 5);
            drop(second);
            let reader = reader.try_clone().unwrap();
            let lines: Vec<_> = BufReader::new(&reader).lines().map(Result::unwrap).collect();
            assert_eq!(lines.len(), 501);
            assert_eq!(lines[500], "last");
        }
        let (reader, writer) = pipe().unwrap();
        let (reader, mut writer) = (OwnedFd::from(reader), BufWriter::new(writer));
        // More than a pipe holds: the writer waits for the reader.
        let sender = rt::go(move || writer.write_all(&[7; 300_000]).and_then(|()| writer.flush()).unwrap());
        let mut all = Vec::new();
        let n = rt::io::copy(&mut rt::io::PipeReader::from(reader), &mut all).unwrap();
        sender.join().unwrap();
        assert_eq!((n, all.len()), (300_000, 300_000));
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), rt::io::ErrorKind::BrokenPipe);
    });
    assert!(count(&trace, Ev::GoSyscallBegin) > 500);
}

/// A goroutine that waits in a pipe is no deadlock, and does not keep its processor.
#[test]
fn waiting_in_pipes() {
    traced("waiting in pipes", || {
        let ends: Vec<_> = (0..20).map(|_| pipe().unwrap()).collect();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (readers, writers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let all: Vec<_> = readers
            .into_iter()
            .map(|mut r| {
                let waiting = waiting.clone();
                rt::go(move || {
                    waiting.fetch_add(1, SeqCst);
                    let mut byte = [0];
                    r.read_exact(&mut byte).unwrap();
                    byte[0]
                })
            })
            .collect();
        wait_for("all of them", || waiting.load(SeqCst) == 20);
        for (i, mut w) in writers.into_iter().enumerate() {
            w.write_all(&[i as u8]).unwrap();
        }
        for (i, h) in all.into_iter().enumerate() {
            assert_eq!(h.join().unwrap(), i as u8);
        }
    });
}

//! `rt::process`: children, whose ends are waited for while the others go on, and an exit that leaves a whole trace.

mod common;

use std::ffi::OsStr;
use std::io::{BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{
    Actor, HangGuard, child_passes, count, events, everywhere, is_child, judge, program, scratch_file, traced, wait_for,
};
use rt::process::{Child, Command, Stdio};
use tracer::wire::Ev;

programs! {
    exits_from_a_goroutine,
    exits_from_a_thread,
    exits_while_calls_hold_all_places,
    exits_while_a_trace_ends,
    exits_though_the_writer_hangs,
    exits_without_a_runtime,
}

fn sh(script: &str) -> Command {
    let mut c = Command::new("sh");
    c.args(["-c", script]);
    c
}

fn builder() {
    let mut c = Command::new("sh");
    c.arg("-c").args(["echo $A $B $C $D; pwd"]).env("A", "1").envs([("B", "2"), ("C", "3")]).env("D", "4");
    c.env_remove("D").current_dir("/");
    assert_eq!(c.get_program(), "sh");
    assert_eq!(c.get_args().nth(1).unwrap(), "echo $A $B $C $D; pwd");
    assert_eq!(c.get_envs().find(|(k, _)| *k == "D").unwrap().1, None);
    assert_eq!(c.get_current_dir().unwrap(), "/");
    let out = c.output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "1 2 3\n/\n");
    assert!(out.status.success());
    let mut c = Command::new("/usr/bin/env");
    assert_eq!(c.env("X", "1").env_clear().env("Y", "2").output().unwrap().stdout, b"Y=2\n");
    assert!(c.get_envs().eq([(OsStr::new("Y"), Some(OsStr::new("2")))]));
    let mut named = sh("echo $0");
    assert_eq!(named.arg("script").output().unwrap().stdout, b"script\n");
    assert!(Command::new("sh").arg0("another").args(["-c", "exit 0"]).status().unwrap().success());
    let group =
        sh("ps -o pgid= -p $$ || cut -d' ' -f5 /proc/$$/stat").process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let pid = group.id();
    let out = group.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap().trim(), pid.to_string());
    let mut std = std::process::Command::new("false");
    std.arg("ignored");
    assert_eq!(Command::from(std).status().unwrap().code(), Some(1));
    assert_eq!(Command::new("no such program").spawn().unwrap_err().kind(), rt::io::ErrorKind::NotFound);
    let mut refused = Command::new("true");
    // SAFETY: nothing but an error is made between fork and exec.
    unsafe {
        use std::os::unix::process::CommandExt;
        refused.as_std_mut().pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::EPERM)));
    }
    assert_eq!(refused.status().unwrap_err().raw_os_error(), Some(libc::EPERM));
}

fn ends() {
    assert_eq!(sh("exit 7").status().unwrap().code(), Some(7));
    let mut child = sh("read x; exit $x").stdin(Stdio::piped()).spawn().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    child.stdin.as_mut().unwrap().write_all(b"9\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert_eq!(child.wait().unwrap().code(), Some(9), "again the same");
    assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(9));
    child.kill().expect("it has been waited for");
    // Waiting closes its input: otherwise this would wait for ever.
    let mut reader = sh("cat > /dev/null").stdin(Stdio::piped()).spawn().unwrap();
    assert!(reader.wait().unwrap().success() && reader.stdin.is_none());
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    assert!(sleeper.id() != 0 && format!("{sleeper:?}").contains(&sleeper.id().to_string()));
    sleeper.kill().unwrap();
    assert_eq!(sleeper.wait().unwrap().signal(), Some(libc::SIGKILL));
}

fn streams() {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (cat.stdin.take().unwrap(), rt::io::BufReader::new(cat.stdout.take().unwrap()));
    let mut line = String::new();
    for i in 0..50 {
        writeln!(to, "{i}").unwrap();
        line.clear();
        from.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{i}\n"));
    }
    drop(to);
    assert_eq!(from.read_line(&mut line).unwrap(), 0);
    assert!(cat.wait().unwrap().success());

    // More than pipes hold, on both.
    let script = "i=0; while [ $i -lt 3000 ]; do echo 'to the one, some words'; echo 'to the other, some words' >&2; i=$((i+1)); done";
    let out = sh(script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((out.stdout.len(), out.stderr.len()), (3000 * 23, 3000 * 25));
    let mut errors = sh("echo oh >&2").stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    errors.stderr.as_mut().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "oh\n");
    assert!(errors.wait().unwrap().success());

    // From child to child, to a file, and through a pipe of ours.
    let mut first = Command::new("echo").arg("through two").stdout(Stdio::piped()).spawn().unwrap();
    let second = Command::new("tr").args(["a-z", "A-Z"]).stdin(first.stdout.take().unwrap()).output().unwrap();
    assert_eq!(second.stdout, b"THROUGH TWO\n");
    assert!(first.wait().unwrap().success());
    let path = scratch_file(&format!("process-out-{}", rt::goroutine::id().map_or(0, |id| id.get())));
    sh("echo kept").stdout(rt::fs::File::create(&path).unwrap()).status().unwrap();
    assert_eq!(rt::fs::read_to_string(&path).unwrap(), "kept\n");
    rt::fs::remove_file(&path).unwrap();
    let (mut reader, writer) = rt::io::pipe().unwrap();
    // The command keeps its end until it is dropped.
    sh("echo piped").stdout(writer).status().unwrap();
    text.clear();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "piped\n");

    let std: std::process::Child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap().into();
    let fd = std.stdin.as_ref().unwrap().as_raw_fd();
    let mut back = Child::from(std);
    assert_eq!(back.stdin.as_ref().unwrap().as_raw_fd(), fd);
    assert!(back.wait().unwrap().success());
}

/// All of it does what std's does, on goroutines and on threads.
#[test]
fn smoke() {
    let (_, trace) = traced("rt::process", || {
        for actor in Actor::BOTH {
            actor.start(|| [builder, ends, streams].iter().for_each(|part| part())).join();
        }
    });
    assert!(count(&trace, Ev::GoSyscallBegin) > 100);
}

/// Who waits for a child does not keep the processor, which is the only one.
#[test]
fn a_wait_gives_up_the_processor() {
    const NAME: &str = "a_wait_gives_up_the_processor";
    if !is_child(NAME) {
        return child_passes(NAME, &[("GOMAXPROCS", "1")]);
    }
    traced("waiting for children", || {
        let ended = Arc::new(AtomicUsize::new(0));
        let mut inputs = Vec::new();
        let all: Vec<_> = (0..10)
            .map(|i| {
                let mut child = sh("read x; exit $x").stdin(Stdio::piped()).spawn().unwrap();
                // Otherwise the wait closes it.
                inputs.push(child.stdin.take().unwrap());
                let ended = ended.clone();
                rt::go(move || {
                    assert_eq!(child.wait().unwrap().code(), Some(i));
                    ended.fetch_add(1, SeqCst);
                })
            })
            .collect();
        for _ in 0..20 {
            rt::time::sleep(Duration::from_millis(1));
        }
        assert_eq!(ended.load(SeqCst), 0);
        for (i, mut input) in inputs.into_iter().enumerate().rev() {
            writeln!(input, "{i}").unwrap();
        }
        wait_for("all children to end", || ended.load(SeqCst) == 10);
        all.into_iter().for_each(|h| h.join().unwrap());
    });
}

/// The last generation, and the output that is left in std's buffer, are the proof of a proper end.
fn exits_from_a_goroutine() {
    rt::run(|| {
        rt::go(|| {
            print!("last words");
            rt::goroutine::with_labels(&[("last", "label")], || rt::process::exit(7));
        });
        rt::chan::never::<()>().recv().unwrap();
    });
}

fn exits_from_a_thread() {
    rt::run(|| {
        rt::goroutine::set_labels(rt::goroutine::Labels::new().with(&[("last", "label")]));
        let thread = std::thread::spawn(|| {
            print!("last words");
            rt::process::exit(7)
        });
        let _: Result<(), _> = rt::blocking(|| thread.join());
    });
}

/// All places for blocking calls are taken, for ever.
fn exits_while_calls_hold_all_places() {
    rt::Config::new().max_threads(rt::gomaxprocs() + 1).run(|| {
        for _ in 0..3 {
            rt::go(|| rt::blocking(std::thread::park));
        }
        rt::time::sleep(Duration::from_millis(5));
        rt::goroutine::with_labels(&[("last", "label")], || {
            print!("last words");
            rt::process::exit(7)
        })
    });
}

/// Somebody else is about to end the trace.
fn exits_while_a_trace_ends() {
    let path = std::env::var_os("RT_TEST_TRACE").unwrap();
    rt::run(move || {
        rt::trace::start(rt::fs::File::create(path).unwrap()).unwrap();
        rt::goroutine::set_labels(rt::goroutine::Labels::new().with(&[("last", "label")]));
        let stops = rt::go(|| {
            // If this comes first, the exit waits for it.
            let _ = rt::trace::stop();
            rt::chan::never::<()>().recv().unwrap();
        });
        rt::yield_now();
        print!("last words");
        drop(stops);
        rt::process::exit(7)
    });
}

#[test]
fn exit_ends_the_trace() {
    let programs = [
        "exits_from_a_goroutine",
        "exits_from_a_thread",
        "exits_while_calls_hold_all_places",
        "exits_while_a_trace_ends",
    ];
    for name in programs {
        for procs in ["1", "4"] {
            let path = scratch_file(&format!("{name}-{procs}.trace"));
            let variable = if name == "exits_while_a_trace_ends" { "RT_TEST_TRACE" } else { "RT_TRACE" };
            let ended = program(name, &[("GOMAXPROCS", procs), (variable, path.to_str().unwrap())]);
            ended.expect_code(7).expect("the last words", ended.stdout == "last words");
            let trace = std::fs::read(&path).unwrap();
            judge(name, &trace);
            let mut kinds = 0;
            events(&trace, |_, _| kinds += 1);
            assert!(kinds > 5, "{name}: {kinds} events");
            assert!(trace.windows(5).any(|w| w == b"label"), "{name}: the last label is not in the trace");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

struct Hangs;

impl Write for Hangs {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        loop {
            std::thread::park();
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn exits_though_the_writer_hangs() {
    rt::run(|| {
        rt::trace::start(Hangs).unwrap();
        rt::process::exit(7);
    });
}

fn exits_without_a_runtime() {
    print!("last words");
    rt::process::exit(7);
}

#[test]
fn exit_ends_without_a_trace() {
    program("exits_though_the_writer_hangs", &[]).expect_code(7);
    let ended = program("exits_without_a_runtime", &[]);
    ended.expect_code(7).expect("the last words", ended.stdout == "last words");
}

#[cfg(target_os = "linux")]
fn metric(name: &'static str) -> u64 {
    let mut samples = [rt::metrics::Sample::new(name)];
    rt::metrics::read(&mut samples);
    samples[0].value.as_ref().and_then(|v| v.as_u64()).unwrap()
}

/// Goroutines that wait for pipes and for children keep no thread.
#[cfg(target_os = "linux")]
#[test]
fn waits_keep_no_thread() {
    everywhere("waits_keep_no_thread", || {
        let _guard = HangGuard::new("waits_keep_no_thread");
        rt::run(|| {
            let children: Vec<_> = (0..40)
                .map(|_| Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
                .collect();
            let (tx, rx) = rt::chan::unbounded();
            let mut inputs = Vec::new();
            let waiting: Vec<_> = children
                .into_iter()
                .map(|mut child| {
                    inputs.push(child.stdin.take().unwrap());
                    let tx = tx.clone();
                    rt::go(move || {
                        let mut line = [0; 6];
                        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
                        tx.send(()).unwrap();
                        child.wait().unwrap().success() && &line == b"hello\n"
                    })
                })
                .collect();
            // All wait for their pipe, and none of them in a thread of its own.
            wait_for("all wait", || metric("/sched/goroutines/waiting:goroutines") >= 40);
            let threads = metric("/sched/threads/total:threads");
            assert!(threads < 25, "{threads} threads");
            for input in &mut inputs {
                input.write_all(b"hello\n").unwrap();
            }
            for _ in 0..40 {
                rx.recv().unwrap();
            }
            // Now all wait for their child's end.
            wait_for("all wait", || metric("/sched/goroutines/waiting:goroutines") >= 40);
            let threads = metric("/sched/threads/total:threads");
            assert!(threads < 25, "{threads} threads");
            drop(inputs);
            assert!(waiting.into_iter().all(|w| w.join().unwrap()));
        });
    });
}

/// A child of fork() that does something, and what it says on stderr.
fn forked(does: impl FnOnce()) -> (std::process::ExitStatus, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: what the child does is what a child may: it is one thread, and it ends by exec or exit, or is ended.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: both are open.
        unsafe { libc::dup2(writer.as_raw_fd(), 2) };
        does();
        // SAFETY: ends the process.
        unsafe { libc::_exit(99) };
    }
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    drop(writer);
    rt::blocking(move || {
        let mut said = String::new();
        { reader }.read_to_string(&mut said).unwrap();
        let mut status = 0;
        // SAFETY: the child is ours; `status` is a number.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        (std::process::ExitStatus::from_raw(status), said)
    })
}

/// It may exec and exit, and what would need the scheduler ends it; the parent and its trace go on as if nothing were.
fn forks() {
    let others = Arc::new(AtomicUsize::new(0));
    let ends = Arc::new(AtomicUsize::new(0));
    let ticker = rt::go({
        let (others, ends) = (Arc::clone(&others), Arc::clone(&ends));
        move || {
            while ends.load(SeqCst) == 0 {
                others.fetch_add(1, SeqCst);
                rt::time::sleep(Duration::from_millis(1));
            }
        }
    });
    wait_for("the other one runs", || others.load(SeqCst) > 2);
    let (status, said) = forked(|| {
        assert!(!rt::trace::enabled());
        assert!(matches!(rt::trace::stop(), Err(rt::trace::StopError::NotStarted)));
    });
    assert_eq!((status.code(), said.as_str()), (Some(99), ""));
    assert!(rt::trace::enabled());
    let program = c"/bin/true";
    // SAFETY: the program's name, and a list of arguments that ends with null.
    let (status, said) =
        forked(|| _ = unsafe { libc::execl(program.as_ptr(), program.as_ptr(), std::ptr::null::<libc::c_char>()) });
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    let (status, said) = forked(|| rt::process::exit(9));
    assert_eq!((status.code(), said.as_str()), (Some(9), ""));
    let waits: [fn(); 3] =
        [rt::yield_now, || rt::time::sleep(Duration::from_millis(1)), || _ = rt::chan::never::<()>().recv()];
    for wait in waits {
        let (status, said) = forked(wait);
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.starts_with("fatal error: in a child of fork()") && said.lines().count() == 1, "{said}");
    }
    ends.store(1, SeqCst);
    ticker.join().unwrap();
}

/// While somebody stops the world again and again, so that some children are copies of a thread that is being visited.
fn forks_while_visited() {
    let over = Arc::new(AtomicUsize::new(0));
    let visits = std::thread::spawn({
        let (over, procs) = (Arc::clone(&over), rt::gomaxprocs());
        move || {
            while over.load(SeqCst) == 0 {
                rt::set_gomaxprocs(1);
                rt::set_gomaxprocs(procs.max(2));
            }
            rt::set_gomaxprocs(procs);
        }
    });
    let (mut went_on, mut ended) = (0, 0);
    for _ in 0..common::scaled(200, 40) {
        let (status, said) = forked(|| {
            // SAFETY: no conditions. A child that hangs is ended by it.
            unsafe { libc::alarm(30) };
            drop(rt::goroutine::labels());
        });
        match status.code() {
            Some(99) => went_on += 1,
            Some(2) => {
                assert!(said.starts_with("fatal error: in a child of fork()") && said.lines().count() == 1, "{said}");
                ended += 1;
            }
            _ => panic!("{status}: {said}"),
        }
    }
    println!("{went_on} children went on, {ended} were ended");
    over.store(1, SeqCst);
    rt::blocking(|| visits.join().unwrap());
}

#[test]
fn children_of_fork_that_are_visited_end() {
    traced("fork, visited", forks_while_visited);
}

#[test]
fn children_of_fork_leave_the_trace_to_their_parent() {
    let ((), trace) = traced("fork", forks);
    assert!(count(&trace, Ev::GoBlock) > 3);
}

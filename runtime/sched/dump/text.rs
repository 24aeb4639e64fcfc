//! A dump as text.
//!
//! ```text
//! goroutine 7 "clerk" [sync, 1.204 s, on mutex at 0x7f3a10]:
//! rt::sync::mutex::Mutex<T>::lock
//!         runtime/sync/mutex.rs:180
//! ...
//! waits for the mutex at 0x7f3a10, held by goroutine 9 "counter", which waits for ...
//! created by goroutine 1 to run app::clerk::{{closure}}
//!         src/main.rs:20
//! ```

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::time::Duration;

use tracer::symbol::Frame;

use crate::goroutine::Labels;
use crate::sched::g::Kind;

use super::{Dump, Goroutine, Holder, Peers, State, frames_of};

/// From how many on goroutines that stand in the same place for the same reason share an entry.
const GROUP_FROM: usize = 4;
/// Goroutines that are named one by one in such an entry; ranges of ids count as one.
const LISTED: usize = 40;
/// Links that are shown of a chain.
const LINKS: usize = 16;

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for cycle in self.cycles() {
            writeln!(f, "{between}{}", Cycle { dump: self, ids: cycle })?;
            between = "\n";
        }
        let mut groups: HashMap<Key<'_>, Vec<&Goroutine>> = HashMap::new();
        for g in self.goroutines() {
            groups.entry(Key::of(g)).or_default().push(g);
        }
        for g in self.goroutines() {
            let group = &groups[&Key::of(g)];
            if group.len() >= GROUP_FROM && group[0].id != g.id {
                continue;
            }
            f.write_str(between)?;
            between = "\n";
            if group.len() < GROUP_FROM { self.single(f, g)? } else { many(f, group)? }
        }
        Ok(())
    }
}

/// What goroutines of one entry have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    labels: &'a str,
    reason: &'static str,
    lost_processor: bool,
    kind: Option<&'static str>,
    has_holder: bool,
    /// Its address: equal stacks are one.
    stack: *const [Frame],
    created: Option<(&'static str, &'static str, u32, u32)>,
    /// Runs, and so is worth an entry of its own.
    alone: Option<&'a u64>,
}

impl<'a> Key<'a> {
    fn of(g: &'a Goroutine) -> Key<'a> {
        Key {
            labels: g.labels.text(),
            reason: g.reason,
            lost_processor: g.lost_processor,
            kind: g.object.map(|o| o.kind),
            has_holder: g.holder.is_some(),
            stack: std::ptr::from_ref(&*g.stack),
            created: g
                .creator
                .as_ref()
                .map(|c| (c.function, c.location.file(), c.location.line(), c.location.column())),
            alone: (g.state == State::Running).then_some(&g.id),
        }
    }
}

impl Dump {
    fn single(&self, f: &mut fmt::Formatter<'_>, g: &Goroutine) -> fmt::Result {
        write!(f, "{} {}[{}", Who(self, g.id), Labelled(&g.labels), g.reason)?;
        if let Some(since) = g.since {
            write!(f, ", {}", Span(since))?;
        }
        if g.lost_processor {
            f.write_str(", its processor was taken")?;
        }
        if let Some(o) = g.object {
            match o.kind == Kind::Select.text() {
                true => write!(f, ", on {} {}", o.address, o.kind)?,
                false => write!(f, ", on {} at {:#x}", o.kind, o.address)?,
            }
        }
        f.write_str("]:\n")?;
        write_stack(f, g)?;
        if g.holder.is_some() {
            self.chain(f, g)?;
        }
        if let Some(peers) = g.peers {
            self.peers(f, peers)?;
        }
        if let Some(c) = &g.creator {
            match c.id {
                None => f.write_str("created by a thread")?,
                Some(id) => write!(f, "created by goroutine {id}")?,
            }
            writeln!(f, " to run {}\n\t{}:{}", c.function, c.location.file(), c.location.line())?;
            write_frames(f, &c.stack)?;
        }
        Ok(())
    }

    /// Who used the channel last: one of them may be who is waited for.
    fn peers(&self, f: &mut fmt::Formatter<'_>, peers: Peers) -> fmt::Result {
        let mut says = "last ";
        for (what, who) in [("sent on", peers.sender), ("received from", peers.receiver)] {
            match who {
                Holder::Nobody => continue,
                Holder::Ended => write!(f, "{says}{what} by a goroutine that has ended")?,
                Holder::Thread(tid) => write!(f, "{says}{what} by thread {tid}")?,
                Holder::Goroutine(id) => write!(f, "{says}{what} by {}", Who(self, id))?,
            }
            says = ", ";
        }
        if says == ", " { f.write_char('\n') } else { Ok(()) }
    }

    /// For whom `g` waits, and for whom that one waits, and so on.
    fn chain(&self, f: &mut fmt::Formatter<'_>, g: &Goroutine) -> fmt::Result {
        let mut met = vec![g.id];
        let mut at = g;
        let mut says = "waits for";
        while let (Some(o), Some(holder)) = (at.object, at.holder) {
            let is_join = o.kind == Kind::GoroutineEnd.text();
            match (is_join, holder) {
                (true, Holder::Goroutine(_)) => write!(f, "{says} the end of ")?,
                (true, Holder::Ended) => {
                    write!(f, "{says} the end of a goroutine that has just ended")?;
                    break;
                }
                (true, _) => {
                    write!(f, "{says} the end of a goroutine that has not begun")?;
                    break;
                }
                _ => write!(f, "{says} the {} at {:#x}, ", o.kind, o.address)?,
            }
            let id = match holder {
                Holder::Nobody => {
                    f.write_str("which is being handed on")?;
                    break;
                }
                Holder::Ended => {
                    f.write_str("held by a goroutine that has ended")?;
                    break;
                }
                Holder::Thread(tid) => {
                    write!(f, "held by thread {tid}")?;
                    break;
                }
                Holder::Goroutine(id) => id,
            };
            if id == at.id {
                f.write_str(if is_join { "itself" } else { "which it holds itself" })?;
                break;
            }
            let held_by = if is_join { "" } else { "held by " };
            write!(f, "{held_by}{}", Who(self, id))?;
            if met.contains(&id) {
                break;
            }
            met.push(id);
            match self.get(id) {
                Some(next) if met.len() <= LINKS => at = next,
                Some(_) => {
                    f.write_str(", and so on")?;
                    break;
                }
                None => break,
            }
            says = ", which waits for";
        }
        f.write_char('\n')
    }
}

/// One entry for many.
fn many(f: &mut fmt::Formatter<'_>, group: &[&Goroutine]) -> fmt::Result {
    let first = group[0];
    write!(f, "{} goroutines {}[{}", group.len(), Labelled(&first.labels), first.reason)?;
    let sinces = || group.iter().filter_map(|g| g.since);
    if let (Some(least), Some(most)) = (sinces().min(), sinces().max()) {
        write!(f, ", {}", Span(least))?;
        if Span(most).to_string() != Span(least).to_string() {
            write!(f, " to {}", Span(most))?;
        }
    }
    if first.lost_processor {
        f.write_str(", their processors were taken")?;
    }
    if let Some(o) = first.object {
        let mut addresses: Vec<usize> = group.iter().filter_map(|g| g.object.map(|o| o.address)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        match addresses[..] {
            [one] if o.kind == Kind::Select.text() => write!(f, ", on {one} {}", o.kind)?,
            _ if o.kind == Kind::Select.text() => write!(f, ", on {}", o.kind)?,
            [one] => write!(f, ", on {} at {one:#x}", o.kind)?,
            _ => write!(f, ", on {} of kind {}", addresses.len(), o.kind)?,
        }
    }
    f.write_str("]:\n")?;
    write_stack(f, first)?;
    held_by(f, group)?;
    if let Some(c) = &first.creator {
        let creator = |g: &Goroutine| g.creator.as_ref().and_then(|c| c.id);
        match creator(first) {
            _ if group.iter().any(|g| creator(g) != creator(first)) => f.write_str("created by several")?,
            None => f.write_str("created by a thread")?,
            Some(id) => write!(f, "created by goroutine {id}")?,
        }
        writeln!(f, " to run {}\n\t{}:{}", c.function, c.location.file(), c.location.line())?;
    }
    list(f, group)?;
    f.write_char('\n')
}

/// For whom they wait, if that is one for all of them.
fn held_by(f: &mut fmt::Formatter<'_>, group: &[&Goroutine]) -> fmt::Result {
    let (Some(first), true) = (group[0].holder, group.iter().all(|g| g.holder == group[0].holder)) else {
        return Ok(());
    };
    match first {
        Holder::Goroutine(id) if group[0].object.is_some_and(|o| o.kind == Kind::GoroutineEnd.text()) => {
            writeln!(f, "they wait for the end of goroutine {id}")
        }
        Holder::Goroutine(id) => writeln!(f, "they wait for goroutine {id}, which holds it"),
        Holder::Thread(tid) => writeln!(f, "they wait for thread {tid}, which holds it"),
        Holder::Ended => writeln!(f, "held by a goroutine that has ended"),
        Holder::Nobody => Ok(()),
    }
}

/// Who they are: "goroutines 3 to 90, 95 "clerk", ...".
fn list(f: &mut fmt::Formatter<'_>, group: &[&Goroutine]) -> fmt::Result {
    f.write_str("goroutines ")?;
    let (mut i, mut listed) = (0, 0);
    while i < group.len() {
        if listed == LISTED {
            return write!(f, ", and {} more", group.len() - i);
        }
        if listed > 0 {
            f.write_str(", ")?;
        }
        let run = group[i..].windows(2).take_while(|w| w[1].id == w[0].id + 1 && w[1].name == w[0].name).count();
        write!(f, "{}", group[i].id)?;
        if run > 0 {
            write!(f, " to {}", group[i + run].id)?;
        }
        if let Some(name) = &group[i].name {
            write!(f, " {name:?}")?;
        }
        i += run + 1;
        listed += 1;
    }
    Ok(())
}

/// A goroutine's stack, or why there is none.
pub(crate) fn write_stack(out: &mut impl Write, g: &Goroutine) -> fmt::Result {
    match (g.stack.is_empty(), g.state) {
        (true, State::Running) => out.write_str("\t(running on another thread; stack unavailable)\n"),
        (true, State::Runnable) => out.write_str("\t(not begun)\n"),
        _ => write_frames(out, &g.stack),
    }
}

fn write_frames(out: &mut impl Write, stack: &[Frame]) -> fmt::Result {
    stack.iter().try_for_each(|x| writeln!(out, "{}\n\t{}:{}", x.func, x.file, x.line))
}

/// A stack with functions, files and lines, without the runtime's own frames at its ends.
pub(crate) fn stack(out: &mut String, pcs: &[usize]) {
    let _ = write_frames(out, &frames_of(pcs));
}

/// Labels and a space, or nothing.
struct Labelled<'a>(&'a Labels);

impl fmt::Display for Labelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{} ", self.0.text()) }
    }
}

/// A goroutine by number and name.
struct Who<'a>(&'a Dump, u64);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goroutine {}", self.1)?;
        match self.0.get(self.1).and_then(|g| g.name.as_ref()) {
            Some(name) => write!(f, " {name:?}"),
            None => Ok(()),
        }
    }
}

/// A cycle in one line.
struct Cycle<'a> {
    dump: &'a Dump,
    ids: &'a [u64],
}

impl fmt::Display for Cycle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ids {
            [one] => write!(f, "deadlock: {} waits for what it holds itself", Who(self.dump, *one)),
            ids => {
                let joins =
                    |id| self.dump.get(id).and_then(|g| g.object).is_some_and(|o| o.kind == Kind::GoroutineEnd.text());
                let by_locks = !ids.iter().any(|&id| joins(id));
                f.write_str(if by_locks { "deadlock by lock order: " } else { "deadlock: " })?;
                for id in ids {
                    write!(f, "{} -> ", Who(self.dump, *id))?;
                }
                write!(f, "goroutine {}", ids[0])
            }
        }
    }
}

/// A time as people read it: "12 ms", "3.204 s".
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms @ 0..1000 => write!(f, "{ms} ms"),
            ms => write!(f, "{}.{:03} s", ms / 1000, ms % 1000),
        }
    }
}

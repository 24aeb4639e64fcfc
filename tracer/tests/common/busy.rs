//! A long trace: a scheduler that is imitated, with Ms that run goroutines at random.

use tracer::wire::{Ev, HEADER, NO_M, varint};

use super::{P_RUNNING, RUNNABLE, RUNNING, Random, WAITING, event, frequency, put_batch, snapshot};

/// Batches get no longer than this.
const BATCH: usize = 60 << 10;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Runnable,
    Running,
    Waiting,
}

struct Goroutine {
    id: u64,
    state: State,
    seq: u64,
}

struct M {
    id: u64,
    p_seq: u64,
    g: Option<usize>,
    base: u64,
    last: u64,
    data: Vec<u8>,
}

impl M {
    fn put(&mut self, out: &mut Vec<u8>, generation: u64, now: u64, kind: Ev, args: &[u64]) {
        if self.data.len() > BATCH {
            self.flush(out, generation);
        }
        if self.data.is_empty() {
            (self.base, self.last) = (now, now);
        }
        self.data.push(kind as u8);
        varint::put(&mut self.data, now - self.last);
        args.iter().for_each(|&arg| varint::put(&mut self.data, arg));
        self.last = now;
    }

    fn flush(&mut self, out: &mut Vec<u8>, generation: u64) {
        if !self.data.is_empty() {
            put_batch(out, generation, self.id, self.base, &self.data);
            self.data.clear();
        }
    }
}

/// A good trace of so many generations with about so many events each.
pub fn busy(generations: u64, events: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = HEADER.to_vec();
    let mut now = 1_000_000;
    let m = |id: u64| M { id: 1_000 + id, p_seq: 0, g: None, base: 0, last: 0, data: Vec::new() };
    let mut ms: Vec<M> = (0..4).map(m).collect();
    let mut gs: Vec<Goroutine> = (1..200).map(|id| Goroutine { id, state: State::Runnable, seq: 0 }).collect();
    let mut next_g = 200;
    for generation in 1..=generations {
        for (p, m) in ms.iter_mut().enumerate() {
            now += 1 + random.next() % 200;
            m.p_seq = 0;
            m.put(&mut out, generation, now, Ev::ProcStatus, &[p as u64, P_RUNNING]);
            if let Some(g) = m.g {
                let args = [gs[g].id, m.id, RUNNING];
                m.put(&mut out, generation, now + 1, Ev::GoStatus, &args);
            }
        }
        for g in &mut gs {
            g.seq = 0;
            now += 1 + random.next() % 50;
            let status = match g.state {
                State::Running => continue,
                State::Runnable => RUNNABLE,
                State::Waiting => WAITING,
            };
            ms[0].put(&mut out, generation, now, Ev::GoStatus, &[g.id, NO_M, status]);
        }
        for _ in 0..events {
            now += 1 + random.next() % 300;
            step(&mut ms, &mut gs, &mut next_g, now, &mut random, |m, kind, args| {
                m.put(&mut out, generation, now, kind, args);
            });
        }
        ms.iter_mut().for_each(|m| m.flush(&mut out, generation));
        tables(&mut out, generation, now);
    }
    out
}

fn step(
    ms: &mut [M],
    gs: &mut Vec<Goroutine>,
    next_g: &mut u64,
    now: u64,
    random: &mut Random,
    mut put: impl FnMut(&mut M, Ev, &[u64]),
) {
    let i = random.below(ms.len());
    let m = &mut ms[i];
    // Time is the step's; an M that was written to a moment ago has it too.
    debug_assert!(m.data.is_empty() || m.last <= now);
    let pick = random.below(gs.len());
    let Some(current) = m.g else {
        if gs[pick].state == State::Runnable {
            gs[pick].seq += 1;
            gs[pick].state = State::Running;
            m.g = Some(pick);
            put(m, Ev::GoStart, &[gs[pick].id, gs[pick].seq]);
        }
        return;
    };
    let stack = 1 + random.next() % 3;
    match random.below(8) {
        0 | 1 => {
            gs[current].state = State::Waiting;
            m.g = None;
            put(m, Ev::GoBlock, &[1 + random.next() % 3, stack]);
        }
        2 => {
            gs[current].state = State::Runnable;
            m.g = None;
            put(m, Ev::GoStop, &[1, stack]);
        }
        3 => {
            m.p_seq += 1;
            let seq = m.p_seq;
            put(m, Ev::GoSyscallBegin, &[seq, stack]);
            put(m, Ev::GoSyscallEnd, &[]);
        }
        4 if gs.len() < 400 => {
            gs.push(Goroutine { id: *next_g, state: State::Runnable, seq: 0 });
            put(m, Ev::GoCreate, &[*next_g, 1, stack]);
            *next_g += 1;
        }
        _ => {
            if gs[pick].state == State::Waiting {
                gs[pick].seq += 1;
                gs[pick].state = State::Runnable;
                put(m, Ev::GoUnblock, &[gs[pick].id, gs[pick].seq, stack]);
            }
        }
    }
}

fn tables(out: &mut Vec<u8>, generation: u64, now: u64) {
    let sync = [vec![Ev::Sync as u8], frequency(1_000_000_000), snapshot()].concat();
    put_batch(out, generation, NO_M, now, &sync);
    let mut stacks = vec![Ev::Stacks as u8];
    for id in 1..=3 {
        stacks.extend(event(Ev::Stack, &[id, 2, 16 * id, 1, 2, id, 16 * id + 1, 3, 2, id + 7]));
    }
    put_batch(out, generation, NO_M, now, &stacks);
    let mut strings = vec![Ev::Strings as u8];
    for (id, text) in [(1, "chan receive"), (2, "app.rs"), (3, "sync")] {
        strings.extend(event(Ev::String, &[id, text.len() as u64]));
        strings.extend_from_slice(text.as_bytes());
    }
    put_batch(out, generation, NO_M, now, &strings);
    out.push(Ev::EndOfGeneration as u8);
}

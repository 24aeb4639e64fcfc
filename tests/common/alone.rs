//! Each generation of a trace is a trace by itself.

use std::collections::{BTreeMap, BTreeSet};

use tracer::read::{Reader, State, Transition};
use tracer::wire::HEADER;
use tracer::wire::ext::Record;

use super::judge;

/// What a trace says of one generation.
#[derive(Default)]
pub struct Told {
    /// Where it is.
    pub bytes: std::ops::Range<usize>,
    /// Who is named in it.
    pub named: BTreeSet<i64>,
    /// Who is alive at its end.
    pub alive: BTreeSet<i64>,
    /// The last labels of a goroutine, `""` for none, and when they were told.
    labels: BTreeMap<u64, (i64, String)>,
}

/// The generations of a good trace.
pub fn generations(trace: &[u8]) -> Vec<Told> {
    let mut reader = Reader::new(trace).expect("a good header");
    let (mut all, mut number) = (Vec::<Told>::new(), 0);
    while let Some(e) = reader.next() {
        let e = e.expect("a good event");
        let info = reader.generation();
        if info.number != number && info.bytes != 0 {
            number = info.number;
            let alive = all.last().map(|t| t.alive.clone()).unwrap_or_default();
            let mut told = Told { alive, ..Told::default() };
            told.bytes = info.offset as usize..(info.offset + info.bytes) as usize;
            for r in reader.tables().ext_records() {
                let r = r.expect("a good record");
                if let Some(Record::Labels { g, labels }) = r.record {
                    let text = reader.tables().string(labels).expect("in the table").into_owned();
                    let last = told.labels.entry(g).or_insert_with(|| (i64::MIN, String::new()));
                    if r.time >= last.0 {
                        *last = (r.time, text);
                    }
                }
            }
            all.push(told);
        }
        if let Some(Transition::G { id, to, .. }) = e.transition() {
            let told = all.last_mut().expect("an event is in a generation");
            told.named.insert(id);
            if to == State::NotExist {
                told.alive.remove(&id);
            } else {
                told.alive.insert(id);
            }
        }
    }
    all
}

/// Each generation alone is a trace, and knows everybody. Answers how many there are.
pub fn judge_alone(what: &str, trace: &[u8]) -> usize {
    let all = generations(trace);
    for (i, told) in all.iter().enumerate() {
        let alone = [&HEADER[..], &trace[told.bytes.clone()]].concat();
        judge(&format!("{what} generation {i} alone"), &alone);
        let mut alone = generations(&alone);
        let alone = alone.pop().expect("one");
        let Some(before) = i.checked_sub(1).map(|b| &all[b]) else { continue };
        if let Some(g) = before.alive.difference(&alone.named).next() {
            panic!("{what}: goroutine {g} lives and is not in generation {i} of {}", all.len());
        }
        for (g, (_, labels)) in &before.labels {
            let (is_alive, is_told) = (before.alive.contains(&(*g as i64)), alone.labels.contains_key(g));
            assert!(
                labels.is_empty() || !is_alive || is_told,
                "{what}: goroutine {g} has the labels {labels} and does not say so in generation {i} of {}",
                all.len()
            );
        }
    }
    all.len()
}

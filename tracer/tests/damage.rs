//! Damaged files: every cut and many random changes. None may panic, and what was whole before the damage is still
//! told.
#![cfg(feature = "read")]

mod common;

use std::sync::Arc;

use common::*;
use tracer::analyze::profile::{self, ProfileKind};
use tracer::analyze::{self, Names, mmu};
use tracer::read::salvage::Salvage;
use tracer::read::{Error, Event, Info, Reader, Rule, Tables, validate};
use tracer::wire::{Ev, HEADER};

/// How many events, and how many whole generations, a trace gives before it ends or breaks.
fn progress(trace: &[u8]) -> (usize, usize) {
    let (events, _) = read(trace);
    let syncs = events.iter().filter(|event| event.kind == Ev::Sync).count();
    (events.len(), syncs)
}

/// Everything that looks at a trace, looks at it.
fn look(trace: &[u8]) {
    if let Ok(mut reader) = Reader::new(trace) {
        let (summary, _) = analyze::summarize(&mut reader);
        assert!(!summary.to_string().is_empty());
    }
    if let Ok(mut reader) = Reader::new(trace) {
        let _ = validate::validate(&mut reader);
    }
    if let Ok(mut salvage) = Salvage::new(trace) {
        let mut summary = analyze::Builder::new(salvage.version());
        let mut profiles = ProfileKind::ALL.map(|kind| profile::Builder::new(kind).complete());
        let mut like_go = ProfileKind::ALL.map(profile::Builder::new);
        let causes = mmu::Causes { sweeps: true, ..mmu::Causes::default() };
        let (mut utilization, mut names) = (mmu::Builder::new(causes), Names::default());
        let each = |event: Option<&Event>, info: &Info, tables: &Arc<Tables>| {
            let Some(event) = event else {
                summary.gap();
                profiles.iter_mut().chain(&mut like_go).for_each(profile::Builder::gap);
                utilization.gap();
                names.gap();
                return Ok::<(), std::convert::Infallible>(());
            };
            summary.event(event, info, tables);
            profiles.iter_mut().chain(&mut like_go).for_each(|profile| profile.event(event, tables));
            utilization.event(event, tables);
            names.event(event, tables);
            names.get(event.g);
            Ok(())
        };
        salvage.each(each).unwrap_or_else(|never| match never {});
        assert!(!summary.finish().to_string().is_empty());
        for profile in profiles.into_iter().chain(like_go).map(profile::Builder::finish) {
            profile.total();
        }
        let curve = utilization.finish();
        for window in [0, 1, 1_000, u64::MAX] {
            assert!(curve.mmu(window).is_none_or(|(mmu, _)| (0.0..=1.0).contains(&mmu)));
        }
    }
}

#[test]
fn the_rich_trace_is_good() {
    let trace = rich();
    let (events, error) = read(&trace);
    assert!(error.is_none(), "{}", error.unwrap());
    let kinds: std::collections::HashSet<Ev> = events.iter().map(|event| event.kind).collect();
    assert!(kinds.len() >= 35, "{} kinds", kinds.len());
    let mut reader = Reader::new(&trace[..]).expect("the header is good");
    let (findings, _) = validate::validate(&mut reader);
    assert_eq!(findings.first, []);
}

#[test]
fn cut_anywhere() {
    let whole = rich();
    let (all_events, all_syncs) = progress(&whole);
    let first_generation = {
        let mut reader = Reader::new(&whole[..]).expect("the header is good");
        reader.next();
        HEADER.len() + reader.generation().bytes as usize
    };
    for cut in 0..whole.len() {
        let trace = &whole[..cut];
        let (events, error) = read(trace);
        if cut < HEADER.len() {
            assert!(matches!(error, Some(Error::NotATrace)), "cut at {cut}");
            continue;
        }
        let clean = cut == HEADER.len() || cut == first_generation;
        let rules = [Rule::BatchCut, Rule::GenerationCut];
        match &error {
            None => assert!(clean, "cut at {cut}"),
            Some(e) => assert!(!clean && e.broken().is_some_and(|b| rules.contains(&b.rule)), "cut at {cut}: {e}"),
        }
        // The first generation is told if it is whole.
        let syncs = events.iter().filter(|event| event.kind == Ev::Sync).count();
        assert_eq!(syncs, if cut < first_generation { 1 } else { 2 }, "cut at {cut}");
        assert!(events.len() < all_events && syncs < all_syncs);
        look(trace);
    }
}

#[test]
fn a_damaged_second_generation_leaves_the_first() {
    let good = Trace::new().generation(1, |g| g.running(0).ev(Ev::GoStop, &[1, 1]).done());
    let (before, _) = read(&good.0);
    let bytes = good.0.len() as u64;
    let trace = good.generation(2, |g| g.m(0).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GoStart, &[55, 1]).done());
    let mut reader = Reader::new(&trace.0[..]).expect("the header is good");
    let (summary, error) = analyze::summarize(&mut reader);
    let error = error.expect("it is broken");
    let broken = error.broken().expect("by a rule");
    assert_eq!(broken.rule, Rule::Stuck);
    assert!(broken.offset > bytes, "{broken}");
    assert_eq!(trace.0[broken.offset as usize], Ev::GoStart as u8);
    assert!(broken.detail.contains("G 55 does not exist"), "{broken}");
    // The status is told, the first generation as ever.
    assert_eq!(summary.events() as usize, before.len() - 2 + 1);
    assert_eq!(summary.generations.len(), 2);
}

#[test]
fn an_unfinished_tail_without_events_is_a_clean_end() {
    let mut trace = rich();
    let len = trace.len();
    put_batch(&mut trace, 3, 0, 1, &[Ev::Strings as u8]);
    let mut reader = Reader::new(&trace[..]).expect("the header is good");
    assert!(reader.all(|event| event.is_ok()));
    assert_eq!(reader.unfinished_bytes(), (trace.len() - len) as u64);
}

#[test]
fn random_changes_do_not_panic() {
    let rounds = if cfg!(miri) {
        20
    } else if cfg!(debug_assertions) {
        4_000
    } else {
        50_000
    };
    let seed = std::env::var("GORT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1u64);
    println!("GORT_SEED={seed}");
    let good = rich();
    let mut random = Random(seed);
    let mut verdicts = std::collections::HashMap::new();
    for round in 0..rounds {
        let mut trace = good.clone();
        for _ in 0..1 + random.below(4) {
            let at = HEADER.len() + random.below(trace.len() - HEADER.len());
            match random.below(5) {
                0 => trace[at] = random.next() as u8,
                1 => trace[at] ^= 1 << random.below(8),
                2 => drop(trace.drain(at..(at + random.below(9)).min(trace.len()))),
                3 => trace[at] = random.below(54) as u8,
                _ => {
                    let from = HEADER.len() + random.below(trace.len() - HEADER.len());
                    let piece: Vec<u8> = trace[from..(from + random.below(30)).min(trace.len())].to_vec();
                    trace.splice(at..at, piece);
                }
            }
        }
        let (_, error) = read(&trace);
        *verdicts.entry(error.and_then(|e| e.broken().map(|b| b.rule))).or_insert(0u32) += 1;
        if round % 8 == 0 {
            look(&trace);
        }
    }
    // The changes reach deep: a third of all rules, and some do no harm.
    assert!(cfg!(miri) || verdicts.len() > Rule::ALL.len() / 3, "{verdicts:?}");
    assert!(cfg!(miri) || verdicts.contains_key(&None), "{verdicts:?}");
}

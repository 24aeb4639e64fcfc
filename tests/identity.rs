//! Ids, names, labels, and who made a goroutine.

mod common;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{Rng, program, scaled, seed, traced};
use rt::goroutine::{self, Labels};
use tracer::read::Reader;
use tracer::wire::ext::Record;

programs!(creator_stacks, no_creator_stacks, creator_stacks_by_config, too_many_stacks);

// Ids.

#[test]
fn ids() {
    assert_eq!(goroutine::id(), None);
    assert!(goroutine::current().is_none());
    traced("ids", || {
        let mine = goroutine::id().expect("a goroutine");
        let handles: Vec<_> = (0..1000)
            .map(|i| {
                rt::go(move || {
                    let before = goroutine::id();
                    if i % 3 == 0 {
                        rt::yield_now();
                    }
                    assert_eq!(goroutine::id(), before, "an id does not change");
                    (goroutine::current().unwrap(), before.unwrap())
                })
            })
            .collect();
        let mut seen = HashSet::from([mine]);
        for h in handles {
            let id = h.id();
            let (it, own) = h.join().unwrap();
            assert_eq!((it.id(), own, it.creator()), (id, id, Some(mine)));
            assert!(it.created_at().file().ends_with("identity.rs"));
            assert!(seen.insert(id), "goroutine {id} was there before");
        }
        let thread = std::thread::spawn(|| rt::go(goroutine::current));
        let h = rt::blocking(|| thread.join().unwrap());
        let id = h.id();
        let it = h.join().unwrap().unwrap();
        assert_eq!((it.id(), it.creator(), it.name()), (id, None, None));
        assert!(seen.insert(id));
        assert_eq!((id.to_string(), format!("{id:?}")), (id.get().to_string(), format!("Id({id})")));
    });
}

#[test]
fn names() {
    traced("names", || {
        assert_eq!(goroutine::current().unwrap().name(), Some("main"));
        let h = rt::Builder::new().name("parser").spawn(|| goroutine::current().unwrap()).unwrap();
        let it = h.join().unwrap();
        // The goroutine is gone; what was said of it is not.
        assert_eq!(it.name(), Some("parser"));
        assert_eq!(rt::go(|| goroutine::current().unwrap().name().map(str::to_owned)).join().unwrap(), None);
    });
}

// Labels.

fn own() -> Vec<(String, String)> {
    goroutine::labels().iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn labels_are_scoped_and_inherited() {
    traced("labels", || {
        assert!(goroutine::labels().is_empty());
        let (child, kept) = goroutine::with_labels(&[("b", "2"), ("a", "1")], || {
            assert_eq!(own(), pairs(&[("a", "1"), ("b", "2")]));
            let child = rt::go(|| {
                let first = own();
                goroutine::with_labels(&[("b", "3"), ("c", "")], || {
                    rt::yield_now();
                    assert_eq!(own(), pairs(&[("a", "1"), ("b", "3"), ("c", "")]));
                    let builder = rt::Builder::new().label("a", "x").label("d", "4").label("d", "5");
                    let grandchild = builder.spawn(own).unwrap();
                    assert_eq!(grandchild.join().unwrap(), pairs(&[("a", "x"), ("b", "3"), ("c", ""), ("d", "5")]));
                });
                assert_eq!(own(), first);
                first
            });
            let builder = rt::Builder::new().label("only", "here");
            (child, builder.spawn(|| goroutine::current().unwrap()).unwrap())
        });
        // The children keep what they inherited, whatever becomes of their maker's.
        assert!(goroutine::labels().is_empty());
        assert_eq!(child.join().unwrap(), pairs(&[("a", "1"), ("b", "2")]));
        let kept = kept.join().unwrap();
        assert_eq!((kept.labels().get("a"), kept.labels().get("only")), (Some("1"), Some("here")));
        assert_eq!(format!("{:?}", kept.labels()), r#"{"a": "1", "b": "2", "only": "here"}"#);
        assert_eq!(rt::go(own).join().unwrap(), []);
    });
}

#[test]
fn labels_come_back_after_a_panic() {
    traced("labels and a panic", || {
        let old = goroutine::set_labels(Labels::new().with(&[("k", "v")]));
        assert!(old.is_empty());
        let caught = catch_unwind(|| {
            goroutine::with_labels(&[("k", "w"), ("more", "")], || {
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        });
        assert!(caught.is_err());
        assert_eq!(own(), pairs(&[("k", "v")]));
        let old = goroutine::set_labels(Labels::default());
        assert_eq!(old, Labels::new().with(&[("k", "x"), ("k", "v")]));
        assert!(goroutine::labels().is_empty());
    });
}

#[test]
fn threads_have_no_labels() {
    assert!(goroutine::set_labels(Labels::new().with(&[("k", "v")])).is_empty());
    goroutine::with_labels(&[("k", "v")], || {
        assert!(goroutine::labels().is_empty());
        assert_eq!(rt::go(own).join().unwrap(), []);
    });
}

/// All labels of each goroutine that a trace tells, in the order of their times.
fn told(trace: &[u8]) -> BTreeMap<u64, Vec<String>> {
    let mut all = BTreeMap::<u64, Vec<(i64, String)>>::new();
    let mut reader = Reader::new(trace).unwrap();
    let mut generation = 0;
    while let Some(e) = reader.next() {
        e.unwrap();
        if std::mem::replace(&mut generation, reader.generation().number) == generation {
            continue;
        }
        for r in reader.tables().ext_records() {
            let r = r.unwrap();
            if let Some(Record::Labels { g, labels }) = r.record {
                let text = reader.tables().string(labels).expect("in the table").into_owned();
                all.entry(g).or_default().push((r.time, text));
            }
        }
    }
    let in_order = |(g, mut list): (u64, Vec<(i64, String)>)| {
        list.sort_by_key(|(time, _)| *time);
        let mut texts: Vec<String> = list.into_iter().map(|(_, text)| text).collect();
        // On a slow machine a generation may have ended meanwhile, and the next one says them again.
        texts.dedup();
        (g, texts)
    };
    all.into_iter().map(in_order).collect()
}

#[test]
fn labels_are_in_the_trace() {
    let ((changing, child, silent), trace) = traced("labels in the trace", || {
        let h = rt::go(|| {
            goroutine::set_labels(Labels::new().with(&[("step", "1")]));
            let child = rt::go(|| goroutine::id().unwrap().get());
            rt::yield_now();
            goroutine::with_labels(&[("step", "2"), ("é\"", "\n")], rt::yield_now);
            goroutine::set_labels(Labels::new());
            rt::yield_now();
            child.join().unwrap()
        });
        let changing = h.id().get();
        let silent = rt::go(rt::yield_now);
        let id = silent.id().get();
        silent.join().unwrap();
        (changing, h.join().unwrap(), id)
    });
    let told = told(&trace);
    assert_eq!(
        told[&changing],
        [r#"{"step": "1"}"#, r#"{"step": "2", "é\"": "\n"}"#, r#"{"step": "1"}"#, ""],
        "{told:?}"
    );
    assert_eq!(told[&child], [r#"{"step": "1"}"#]);
    assert!(!told.contains_key(&silent));
}

/// Labels of any length and number, and any text, make a trace that is taken; what does not fit is cut.
#[test]
fn odd_labels() {
    let (id, trace) = traced("odd labels", || {
        let many: Vec<String> = (0..500).map(|i| format!("key {i}")).collect();
        let mut labels: Vec<(&str, &str)> = many.iter().map(|k| (&**k, "ü\0\"")).collect();
        let long = "x".repeat(10_000);
        labels.extend([("", ""), ("\0gort\u{1}", "\n"), ("long", &long), (&long, "long")]);
        goroutine::with_labels(&labels, || {
            assert_eq!(goroutine::labels().iter().count(), 504);
            assert_eq!(goroutine::labels().get("key 499"), Some("ü\0\""));
            let child = rt::go(|| goroutine::labels().get("").map(str::to_owned));
            let id = child.id().get();
            assert_eq!(child.join().unwrap().as_deref(), Some(""));
            id
        })
    });
    let told = told(&trace);
    let [text] = &told[&id][..] else { panic!("{told:?}") };
    assert!(text.starts_with(r#"{"": "", "\0gort\u{1}": "\n", "key 0": "#) && text.len() > 1000, "{text}");
}

/// Each generation says the labels of those who run in it, once.
#[test]
fn labels_are_told_in_each_generation() {
    let (id, trace) = traced("labels in generations", || {
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        let h = rt::Builder::new()
            .label("worker", "7")
            .spawn(move || {
                while !over.load(SeqCst) {
                    rt::time::sleep(Duration::from_millis(10));
                }
            })
            .unwrap();
        let id = h.id().get();
        rt::time::sleep(Duration::from_millis(2300));
        stop.store(true, SeqCst);
        h.join().unwrap();
        id
    });
    // Where it was seen running, and where its labels are told.
    let (mut ran, mut said) = (BTreeSet::new(), Vec::new());
    let mut reader = Reader::new(&trace[..]).unwrap();
    let mut generation = 0;
    while let Some(e) = reader.next() {
        if e.unwrap().g == id as i64 {
            ran.insert(reader.generation().number);
        }
        if std::mem::replace(&mut generation, reader.generation().number) != generation {
            let records = reader.tables().ext_records().map(|r| r.unwrap().record);
            let own = records.filter(|r| matches!(r, Some(Record::Labels { g, .. }) if *g == id));
            said.extend(own.map(|_| generation));
        }
    }
    assert!(ran.len() >= 3, "two seconds and more are {} generations", ran.len());
    assert_eq!(said, ran.into_iter().collect::<Vec<_>>());
    assert!(told(&trace)[&id].iter().all(|l| l == r#"{"worker": "7"}"#));
}

#[test]
fn stress_labels() {
    common::everywhere("stress_labels", || {
        let seed = seed();
        traced("stress labels", move || {
            let handles: Vec<_> = (0..50u64)
                .map(|i| {
                    rt::go(move || {
                        let mut rng = Rng::new(seed ^ i);
                        let me = i.to_string();
                        goroutine::set_labels(Labels::new().with(&[("me", &me)]));
                        for turn in 0..scaled(300, 60) {
                            let turn = turn.to_string();
                            let children: Vec<_> = goroutine::with_labels(&[("turn", &turn)], || {
                                (0..rng.below(4)).map(|_| rt::go(own)).collect()
                            });
                            if rng.below(2) == 0 {
                                rt::yield_now();
                            }
                            for c in children {
                                assert_eq!(c.join().unwrap(), pairs(&[("me", &me), ("turn", &turn)]));
                            }
                            assert_eq!(own(), pairs(&[("me", &me)]));
                        }
                    })
                })
                .collect();
            handles.into_iter().for_each(|h| h.join().unwrap());
        });
    });
}

// The stack of the maker.

#[inline(never)]
fn outer_call() -> Option<String> {
    let stack = inner_call();
    std::hint::black_box(stack)
}

#[inline(never)]
fn inner_call() -> Option<String> {
    let h = rt::go(|| goroutine::current().unwrap().creator_stack());
    std::hint::black_box(h.join().unwrap())
}

fn expect_stack(stack: Option<String>) {
    let stack = stack.expect("a stack is remembered");
    let line =
        |name: &str| stack.lines().position(|l| l.contains(name)).unwrap_or_else(|| panic!("{name} in\n{stack}"));
    assert!(line("inner_call") < line("outer_call"), "{stack}");
    assert!(line("outer_call") < line("main_function"), "{stack}");
    assert!(stack.contains("identity.rs:"), "{stack}");
    // Those of one place have one stack.
    let again: Vec<_> = (0..2).map(|_| inner_call().unwrap()).collect();
    assert_eq!(again[0], again[1]);
}

#[inline(never)]
fn main_function() {
    expect_stack(std::hint::black_box(outer_call()));
    assert_eq!(goroutine::current().unwrap().creator_stack(), None, "a thread has made this one");
}

fn creator_stacks() {
    rt::run(main_function);
}

fn creator_stacks_by_config() {
    rt::Config::new().creator_stacks(true).run(main_function);
}

fn no_creator_stacks() {
    rt::run(|| assert_eq!(outer_call(), None));
}

#[test]
fn makers_stacks_are_remembered_on_request() {
    for stacks in ["fp", "dwarf", "off"] {
        program("creator_stacks", &[("RT_CREATOR_STACKS", "1"), ("RT_TRACE_STACKS", stacks)]).expect_code(0);
    }
    program("creator_stacks_by_config", &[]).expect_code(0);
    program("no_creator_stacks", &[]).expect_code(0);
    program("no_creator_stacks", &[("RT_CREATOR_STACKS", "0")]).expect_code(0);
}

/// Recursion makes more stacks than are kept: the later goroutines come without one, and nothing else changes.
fn too_many_stacks() {
    #[inline(never)]
    fn down(bits: u32, depth: u32, with: &mut [usize; 2]) {
        if depth == 0 {
            let known = rt::go(|| goroutine::current().unwrap().has_creator_stack()).join().unwrap();
            with[usize::from(known)] += 1;
        } else if bits & 1 == 0 {
            down(bits >> 1, depth - 1, with);
            std::hint::black_box(0);
        } else {
            down(bits >> 1, depth - 1, with);
            std::hint::black_box(1);
        }
    }
    rt::Config::new().creator_stacks(true).run(|| {
        let mut with = [0, 0];
        for bits in 0..8192 {
            down(bits, 13, &mut with);
        }
        println!("{with:?}");
        assert!(with[1] <= 4096 && with[0] >= 4096, "{with:?}");
    });
}

#[test]
fn stacks_beyond_the_limit_are_left_out() {
    print!("{}", program("too_many_stacks", &[]).expect_code(0).stdout);
}

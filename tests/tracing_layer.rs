//! Spans and events of the crate `tracing`, as tasks, regions and logs.

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Rng, everywhere, scaled, seed, traced};
use rt::trace::{SpanRegistry, TracingLayer};
use tracer::wire::Ev;
use tracing::{Span, debug, error, info, info_span, span};
use tracing_subscriber::prelude::*;

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = SpanRegistry::new().with(TracingLayer::new());
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// What a trace says of tasks, regions and logs, in order: `(what, goroutine, task, text)`.
fn notes(trace: &[u8]) -> Vec<(&'static str, i64, u64, String)> {
    let mut all = Vec::new();
    common::events(trace, |e, tables| {
        let text = |id: u64| tables.string(id).expect("in the table").into_owned();
        match e.kind {
            Ev::UserTaskBegin => all.push(("task", e.g, e.args[0], text(e.args[2]))),
            Ev::UserTaskEnd => all.push(("task end", e.g, e.args[0], String::new())),
            Ev::UserRegionBegin => all.push(("region", e.g, e.args[0], text(e.args[1]))),
            Ev::UserRegionEnd => all.push(("region end", e.g, e.args[0], text(e.args[1]))),
            Ev::UserLog => {
                all.push(("log", e.g, e.args[0], format!("{}: {}", text(e.args[1]), text(e.args[2]))));
            }
            _ => {}
        }
    });
    all
}

#[test]
fn spans_and_events() {
    install();
    let (ids, trace) = traced("spans and events", || {
        info!("outside");
        let root = info_span!("root", path = "/x", n = 3);
        let child = root.in_scope(|| {
            info!(bytes = 17, who = "me", "sent {}", 1);
            info_span!("child")
        });
        let other = rt::go({
            let child = child.clone();
            move || {
                let _entered = child.enter();
                rt::yield_now();
                error!(target: "elsewhere", "no");
                debug!(parent: None, "nobody's");
            }
        });
        let id = other.id().get();
        other.join().unwrap();
        child.record("late", 1); // No such field: nothing is said of it.
        drop((child, root));
        (rt::goroutine::id().unwrap().get() as i64, id as i64)
    });
    let notes = notes(&trace);
    let task = notes.iter().find(|n| n.0 == "task").expect("a task").2;
    let (main, other) = ids;
    let of = |g: i64| -> Vec<(&str, u64, &str)> {
        notes.iter().filter(|n| n.1 == g && n.3 != "child: ").map(|n| (n.0, n.2, &*n.3)).collect()
    };
    assert_eq!(
        of(main),
        [
            ("log", 0, "tracing_layer: INFO outside"),
            ("task", task, "root"),
            ("log", task, "root: path=\"/x\" n=3"),
            ("region", task, "root"),
            ("log", task, "tracing_layer: INFO sent 1 bytes=17 who=\"me\""),
            ("region end", task, "root"),
            ("task end", task, ""),
        ]
    );
    assert_eq!(
        of(other),
        [
            ("region", task, "child"),
            ("log", task, "elsewhere: ERROR no"),
            ("log", 0, "tracing_layer: DEBUG nobody's"),
            ("region end", task, "child"),
        ]
    );
}

/// A future that enters its span at each poll.
struct InSpan<F>(F, Span);

impl<F: Future + Unpin> Future for InSpan<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let span = self.1.clone();
        let _entered = span.enter();
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Spans in the wrong order, left on another goroutine, twice, never; made before the trace and closed after it.
#[test]
fn misuse_makes_no_bad_traces() {
    install();
    everywhere("misuse_makes_no_bad_traces", || {
        let early = info_span!("early");
        let (counts, trace) = traced("misuse of spans", move || {
            let _entered = early.enter();
            let dispatch = |f: &dyn Fn(&tracing::Dispatch)| tracing::dispatcher::get_default(f);
            let (a, b, c) = (info_span!("a"), info_span!("b"), info_span!("c"));
            let id = |s: &Span| s.id().unwrap();
            // Not as brackets.
            dispatch(&|d| d.enter(&id(&a)));
            dispatch(&|d| d.enter(&id(&b)));
            dispatch(&|d| d.exit(&id(&a)));
            dispatch(&|d| d.enter(&id(&c)));
            dispatch(&|d| d.exit(&id(&b)));
            info!("still in c");
            dispatch(&|d| d.exit(&id(&b)));
            dispatch(&|d| d.exit(&id(&c)));
            // Entered twice, left once, elsewhere and here.
            let elsewhere = rt::go({
                let a = a.clone();
                move || {
                    tracing::dispatcher::get_default(|d| d.exit(&a.id().unwrap()));
                    tracing::dispatcher::get_default(|d| d.enter(&a.id().unwrap()));
                }
            });
            dispatch(&|d| d.enter(&id(&a)));
            dispatch(&|d| d.enter(&id(&a)));
            elsewhere.join().unwrap();
            dispatch(&|d| d.exit(&id(&a)));
            rt::block_on(InSpan(Box::pin(std::future::ready(())), info_span!("future")));
            // A panic leaves through a span.
            let hurt = rt::go(|| info_span!("hurt").in_scope(|| std::panic::resume_unwind(Box::new(()))));
            assert!(hurt.join().is_err());
            0
        });
        let _: i32 = counts;
        let mut open = BTreeMap::<i64, Vec<String>>::new();
        for (what, g, _, text) in notes(&trace) {
            match what {
                "region" => open.entry(g).or_default().push(text),
                "region end" => assert_eq!(open.get_mut(&g).and_then(Vec::pop), Some(text)),
                // LY3: c began when a had ended, and with it b; the second exits of b are nobody's.
                "log" if text.ends_with("still in c") => assert_eq!(open[&g].last().map(|s| &**s), Some("c")),
                _ => {}
            }
        }
    });
}

/// Many goroutines in spans that migrate, under a trace that comes and goes.
#[test]
fn stress_spans() {
    install();
    everywhere("stress_spans", || {
        let seed = seed();
        fn deep(rng: &mut Rng, depth: u64) {
            let span = span!(tracing::Level::INFO, "deep", depth);
            let _entered = span.enter();
            match rng.below(6) {
                0 => rt::yield_now(),
                1 => rt::time::sleep(Duration::from_micros(rng.below(300))),
                2 => info!(depth, "event"),
                3 => {
                    let span = Span::current();
                    rt::go(move || span.in_scope(rt::yield_now)).join().unwrap();
                }
                4 => rt::blocking(|| info!("in a call")),
                _ => {}
            }
            if depth < 4 {
                deep(rng, depth + 1);
            }
        }
        for round in 0..scaled(10, 3) {
            traced("spans in a storm", move || {
                let all: Vec<_> = (0..40u64)
                    .map(|i| {
                        rt::go(move || {
                            let mut rng = Rng::new(seed ^ i ^ (round as u64) << 32);
                            (0..5).for_each(|_| deep(&mut rng, 0));
                        })
                    })
                    .collect();
                let short = rt::trace::Stream::start(std::io::sink()).unwrap();
                all.into_iter().for_each(|h| h.join().unwrap());
                short.stop().unwrap();
            });
        }
    });
}

/// The parent of a span is the one that its goroutine is in, also where goroutines take turns on a thread, and change it.
#[test]
fn parents() {
    install();
    everywhere("parents", || {
        traced("parents of spans", || {
            let all: Vec<_> = (0..20u64)
                .map(|i| {
                    rt::go(move || {
                        let mut above = None;
                        let mut spans = Vec::new();
                        for depth in 0..10 {
                            let span = info_span!("level", depth);
                            rt::time::sleep(Duration::from_micros(i * 7 % 50));
                            assert_eq!(parent(&span), above);
                            above = span.id();
                            spans.push(span.entered());
                            rt::yield_now();
                            assert_eq!(Span::current().id(), above);
                        }
                        while let Some(span) = spans.pop() {
                            drop(span);
                            assert_eq!(Span::current().id(), spans.last().and_then(|s| s.id()));
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|h| h.join().unwrap());
        });
    });
}

fn parent(span: &Span) -> Option<tracing::Id> {
    use tracing_subscriber::registry::LookupSpan;
    span.with_subscriber(|(id, dispatch)| {
        let registry = dispatch.downcast_ref::<SpanRegistry>().expect("it is installed");
        let parent = registry.span(id)?.parent()?.id();
        Some(parent)
    })
    .flatten()
}

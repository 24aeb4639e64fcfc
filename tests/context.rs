//! Contexts: they end once, all of what hangs on them ends, and nothing stays behind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Rng, seed, traced};
use rt::context::{Context, ContextError};

#[test]
fn background_is_never_over() {
    let ctx = Context::background();
    assert_eq!((ctx.err(), ctx.deadline(), ctx.cause()), (None, None, None));
    assert!(!ctx.done().is_closed());
    assert_eq!(ctx.sleep(Duration::from_millis(1)), Ok(()));
}

#[test]
fn cancel_reaches_everything_below_and_nothing_else() {
    traced("context cancel", || {
        let root = Context::background();
        let (a, cancel_a) = root.with_cancel();
        let (b, _cancel_b) = root.with_cancel();
        let (aa, _cancel_aa) = a.with_value("between").with_cancel();
        let (aaa, _cancel_aaa) = aa.with_timeout(Duration::from_secs(3600));
        let waiting: Vec<_> = [&a, &aa, &aaa]
            .into_iter()
            .map(|c| {
                let c = c.clone();
                rt::go(move || {
                    assert!(c.done().recv().is_err());
                    c.err()
                })
            })
            .collect();
        rt::yield_now();
        cancel_a.cancel_because("enough");
        cancel_a.cancel();
        for w in waiting {
            assert_eq!(w.join().unwrap(), Some(ContextError::Canceled));
        }
        assert_eq!(aaa.cause().as_deref(), Some("enough"));
        assert_eq!((b.err(), root.err()), (None, None));
        // What is derived from one that is over is over.
        let (late, _cancel) = aa.with_timeout(Duration::from_secs(3600));
        assert_eq!(late.err(), Some(ContextError::Canceled));
        assert!(late.done().is_closed());
    });
}

#[test]
fn deadlines() {
    traced("context deadline", || {
        let began = Instant::now();
        let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(5));
        let (inner, _cancel_inner) = ctx.with_timeout(Duration::from_secs(3600));
        // The outer deadline is the earlier one.
        assert_eq!(inner.deadline(), ctx.deadline());
        assert_eq!(inner.sleep(Duration::from_secs(3600)), Err(ContextError::DeadlineExceeded));
        assert!(began.elapsed() >= Duration::from_millis(5));
        let (past, _cancel_past) = Context::background().with_deadline(began);
        assert_eq!(past.err(), Some(ContextError::DeadlineExceeded));
        let (never, _cancel_never) = Context::background().with_timeout(Duration::MAX);
        assert_eq!((never.err(), never.deadline()), (None, None));
    });
}

#[test]
fn dropping_the_handle_cancels() {
    let (ctx, cancel) = Context::background().with_cancel();
    drop(cancel);
    assert_eq!(ctx.err(), Some(ContextError::Canceled));
}

#[test]
fn values_shadow() {
    struct Name(&'static str);
    let outer = Context::background().with_value(Name("outer")).with_value(5u8);
    let inner = outer.with_value(Name("inner"));
    assert_eq!(inner.value::<Name>().unwrap().0, "inner");
    assert_eq!(outer.value::<Name>().unwrap().0, "outer");
    assert_eq!(inner.value::<u8>(), Some(&5));
    assert!(inner.value::<String>().is_none());
}

/// A chain of a hundred thousand is cancelled and dropped on a small stack.
#[test]
fn deep_chains() {
    traced("context chain", || {
        let deep = rt::Builder::new().stack_size(64 << 10).spawn(|| {
            let (mut ctx, first) = Context::background().with_cancel();
            let mut cancels = Vec::new();
            for _ in 0..if cfg!(debug_assertions) { 10_000 } else { 100_000 } {
                let (next, cancel) = ctx.with_cancel();
                ctx = next;
                cancels.push(cancel);
            }
            first.cancel();
            assert_eq!(ctx.err(), Some(ContextError::Canceled));
            std::mem::forget(cancels);
        });
        deep.unwrap().join().unwrap();
    });
}

/// Children come and go under a parent that lives; deadlines, cancels and the parent's end meet in every order.
#[test]
fn stress_ends_meet() {
    let seed = seed();
    let (ended, _) = traced("context ends", move || {
        let ended = Arc::new(AtomicU64::new(0));
        for round in 0..if cfg!(debug_assertions) { 50 } else { 500 } {
            let (parent, cancel_parent) = Context::background().with_cancel();
            let children: Vec<_> = (0..20u64)
                .map(|i| {
                    let (parent, ended) = (parent.clone(), ended.clone());
                    rt::go(move || {
                        let mut rng = Rng::new(seed ^ round << 8 ^ i);
                        let (ctx, cancel) = parent.with_timeout(Duration::from_micros(rng.below(300)));
                        if rng.below(3) == 0 {
                            rt::go(move || cancel.cancel());
                        } else {
                            std::mem::forget(cancel);
                        }
                        assert!(ctx.done().recv().is_err());
                        assert!(ctx.err().is_some());
                        ended.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            if round % 2 == 0 {
                rt::yield_now();
                cancel_parent.cancel();
            }
            for c in children {
                c.join().unwrap();
            }
        }
        ended.load(Ordering::Relaxed)
    });
    assert_eq!(ended % 20, 0);
}

/// Many values, one inside the other, on a small stack; and a reason that is made by code that waits.
#[test]
fn values_and_reasons_of_any_kind() {
    traced("context values", || {
        let deep = rt::Builder::new().stack_size(64 << 10).spawn(|| {
            let mut ctx = Context::background();
            for i in 0..20_000u32 {
                ctx = ctx.with_value(i);
            }
            assert_eq!(ctx.value::<u32>(), Some(&19_999));
        });
        deep.unwrap().join().unwrap();
        struct Slow;
        impl From<Slow> for Arc<str> {
            fn from(_: Slow) -> Arc<str> {
                rt::yield_now();
                rt::time::sleep(Duration::from_millis(1));
                "slowly".into()
            }
        }
        let (ctx, cancel) = Context::background().with_cancel();
        cancel.cancel_because(Slow);
        assert_eq!(ctx.cause().as_deref(), Some("slowly"));
    });
}

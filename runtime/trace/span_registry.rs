//! The registry of spans for goroutines. Its one unsafe function passes a type's question on to the registry inside.
//!
//! - SR1: what has been entered is the goroutine's. The registry inside is never told of enters and exits, so it has no current span of its
//!   own.
//! - SR2: a span that is no more is nobody's parent: the registry inside panics when it is to count one.

use std::any::TypeId;
use std::cell::RefCell;

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, LevelFilter, Metadata};
use tracing_subscriber::registry::{Data, LookupSpan, Registry, SpanData};

crate::goroutine_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// `tracing_subscriber`'s [`Registry`], except that each goroutine has a current span of its own. With the feature `tracing`.
///
/// Layers go on top of it, as they do on that one:
///
/// ```
/// use rt::trace::{SpanRegistry, TracingLayer};
/// use tracing_subscriber::prelude::*;
///
/// let subscriber = SpanRegistry::new().with(TracingLayer::new());
/// tracing::subscriber::set_global_default(subscriber).unwrap();
/// ```
///
/// `Registry` itself remembers by thread what has been entered. A goroutine that waits inside a span leaves it behind on its thread, where
/// spans of other goroutines then get it for their parent; goes on on another thread, which knows nothing of it; and what it leaves there
/// was never entered there. Since spans keep their parents, chains of them grow, which are closed late, and by recursion, deeper than a
/// goroutine's stack may be.
///
/// On threads that are no goroutines it is as `Registry` is.
#[derive(Debug, Default)]
pub struct SpanRegistry {
    inner: Registry,
}

impl SpanRegistry {
    /// An empty registry.
    pub fn new() -> SpanRegistry {
        SpanRegistry::default()
    }

    /// The innermost span that the caller is in and that still exists (SR2).
    fn current(&self) -> Option<(Id, &'static Metadata<'static>)> {
        let id = ENTERED.try_with(|e| e.borrow().last().map(|id| Id::from_u64(*id))).ok()??;
        let metadata = self.inner.span_data(&id)?.metadata();
        Some((id, metadata))
    }
}

impl Subscriber for SpanRegistry {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn new_span(&self, attrs: &Attributes<'_>) -> Id {
        match self.current() {
            Some((id, _)) if attrs.is_contextual() => {
                self.inner.new_span(&Attributes::child_of(id, attrs.metadata(), attrs.values()))
            }
            // SR1: with no parent, if it names none.
            _ => self.inner.new_span(attrs),
        }
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.inner.event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        self.inner.event(event);
    }

    fn enter(&self, span: &Id) {
        let _ = ENTERED.try_with(|e| e.borrow_mut().push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        let _ = ENTERED.try_with(|e| {
            let mut entered = e.borrow_mut();
            if let Some(last) = entered.iter().rposition(|id| *id == span.into_u64()) {
                entered.remove(last);
            }
        });
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.inner.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.inner.try_close(id)
    }

    fn current_span(&self) -> Current {
        self.current().map_or_else(Current::none, |(id, metadata)| Current::new(id, metadata))
    }

    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<SpanRegistry>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // Layers look for the registry inside, by its type.
        // SAFETY: passed on to the caller; what it answers is a part of this.
        unsafe { self.inner.downcast_raw(id) }
    }
}

impl<'a> LookupSpan<'a> for SpanRegistry {
    type Data = Data<'a>;

    fn span_data(&'a self, id: &Id) -> Option<Data<'a>> {
        self.inner.span_data(id)
    }

    fn register_filter(&mut self) -> tracing_subscriber::filter::FilterId {
        self.inner.register_filter()
    }
}

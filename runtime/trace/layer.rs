//! Spans and events of the crate `tracing` in the trace.
//!
//! - LY1: whoever calls a layer holds on to thread-locals meanwhile (the dispatcher's, the registry's count of closings) and to guards of
//!   locks. So the goroutine is locked to its thread as long as it is in here.
//! - LY2: what a goroutine has entered is in a list of its own. The registry's own is the thread's, and means nothing once a goroutine has
//!   gone on elsewhere; so it is not asked.
//! - LY3: an exit ends the region of the last enter of that span by the same goroutine (and with it what began inside: A1 in annotate.rs).
//!   One that has none, because another goroutine entered, ends nothing.

use std::cell::RefCell;
use std::fmt::{self, Write};

use tracer::record;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::{self, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::context::Context;
use crate::os_thread::lock_os_thread;
use crate::trace::annotate::{self, Task};

/// A [`Layer`] that shows spans and events of the crate [`tracing`](https://docs.rs/tracing) in the trace. With the feature `tracing`.
///
/// - A span is a [region](crate::trace::region) of the goroutine that has entered it, for as long as it has. One without a parent
///   is a [`Task`] besides, from when it is made until it is closed; all that is inside it, on whichever goroutine, belongs to that task.
/// - An event is a [log](crate::trace::log) with the target as its category and a text of the level, the message and the fields. The
///   fields of a span are a log with the span's name.
///
/// While no trace is recorded an event costs a load here, and a span a few locals.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// let subscriber = rt::trace::SpanRegistry::new().with(rt::trace::TracingLayer::new());
/// tracing::subscriber::set_global_default(subscriber).unwrap();
/// rt::run(|| {
///     rt::trace::start(std::io::sink()).unwrap();
///     tracing::info_span!("request", path = "/").in_scope(|| {
///         rt::yield_now();
///         tracing::info!(bytes = 17, "sent");
///     });
///     rt::trace::stop().unwrap();
/// });
/// ```
///
/// # Goroutines and `tracing`
///
/// What counts here is what the goroutine has entered, whichever thread it is on, also for the parents of spans and events; and a goroutine
/// stays on its thread while it is in this layer. `tracing-subscriber`'s own registry goes by the thread. So a registry for goroutines
/// belongs below: [`SpanRegistry`](crate::trace::SpanRegistry), which says what happens without it.
///
/// Install the subscriber for the whole process (`set_global_default`): one that is set by `with_default` is the thread's alone.
///
/// Enters and exits that do not match, or come from different goroutines, are regions that end early or with their goroutine.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingLayer {
    _more: (),
}

impl TracingLayer {
    /// The layer.
    pub const fn new() -> TracingLayer {
        TracingLayer { _more: () }
    }
}

/// What is kept with a span.
struct SpanState {
    /// Of the task that it belongs to.
    context: Context,
    /// The task that it is.
    task: Option<Task>,
}

/// A span that a goroutine is in (LY2).
struct Entered {
    span: u64,
    /// Of its region; 0: it was not recorded.
    serial: u64,
}

crate::goroutine_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// The spans that the caller is in, the innermost first. (None while its locals are being dropped.)
fn entered() -> Vec<u64> {
    ENTERED.try_with(|e| e.borrow().iter().rev().map(|e| e.span).collect()).unwrap_or_default()
}

/// The context of a span, if it was made under this layer.
fn of_span<S>(id: &Id, ctx: &layer::Context<'_, S>) -> Option<Context>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = ctx.span(id)?;
    let extensions = span.extensions();
    extensions.get::<SpanState>().map(|s| s.context.clone())
}

/// The context of the span that an event or a new span belongs to: the one it names, or the innermost that the caller is in.
fn of_parent<S>(parent: Option<&Id>, is_contextual: bool, ctx: &layer::Context<'_, S>) -> Option<Context>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    match parent {
        Some(parent) => of_span(parent, ctx),
        None if is_contextual => entered().into_iter().find_map(|id| of_span(&Id::from_u64(id), ctx)),
        None => None,
    }
}

impl<S> Layer<S> for TracingLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: layer::Context<'_, S>) {
        let _stay = lock_os_thread(); // LY1
        let name = attrs.metadata().name();
        let state = match of_parent(attrs.parent(), attrs.is_contextual(), &ctx) {
            Some(context) => SpanState { context, task: None },
            None => {
                let (context, task) = Task::begin(&Context::background(), name);
                SpanState { context, task: Some(task) }
            }
        };
        if record::enabled() {
            let mut text = Text::default();
            attrs.record(&mut text);
            if !text.0.is_empty() {
                annotate::log(&state.context, name, text);
            }
        }
        if let Some(span) = ctx.span(id) {
            span.extensions_mut().replace(state);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: layer::Context<'_, S>) {
        let _stay = lock_os_thread();
        if record::enabled()
            && let Some(name) = ctx.metadata(id).map(|m| m.name())
        {
            let mut text = Text::default();
            values.record(&mut text);
            annotate::log(&of_span(id, &ctx).unwrap_or_default(), name, text);
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: layer::Context<'_, S>) {
        if !record::enabled() {
            return;
        }
        let _stay = lock_os_thread();
        let context = of_parent(event.parent(), event.is_contextual(), &ctx).unwrap_or_default();
        let metadata = event.metadata();
        let mut text = Text(metadata.level().to_string());
        event.record(&mut text);
        annotate::log(&context, metadata.target(), text);
    }

    fn on_enter(&self, id: &Id, ctx: layer::Context<'_, S>) {
        let _stay = lock_os_thread();
        let mut serial = 0;
        if record::enabled()
            && let Some(name) = ctx.metadata(id).map(|m| m.name())
        {
            serial = annotate::begin(&of_span(id, &ctx).unwrap_or_default(), name);
        }
        let _ = ENTERED.try_with(|e| e.borrow_mut().push(Entered { span: id.into_u64(), serial }));
    }

    fn on_exit(&self, id: &Id, _: layer::Context<'_, S>) {
        let _stay = lock_os_thread();
        // LY3
        let left = ENTERED.try_with(|e| {
            let mut entered = e.borrow_mut();
            let last = entered.iter().rposition(|e| e.span == id.into_u64())?;
            Some(entered.remove(last).serial)
        });
        if let Ok(Some(serial)) = left
            && serial != 0
        {
            annotate::end(serial);
        }
    }

    fn on_close(&self, id: Id, ctx: layer::Context<'_, S>) {
        let _stay = lock_os_thread();
        let state = ctx.span(&id).and_then(|span| span.extensions_mut().remove::<SpanState>());
        // Nothing of the registry's is held while the task ends.
        drop(state.and_then(|s| s.task));
    }
}

/// Fields as text: the message, then `name=value`.
#[derive(Default)]
struct Text(String);

impl Text {
    fn field(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        let _ = match field.name() {
            "message" => self.0.write_fmt(value),
            name => write!(self.0, "{name}={value}"),
        };
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.field(field, format_args!("{value}")),
            _ => self.field(field, format_args!("{value:?}")),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

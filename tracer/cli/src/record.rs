//! An event as a record: the fields that text, JSON and CSV have in common.

use std::borrow::Cow;

use serde::Serialize;
use tracer::read::{Event, NONE, Tables, Transition};
use tracer::wire::{ArgKind, Ev};

use crate::command::FrameJson;

/// An event, with what its ids stand for.
#[derive(Serialize)]
pub(crate) struct Record<'t> {
    /// Since the first event.
    pub at_ns: i64,
    pub m: Option<i64>,
    pub p: Option<i64>,
    pub g: Option<i64>,
    /// As the format calls it: `GoBlock`.
    pub event: &'static str,
    /// As Go's tools call it: `StateTransition`.
    pub kind: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Its strings: a reason, a name, a message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<Cow<'t, str>>,
    /// Its other arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<(&'static str, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<Vec<FrameJson>>,
}

/// A change of state.
#[derive(Serialize)]
pub(crate) struct Change {
    /// `G` or `P`.
    pub of: &'static str,
    pub id: i64,
    pub from: &'static str,
    pub to: &'static str,
}

impl<'t> Record<'t> {
    pub fn new(event: &Event, start: i64, tables: &'t Tables, stacks: bool) -> Record<'t> {
        let change = event.transition().map(|transition| match transition {
            Transition::G { id, from, to } => Change { of: "G", id, from: from.name(), to: to.name() },
            Transition::P { id, from, to } => Change { of: "P", id, from: from.name(), to: to.name() },
        });
        let (mut text, mut args) = (Vec::new(), Vec::new());
        let spec = event.kind.spec();
        if event.kind == Ev::StwEnd {
            text.extend(event.text(tables));
        }
        for (i, arg) in spec.args.iter().enumerate().skip(1).filter(|_| spec.timed) {
            let value = event.args[i - 1];
            match arg.kind {
                ArgKind::String => text.extend(tables.string(value)),
                // A sequence number is for readers, and what the change says need not be said twice.
                ArgKind::Stack | ArgKind::Seq | ArgKind::GoStatus | ArgKind::ProcStatus => {}
                ArgKind::G | ArgKind::P if change.as_ref().is_some_and(|change| change.id as u64 == value) => {}
                _ => args.push((arg.name, value)),
            }
        }
        let some = |id: i64| Some(id).filter(|&id| id != NONE);
        Record {
            at_ns: event.time.saturating_sub(start),
            m: some(event.m),
            p: some(event.p),
            g: some(event.g),
            event: event.kind.name(),
            kind: event.category().name(),
            change,
            text,
            args,
            stack: stacks.then(|| tables.stack(event.stack()).map(frame_json).collect()),
        }
    }
}

fn frame_json(frame: tracer::read::Frame<'_>) -> FrameJson {
    FrameJson { func: frame.func.into_owned(), file: frame.file.into_owned(), line: frame.line }
}

//! Who a goroutine is: its id, its name, its labels, and who made it.
//!
//! Labels are pairs of key and value that a program gives its goroutines, such as the request that one works for. A
//! goroutine inherits the labels of the one that makes it. Dumps show them, and the trace has them as an [extension
//! record](tracer::wire::ext).
//!
//! ```
//! use rt::goroutine;
//!
//! rt::run(|| {
//!     goroutine::with_labels(&[("request", "17")], || {
//!         let child = rt::go(|| goroutine::labels().get("request").map(str::to_owned));
//!         assert_eq!(child.join().unwrap().as_deref(), Some("17"));
//!     });
//!     assert!(goroutine::labels().is_empty());
//! });
//! ```

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

pub use crate::local::{AccessError, LocalKey};
use crate::sched::g::G;
pub use crate::sched::id::Id;
use crate::sched::labels::LabelSet;
use crate::sched::park::Inside;
use crate::sched::{dump, emit};
use crate::stack::header::current_g;
use tracer::unwind::Regs;

/// The id of the calling goroutine; `None` on a thread that is none. Costs a nanosecond.
#[inline]
pub fn id() -> Option<Id> {
    current_g().map(|g| Id::new(g.id()))
}

/// The calling goroutine, as it is now; `None` on a thread that is none.
///
/// ```
/// let h = rt::Builder::new().name("parser").spawn(|| rt::goroutine::current().unwrap()).unwrap();
/// let id = h.id();
/// let it = h.join().unwrap();
/// assert_eq!((it.id(), it.name()), (id, Some("parser")));
/// ```
pub fn current() -> Option<Goroutine> {
    let inside = Inside::enter()?;
    let g = inside.g();
    // SAFETY: N2: it is the caller, inside.
    let (name, labels, creator_stack) = unsafe { (g.name().cloned(), g.labels().cloned(), g.creator_stack()) };
    let origin = g.origin.get().expect("a goroutine that runs has an origin");
    Some(Goroutine {
        id: Id::new(g.id()),
        name,
        labels: Labels(labels),
        creator: (origin.creator != 0).then(|| Id::new(origin.creator)),
        at: origin.at,
        creator_stack,
    })
}

/// What can be said of a goroutine. It does not change with the goroutine, and outlives it.
#[derive(Clone, Debug)]
pub struct Goroutine {
    id: Id,
    name: Option<Arc<str>>,
    labels: Labels,
    creator: Option<Id>,
    at: &'static Location<'static>,
    creator_stack: Option<&'static [usize]>,
}

impl Goroutine {
    /// Its id.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The name that [`Builder::name`](crate::Builder::name) gave it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The labels that it had.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The goroutine that made it; `None` if a thread did.
    pub fn creator(&self) -> Option<Id> {
        self.creator
    }

    /// The call that made it.
    pub fn created_at(&self) -> &'static Location<'static> {
        self.at
    }

    /// Whether the stack of the call that made it is remembered.
    pub fn has_creator_stack(&self) -> bool {
        self.creator_stack.is_some()
    }

    /// The stack of the call that made it: functions with file and line, innermost first. `None` unless the program asked for
    /// such stacks to be remembered ([`Config::creator_stacks`](crate::Config::creator_stacks)), and if a thread made it.
    ///
    /// Looks up names, which takes milliseconds.
    pub fn creator_stack(&self) -> Option<String> {
        let mut text = String::new();
        dump::stack(&mut text, self.creator_stack?);
        Some(text)
    }
}

/// A set of labels. Cheap to clone; never changes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<LabelSet>>);

impl Labels {
    /// The empty set.
    pub const fn new() -> Labels {
        Labels(None)
    }

    pub(crate) fn of(set: Option<Arc<LabelSet>>) -> Labels {
        Labels(set)
    }

    /// The set as dumps show it.
    pub(crate) fn text(&self) -> &str {
        self.0.as_deref().map_or("", LabelSet::text)
    }

    /// This set with more in it: of two values of a key the last one counts.
    #[must_use]
    pub fn with(&self, more: &[(&str, &str)]) -> Labels {
        Labels(LabelSet::with(self.0.as_deref(), more))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.as_deref()?.get(key)
    }

    /// All labels, keys in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.as_deref().map_or(&[][..], LabelSet::pairs).iter().map(|(k, v)| (&**k, &**v))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The calling goroutine's labels; none on a thread.
pub fn labels() -> Labels {
    let Some(inside) = Inside::enter() else { return Labels::new() };
    // SAFETY: N2: it is the caller, inside.
    Labels(unsafe { inside.g().labels() }.cloned())
}

/// Gives the calling goroutine these labels in the place of those it has, which are given back. On a thread, which has
/// none, nothing changes.
///
/// Goroutines that were made before keep theirs. [`with_labels`] undoes itself.
pub fn set_labels(labels: Labels) -> Labels {
    let Some(inside) = Inside::enter() else { return Labels::new() };
    let g: &'static G = inside.g();
    let m = inside.m();
    let guard = m.slot.acquire_if_on();
    let mut writer = guard.as_ref().and_then(|guard| guard.writer());
    if let Some(w) = &mut writer {
        emit::context(w, m);
    }
    let was_silent = emit::is_silent(g);
    // SAFETY: N2: it is the caller, inside; no reference to the old ones lives.
    let old = Labels(unsafe { g.swap_labels(labels.0) });
    if let Some(w) = &mut writer {
        let o = g.origin.get().expect("a goroutine that runs was made");
        emit::relabelled(w, m, g, was_silent, o.start, o.at, emit::At::on(g, Regs::here()));
    }
    old
}

/// Runs `f` while the calling goroutine has these labels besides its own, which come back afterwards, also when `f` panics.
/// Goroutines that `f` makes inherit them, and keep them.
pub fn with_labels<R>(labels: &[(&str, &str)], f: impl FnOnce() -> R) -> R {
    struct Restore(Labels);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_labels(std::mem::take(&mut self.0));
        }
    }
    let before = self::labels();
    let _restore = Restore(set_labels(before.with(labels)));
    f()
}

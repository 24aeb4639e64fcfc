//! Contexts: what a request carries from goroutine to goroutine, and how all of them learn that it is over. Go's `context` package.
//!
//! ```text
//!   Context { scope, values }       values: a list towards the root, shared
//!   Scope   { done channel, error, children (weak), parent, alarm for the deadline }
//!   cancel: error set once under the lock -> children taken -> done closed -> the same for each child
//! ```
//!
//! - K-1: a scope's error is set once, under its lock, before its done channel is closed. Whoever sees the channel closed
//!   sees the error.
//! - K-2: a child is added under its parent's lock, which says whether the parent is over already. So no child is forgotten.
//! - K-3: a parent knows its children weakly, and a child takes itself off when it goes: a long-lived parent does not collect
//!   them.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::chan::{Chan, Receiver, never};
use crate::sched::park::Caller;
use crate::sched::timer::{Alarm, OnTime};
use crate::time;

/// A deadline, a way to be told that the work is not wanted any more, and values, for everything that is done for one request.
///
/// Contexts form a tree: what is derived from a context is over when that one is. Cloning is cheap, and clones are the same context.
/// [`done`](Context::done) is a channel that closes when the context is over, to be used in [`select!`](crate::select!).
///
/// ```
/// use std::time::Duration;
/// use rt::context::{Context, ContextError};
///
/// rt::run(|| {
///     let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(5));
///     let (tx, rx) = rt::chan::bounded::<u32>(0);
///     rt::select! {
///         recv(rx) -> _ => unreachable!("nobody sends"),
///         recv(ctx.done()) -> _ => assert_eq!(ctx.err(), Some(ContextError::DeadlineExceeded)),
///     }
///     # drop(tx);
/// });
/// ```
#[derive(Clone, Default)]
pub struct Context {
    /// `None`: never over.
    scope: Option<Arc<Scope>>,
    values: Option<Arc<Value>>,
}

struct Value {
    key: TypeId,
    value: Box<dyn Any + Send + Sync>,
    outer: Option<Arc<Value>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        // A chain that nobody else holds would be dropped one inside the other.
        let mut next = self.outer.take();
        while let Some(value) = next {
            next = Arc::into_inner(value).and_then(|mut v| v.outer.take());
        }
    }
}

struct Scope {
    done: Receiver<Infallible>,
    deadline: Option<Instant>,
    parent: Option<Arc<Scope>>,
    alarm: OnceLock<Arc<Alarm>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    over: Option<(ContextError, Option<Arc<str>>)>,
    /// By address (K-3).
    children: BTreeMap<usize, Weak<Scope>>,
}

/// Why a context is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextError {
    /// It, or one that it was derived from, was cancelled.
    Canceled,
    /// Its deadline, or that of one it was derived from, has passed.
    DeadlineExceeded,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextError::Canceled => "context canceled",
            ContextError::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl Error for ContextError {}

impl Context {
    /// The root: it is never over, has no deadline and no values.
    pub fn background() -> Context {
        Context::default()
    }

    /// A context that is over when [`Cancel::cancel`] is called, or when this one is.
    pub fn with_cancel(&self) -> (Context, Cancel) {
        self.derive(None)
    }

    /// A context that is over at `deadline` at the latest.
    pub fn with_deadline(&self, deadline: Instant) -> (Context, Cancel) {
        self.derive(Some(deadline))
    }

    /// A context that is over after `timeout` at the latest.
    pub fn with_timeout(&self, timeout: Duration) -> (Context, Cancel) {
        // What cannot be reached is as good as no deadline.
        self.derive(Instant::now().checked_add(timeout))
    }

    /// A context with a value more, which is found by its type: give each kind of value a type of its own.
    ///
    /// ```
    /// use rt::context::Context;
    /// struct UserId(u64);
    ///
    /// let ctx = Context::background().with_value(UserId(7));
    /// assert_eq!(ctx.value::<UserId>().unwrap().0, 7);
    /// assert!(Context::background().value::<UserId>().is_none());
    /// ```
    pub fn with_value<T: Send + Sync + 'static>(&self, value: T) -> Context {
        let value = Value { key: TypeId::of::<T>(), value: Box::new(value), outer: self.values.clone() };
        Context { scope: self.scope.clone(), values: Some(Arc::new(value)) }
    }

    /// The value of this type that was added last.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let mut next = self.values.as_ref();
        while let Some(v) = next {
            if v.key == TypeId::of::<T>() {
                return v.value.downcast_ref();
            }
            next = v.outer.as_ref();
        }
        None
    }

    /// A channel that is closed when the context is over. Nothing is ever sent on it.
    pub fn done(&self) -> &Receiver<Infallible> {
        static NEVER: OnceLock<Receiver<Infallible>> = OnceLock::new();
        match &self.scope {
            Some(scope) => &scope.done,
            None => NEVER.get_or_init(never),
        }
    }

    /// Why it is over; `None` if it is not.
    pub fn err(&self) -> Option<ContextError> {
        self.scope.as_ref()?.state.lock().over.as_ref().map(|o| o.0)
    }

    /// What [`Cancel::cancel_because`] said, here or further up.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.scope.as_ref()?.state.lock().over.as_ref()?.1.clone()
    }

    /// When it will be over at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.scope.as_ref()?.deadline
    }

    /// Sleeps for `duration`, or until the context is over.
    ///
    /// # Errors
    ///
    /// Why it is over, if it was so before the time had passed.
    pub fn sleep(&self, duration: Duration) -> Result<(), ContextError> {
        crate::select! {
            recv(self.done()) -> _ => Err(self.err().expect("a context that is done says why")),
            default(duration) => Ok(()),
        }
    }

    fn derive(&self, deadline: Option<Instant>) -> (Context, Cancel) {
        let outer = self.deadline();
        // A deadline that is no earlier than the outer one's is that one's business.
        let own = deadline.filter(|d| outer.is_none_or(|o| *d < o));
        let scope = Arc::new(Scope {
            done: Receiver::of(Chan::new(0)),
            deadline: own.or(outer),
            parent: self.scope.clone(),
            alarm: OnceLock::new(),
            state: Mutex::new(State::default()),
        });
        let mut over = None;
        if let Some(parent) = &scope.parent {
            let mut state = parent.state.lock();
            // K-2
            match &state.over {
                Some(o) => over = Some(o.clone()),
                None => {
                    state.children.insert(scope.address(), Arc::downgrade(&scope));
                }
            }
        }
        if let Some((error, cause)) = over {
            scope.finish(&Caller::here(), error, cause);
        } else if let Some(deadline) = own {
            scope.set_deadline(deadline);
        }
        (Context { scope: Some(scope.clone()), values: self.values.clone() }, Cancel { scope })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("err", &self.err()).field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}

/// Fires at a scope's deadline.
struct AtDeadline(Weak<Scope>);

impl OnTime for AtDeadline {
    fn fire(&self, _: &Arc<Alarm>, caller: &Caller) {
        if let Some(scope) = self.0.upgrade() {
            scope.finish(caller, ContextError::DeadlineExceeded, None);
        }
    }
}

impl Scope {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn set_deadline(self: &Arc<Scope>, deadline: Instant) {
        let caller = time::alarm_setter();
        if deadline <= Instant::now() {
            return self.finish(&caller, ContextError::DeadlineExceeded, None);
        }
        let alarm = Alarm::new(AtDeadline(Arc::downgrade(self)));
        {
            // Under the lock: whoever ends the scope either sees the alarm and cancels it, or ended it before.
            let state = self.state.lock();
            if state.over.is_some() {
                return;
            }
            time::set_alarm(&caller, &alarm, time::at_ns(deadline));
            let _ = self.alarm.set(alarm);
        }
        time::announce(&caller);
    }

    /// The scope is over, and all below it. By a caller that is in the runtime and holds no lock.
    fn finish(self: &Arc<Scope>, caller: &Caller, error: ContextError, cause: Option<Arc<str>>) {
        // Not recursive: a chain of contexts may be longer than a stack is deep.
        let mut pending = vec![self.clone()];
        while let Some(scope) = pending.pop() {
            {
                let mut state = scope.state.lock();
                if state.over.is_some() {
                    continue;
                }
                state.over = Some((error, cause.clone()));
                let children = std::mem::take(&mut state.children);
                pending.extend(children.into_values().filter_map(|c| c.upgrade()));
                if let Some(alarm) = scope.alarm.get() {
                    alarm.cancel();
                }
            }
            scope.leave_parent();
            // K-1
            scope.done.chan().close_by(caller);
        }
    }

    /// K-3
    fn leave_parent(&self) {
        if let Some(parent) = &self.parent {
            parent.state.lock().children.remove(&self.address());
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm.get() {
            alarm.cancel();
        }
        self.leave_parent();
        // A chain of parents that nobody else holds would be dropped one inside the other.
        let mut next = self.parent.take();
        while let Some(parent) = next {
            next = Arc::into_inner(parent).and_then(|mut p| {
                p.leave_parent();
                p.parent.take()
            });
        }
    }
}

/// Ends a context. Dropping it does so too: a context whose maker has gone is over.
#[must_use = "dropping this cancels the context at once"]
pub struct Cancel {
    scope: Arc<Scope>,
}

impl Cancel {
    /// Ends the context with [`ContextError::Canceled`], unless it is over already.
    pub fn cancel(&self) {
        self.scope.finish(&Caller::here(), ContextError::Canceled, None);
    }

    /// As [`Cancel::cancel`], and says why: see [`Context::cause`].
    pub fn cancel_because(&self, cause: impl Into<Arc<str>>) {
        // The conversion is the program's own code: before the crossing.
        let cause = Some(cause.into());
        self.scope.finish(&Caller::here(), ContextError::Canceled, cause);
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("err", &self.scope.state.lock().over.as_ref().map(|o| o.0))
            .finish_non_exhaustive()
    }
}

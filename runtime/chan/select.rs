//! Waiting for one of several channel operations: [`select!`](crate::select!) and [`Select`].

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use crate::chan::error::{RecvError, SelectTimeoutError, SendError, TrySelectError};
use crate::chan::operation::{Case, RecvCase, SendCase, Until, choose};
use crate::chan::{Receiver, Sender};
use crate::time;

/// What [`select!`](crate::select!) expands to.
#[doc(hidden)]
pub mod hidden {
    pub use crate::chan::operation::{Case, RecvCase, SendCase};
    use std::time::Duration;

    use super::{Until, choose, time};

    /// What is given for a time-out.
    pub trait Timeout {
        fn until_ns(self) -> u64;
    }

    impl Timeout for Duration {
        fn until_ns(self) -> u64 {
            time::after_ns(self)
        }
    }

    impl Timeout for super::Instant {
        fn until_ns(self) -> u64 {
            time::at_ns(self)
        }
    }

    /// Uses an operation, so that what it borrows is there until here.
    #[inline(always)]
    pub fn keep<T>(_: &T) {}

    /// # Safety
    ///
    /// Each operation is in it once, and stays where it is.
    pub unsafe fn wait(cases: &[Case<'_>], biased: bool) -> usize {
        choose(cases, Until::Forever, biased).expect("a select without a time-out ends with a case")
    }

    /// # Safety
    ///
    /// Each operation is in it once, and stays where it is.
    pub unsafe fn try_now(cases: &[Case<'_>], biased: bool) -> usize {
        choose(cases, Until::Now, biased).unwrap_or(usize::MAX)
    }

    /// # Safety
    ///
    /// Each operation is in it once, and stays where it is.
    pub unsafe fn wait_for(cases: &[Case<'_>], timeout: impl Timeout, biased: bool) -> usize {
        choose(cases, Until::Time(timeout.until_ns()), biased).unwrap_or(usize::MAX)
    }
}

/// Waits for one of several channel operations, does it, and goes on with its branch.
///
/// The syntax is that of the `crossbeam-channel` crate:
///
/// - `recv(receiver) -> result => branch`: takes a message. `result` is a pattern for what
///   [`recv`](crate::chan::Receiver::recv) would give; an error if the channel is closed and empty.
/// - `send(sender, message) -> result => branch`: sends the message. `result` is a pattern for what
///   [`send`](crate::chan::Sender::send) would give.
/// - `default => branch`: if nothing else is ready; then the select does not wait.
/// - `default(timeout) => branch`: if nothing was ready within a [`Duration`], or until an [`Instant`].
///
/// Exactly one operation happens. Of those that are ready, each is as likely as the others; a closed channel counts as ready.
/// If the message is a plain variable, it stays in it unless its case is chosen; any other expression is evaluated before the
/// select, and its value dropped if its case is not chosen.
///
/// Works in goroutines and in threads. Up to 32 cases; more with `#![recursion_limit]`, or with [`Select`](crate::chan::Select). A select without
/// cases does not compile.
///
/// ```
/// use std::time::Duration;
///
/// rt::run(|| {
///     let (tx, rx) = rt::chan::bounded(0);
///     let (quit, quitting) = rt::chan::bounded::<()>(0);
///     rt::go(move || {
///         tx.send("hello").unwrap();
///         drop(quit);
///     });
///     let mut messages = Vec::new();
///     loop {
///         rt::select! {
///             recv(rx) -> message => match message {
///                 Ok(m) => messages.push(m),
///                 Err(_) => break,
///             },
///             recv(quitting) -> _ => break,
///             default(Duration::from_secs(10)) => panic!("nothing came"),
///         }
///     }
///     assert_eq!(messages, ["hello"]);
/// });
/// ```
///
/// ```compile_fail
/// rt::select! {}
/// ```
///
/// A message does not take away the channel of another case (or its own):
///
/// ```compile_fail,E0505
/// let (tx, _rx) = rt::chan::bounded(0);
/// let (_answer, asked) = rt::chan::bounded::<u32>(0);
/// struct Request { asked: rt::chan::Receiver<u32> }
/// let request = Request { asked };
/// rt::select! {
///     recv(request.asked) -> _ => {}
///     send(tx, request) -> _ => {}
/// }
/// ```
#[macro_export]
macro_rules! select {
    ($($cases:tt)*) => { $crate::__select!(false, $($cases)*) };
}

/// As [`select!`](crate::select!), but of several operations that are ready it does the one that is written first.
#[macro_export]
macro_rules! select_biased {
    ($($cases:tt)*) => { $crate::__select!(true, $($cases)*) };
}

/// Parses one case after the other into `[kind (arguments) pattern body]`, then makes an operation of each, then chooses.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    ($biased:literal, ) => { compile_error!("select! needs at least one case") };
    ($biased:literal, $($rest:tt)+) => { $crate::__select!(@parse $biased [] [] $($rest)+) };

    // All parsed.
    (@parse $biased:tt [] $default:tt) => { compile_error!("select! needs a recv or send case beside default; to wait, use rt::time::sleep") };
    (@parse $biased:tt [$($cases:tt)+] $default:tt) => { $crate::__select!(@make $biased $default [] $($cases)+) };

    // recv
    (@parse $biased:tt [$($cases:tt)*] $default:tt recv($r:expr $(,)?) -> $p:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@parse $biased [$($cases)* [recv ($r) ($p) ($body)]] $default $($rest)*)
    };
    (@parse $biased:tt [$($cases:tt)*] $default:tt recv($r:expr $(,)?) -> $p:pat => $body:expr) => {
        $crate::__select!(@parse $biased [$($cases)* [recv ($r) ($p) ($body)]] $default)
    };
    (@parse $biased:tt [$($cases:tt)*] $default:tt recv($r:expr $(,)?) -> $p:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@parse $biased [$($cases)* [recv ($r) ($p) ($body)]] $default $($rest)*)
    };
    // send of a variable: it stays where it is
    (@parse $biased:tt [$($cases:tt)*] $default:tt send($s:expr, $v:ident $(,)?) -> $p:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@parse $biased [$($cases)* [place ($s, $v) ($p) ($body)]] $default $($rest)*)
    };
    (@parse $biased:tt [$($cases:tt)*] $default:tt send($s:expr, $v:ident $(,)?) -> $p:pat => $body:expr) => {
        $crate::__select!(@parse $biased [$($cases)* [place ($s, $v) ($p) ($body)]] $default)
    };
    (@parse $biased:tt [$($cases:tt)*] $default:tt send($s:expr, $v:ident $(,)?) -> $p:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@parse $biased [$($cases)* [place ($s, $v) ($p) ($body)]] $default $($rest)*)
    };
    // send of any other expression
    (@parse $biased:tt [$($cases:tt)*] $default:tt send($s:expr, $v:expr $(,)?) -> $p:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@parse $biased [$($cases)* [send ($s, $v) ($p) ($body)]] $default $($rest)*)
    };
    (@parse $biased:tt [$($cases:tt)*] $default:tt send($s:expr, $v:expr $(,)?) -> $p:pat => $body:expr) => {
        $crate::__select!(@parse $biased [$($cases)* [send ($s, $v) ($p) ($body)]] $default)
    };
    (@parse $biased:tt [$($cases:tt)*] $default:tt send($s:expr, $v:expr $(,)?) -> $p:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@parse $biased [$($cases)* [send ($s, $v) ($p) ($body)]] $default $($rest)*)
    };
    // default
    (@parse $biased:tt $cases:tt [] default => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@parse $biased $cases [now () ($body)] $($rest)*)
    };
    (@parse $biased:tt $cases:tt [] default => $body:expr) => {
        $crate::__select!(@parse $biased $cases [now () ($body)])
    };
    (@parse $biased:tt $cases:tt [] default => $body:block $($rest:tt)*) => {
        $crate::__select!(@parse $biased $cases [now () ($body)] $($rest)*)
    };
    (@parse $biased:tt $cases:tt [] default() => $($rest:tt)*) => {
        $crate::__select!(@parse $biased $cases [] default => $($rest)*)
    };
    (@parse $biased:tt $cases:tt [] default($t:expr $(,)?) => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@parse $biased $cases [time ($t) ($body)] $($rest)*)
    };
    (@parse $biased:tt $cases:tt [] default($t:expr $(,)?) => $body:expr) => {
        $crate::__select!(@parse $biased $cases [time ($t) ($body)])
    };
    (@parse $biased:tt $cases:tt [] default($t:expr $(,)?) => $body:block $($rest:tt)*) => {
        $crate::__select!(@parse $biased $cases [time ($t) ($body)] $($rest)*)
    };
    (@parse $biased:tt $cases:tt [$($d:tt)+] default $($rest:tt)*) => {
        compile_error!("select! has more than one default case")
    };
    (@parse $biased:tt $cases:tt $default:tt $($rest:tt)+) => {
        compile_error!(concat!(
            "select! expects `recv(receiver) -> pattern => branch`, `send(sender, message) -> pattern => branch`, ",
            "`default => branch` or `default(timeout) => branch`, separated by commas, but found: ",
            stringify!($($rest)+),
        ))
    };

    // An operation for each case; `op` is a new variable in every step.
    (@make $biased:tt $default:tt [$($made:tt)*] [recv ($r:expr) $p:tt $body:tt] $($rest:tt)*) => {
        match ($r).__recv() {
            ref __gort_op => $crate::__select!(@make $biased $default [$($made)* [__gort_op (__gort_op.take()) $p $body]] $($rest)*),
        }
    };
    (@make $biased:tt $default:tt [$($made:tt)*] [place ($s:expr, $v:ident) $p:tt $body:tt] $($rest:tt)*) => {
        match (&($s), ::core::ptr::from_ref(&$v)) {
            // SAFETY: the variable is in scope for the whole select, which does not touch it; after it, its value is forgotten if it
            // was sent. No other case borrows from it: `@keep` uses them all once more after it has been moved.
            (__gort_sender, __gort_place) => match unsafe { __gort_sender.__send(__gort_place) } {
                ref __gort_op => $crate::__select!(
                    @make $biased $default [$($made)* [__gort_op (__gort_op.result($v)) $p $body]] $($rest)*
                ),
            },
        }
    };
    (@make $biased:tt $default:tt [$($made:tt)*] [send ($s:expr, $v:expr) $p:tt $body:tt] $($rest:tt)*) => {
        match $v {
            __gort_value => $crate::__select!(@make $biased $default [$($made)*] [place ($s, __gort_value) $p $body] $($rest)*),
        }
    };
    (@make $biased:tt [] [$([$op:ident $result:tt $p:tt $body:tt])+]) => {
        match &[$($op.case()),+] {
            // SAFETY: each operation is in it once.
            __gort_cases => match unsafe { $crate::chan::hidden::wait(__gort_cases, $biased) } { __gort_chosen => $crate::__select!(@branch __gort_chosen [$($op)+] 0usize, (::core::unreachable!("a case was chosen")) $([$result $p $body])+) },
        }
    };
    (@make $biased:tt [now () ($default:expr)] [$([$op:ident $result:tt $p:tt $body:tt])+]) => {
        match &[$($op.case()),+] {
            // SAFETY: each operation is in it once.
            __gort_cases => match unsafe { $crate::chan::hidden::try_now(__gort_cases, $biased) } { __gort_chosen => $crate::__select!(@branch __gort_chosen [$($op)+] 0usize, ($default) $([$result $p $body])+) },
        }
    };
    (@make $biased:tt [time ($t:expr) ($default:expr)] [$([$op:ident $result:tt $p:tt $body:tt])+]) => {
        match (&[$($op.case()),+], $t) {
            // SAFETY: each operation is in it once.
            (__gort_cases, __gort_time) => match unsafe { $crate::chan::hidden::wait_for(__gort_cases, __gort_time, $biased) } { __gort_chosen => $crate::__select!(@branch __gort_chosen [$($op)+] 0usize, ($default) $([$result $p $body])+) },
        }
    };

    (@keep [$($op:ident)+]) => { $( $crate::chan::hidden::keep($op); )+ };
    // The branch of the case that was chosen.
    (@branch $chosen:ident $ops:tt $n:expr, ($default:expr)) => { $default };
    (@branch $chosen:ident $ops:tt $n:expr, ($default:expr) [($result:expr) ($p:pat) ($body:expr)] $($rest:tt)*) => {
        if $chosen == $n {
            let $p = { let __gort_result = $result; $crate::__select!(@keep $ops); __gort_result };
            $body
        } else {
            $crate::__select!(@branch $chosen $ops $n + 1usize, ($default) $($rest)*)
        }
    };
}

/// Waiting for one of several channel operations, whose number is not known before the program runs.
///
/// Where it is, [`select!`](crate::select!) reads better and allocates nothing.
///
/// ```
/// let (tx, rx): (Vec<_>, Vec<_>) = (0..3).map(|_| rt::chan::bounded(1)).unzip();
/// tx[2].send("third").unwrap();
///
/// let mut select = rt::chan::Select::new();
/// for r in &rx {
///     select.recv(r);
/// }
/// let done = select.wait();
/// assert_eq!(done.index(), 2);
/// assert_eq!(done.recv(&rx[2]), Ok("third"));
/// ```
pub struct Select<'a> {
    /// `None`: removed, or sent.
    operations: Vec<Option<Box<dyn Dynamic + 'a>>>,
    biased: bool,
}

/// An operation of any type, boxed.
trait Dynamic {
    fn case(&self) -> Case<'_>;
    fn address(&self) -> usize;
    fn sends(&self) -> bool;
    /// Makes a receive as new; a message that was not taken is dropped.
    fn renew(&self);
}

struct Receiving<'a, T> {
    case: RecvCase<'a, T>,
    chan: usize,
}

impl<T> Dynamic for Receiving<'_, T> {
    fn case(&self) -> Case<'_> {
        self.case.case()
    }

    fn address(&self) -> usize {
        self.chan
    }

    fn sends(&self) -> bool {
        false
    }

    fn renew(&self) {
        drop(self.case.reset());
    }
}

impl<T> Drop for Receiving<'_, T> {
    fn drop(&mut self) {
        drop(self.case.reset());
    }
}

struct Sending<'a, T> {
    case: SendCase<'a, T>,
    chan: usize,
    /// In a box of its own: the case has its address. Null when it was moved out.
    message: *mut T,
    _owned: PhantomData<T>,
}

impl<T> Dynamic for Sending<'_, T> {
    fn case(&self) -> Case<'_> {
        self.case.case()
    }

    fn address(&self) -> usize {
        self.chan
    }

    fn sends(&self) -> bool {
        true
    }

    fn renew(&self) {}
}

impl<T> Sending<'_, T> {
    /// Gives the message back, unless it was sent.
    fn take(&mut self) -> Option<T> {
        let message = std::mem::replace(&mut self.message, std::ptr::null_mut());
        if message.is_null() {
            return None;
        }
        if self.case.is_done() {
            // SAFETY: made by Box::into_raw; the value was moved into the channel, so only the memory is left.
            drop(unsafe { Box::from_raw(message.cast::<ManuallyDrop<T>>()) });
            return None;
        }
        // SAFETY: made by Box::into_raw, and nobody else has it: the case is on no list.
        Some(*unsafe { Box::from_raw(message) })
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<'a> Select<'a> {
    /// Without operations. Of those that will be ready, each is as likely as the others.
    pub fn new() -> Select<'a> {
        Select { operations: Vec::new(), biased: false }
    }

    /// As [`Select::new`], but of those that are ready the one that was added first is done.
    pub fn new_biased() -> Select<'a> {
        Select { biased: true, ..Select::new() }
    }

    /// Adds a receive; answers its index: the number of operations added before.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.operations.push(Some(Box::new(Receiving { case: receiver.__recv(), chan: receiver.address() })));
        self.operations.len() - 1
    }

    /// Adds a send; answers its index. A message that was not sent is given back by [`Select::take_back`], and dropped with the
    /// select.
    pub fn send<T>(&mut self, sender: &'a Sender<T>, message: T) -> usize {
        let message = Box::into_raw(Box::new(message));
        // SAFETY: the box stays until the operation goes, and is looked into only after is_done() was asked.
        let case = unsafe { sender.__send(message) };
        self.operations.push(Some(Box::new(Sending { case, chan: sender.address(), message, _owned: PhantomData })));
        self.operations.len() - 1
    }

    /// Removes an operation. The others keep their indices.
    ///
    /// # Panics
    ///
    /// If there is no operation with this index (any more).
    pub fn remove(&mut self, index: usize) {
        let removed = self.operations.get_mut(index).and_then(Option::take);
        assert!(removed.is_some(), "the select has no operation {index}");
    }

    /// Removes a send and gives its message back; `None` if it was sent.
    ///
    /// # Panics
    ///
    /// If operation `index` is not a send on this channel.
    pub fn take_back<T>(&mut self, index: usize, sender: &Sender<T>) -> Option<T> {
        let operation = self.operations.get_mut(index)?.take()?;
        assert!(
            operation.sends() && operation.address() == sender.address(),
            "operation {index} of the select is not a send on this channel"
        );
        let raw = Box::into_raw(operation).cast::<Sending<'_, T>>();
        // SAFETY: it sends on this channel, so it was made by send::<T>(): a channel has one type of message.
        unsafe { Box::from_raw(raw) }.take()
    }

    /// Does one of the operations, waiting until one is possible. Receives can be waited for again afterwards; a send is spent
    /// when it was chosen.
    ///
    /// # Panics
    ///
    /// If no operation is left.
    pub fn wait(&mut self) -> Selected<'_, 'a> {
        let index = self.choose(Until::Forever).expect("a select without a time-out ends with an operation");
        Selected { select: self, index }
    }

    /// Does one of the operations if one is possible now.
    ///
    /// # Errors
    ///
    /// If none is.
    pub fn try_now(&mut self) -> Result<Selected<'_, 'a>, TrySelectError> {
        match self.choose(Until::Now) {
            Some(index) => Ok(Selected { select: self, index }),
            None => Err(TrySelectError),
        }
    }

    /// As [`Select::wait`], for a limited time.
    ///
    /// # Errors
    ///
    /// If none was possible until then.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Selected<'_, 'a>, SelectTimeoutError> {
        self.until(time::after_ns(timeout))
    }

    /// As [`Select::wait`], until a point in time.
    ///
    /// # Errors
    ///
    /// If none was possible until then.
    pub fn wait_deadline(&mut self, deadline: Instant) -> Result<Selected<'_, 'a>, SelectTimeoutError> {
        self.until(time::at_ns(deadline))
    }

    fn until(&mut self, ns: u64) -> Result<Selected<'_, 'a>, SelectTimeoutError> {
        match self.choose(Until::Time(ns)) {
            Some(index) => Ok(Selected { select: self, index }),
            None => Err(SelectTimeoutError),
        }
    }

    fn choose(&mut self, until: Until) -> Option<usize> {
        let (indices, cases): (Vec<usize>, Vec<Case<'_>>) = self
            .operations
            .iter()
            .enumerate()
            .filter_map(|(i, operation)| Some((i, operation.as_ref()?.case())))
            .unzip();
        choose(&cases, until, self.biased).map(|i| indices[i])
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Select::new()
    }
}

impl std::fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Select").field("operations", &self.operations.iter().flatten().count()).finish_non_exhaustive()
    }
}

/// The operation that a [`Select`] has done. Ask for its result; a message that nobody asks for is dropped.
#[must_use = "a message that was received is lost if it is not taken"]
pub struct Selected<'s, 'a> {
    select: &'s mut Select<'a>,
    index: usize,
}

impl<'a> Selected<'_, 'a> {
    /// Which operation it was.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The message that was received.
    ///
    /// # Errors
    ///
    /// If the channel is closed and empty.
    ///
    /// # Panics
    ///
    /// If the operation was not a receive from this channel.
    pub fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let operation = self.select.operations[self.index].as_deref().expect("chosen");
        assert!(
            !operation.sends() && operation.address() == receiver.address(),
            "operation {} of the select is not a receive from this channel",
            self.index
        );
        // SAFETY: it receives from this channel, so it was made by recv::<T>(): a channel has one type of message.
        let receiving = unsafe { &*std::ptr::from_ref(operation).cast::<Receiving<'_, T>>() };
        receiving.case.take()
    }

    /// Whether the message was sent.
    ///
    /// # Errors
    ///
    /// The message, if the channel is closed.
    ///
    /// # Panics
    ///
    /// If the operation was not a send on this channel.
    pub fn send<T>(self, sender: &Sender<T>) -> Result<(), SendError<T>> {
        match self.select.take_back(self.index, sender) {
            Some(message) => Err(SendError(message)),
            None => Ok(()),
        }
    }
}

impl Drop for Selected<'_, '_> {
    fn drop(&mut self) {
        let slot = &mut self.select.operations[self.index];
        match slot.as_deref() {
            Some(operation) if operation.sends() => *slot = None,
            Some(operation) => operation.renew(),
            None => {}
        }
    }
}

impl std::fmt::Debug for Selected<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selected").field("index", &self.index).finish_non_exhaustive()
    }
}

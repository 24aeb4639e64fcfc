//! [`Trace`]: how the collector is shown the edges of a value.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::mark;
use super::mark::Marker;
use super::object::{Header, Object};
use super::window::Window;
use crate::prim::chaos;

/// Values that can lie in the collected heap.
///
/// Derive it: `#[derive(Trace)]`, for a type with a `Drop` of its own with `#[trace(drop)]`. The types of all fields must be `Trace`.
///
/// ```compile_fail,E0277
/// #[derive(rt::gc::Trace)]
/// struct Node {
///     next: Option<rt::gc::Gc<Node>>, // a handle; want an Edge
/// }
/// ```
///
/// ```compile_fail,E0119
/// #[derive(rt::gc::Trace)] // want #[trace(drop)], too
/// struct Noisy(u64);
/// impl Drop for Noisy {
///     fn drop(&mut self) {}
/// }
/// ```
///
/// ```compile_fail,E0200
/// struct Node(rt::gc::Edge<Node>);
/// impl rt::gc::Trace for Node { // want to be `unsafe`
///     const HAS_EDGES: bool = false;
///     const NEEDS_DROP: bool = false;
///     fn trace(&self, _: &mut rt::gc::Visitor<'_>) {}
/// }
/// ```
///
/// ```compile_fail
/// #[derive(rt::gc::Trace)]
/// union Either { // which of the two is it?
///     edge: std::mem::ManuallyDrop<rt::gc::Edge<u64>>,
///     number: u64,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(rt::gc::Trace)]
/// struct Node {
///     #[trace(skip)] // nothing is skipped; what is not `Trace` fits into an `Opaque`
///     next: rt::gc::Edge<Node>,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(rt::gc::Trace)]
/// struct Name<'a>(&'a str); // objects borrow nothing that ends
/// ```
///
/// ```compile_fail,E0793
/// #[derive(rt::gc::Trace)]
/// #[repr(packed)]
/// struct Packed(u8, rt::gc::Edge<Packed>); // an edge lies where an atomic may lie
/// ```
///
/// Type parameters have to be `Trace`, too; other bounds stay what they are.
///
/// ```compile_fail,E0277
/// #[derive(rt::gc::Trace)]
/// struct Pair<T>(T, T);
/// struct Plain;
/// rt::gc::Gc::new(Pair(Plain, Plain)); // want #[derive(Trace)] for Plain
/// ```
///
/// # Nesting
///
/// **What a value owns is traced by recursion**: a `Box<Node>` in a `Box<Node>`, a `Vec` in a `Vec`. That happens on the stack of whoever marks,
/// which is a goroutine of the runtime's own (8 MiB), or any goroutine or thread that allocates at that moment, whether it
/// knows the value or not; and of whoever makes the object. Without optimisation a level of a `Box` takes about 100
/// bytes of it, of a `Vec` 150, of a `HashMap` 550; with it, a third of that, or less. Your own implementations of `Trace` add theirs. So 64 levels are safe on each stack there is, the smallest of which has 64 KiB. Who goes too deep
/// ends the process with the [report](crate::Builder::stack_size) of a stack overflow, as any recursion without end does.
///
/// Where depth is data, in lists and trees, use an [`Edge`](crate::gc::Edge): edges do not recurse. What they lead to queues, so that a list may
/// be as long as there is memory for, on any stack.
///
/// Types without edges are, among them all of std's that own their contents; types of others that hold none of your
/// edges can be put into an [`Opaque`](crate::gc::Opaque).
///
/// # Safety
///
/// - `trace` shows the same edges each time, but for what it does not show at all. Each one is a part of the value or of what the value alone owns, and
///   nobody can move it out or change its place as long as there is only `&Self`: so no edge inside a `Mutex`, a `RefCell`, an
///   `Arc`.
/// - It does nothing else: it does not panic, block, allocate or call the runtime. It is called from any thread, while others use the value.
/// - `HAS_EDGES` is true if it shows any. `NEEDS_DROP` is true if dropping a value whose edges are all empty does anything.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in the garbage-collected heap",
    label = "is not `Trace`",
    note = "`#[derive(Trace)]` it; inside objects use `Edge<T>` where you would use `Gc<T>`; a type without edges fits into an `rt::gc::Opaque`"
)]
pub unsafe trait Trace: Sized {
    /// Whether there can be edges.
    const HAS_EDGES: bool;
    /// Whether values must be dropped, once their edges are empty.
    const NEEDS_DROP: bool;
    /// Whether `trace` shows only what lies in the value's own bytes, by code of this library and of the derive alone. Nothing else can say so.
    #[doc(hidden)]
    const IS_FLAT: bool = false;

    /// Shows all edges to the visitor.
    fn trace(&self, visitor: &mut Visitor<'_>);
}

/// Whom edges are shown to.
pub struct Visitor<'a>(Mode<'a>);

enum Mode<'a> {
    /// Marks what they lead to.
    Mark(&'a mut Marker),
    /// The value has become an object: its edges are traced from now on (H8). In this window, or else each in one of its own.
    Adopt(Option<&'a Window>),
    /// The object is dead: empties them (H9).
    Empty,
}

/// Set in an edge that is traced (H8).
pub(super) const TRACED: usize = 1;

#[inline]
pub(super) fn target(word: *mut u8) -> Option<Object> {
    NonNull::new(word.map_addr(|a| a & !TRACED).cast::<Header>()).map(Object)
}

#[inline]
pub(super) fn is_traced(word: *mut u8) -> bool {
    word.addr() & TRACED != 0
}

impl<'a> Visitor<'a> {
    #[inline]
    pub(super) fn mark(marker: &'a mut Marker) -> Visitor<'a> {
        Visitor(Mode::Mark(marker))
    }

    #[inline]
    pub(super) fn adopt(window: Option<&'a Window>) -> Visitor<'a> {
        Visitor(Mode::Adopt(window))
    }

    pub(super) fn empty() -> Visitor<'static> {
        Visitor(Mode::Empty)
    }

    #[inline(always)] // What is done is known where it is called.
    pub(super) fn edge(&mut self, word: &AtomicPtr<u8>) {
        match &mut self.0 {
            Mode::Mark(marker) => {
                // ORDER: Acquire; pairs with the Release of whoever stored: the object.
                if let Some(object) = target(word.load(Ordering::Acquire)) {
                    marker.mark(object);
                }
            }
            Mode::Adopt(Some(window)) => adopt(window, word),
            Mode::Adopt(None) => adopt_alone(word),
            // Whoever sees it from now on is the object's own Drop.
            Mode::Empty => word.store(std::ptr::null_mut(), Ordering::Relaxed),
        }
    }
}

/// A counted edge becomes a traced one (H8).
#[inline]
fn adopt(window: &Window, word: &AtomicPtr<u8>) {
    let was = word.load(Ordering::Relaxed);
    if is_traced(was) {
        return;
    }
    let traced = was.map_addr(|a| a | TRACED);
    let Some(object) = target(was) else {
        return word.store(traced, Ordering::Relaxed);
    };
    // H4
    mark::shade(window, object);
    // SAFETY: counted so far, so it lives until the window's end at least (H2), and by then the edge is traced.
    unsafe { object.header() }.release_linked();
    chaos::window();
    // ORDER: Release; pairs with the Acquire in Visitor::edge() and Edge::get().
    word.store(traced, Ordering::Release);
}

/// The same, in a window of its own.
#[cold]
fn adopt_alone(word: &AtomicPtr<u8>) {
    adopt(&Window::open(), word);
}

macro_rules! leaves {
    ($($(#[$generics:ident])* [$($param:tt)*] $ty:ty;)*) => {$(
        // SAFETY: shows nothing; NEEDS_DROP is what the compiler says.
        unsafe impl<$($param)*> Trace for $ty {
            const HAS_EDGES: bool = false;
            const NEEDS_DROP: bool = std::mem::needs_drop::<$ty>();
            const IS_FLAT: bool = true;
            #[inline]
            fn trace(&self, _: &mut Visitor<'_>) {}
        }
    )*};
}

leaves! {
    [] (); [] bool; [] char; [] u8; [] u16; [] u32; [] u64; [] u128; [] usize; [] i8; [] i16; [] i32; [] i64; [] i128; [] isize; [] f32; [] f64;
    [] String; [] Box<str>; [] std::path::PathBuf; [] std::ffi::OsString; [] std::ffi::CString;
    [] std::time::Duration; [] std::time::Instant; [] std::time::SystemTime;
    [] std::net::IpAddr; [] std::net::Ipv4Addr; [] std::net::Ipv6Addr; [] std::net::SocketAddr;
    [] std::num::NonZeroU8; [] std::num::NonZeroU16; [] std::num::NonZeroU32; [] std::num::NonZeroU64; [] std::num::NonZeroUsize;
    [] std::num::NonZeroI32; [] std::num::NonZeroI64;
    [] std::sync::atomic::AtomicBool; [] std::sync::atomic::AtomicU8; [] std::sync::atomic::AtomicU16; [] std::sync::atomic::AtomicU32;
    [] std::sync::atomic::AtomicU64; [] std::sync::atomic::AtomicUsize; [] std::sync::atomic::AtomicI32;
    [] std::sync::atomic::AtomicI64; [] std::sync::atomic::AtomicIsize;
    [T: 'static + ?Sized] &'static T;
    [T: ?Sized] std::marker::PhantomData<T>;
    // Edges in these would be roots: see the module's documentation.
    [T: ?Sized] std::sync::Arc<T>; [T: ?Sized] std::sync::Weak<T>;
    [T] std::sync::Mutex<T>; [T] std::sync::RwLock<T>; [T] std::sync::OnceLock<T>;
    [T] std::cell::Cell<T>; [T] std::cell::RefCell<T>; [T] std::cell::OnceCell<T>;
    [T] crate::sync::Mutex<T>; [T] crate::sync::RwLock<T>;
    [T: 'static] crate::gc::WeakGc<T>;
    [T] Opaque<T>;
}

/// A value of any type, in whose edges, if it has any, the collector takes no interest: each of them keeps its target, as a handle does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opaque<T>(pub T);

macro_rules! containers {
    ($([$($param:ident: $($bound:path)*);*] $ty:ty, $self:ident, $v:ident => $body:block)*) => {$(
        // SAFETY: the elements are owned by the container, which changes by `&mut` only. HAS_EDGES does not ask the elements, for these may
        // contain such a container themselves. It has memory of its own to free.
        unsafe impl<$($param: $($bound)*),*> Trace for $ty {
            const HAS_EDGES: bool = true;
            const NEEDS_DROP: bool = true;
            #[inline]
            fn trace(&$self, $v: &mut Visitor<'_>) $body
        }
    )*};
}

containers! {
    [T: Trace] Box<T>, self, v => { (**self).trace(v) }
    [T: Trace] Box<[T]>, self, v => { self.iter().for_each(|x| x.trace(v)) }
    [T: Trace] Vec<T>, self, v => { self.iter().for_each(|x| x.trace(v)) }
    [T: Trace] VecDeque<T>, self, v => { self.iter().for_each(|x| x.trace(v)) }
    [T: Trace] LinkedList<T>, self, v => { self.iter().for_each(|x| x.trace(v)) }
    [T: Trace] BinaryHeap<T>, self, v => { self.iter().for_each(|x| x.trace(v)) }
    [T: Trace] BTreeSet<T>, self, v => { self.iter().for_each(|x| x.trace(v)) }
    [K: Trace; V: Trace] BTreeMap<K, V>, self, v => { self.iter().for_each(|(k, x)| { k.trace(v); x.trace(v) }) }
}

// SAFETY: as above. The hasher is not shown.
unsafe impl<T: Trace, S> Trace for HashSet<T, S> {
    const HAS_EDGES: bool = true;
    const NEEDS_DROP: bool = true;
    fn trace(&self, v: &mut Visitor<'_>) {
        self.iter().for_each(|x| x.trace(v));
    }
}

// SAFETY: as above. The hasher is not shown.
unsafe impl<K: Trace, V: Trace, S> Trace for HashMap<K, V, S> {
    const HAS_EDGES: bool = true;
    const NEEDS_DROP: bool = true;
    fn trace(&self, v: &mut Visitor<'_>) {
        self.iter().for_each(|(k, x)| {
            k.trace(v);
            x.trace(v);
        });
    }
}

// SAFETY: the value is a part of it.
unsafe impl<T: Trace> Trace for Option<T> {
    const HAS_EDGES: bool = T::HAS_EDGES;
    const NEEDS_DROP: bool = T::NEEDS_DROP;
    const IS_FLAT: bool = T::IS_FLAT;
    #[inline]
    fn trace(&self, v: &mut Visitor<'_>) {
        if let Some(x) = self {
            x.trace(v);
        }
    }
}

// SAFETY: the value is a part of it.
unsafe impl<T: Trace, E: Trace> Trace for Result<T, E> {
    const HAS_EDGES: bool = T::HAS_EDGES || E::HAS_EDGES;
    const NEEDS_DROP: bool = T::NEEDS_DROP || E::NEEDS_DROP;
    const IS_FLAT: bool = T::IS_FLAT && E::IS_FLAT;
    #[inline]
    fn trace(&self, v: &mut Visitor<'_>) {
        match self {
            Ok(x) => x.trace(v),
            Err(x) => x.trace(v),
        }
    }
}

// SAFETY: the values are a part of it.
unsafe impl<T: Trace, const N: usize> Trace for [T; N] {
    const HAS_EDGES: bool = T::HAS_EDGES;
    const NEEDS_DROP: bool = T::NEEDS_DROP;
    const IS_FLAT: bool = T::IS_FLAT;
    #[inline]
    fn trace(&self, v: &mut Visitor<'_>) {
        self.iter().for_each(|x| x.trace(v));
    }
}

macro_rules! tuples {
    ($(($($t:ident),+))*) => {$(
        // SAFETY: the values are a part of it.
        unsafe impl<$($t: Trace),+> Trace for ($($t,)+) {
            const HAS_EDGES: bool = false $(|| $t::HAS_EDGES)+;
            const NEEDS_DROP: bool = false $(|| $t::NEEDS_DROP)+;
            const IS_FLAT: bool = true $(&& $t::IS_FLAT)+;
            #[inline]
            #[allow(non_snake_case)]
            fn trace(&self, v: &mut Visitor<'_>) {
                let ($($t,)+) = self;
                $($t.trace(v);)+
            }
        }
    )*};
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) (A, B, C, D, E, F, G, H) }

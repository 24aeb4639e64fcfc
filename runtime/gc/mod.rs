//! A garbage-collected heap: typed, non-moving, concurrent mark and sweep, with Go's phases, pauses and events.
//!
//! Values that form graphs, with cycles, are allocated with [`Gc::new`]. A [`Gc`] is a handle: as long as there is one, its object stays.
//! Inside objects the pointer is an [`Edge`], which is followed by the collector; what no handle leads to any more is
//! freed, whatever edges lead to it. [`WeakGc`] lets go.
//!
//! ```
//! use rt::gc::{Edge, Gc, Trace};
//!
//! #[derive(Trace)]
//! struct Node {
//!     name: String,
//!     next: Edge<Node>,
//! }
//!
//! rt::run(|| {
//!     let a = Gc::new(Node { name: "a".into(), next: Edge::null() });
//!     let b = Gc::new(Node { name: "b".into(), next: Edge::new(&a) });
//!     a.next.set(Some(&b)); // a cycle
//!     assert_eq!(b.next.get().unwrap().name, "a");
//!     drop((a, b));
//!     rt::gc::collect();
//! });
//! ```
//!
//! # What to know
//!
//! - Handles and edges work on goroutines and on plain threads. What touches an edge, and allocation, crosses into the runtime: the goroutine
//!   may go on on another thread afterwards. Cloning and dropping a handle does not.
//! - **A handle inside an object** would keep a cycle alive for ever, so [`Gc`] is not [`Trace`]. One that is hidden there (in a `Mutex`, an
//!   `Arc`, a closure) is a root as anywhere else: safe, and a leak if it closes a cycle. The same is true of an edge that the
//!   collector does not see there.
//! - **Interior mutability.** Objects are reached by `&T`. What changes is an [`Edge`], an atomic, or a cell without edges (a `Mutex<u64>`).
//!   To change the number of edges, replace the object that holds them.
//! - **`Drop`** of a value runs on a goroutine of the runtime's own, after the object was found unreachable; all its edges are empty by then,
//!   since the order in which a graph dies is no order. Types that implement `Drop` say so: `#[derive(Trace)] #[trace(drop)]`. A `Drop`
//!   may panic, block, allocate and collect; while it blocks, others wait.
//! - **Deep values.** What an object owns (a `Box` in a `Box`) is traced by recursion, on the stack of anybody who allocates: keep it to some
//!   dozens of levels, and use edges where depth is data ([`Trace`] says more).
//! - **Finalisers** ([`Gc::set_finalizer`]) get a handle to the object that has become unreachable, with everything it leads to
//!   intact, once.
//! - A cycle begins when the heap has grown by [`GOGC`](set_percent) percent since the last. With a [memory limit](set_memory_limit), what
//!   does not fit is an error of [`Gc::try_new`].

// The protocol.
//
//   phase n-1: idle    [STW "GC sweep termination"]    phase n: mark     [STW "GC mark termination"]    phase n: idle
//   allocate, sweep    all is swept; caches flushed    mark, assist      nothing grey; caches flushed   sweep lazily
//
//   window   { what a mutator does to the heap }      inside the border (a goroutine) or under WINDOWS.read (a thread)
//
// Two bitmaps for each block of slots, in turn: in phase n `bits[n % 2]` are the marks while marking, and from mark termination on say which
// slots are taken; the other one says so while marking. A third one, `rooted`, says which objects may have handles.
//
// - H1: the phase changes in a stopped world only, with WINDOWS held for writing. So a *window* lies in one phase. Everything that
//   depends on the phase happens in a window. User code (`Trace`, `Drop`, finalisers, the program) MUST NOT run in one: it could block there.
// - H2: an object lives as long as it is marked at each mark termination; its slot is used again when its block was swept, after that.
//   So an object that was alive anywhere in a window stays until that window's end.
// - H3 (no white handles): in phase mark, whoever makes a handle out of something else than a handle (an edge, a weak handle) shades the
//   object, in the window in which it read the pointer. New objects are born marked.
// - H4 (no edge from black to white): in phase mark, whoever stores into an edge shades the new target, in the window of the store.
// - H5: with H3 and H4 there is no need to shade what is overwritten or what a dropped handle led to: at mark termination each
//   object with a handle is marked (it had one when it was looked at, or got one by H3), and so is what an edge of a marked one leads to (it did
//   when the object was traced, or was stored since, by H4). So cloning and dropping handles needs no window, and no barrier keeps
//   garbage for another cycle. This is why the barrier is not the deletion barrier of a snapshot: handles are counted, so the
//   collector knows the roots exactly, and the one kind of root that it could miss comes out of an edge and passes `Edge::get`.
// - H6: the read of an edge and the increment of the count lie in one window. By H2 nobody frees the object between the two: if the
//   edge was overwritten meanwhile and the object has become garbage, the soonest that is known is a mark termination, which
//   waits for the window; and then the count is there for the next cycle, or H3's mark for this one.
// - H7: an object with a handle has its bit in `rooted` when no window is open. Set by whoever raises the count from 0, after that;
//   cleared by the marker, which then looks at the count again (`bits`; a model checks it). So roots are found without a look at each
//   object, while the program runs.
// - H8: an edge is *counted* where it is made: it holds a count on its target, as a handle does, so it is safe wherever it lies. `Gc::new` shows
//   the new object's edges to itself by way of `Trace`, and makes those *traced* ones: published first, then each in a window of its
//   own (or all in the window of the allocation, where that is soon done): shade the target (H4), give the count back, mark the edge as traced.
//   `Trace` promises to show only what cannot be moved out of the object or be reached from elsewhere; what it does not show stays counted.
//   What a graph is built of, bottom up, gives it back by a plain store (`counts`; a model checks it).
// - H9: before the `Drop` of a dead object its edges are emptied, unread: their targets may be gone.
// - H10: mark termination is decided in a stopped world: nobody is `busy` (which is raised in a window, and covers the work outside),
//   nothing queues, no root is left to be looked at, no P keeps what it has shaded (M4). Otherwise the world is started and marking goes on. (`quiet`; a model checks it, and `model` the barrier beside the marker.)
// - H11: an allocation cache belongs to a P (or, under a lock, to all threads that have none). It claims the free slots of one word of the
//   bitmap at a time: taken, rooted, and in phase mark marked. What it has not used is given back at each change of phase.
//   While a trace is told of each object, it gives none out without saying so (O2 in `objects`).
// - H12: an object has no type until its value is written. A marker that meets one without (it has a handle) marks it and does not look
//   into it: its edges are still counted (H8).
// - H13: stops of the world exclude the advancer's work (`Advancing`): a census waits for Ms that a stopped world holds, and the state of the
//   GC that a generation begins with must be true.
//
// Rejected.
//
// Scanning stacks: Rust has no maps of them, and a conservative scan cannot tell a pointer that the compiler keeps in two halves. A snapshot with a
// deletion barrier: dropping a handle would need the phase, so a window, and each cycle would keep the garbage of its time. Moving:
// `&T` is an address. A list of roots: a handle would be a list node.
//
// The module is behind the feature `gc`: it brings a procedural macro, and hooks in the scheduler that a program without such a heap
// need not have.

pub(crate) mod arena;
pub(crate) mod bits;
pub(crate) mod counts;
mod cycle;
mod death;
mod edge;
mod events;
mod handle;
mod heap;
mod mark;
mod object;
pub(crate) mod objects;
mod pace;
mod quiet;
mod size;
mod special;
mod sweep;
#[cfg(test)]
mod tests;
mod trace;
mod weak;
mod window;
mod worker;

pub use cycle::collect;
pub use edge::Edge;
pub use gort_derive::Trace;
pub use handle::{AllocError, Gc};
pub use pace::{Stats, memory_limit, percent, set_memory_limit, set_percent, stats};
pub use trace::{Opaque, Trace, Visitor};
pub use weak::WeakGc;

pub(crate) use cycle::Advancing;

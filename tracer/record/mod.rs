//! Recording: the half of the tracer that is always in the program.
//!
//! ```text
//!   thread --Guard--> Slot.batch[gen % 2] --full--> Sink --reader thread--> Generation --> Stream (a thread each)
//!                     tables[gen % 2] (stacks, strings) ----------^                    \--> Ring
//! ```
//!
//! A thread opens its [gate], which tells it the generation; it changes a state and appends the event that says
//! so; it closes the gate. About once a second the runtime's advancer moves to the next generation: it makes sure that
//! everything alive has a status in the old one, [publishes](publish) the new number, waits until every gate was seen
//! quiet, and [closes](close) the old generation, which then travels to the sink as a whole.
//!
//! This module knows batches, tables and streams. It knows no scheduler: what the events mean and when a census is
//! complete is the runtime's business.

mod arena;
#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod block;
pub mod gate;
#[cfg(not(loom))]
mod generation;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod recorder;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod sink;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod start;
mod status;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod strings;
mod table;
#[cfg(not(loom))]
mod walker;

#[cfg(not(loom))]
pub use generation::{Generation, symbolizer};
#[cfg(not(loom))]
pub use heap::{HeapLayout, HeapType, set_heap_layout};
#[cfg(not(loom))]
pub use names::{NAMES_MAX, Name};
#[cfg(not(loom))]
pub use recorder::Ring;
#[cfg(not(loom))]
pub use session::{
    End, NotedStatus, Stats, StreamError, attach, begin, close, enabled, forsake, fresh_bytes, generation, may_publish,
    noted_string, opened_at, publish, register, set_stacks, threads,
};
#[cfg(not(loom))]
pub(crate) use session::{GENERATION, tables, wants_stacks};
#[cfg(not(loom))]
pub use sink::{PENDING_BYTES_MAX, Subscriber};
#[cfg(not(loom))]
pub use slot::{Guard, Moment, Slot, Writer, thread_id};
#[cfg(not(loom))]
pub use start::Start;
pub use status::ResourceState;
#[cfg(not(loom))]
pub use stream::Stream;
#[cfg(not(loom))]
pub use strings::Fixed;
#[cfg(not(loom))]
pub use walker::StackWalker;

//! The ground floor: atomics that loom can replace, the parker, the one thread-local, the scheduler's clock.

pub(crate) mod atomic;
#[cfg(not(loom))]
pub(crate) mod bits;
pub(crate) mod chaos;
#[cfg(not(loom))]
pub(crate) mod coarse;
#[cfg(not(loom))]
pub(crate) mod current;
#[cfg(not(loom))]
pub(crate) mod pages;
#[cfg(not(loom))]
pub(crate) mod parker;
#[cfg(not(loom))]
pub(crate) mod prefetch;
#[cfg(not(loom))]
pub(crate) mod rng;
#[cfg(not(loom))]
pub(crate) mod say;
#[cfg(not(loom))]
pub(crate) mod slice;
#[cfg(not(loom))]
pub(crate) mod slots;
#[cfg(not(loom))]
pub(crate) mod spin;
#[cfg(not(loom))]
pub(crate) mod tls;

pub(crate) use tracer::barrier;

//! [`WeakGc`]: a handle that keeps nothing.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::handle::Gc;
use super::special::{self, WeakCell};

/// A handle to an object that does not keep it.
pub struct WeakGc<T> {
    cell: Arc<WeakCell>,
    kind: PhantomData<Gc<T>>,
}

// SAFETY: it gives out handles, under the same conditions.
unsafe impl<T: Send + Sync> Send for WeakGc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for WeakGc<T> {}

impl<T> WeakGc<T> {
    /// A weak handle to the object. All of one object share a cell, so the first costs an allocation and an entry in a table.
    pub fn new(of: &Gc<T>) -> WeakGc<T> {
        WeakGc { cell: special::weak_cell(of.object()), kind: PhantomData }
    }

    /// A handle to the object; `None` when the collector has found it unreachable.
    ///
    /// Until it has, an object that nothing leads to can be got back in this way.
    pub fn upgrade(&self) -> Option<Gc<T>> {
        // SAFETY: the cell is of an object that holds a T, and the count was raised.
        special::upgrade(&self.cell).map(|object| unsafe { Gc::from_object(object) })
    }

    /// Whether two weak handles are of the same object.
    pub fn ptr_eq(a: &WeakGc<T>, b: &WeakGc<T>) -> bool {
        Arc::ptr_eq(&a.cell, &b.cell)
    }
}

impl<T> Clone for WeakGc<T> {
    fn clone(&self) -> WeakGc<T> {
        WeakGc { cell: self.cell.clone(), kind: PhantomData }
    }
}

impl<T> fmt::Debug for WeakGc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakGc")
    }
}

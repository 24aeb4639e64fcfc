//! `#[derive(Trace)]`: that each field of each kind of type is shown, that what has to be dropped is, and what it asks of generics. What it
//! refuses stands in the documentation of `Trace` and in the macro's own tests.

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{traced, wait_for};
use rt::gc::{self, Edge, Gc, Opaque, Trace, WeakGc};

/// What edges lead to; it is told apart by its number, and it is known whether it lives.
#[derive(Trace)]
struct Target(usize);

/// Makes edges, and remembers their targets without keeping them.
#[derive(Default)]
struct Targets(Vec<WeakGc<Target>>);

impl Targets {
    fn edge(&mut self) -> Edge<Target> {
        let target = Gc::new(Target(self.0.len()));
        self.0.push(WeakGc::new(&target));
        Edge::from(target)
    }

    fn alive(&self) -> usize {
        self.0.iter().filter(|weak| weak.upgrade().is_some()).count()
    }
}

/// Each target is kept by the value and by nothing else.
fn keeps_its_targets<T: Trace + Send + 'static>(what: &str, edges: usize, make: impl FnOnce(&mut Targets) -> T) {
    let mut targets = Targets::default();
    let value = Gc::new(make(&mut targets));
    assert_eq!(targets.0.len(), edges, "{what}");
    gc::collect();
    assert_eq!(targets.alive(), edges, "{what}: an edge was not shown");
    drop(value);
    gc::collect();
    // One that is dropped lives a little longer.
    wait_for(what, || {
        gc::collect();
        targets.alive() == 0
    });
}

#[derive(Trace)]
struct Unit;

#[derive(Trace)]
struct Newtype(Edge<Target>);

#[derive(Trace)]
struct Tuple(u8, Edge<Target>, String, (Edge<Target>, [Edge<Target>; 2]), Unit);

#[derive(Trace)]
struct Named {
    first: Edge<Target>,
    r#type: Option<Edge<Target>>,
    // The names that the derived code has for itself.
    visitor: Edge<Target>,
    field_0: Edge<Target>,
    many: Box<[Edge<Target>]>,
    by_key: BTreeMap<u8, Newtype>,
}

#[derive(Trace)]
enum Shape {
    Nothing,
    One(Edge<Target>),
    Two(Edge<Target>, Edge<Target>),
    Named { left: Edge<Target>, number: u64, right: Box<Shape> },
}

/// There are no values of it.
#[derive(Trace)]
enum Never {}

#[test]
fn each_field_of_each_shape_is_shown() {
    let _ = traced("gc derive shapes", || {
        keeps_its_targets("a newtype", 1, |t| Newtype(t.edge()));
        keeps_its_targets("a tuple", 4, |t| Tuple(1, t.edge(), "s".into(), (t.edge(), [t.edge(), t.edge()]), Unit));
        keeps_its_targets("names", 8, |t| Named {
            first: t.edge(),
            r#type: Some(t.edge()),
            visitor: t.edge(),
            field_0: t.edge(),
            many: [t.edge(), t.edge()].into(),
            by_key: [(1, Newtype(t.edge())), (2, Newtype(t.edge()))].into(),
        });
        keeps_its_targets("a variant of nothing", 0, |_| Shape::Nothing);
        keeps_its_targets("a variant of one", 1, |t| Shape::One(t.edge()));
        keeps_its_targets("variants in a variant", 5, |t| {
            let inner = Shape::Named { left: t.edge(), number: 2, right: Box::new(Shape::Two(t.edge(), t.edge())) };
            let Shape::Named { number, .. } = &inner else { unreachable!() };
            let number = *number;
            let outer = Shape::Named { left: t.edge(), number, right: Box::new(inner) };
            // And beside it.
            Wrapped::<_, 1> { values: [outer], kept: t.edge(), kind: PhantomData::<u8> }
        });
        keeps_its_targets("a result of what cannot be", 1, |t| Ok::<Edge<Target>, Option<Never>>(t.edge()));
    });
}

/// Bounds on the parameters, a `where` clause, a constant, a default, and one that is in no field.
#[derive(Trace)]
struct Wrapped<T, const N: usize = 2, M = u8>
where
    T: Send,
    M: Copy,
{
    values: [T; N],
    kept: Edge<Target>,
    kind: PhantomData<M>,
}

#[derive(Trace)]
struct Sorted<K: Ord + Debug, V: Clone>
where
    Vec<V>: Clone,
{
    entries: BTreeMap<K, V>,
    best: Option<(K, Edge<Sorted<K, V>>)>,
}

#[derive(Trace)]
enum Either<A, B: Default> {
    A(A),
    B { b: B, edge: Edge<Either<A, B>> },
}

/// Its type comes out of another macro.
macro_rules! holder {
    ($name:ident, $($field:ident: $ty:ty),*) => {
        #[derive(Trace)]
        struct $name { $($field: $ty),* }
    };
}
holder!(Held, one: Edge<Target>, other: Either<Newtype, u8>);

#[test]
fn generics_are_bounded_and_shown() {
    let _ = traced("gc derive generics", || {
        keeps_its_targets("a constant's worth", 4, |t| {
            let values = [t.edge(), t.edge(), t.edge()];
            Wrapped::<_, 3, char> { values, kept: t.edge(), kind: PhantomData }
        });
        keeps_its_targets("what a parameter holds", 1, |t| Either::<Newtype, u8>::A(Newtype(t.edge())));
        keeps_its_targets("a macro's", 2, |t| Held { one: t.edge(), other: Either::A(Newtype(t.edge())) });
        let leaf = Gc::new(Sorted { entries: [("b", 2)].into(), best: None });
        let root = Gc::new(Sorted { entries: [("a", 1)].into(), best: Some(("b", Edge::from(leaf))) });
        let tail = Gc::new(Either::<u32, u64>::A(5));
        let head = Gc::new(Either::<u32, u64>::B { b: 3, edge: Edge::from(tail) });
        gc::collect();
        let (key, edge) = root.best.as_ref().unwrap();
        assert_eq!((edge.get().unwrap().entries.get(key), root.entries["a"]), (Some(&2), 1));
        let Either::B { b, edge } = &*head else { panic!("it was a B") };
        let end = edge.get().unwrap();
        let Either::A(a) = &*end else { panic!("it was an A") };
        assert_eq!((*a, *b), (5, 3));
    });
}

/// Counts its drops, and finds its edges empty; generic, and in an enum.
#[derive(Trace)]
#[trace(drop)]
struct Noisy<T: Send + Sync> {
    edge: Edge<T>,
    dropped: Opaque<Arc<AtomicUsize>>,
}

impl<T: Send + Sync> Drop for Noisy<T> {
    fn drop(&mut self) {
        assert!(self.edge.is_null(), "edges are empty in a Drop");
        self.dropped.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Trace)]
#[trace(drop)]
enum Loud {
    Quiet,
    Says(Edge<Target>, Opaque<Arc<AtomicUsize>>),
}

impl Drop for Loud {
    fn drop(&mut self) {
        if let Loud::Says(edge, dropped) = self {
            assert!(edge.is_null(), "edges are empty in a Drop");
            dropped.0.fetch_add(10, Ordering::SeqCst);
        }
    }
}

#[test]
fn what_says_drop_is_dropped_once() {
    let _ = traced("gc derive drop", || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = || Opaque(dropped.clone());
        keeps_its_targets("a generic with a drop", 1, |t| Noisy { edge: t.edge(), dropped: count() });
        keeps_its_targets("one inside another", 3, |t| {
            (t.edge(), vec![Noisy { edge: t.edge(), dropped: count() }], Loud::Says(t.edge(), count()))
        });
        keeps_its_targets("a variant that is quiet", 0, |_| Loud::Quiet);
        gc::collect();
        wait_for("all is dropped", || dropped.load(Ordering::SeqCst) == 12);
        gc::collect();
        gc::collect();
        assert_eq!((dropped.load(Ordering::SeqCst), Arc::strong_count(&dropped)), (12, 1));
    });
}

/// The library by another name.
mod under_another_name {
    pub(crate) use rt as collected;

    #[derive(rt::gc::Trace)]
    #[trace(crate = crate::under_another_name::collected)]
    pub(crate) struct Node {
        pub(crate) next: collected::gc::Edge<crate::Target>,
    }

    #[derive(rt::gc::Trace)]
    #[trace(drop, crate = collected)]
    pub(crate) struct Both(pub(crate) u64);

    impl Drop for Both {
        fn drop(&mut self) {}
    }
}

#[test]
fn the_library_may_have_another_name() {
    let _ = traced("gc derive crate", || {
        keeps_its_targets("another name", 1, |t| under_another_name::Node { next: t.edge() });
        assert_eq!(Gc::new(under_another_name::Both(3)).0, 3);
    });
}

/// What the collector does not look at is told by the type: nobody traces, or drops, what has nothing to trace or to drop.
#[test]
fn constants_say_what_there_is() {
    const fn says<T: Trace>() -> (bool, bool) {
        (T::HAS_EDGES, T::NEEDS_DROP)
    }
    #[derive(Trace)]
    struct Plain(u64, [u8; 3], PhantomData<String>);
    #[derive(Trace)]
    enum Mixed {
        Text(String),
        Edge(Edge<Mixed>),
    }
    drop((Plain(1, [0; 3], PhantomData), Mixed::Text("s".into()), Mixed::Edge(Edge::null())));
    assert_eq!(says::<Unit>(), (false, false));
    assert_eq!(says::<Never>(), (false, false));
    assert_eq!(says::<Plain>(), (false, false));
    assert_eq!(says::<Newtype>(), (true, false));
    assert_eq!(says::<Mixed>(), (true, true));
    assert_eq!(says::<Tuple>(), (true, true));
    assert_eq!(says::<Wrapped<u8>>(), (true, false));
    assert_eq!(says::<Wrapped<String>>(), (true, true));
    assert_eq!(says::<Either<u8, u8>>(), (true, false));
    assert_eq!(says::<Noisy<u8>>(), (true, true));
    assert_eq!(says::<under_another_name::Both>(), (false, true));
}

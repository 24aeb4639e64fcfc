//! A cache that forgets what was used longest ago, in the collected heap, under load from many goroutines.
//!
//!     cargo run --release --features gc --example gc_cache -- --trace gc_cache.trace
//!     go tool trace gc_cache.trace
//!
//! The entries of a shard are a ring in the order of their use, and each one leads to the one that was asked for before it. So what is evicted is
//! a tangle of cycles, some of them with entries that are still there; with counted references somebody would have to undo them. Here an
//! entry is taken out of the ring and forgotten. Readers that still have it keep it; so does an entry that leads to it.
//!
//! In the trace: the rows "GC" and "STW", the mark workers by the names that Go gives them, goroutines that assist, and the heap's size on top.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::gc::{Edge, Gc, Trace};
use rt::sync::Mutex;

const SHARDS: u64 = 8;
const ENTRIES_PER_SHARD: usize = 4_000;
const KEYS: u64 = 100_000;
const CLIENTS: u64 = 32;
const REQUESTS_PER_CLIENT: u64 = 20_000;

#[derive(Trace)]
struct Entry {
    key: u64,
    value: [u64; 12],
    newer: Edge<Entry>,
    older: Edge<Entry>,
    /// What was asked for before.
    related: Edge<Entry>,
}

impl Entry {
    fn new(key: u64) -> Gc<Entry> {
        let [newer, older, related] = [const { Edge::null() }; 3];
        Gc::new(Entry { key, value: [key; 12], newer, older, related })
    }
}

struct Shard {
    entries: HashMap<u64, Gc<Entry>>,
    /// The ring's beginning: `newer` leads to the oldest, `older` to the newest.
    ring: Gc<Entry>,
}

impl Shard {
    fn new() -> Shard {
        let ring = Entry::new(u64::MAX);
        ring.newer.set(Some(&ring));
        ring.older.set(Some(&ring));
        Shard { entries: HashMap::new(), ring }
    }

    fn take_out(entry: &Entry) {
        // It leads nowhere afterwards, but for `related`.
        if let (Some(newer), Some(older)) = (entry.newer.take(), entry.older.take()) {
            newer.older.set(Some(&older));
            older.newer.set(Some(&newer));
        }
    }

    fn put_newest(&self, entry: &Gc<Entry>) {
        let newest = self.ring.older.get().expect("a ring is closed");
        entry.older.set(Some(&newest));
        entry.newer.set(Some(&self.ring));
        newest.newer.set(Some(entry));
        self.ring.older.set(Some(entry));
    }

    /// The entry for a key, and whether it was there.
    fn get(&mut self, key: u64) -> (Gc<Entry>, bool) {
        if let Some(entry) = self.entries.get(&key).cloned() {
            Shard::take_out(&entry);
            self.put_newest(&entry);
            return (entry, true);
        }
        let entry = Entry::new(key);
        self.put_newest(&entry);
        self.entries.insert(key, entry.clone());
        if self.entries.len() > ENTRIES_PER_SHARD {
            let oldest = self.ring.newer.get().expect("a ring is closed");
            Shard::take_out(&oldest);
            self.entries.remove(&oldest.key);
        }
        (entry, false)
    }
}

fn client(shards: &[Mutex<Shard>], seed: u64, hits: &AtomicU64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut last: Option<Gc<Entry>> = None;
    for _ in 0..REQUESTS_PER_CLIENT {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Some are wanted much more often than others.
        let x = (random >> 11) as f64 / (1u64 << 53) as f64;
        let key = (x.powi(4) * KEYS as f64) as u64;
        let (entry, hit) = shards[(key % SHARDS) as usize].lock().get(key);
        assert!(entry.key == key && entry.value == [key; 12], "an entry was damaged");
        hits.fetch_add(hit.into(), Ordering::Relaxed);
        entry.related.set(last.as_ref());
        if let Some(further) = entry.related.get().and_then(|e| e.related.get()) {
            assert_eq!(further.value[11], further.key, "an entry was damaged");
        }
        last = Some(entry);
    }
}

fn main() -> ExitCode {
    let mut args = lexopt::Parser::from_env();
    let mut trace = None;
    loop {
        match args.next() {
            Ok(None) => break,
            Ok(Some(lexopt::Arg::Long("trace"))) => trace = args.value().ok(),
            _ => {
                eprintln!("usage: gc_cache [--trace FILE]");
                return ExitCode::from(2);
            }
        }
    }
    rt::run(move || {
        if let Some(path) = &trace {
            let file = std::fs::File::create(path).expect("the trace's file can be made");
            rt::trace::start(file).expect("tracing starts");
        }
        let shards: Arc<Vec<Mutex<Shard>>> = Arc::new((0..SHARDS).map(|_| Mutex::new(Shard::new())).collect());
        let hits = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                let (shards, hits) = (shards.clone(), hits.clone());
                rt::go(move || client(&shards, seed + 1, &hits))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("a client ends well"));
        let (requests, hits) = (CLIENTS * REQUESTS_PER_CLIENT, hits.load(Ordering::Relaxed));
        println!("{requests} requests, {} % of them hits", hits * 100 / requests);
        let entries: usize = shards.iter().map(|shard| shard.lock().entries.len()).sum();
        println!("{entries} entries are left");
        drop(shards);
        rt::gc::collect();
        if trace.is_some() {
            rt::trace::stop().expect("tracing stops");
        }
        let stats = rt::gc::stats();
        println!(
            "{} collections freed {} MB, and left {} bytes",
            stats.cycles,
            stats.freed_bytes >> 20,
            stats.marked_bytes
        );
        println!("{} pauses, {:.0?} in all, the longest {:.0?}", stats.pauses, stats.paused, stats.longest_pause);
        ExitCode::SUCCESS
    })
}

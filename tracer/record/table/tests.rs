//! What a table promises, single-threaded, under stress, and (cfg(loom)) in every interleaving of the insert race.

use super::*;

#[cfg(not(loom))]
mod plain {
    use super::*;
    use std::collections::{HashMap, HashSet};
    use std::sync::{Arc, Barrier};

    const MIB: usize = 1 << 20;

    fn entries(t: &Trie) -> HashMap<u32, Vec<u64>> {
        let mut all = HashMap::new();
        t.for_each(|id, words| assert!(all.insert(id, words.to_vec()).is_none(), "id {id} twice"));
        all
    }

    #[test]
    fn smoke() {
        let t = Trie::new(MIB);
        assert_eq!(t.put(&[1, 2, 3]), 1);
        assert_eq!(t.put(&[1, 2]), 2);
        assert_eq!(t.put(&[]), 3, "the empty slice is an entry like others");
        assert_eq!(t.put(&[1, 2, 3]), 1);
        assert_eq!(t.put(&[]), 3);
        assert_eq!(entries(&t), HashMap::from([(1, vec![1, 2, 3]), (2, vec![1, 2]), (3, vec![])]));
        assert_eq!(t.lost(), 0);
        assert_eq!(t.bytes(), 3 * 32 + 5 * 8);
    }

    #[test]
    fn many_keep_their_ids() {
        let n = if cfg!(miri) { 200 } else { 20_000 };
        let t = Trie::new(16 * MIB);
        let entry = |i: u64| (0..i % 13).map(|j| 0x5555_5555_0000 + i * 16 + j).collect::<Vec<_>>();
        let mut ids = HashMap::new();
        for i in 0..n {
            ids.entry(entry(i)).or_insert_with(|| t.put(&entry(i)));
        }
        for i in 0..n {
            assert_eq!(t.put(&entry(i)), ids[&entry(i)]);
        }
        let all = entries(&t);
        assert_eq!(all.len(), ids.len());
        assert!(ids.iter().all(|(words, id)| all[id] == *words));
    }

    /// Words that differ in one bit only, or are each other's permutation, must not share a hash.
    #[test]
    fn hash_separates_neighbours() {
        let base = [0x5555_5555_1000u64, 0x5555_5555_2000, 0x7fff_f7c0_1234, 0x5555_5555_1000, 7];
        let mut seen = HashSet::new();
        for len in 0..=base.len() {
            assert!(seen.insert(hash::words(99, &base[..len])));
            for (i, bit) in (0..len).flat_map(|i| (0..64).map(move |b| (i, b))) {
                let mut w = base;
                w[i] ^= 1 << bit;
                assert!(seen.insert(hash::words(99, &w[..len])), "len {len}, word {i}, bit {bit}");
            }
        }
        assert_ne!(hash::words(99, &[1, 2, 3, 4]), hash::words(99, &[3, 4, 1, 2]));
        assert_ne!(hash::words(99, &[0]), hash::words(99, &[0, 0]));
        // The bits that choose root and child slots must be spread: 4,096 consecutive PCs over 1,024 slots.
        let mut load = [0; 1024];
        (0..4096u64).for_each(|i| load[(hash::words(99, &[0x5555_5555_0000 + i]) >> 54) as usize] += 1);
        assert!(load.iter().all(|&n| n <= 16), "fullest slot {}", load.iter().max().unwrap());
    }

    /// B2: entries whose hashes are all equal form a list; it ends, and it is right.
    #[test]
    fn equal_hashes() {
        let n = if cfg!(miri) { 40 } else { 3_000 };
        let t = Trie::new(MIB);
        for h in [0, u64::MAX, 0x8000_0000_0000_0001] {
            let ids: Vec<_> = (0..n).map(|i| t.put_hashed(h, &[i, h])).collect();
            assert!((0..n).all(|i| t.put_hashed(h, &[i, h]) == ids[i as usize]));
            assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }
        assert_eq!(entries(&t).len(), 3 * n as usize);
    }

    /// B3: a full table answers 0 for what is new and the id for what it knows.
    #[test]
    fn full() {
        let t = Trie::new(4096);
        let ids: Vec<_> = (0..200u64).map(|i| t.put(&[i; 8])).collect();
        let fit = ids.iter().take_while(|&&id| id != 0).count();
        // The first granule is no name; an entry of eight words takes 96 bytes.
        assert_eq!(fit, (4096 - 8) / 96);
        assert!(ids[fit..].iter().all(|&id| id == 0));
        assert_eq!(t.lost(), 200 - fit as u64);
        assert!((0..fit).all(|i| t.put(&[i as u64; 8]) == ids[i]));
        assert!(t.bytes() <= 4096);
        assert_eq!(entries(&t).len(), fit);
        assert_eq!(Trie::new(0).put(&[1]), 0, "no memory at all is full, too");
        assert_eq!(t.put(&[0; 1000]), 0, "an entry longer than the table");
    }

    #[test]
    fn reset_starts_over() {
        let t = Trie::new(8 * MIB);
        for round in 0..3u64 {
            let n = if cfg!(miri) { 50 } else { 30_000 };
            for i in 0..n {
                assert_eq!(t.put(&[round, i, i, i]), i as u32 + 1);
            }
            let all = entries(&t);
            assert_eq!(all.len(), n as usize);
            assert!(all.values().all(|w| w[0] == round));
            // SAFETY: this thread alone uses the table.
            unsafe { t.reset() };
            assert_eq!((t.bytes(), t.lost(), entries(&t).len()), (0, 0, 0));
        }
    }

    /// The pages past the first megabyte go back to the system.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn reset_gives_memory_back() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let t = Trie::new(128 * MIB);
        let before = resident();
        (0..400_000u64).for_each(|i| _ = t.put(&[i; 20]));
        let full = resident();
        assert!(full - before > 64 * MIB, "{before} to {full}: the test itself does not use the memory");
        // SAFETY: this thread alone uses the table.
        unsafe { t.reset() };
        // Other tests run beside this one: be generous.
        assert!(resident() < full - 48 * MIB);
    }

    /// Threads that put the same entries in different orders agree on every id (B1).
    #[test]
    fn stress() {
        let seed = std::env::var("RT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| hash::seed() >> 1);
        println!("RT_SEED={seed}");
        let (threads, distinct, rounds) = if cfg!(miri) { (3, 20, 1) } else { (8, 4_000, 6) };
        for round in 0..rounds {
            let t = Arc::new(Trie::new(16 * MIB));
            let start = Arc::new(Barrier::new(threads));
            let workers = (0..threads as u64).map(|me| {
                let (t, start) = (t.clone(), start.clone());
                std::thread::spawn(move || {
                    let mut order: Vec<u64> = (0..distinct).collect();
                    let mut rng = hash::words(seed, &[me, round]);
                    for i in (1..order.len()).rev() {
                        rng = hash::words(rng, &[i as u64]);
                        // Half of the swaps stay close, so that threads meet on the same entry.
                        let j = if rng & 1 == 0 { i - (rng >> 1) as usize % i.min(4) } else { (rng >> 1) as usize % i };
                        order.swap(i, j);
                    }
                    start.wait();
                    order.into_iter().map(|i| (i, t.put(&[i, i ^ seed, i << 7]))).collect::<HashMap<_, _>>()
                })
            });
            let seen: Vec<_> = workers.collect::<Vec<_>>().into_iter().map(|w| w.join().unwrap()).collect();
            assert!(seen.iter().all(|ids| *ids == seen[0]), "threads disagree, RT_SEED={seed} round {round}");
            let all = entries(&t);
            assert_eq!(all.len(), distinct as usize, "an entry twice or lost, RT_SEED={seed} round {round}");
            assert!(seen[0].iter().all(|(&i, id)| all[id] == [i, i ^ seed, i << 7]));
        }
    }

    #[test]
    fn strings() {
        let t = StringTable::new(MIB);
        let known = ["", "a", "chan receive", "12345678", "123456789", "\0", "\0\0", "größer als acht"];
        for (i, s) in known.iter().enumerate() {
            assert_eq!(t.put(s), i as u32 + 1);
        }
        for (i, s) in known.iter().enumerate() {
            assert_eq!(t.put(s.as_bytes()), i as u32 + 1);
        }
        let mut seen = 0;
        t.for_each(|id, s| {
            assert_eq!(s, known[id as usize - 1].as_bytes());
            seen += 1;
        });
        assert_eq!(seen, known.len());
        // SAFETY: this thread alone uses the table.
        unsafe { t.reset() };
        assert_eq!(t.put("a"), 1);
    }

    #[test]
    fn strings_are_cut_between_characters() {
        let long = "x".repeat(1022);
        for (tail, kept) in
            [("", 0), ("ab", 2), ("abc", 2), ("é", 2), ("aé", 1), ("€", 0), ("€€", 0), ("a🦀", 1), ("🦀", 0)]
        {
            let s = format!("{long}{tail}");
            assert_eq!(cut(s.as_bytes()).len(), 1022 + kept, "tail {tail}");
            let t = StringTable::new(MIB);
            t.put(&s);
            t.for_each(|_, bytes| assert_eq!(bytes, &s.as_bytes()[..1022 + kept]));
        }
        assert_eq!(cut(&[0x80; 2000]).len(), 1024, "no UTF-8 at all");
        let t = StringTable::new(MIB);
        assert_eq!(t.put("y".repeat(5000)), t.put("y".repeat(1024)));
    }

    /// Run with `--release -- --ignored --nocapture bench`.
    #[test]
    #[ignore = "a measurement"]
    fn bench() {
        let entry = |i: u64, n: u64| (0..n).map(|j| 0x5555_5555_0000 + i * 64 + j * 4096).collect::<Vec<u64>>();
        for (distinct, frames) in [(1u64, 8u64), (100, 8), (1_000, 8), (10_000, 8), (100, 16), (100, 32)] {
            let t = Trie::new(64 * MIB);
            let all: Vec<_> = (0..distinct).map(|i| entry(i, frames)).collect();
            all.iter().for_each(|e| _ = t.put(e));
            let rounds = (2_000_000 / distinct).max(1);
            let best = (0..7)
                .map(|_| {
                    let at = std::time::Instant::now();
                    for _ in 0..rounds {
                        for e in &all {
                            std::hint::black_box(t.put(std::hint::black_box(e)));
                        }
                    }
                    at.elapsed().as_nanos() as f64 / (rounds * distinct) as f64
                })
                .fold(f64::MAX, f64::min);
            println!("put of an existing entry, {distinct:6} of {frames:2} frames: {best:5.1} ns");
        }
        let t = Trie::new(256 * MIB);
        let all: Vec<_> = (0..200_000).map(|i| entry(i, 8)).collect();
        let at = std::time::Instant::now();
        all.iter().for_each(|e| _ = t.put(e));
        println!("put of a new entry of 8 frames, cold: {:.1} ns", at.elapsed().as_nanos() as f64 / all.len() as f64);
    }
}

/// RUSTFLAGS="--cfg loom" cargo test --release -p gort-tracer --lib record::table
///
/// Each model also says which outcomes it must have met: loom prunes what it holds for equivalent, and goes wrong when a
/// thread's own load hides another's, so a model that proves nothing is easily written. (Hence the reader on the spawned
/// thread below: the other way round it never met a writer.)
#[cfg(loom)]
mod models {
    use super::*;
    use loom::{sync::Arc, thread};
    use std::{collections::BTreeSet, sync::Mutex};

    fn covers<T: Ord + Send + 'static + std::fmt::Debug>(
        outcomes: &[T],
        model: impl Fn() -> T + Send + Sync + 'static,
    ) {
        let met = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
        let meets = met.clone();
        loom::model(move || {
            let outcome = model();
            meets.lock().unwrap().insert(outcome);
        });
        assert!(met.lock().unwrap().iter().eq(outcomes), "{met:?}");
    }

    fn entries(t: &Trie) -> Vec<(Vec<u64>, u32)> {
        let mut all = Vec::new();
        t.for_each(|id, words| all.push((words.to_vec(), id)));
        all.sort();
        all
    }

    /// Two threads put the same content: one entry, one id, and it is readable. Nodes used: one, or two when both found
    /// the slot empty.
    #[test]
    fn same_content() {
        covers(&[1, 2], || {
            let t = Arc::new(Trie::new(0));
            let other = thread::spawn({
                let t = t.clone();
                move || t.put_hashed(5, &[7])
            });
            let mine = t.put_hashed(5, &[7]);
            assert_eq!(mine, other.join().unwrap());
            assert_eq!(entries(&t), [(vec![7], mine)]);
            t.bytes()
        });
    }

    /// Two threads put two entries each, one of them the same, all into the same chain of slots.
    #[test]
    fn same_and_different_content() {
        covers(&[3, 4], || {
            let t = Arc::new(Trie::new(0));
            let other = thread::spawn({
                let t = t.clone();
                move || (t.put_hashed(0, &[1]), t.put_hashed(0, &[2]))
            });
            let (two, three) = (t.put_hashed(0, &[2]), t.put_hashed(0, &[3]));
            let (one, two_there) = other.join().unwrap();
            assert_eq!(two, two_there);
            assert_eq!(entries(&t), [(vec![1], one), (vec![2], two), (vec![3], three)]);
            t.bytes()
        });
    }

    /// A reader beside a writer sees whole entries, and the first before the second.
    #[test]
    fn reader_beside_writer() {
        covers(&[0, 1, 2], || {
            let t = Arc::new(Trie::new(0));
            let reader = thread::spawn({
                let t = t.clone();
                move || entries(&t)
            });
            (t.put_hashed(0, &[1, 11]), t.put_hashed(0, &[2, 22]));
            let seen = reader.join().unwrap();
            assert_eq!(seen, [(vec![1, 11], 1), (vec![2, 22], 2)][..seen.len()]);
            seen.len()
        });
    }
}

//! Maps from ids to state: a hash that is one multiplication, seeded per map so that a file cannot choose collisions.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys are ids.
pub type IdMap<V> = HashMap<i64, V, Seed>;

/// The seed of one map.
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Default for Seed {
    fn default() -> Seed {
        Seed(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for Seed {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

/// Folds the two halves of a 128-bit product into one.
#[derive(Debug)]
pub struct Fold(u64);

impl Fold {
    fn fold(&mut self, v: u64) {
        let product = u128::from(self.0 ^ v) * 0xf39c_c060_5ced_c835_u128;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, v: u64) {
        self.fold(v);
    }

    fn write_i64(&mut self, v: i64) {
        self.fold(v as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

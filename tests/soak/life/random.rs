//! What is random, and the bytes that are written.

use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small, fast, and the same everywhere for the same seed.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0)
    }

    /// From 0 to `n - 1`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % (n.max(1) as u64)) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// A size from 1 to `most`, with as many below the square root as above it.
    pub fn size(&mut self, most: usize) -> usize {
        let part = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((most as f64).powf(part) as usize).clamp(1, most)
    }

    /// A range that is not empty, of a length that is not 0: all of it, half of the time.
    pub fn range(&mut self, len: usize) -> Range<usize> {
        if self.once_in(2) {
            return 0..len;
        }
        let take = self.size(len);
        let start = self.below(len - take + 1);
        start..start + take
    }

    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let at = self.below(among.len());
        among.get(at)
    }
}

/// `len` bytes that no other call returns: what a byte is depends on the call and on where it stands.
pub fn fresh_bytes(len: usize) -> Vec<u8> {
    static VERSION: AtomicU64 = AtomicU64::new(0);
    let version = VERSION.fetch_add(1, Ordering::Relaxed);
    let table = &*TABLE;
    let start = (scramble(version) % table.len() as u64) as usize;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&table[start..table.len().min(start + len)]);
    while bytes.len() < len {
        bytes.extend_from_slice(&table[..table.len().min(len - bytes.len())]);
    }
    bytes
}

/// Copied from instead of computed, since a debug build computes slowly. Its length is a prime, so that it never
/// repeats in step with a size that allocators like.
static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    const LEN: usize = 1_048_583;
    let mut rng = Rng::new(0xDA_CA90);
    (0..LEN).map(|_| rng.byte()).collect()
});

fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
